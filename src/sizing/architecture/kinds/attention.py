"""Softmax attention with multi-head, grouped or single keys and values; full, sliding or chunked."""

from dataclasses import dataclass, replace

from sizing.architecture.config import Config
from sizing.architecture.kinds import mixers
from sizing.architecture.parts import Linear, Mixer
from sizing.architecture.traits import Traits
from sizing.errors import InputError

HEADS = (
    "decoder_attention_heads", "num_attention_heads", "n_head", "n_heads", "num_heads", "attn_heads", "num_q_heads",
)  # fmt: skip
KV_HEADS = (
    "num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "num_query_groups", "kv_n_heads",
    "decoder_num_key_value_heads",
)  # fmt: skip
HEAD_DIM = ("head_dim", "attention_head_dim", "attention_head_size", "kv_channels", "d_kv", "head_size")
HIDDEN = ("hidden_size", "n_embd", "d_model", "dim", "model_dim", "n_embed")
WINDOW = ("sliding_window", "sliding_window_size", "attention_window_size", "local_attention", "window_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Sizes of one attention: query heads, KV heads, key and value widths."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int


def hidden_size(config: Config) -> int:
    """Width of the residual stream. [element]"""
    return config.integer(*HIDDEN, required=True)


def on(config: Config, what: bool | str, default: bool = False) -> bool:
    """A trait that is true, false, or the name of a flag (``!name`` for its contrary, ``a|b`` for either)."""
    if isinstance(what, bool):
        return what
    if what.startswith("!"):
        return not on(config, what[1:], default)
    return config.flag(*what.split("|"), default=default)


def heads_of(config: Config, index: int = 0, prefix: str = "") -> Heads:
    """Head counts and widths of a layer's attention, from any of their spellings.

    Parameters
    ----------
    config, index
        The config, and the layer for fields that list one value a layer.
    prefix
        ``swa_`` or ``global_``: fields of that spelling win, for layers of that kind.
    """
    base = _plain_heads(config, index)
    if not prefix:
        return base
    heads = config.per_layer(index, f"{prefix}num_attention_heads", default=base.heads, low=1, kind="heads")
    kv_names = (f"{prefix}num_key_value_heads", f"num_{prefix}key_value_heads")
    kv_heads = config.per_layer(index, *kv_names, default=base.kv_heads, low=1, kind="heads")
    head_dim = config.per_layer(index, f"{prefix}head_dim", default=base.head_dim, low=1, kind="head_dim")
    plain_value = head_dim if base.value_dim == base.head_dim else base.value_dim
    value_dim = config.per_layer(index, f"{prefix}v_head_dim", default=plain_value, low=1, kind="head_dim")
    return Heads(heads=heads, kv_heads=kv_heads, head_dim=head_dim, value_dim=value_dim)


def _plain_heads(config: Config, index: int) -> Heads:
    heads = config.per_layer(index, *HEADS, default=0, low=1, kind="heads")
    if not heads:
        raise InputError(f"config has no {config.name_of('num_attention_heads')} (nor n_head, num_heads)")
    kv_heads = _kv_heads(config, index, heads)
    head_dim = config.per_layer(index, *HEAD_DIM, default=0, low=1, kind="head_dim")
    if not head_dim:
        hidden = hidden_size(config)
        if hidden % heads:
            config.warn(f"{hidden} is not a multiple of {heads} heads and head_dim is absent: rounded down")
        head_dim = hidden // heads
        if not head_dim:
            raise InputError(f"config: {heads} heads for a width of {hidden}, and no head_dim")
    value_dim = config.per_layer(index, "v_head_dim", "value_head_dim", default=head_dim, low=1, kind="head_dim")
    if kv_heads > heads:
        config.warn(f"{kv_heads} KV heads for {heads} query heads: taken as {heads}")
        kv_heads = heads
    return Heads(heads=heads, kv_heads=kv_heads, head_dim=head_dim, value_dim=value_dim)


def _kv_heads(config: Config, index: int, heads: int) -> int:
    if config.has("multi_query_attention", "multi_query_group_num"):
        several = config.flag("multi_query_attention", default=True)
        return config.integer("multi_query_group_num", default=1, kind="heads") if several else heads
    if config.flag("multi_query") and not config.flag("new_decoder_architecture"):
        return 1
    attn = config.raw.get("attn_config")
    if isinstance(attn, dict) and not config.has(*KV_HEADS):
        return Config(attn, "attn_config", config.warnings).integer(*KV_HEADS, default=heads, kind="heads")
    return config.per_layer(index, *KV_HEADS, default=heads, low=1, kind="heads")


def qk_norm_elements(config: Config, traits: Traits, sizes: Heads) -> int:
    """Elements of the norms of queries and keys. [element]"""
    style, _, flag = traits.qk_norm.partition(":")
    if not style or (flag and not on(config, flag)):
        return 0
    if style in {"full", "heads"}:  # one weight an element of every head
        return (sizes.heads + sizes.kv_heads) * sizes.head_dim
    return (4 if style == "head_bias" else 2) * sizes.head_dim


def matrix(
    name: str, inputs: int, outputs: int, *, shard: str = "column", bias: bool = False, heads: int = 0, group: str = ""
) -> Linear:
    """One matrix of a token mixer."""
    return Linear(
        name=name,
        inputs=inputs,
        outputs=outputs,
        shard=shard,  # type: ignore[arg-type]
        bias_elements=outputs if bias else 0,
        heads=heads,
        group=group,
    )


def grouped_query(
    config: Config, traits: Traits, sizes: Heads, kind: str, window: int | None, *, keys_are_values: bool = False
) -> Mixer:
    """Attention with matrices q, k, v and o.

    A token leaves ``kv_heads * (head_dim + value_dim)`` elements (Ainslie et al. 2023, GQA).
    """
    hidden = hidden_size(config)
    bias = on(config, traits.qkv_bias)
    gated = config.flag("attn_output_gate") or traits.attention_gate == "query"
    queries = sizes.heads * sizes.head_dim * (2 if gated else 1)
    keys, values = sizes.kv_heads * sizes.head_dim, sizes.kv_heads * sizes.value_dim
    linears = [
        matrix("self_attn.q_proj", hidden, queries, bias=bias, heads=sizes.heads, group="qkv"),
        matrix("self_attn.k_proj", hidden, keys, shard="kv", bias=bias, heads=sizes.kv_heads, group="qkv"),
    ]
    if not keys_are_values:
        linears.append(
            matrix("self_attn.v_proj", hidden, values, shard="kv", bias=bias, heads=sizes.kv_heads, group="qkv")
        )
    wide = sizes.heads * sizes.value_dim
    linears.append(matrix("self_attn.o_proj", wide, hidden, shard="row", bias=on(config, traits.o_bias)))
    linears += output_gate(config, traits, hidden, sizes.heads, wide)
    sinks = sizes.heads if traits.sinks == "all" or (traits.sinks == "sliding" and kind == "sliding") else 0
    return Mixer(
        kind=kind,
        linears=tuple(linears),
        other_parameters=qk_norm_elements(config, traits, sizes) + sinks,
        norm_spans_heads=traits.qk_norm.partition(":")[0] == "full",
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        value_dim=sizes.value_dim,
        window=window,
        kv_elements_per_token=keys + values,
    )


def output_gate(config: Config, traits: Traits, hidden: int, heads: int, wide: int) -> list[Linear]:
    """The gate that some models put on the output of attention."""
    style, _, flag = traits.attention_gate.partition(":")
    if style not in {"head", "full"} or (flag and not on(config, flag)):
        return []
    if isinstance(config.raw.get("gating"), str):
        style = "full" if config.text("gating") in {"per-element", "per_element", "full"} else "head"
    return [matrix("self_attn.g_proj", hidden, heads if style == "head" else wide, heads=heads)]


def window_of(config: Config, *keys: str, index: int = 0) -> int | None:
    """Tokens of the window; None when there is none, or when it is no shorter than the longest context."""
    window = config.per_layer(index, *(keys or WINDOW), default=0, low=0, kind="positions")
    longest = config.optional("max_position_embeddings", "n_positions", "max_seq_len", kind="positions", low=0)
    if not window or (longest and window >= longest):
        return None
    return window


def shared_cache(config: Config, index: int, mixer: Mixer) -> Mixer:
    """The last ``num_kv_shared_layers`` layers read an earlier layer's cache and have no keys of their own."""
    shared = config.integer("num_kv_shared_layers", default=0, low=0, kind="layers")
    layers = config.integer("num_hidden_layers", default=0, low=0, kind="layers")
    if not shared or index < layers - shared:
        return mixer
    own = tuple(linear for linear in mixer.linears if linear.shard != "kv")
    norm = mixer.head_dim if mixer.other_parameters else 0
    return replace(mixer, linears=own, other_parameters=norm, kv_elements_per_token=0, shares_cache=True)


@mixers.register("attention")
def full_attention(config: Config, traits: Traits, index: int) -> Mixer:
    """Attention to every earlier token."""
    prefix = "global_" if config.has("global_head_dim", "num_global_key_value_heads") else ""
    alike = bool(prefix) and config.flag("attention_k_eq_v")
    sizes = heads_of(config, index, prefix if not prefix or alike or config.has("global_head_dim") else "")
    if prefix and not alike:  # num_global_key_value_heads counts only where keys are values (Gemma 4)
        sizes = replace(sizes, kv_heads=heads_of(config, index).kv_heads)
    mixer = grouped_query(config, traits, sizes, "attention", None, keys_are_values=alike)
    return shared_cache(config, index, mixer)


@mixers.register("sliding")
def sliding_attention(config: Config, traits: Traits, index: int) -> Mixer:
    """Attention to the last ``sliding_window`` tokens (Beltagy et al. 2020)."""
    window = window_of(config, index=index)
    sizes = heads_of(config, index, "swa_")
    mixer = grouped_query(config, traits, sizes, "attention" if window is None else "sliding", window)
    return shared_cache(config, index, mixer)


@mixers.register("chunked")
def chunked_attention(config: Config, traits: Traits, index: int) -> Mixer:
    """Attention inside chunks of ``attention_chunk_size`` tokens (Llama 4)."""
    window = window_of(config, "attention_chunk_size", "chunk_size_attention")
    return grouped_query(config, traits, heads_of(config, index), "attention" if window is None else "chunked", window)


@mixers.register("cross")
def cross_attention(config: Config, traits: Traits, index: int) -> Mixer:
    """Attention to an image's tokens only (Llama 3.2 Vision): text leaves nothing in its cache."""
    sizes = heads_of(config, index)
    mixer = grouped_query(config, traits, sizes, "cross", None)
    config.warn("cross-attention layers cache an image's keys and values; they are not in the bytes of a text token")
    return replace(mixer, other_parameters=2 * sizes.head_dim + 2, kv_elements_per_token=0)


@mixers.register("decoder_with_encoder")
def attention_to_an_encoder(config: Config, traits: Traits, index: int) -> Mixer:
    """Attention to earlier tokens, then to an encoder's output, which is cached once a sequence (Whisper, BART)."""
    sizes = heads_of(config, index)
    own = grouped_query(config, traits, sizes, "attention", None)
    crossed = tuple(replace(linear, name=linear.name.replace("self_attn", "encoder_attn")) for linear in own.linears)
    keyless = 2 * hidden_size(config) if config.text("model_type") == "whisper" else 0  # no bias on keys
    linears = tuple(
        replace(linear, bias_elements=0) if keyless and linear.name.endswith("k_proj") else linear
        for linear in (*own.linears, *crossed)
    )
    source = config.integer("max_source_positions", default=0, low=0, kind="positions")
    return replace(own, linears=linears, conv_elements=source * int(own.kv_elements_per_token))


@mixers.register("encoder")
def bidirectional(config: Config, traits: Traits, index: int) -> Mixer:
    """Attention in both directions; nothing is cached."""
    mixer = grouped_query(config, traits, heads_of(config, index), "encoder", None)
    return replace(mixer, kv_elements_per_token=0)


@mixers.register("none")
def no_attention(config: Config, traits: Traits, index: int) -> Mixer:
    """No token mixer in this block."""
    return Mixer(kind="none")
