"""The shape of a decoder, from a ``config.json`` or from the few that come with the profiler."""

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class BadInput(ValueError):  # noqa: N818 - reads as the answer it is
    """Something asked for that can't be measured; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape:
    """Sizes of a decoder on one GPU. All widths in elements.

    Attributes
    ----------
    name
        Model.
    layers, dense_layers
        Layers, and how many at the front have a dense feed-forward although the others have experts. [layer]
    hidden, intermediate, vocab
        Width of the model, of the dense feed-forward on this GPU, of the vocabulary on this GPU.
    heads, kv_heads, head_dim
        Query and KV heads on this GPU, and their width.
    qk_norm, qkv_bias
        Queries and keys are normalised; their projections have a bias.
    experts, top_k, moe_intermediate, shared_intermediate
        Routed experts, how many a token goes to, width of one and of the shared ones on this GPU.
    q_lora, kv_lora, nope_dim, rope_dim, value_dim
        Widths of multi-head latent attention; ``kv_lora`` 0: plain attention.
    rope_theta
        Base of the rotary embedding. [1]
    tp
        Tensor-parallel GPUs that the widths are already divided by. [gpu]
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    dense_layers: int = 0
    qk_norm: bool = False
    qkv_bias: bool = False
    experts: int = 0
    top_k: int = 0
    moe_intermediate: int = 0
    shared_intermediate: int = 0
    q_lora: int = 0
    kv_lora: int = 0
    nope_dim: int = 0
    rope_dim: int = 0
    value_dim: int = 0
    rope_theta: float = 10000.0
    tp: int = 1

    @property
    def mla(self) -> bool:
        """Multi-head latent attention."""
        return self.kv_lora > 0

    def has_experts(self, layer: int) -> bool:
        """Whether that layer's feed-forward is a mixture of experts."""
        return self.experts > 0 and layer >= self.dense_layers

    @property
    def weight_bytes(self) -> float:
        """Weights in 16 bits, embedding and head counted apart. [B]"""
        attention = sum(n * k for n, k in self.attention_linears().values())
        if self.mla:
            attention += self.heads * self.kv_lora * (self.nope_dim + self.value_dim)
        dense = 3 * self.hidden * self.intermediate
        expert = self.hidden * (self.experts + 3 * self.experts * self.moe_intermediate)
        sparse = expert + 3 * self.hidden * self.shared_intermediate
        with_experts = sum(self.has_experts(i) for i in range(self.layers))
        mlp = dense * (self.layers - with_experts) + sparse * with_experts
        return 2.0 * (self.layers * attention + mlp + 2 * self.vocab * self.hidden)

    @property
    def kv_bytes_per_token(self) -> float:
        """KV cache of a token in 16 bits. [B]"""
        width = self.kv_lora + self.rope_dim if self.mla else 2 * self.kv_heads * self.head_dim
        return 2.0 * self.layers * width

    def attention_linears(self) -> dict[str, tuple[int, int]]:
        """Outputs and inputs of the projections around attention, the absorbed ones left out."""
        if not self.mla:
            return {
                "qkv": ((self.heads + 2 * self.kv_heads) * self.head_dim, self.hidden),
                "out": (self.hidden, self.heads * self.head_dim),
            }
        query = self.heads * (self.nope_dim + self.rope_dim)
        down = {
            "kv_down": (self.kv_lora + self.rope_dim, self.hidden),
            "out": (self.hidden, self.heads * self.value_dim),
        }
        if self.q_lora:
            return {"q_down": (self.q_lora, self.hidden), "q_up": (query, self.q_lora), **down}
        return {"q": (query, self.hidden), **down}

    def per_gpu(self, tp: int) -> "DecoderShape":
        """The same decoder divided over ``tp`` GPUs; KV heads are replicated beyond their number."""
        if tp == 1:
            return self
        for what in ("heads", "intermediate", "moe_intermediate", "shared_intermediate"):
            if getattr(self, what) % tp:
                raise BadInput(f"--tp {tp}: {self.name} has {getattr(self, what)} {what}, which it does not divide")
        return dataclasses.replace(
            self,
            heads=self.heads // tp,
            kv_heads=max(1, self.kv_heads // tp),
            intermediate=self.intermediate // tp,
            moe_intermediate=self.moe_intermediate // tp,
            shared_intermediate=self.shared_intermediate // tp,
            vocab=-(-self.vocab // tp),
            tp=tp,
        )

    def with_layers(self, layers: int) -> "DecoderShape":
        """The same decoder with fewer layers."""
        return dataclasses.replace(self, layers=min(layers, self.layers))


def shape_from_config(config: Mapping[str, Any], name: str) -> DecoderShape:
    """Read the sizes from the content of a ``config.json``.

    Parameters
    ----------
    config
        Its content; a multimodal model's ``text_config`` is looked into.
    name
        What to call the model.
    """
    config = config.get("text_config") or config
    kind = str(config.get("model_type", ""))

    def number(key: str, default: int | None = None) -> int:
        value = config.get(key)
        if value is None and default is None:
            raise BadInput(f"--model {name}: its config has no {key!r}; only plain decoders can be built")
        if not isinstance(value if value is not None else default, int):
            raise BadInput(f"--model {name}: {key} is {value!r}, not a number")
        return int(value if value is not None else default or 0)

    if (
        "linear_attention" in (config.get("layer_types") or ())
        or "mamba" in kind
        or config.get("hybrid_override_pattern")
    ):
        raise BadInput(
            f"--model {name}: recurrent layers can't be built; profile a decoder with attention in every layer"
        )
    heads, hidden = number("num_attention_heads"), number("hidden_size")
    mla = number("kv_lora_rank", 0) > 0
    nope, rope = number("qk_nope_head_dim", 0), number("qk_rope_head_dim", 0)
    experts = number("num_experts", 0) or number("n_routed_experts", 0) or number("num_local_experts", 0)
    expert_width = number("moe_intermediate_size", 0) or (number("intermediate_size") if experts else 0)
    return DecoderShape(
        name=name,
        layers=number("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=heads if mla else number("num_key_value_heads", heads),
        head_dim=nope + rope if mla else number("head_dim", hidden // heads),
        intermediate=number("intermediate_size"),
        vocab=number("vocab_size"),
        dense_layers=number("first_k_dense_replace", 0),
        qk_norm=kind.startswith("qwen3"),
        qkv_bias=bool(config.get("attention_bias", False)) or kind.startswith("qwen2"),
        experts=experts,
        top_k=number("num_experts_per_tok", 0),
        moe_intermediate=expert_width if experts else 0,
        shared_intermediate=number("n_shared_experts", 0) * expert_width
        or (number("shared_expert_intermediate_size", 0) if experts else 0),
        q_lora=number("q_lora_rank", 0),
        kv_lora=number("kv_lora_rank", 0),
        nope_dim=nope,
        rope_dim=rope if mla else number("head_dim", hidden // heads),
        value_dim=number("v_head_dim", 0) if mla else number("head_dim", hidden // heads),
        rope_theta=float(config.get("rope_theta") or 10000.0),
    )


_READ: dict[str, DecoderShape] = {}


def built_in() -> dict[str, dict[str, Any]]:
    """Configs that come with the profiler, by model name."""
    with Path(__file__).with_name("shapes.toml").open("rb") as file:
        return tomllib.load(file)


def read_shape(model: str) -> DecoderShape:
    """The shape of a model.

    Parameters
    ----------
    model
        A built-in name, a ``config.json``, a folder that holds one, or the name of one read before.
    """
    if model in _READ:
        return _READ[model]
    path = Path(model)
    file = path / "config.json" if path.is_dir() else path
    if file.is_file():
        try:
            config = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise BadInput(f"--model {model}: {file} can't be read as JSON ({error})") from None
        if not isinstance(config, dict):
            raise BadInput(f"--model {model}: {file} is not a config.json (no object at its top)")
        shape = shape_from_config(config, str(config.get("_name_or_path") or file.resolve().parent.name))
        _READ[shape.name] = shape
        return shape
    known = {name.lower(): name for name in built_in()}
    short = {name.split("/")[-1]: full for name, full in known.items()}
    name = known.get(model.lower()) or short.get(model.lower())
    if name is None:
        raise BadInput(
            f"--model {model}: no such file, and not one of {', '.join(n for n in built_in() if 'toy' not in n)}; "
            "give the folder or the config.json of the model"
        )
    return shape_from_config(built_in()[name], name)
