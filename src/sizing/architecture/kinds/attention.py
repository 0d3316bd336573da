"""Softmax attention with multi-head, grouped or single keys and values; full, sliding or chunked."""

from dataclasses import dataclass, replace

from sizing.architecture.config import Config
from sizing.architecture.kinds import mixers
from sizing.architecture.parts import Linear, Mixer
from sizing.architecture.traits import Traits
from sizing.errors import InputError


HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attn_heads", "decoder_attention_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "num_query_groups", "kv_n_heads")
HEAD_DIM = ("head_dim", "attention_head_dim", "attention_head_size", "kv_channels", "d_kv")
HIDDEN = ("hidden_size", "n_embd", "d_model", "dim", "model_dim")
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


def heads_of(config: Config, index: int = 0) -> Heads:
    """Head counts and widths of a layer's attention, from any of their spellings."""
    heads = config.per_layer(index, *HEADS, default=0, low=1, kind="heads")
    if not heads:
        raise InputError(f"config has no {config.name_of('num_attention_heads')} (nor n_head, num_heads)")
    kv_heads = _kv_heads(config, index, heads)
    head_dim = config.per_layer(index, *HEAD_DIM, default=0, low=1, kind="head_dim")
    if not head_dim:
        hidden = hidden_size(config)
        if hidden % heads:
            raise InputError(f"config: {hidden} is not a multiple of {heads} heads and head_dim is absent")
        head_dim = hidden // heads
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
    if style == "full":
        return (sizes.heads + sizes.kv_heads) * sizes.head_dim
    if style == "layer":  # one weight and bias an element of every head
        return 2 * (sizes.heads + sizes.kv_heads) * sizes.head_dim
    if style == "heads":  # one weight for each head and element of it
        return (sizes.heads + sizes.kv_heads) * sizes.head_dim
    if style == "head_bias":
        return 4 * sizes.head_dim
    return 2 * sizes.head_dim


def grouped_query(config: Config, traits: Traits, sizes: Heads, kind: str, window: int | None) -> Mixer:
    """Attention with matrices q, k, v and o.

    A token leaves ``kv_heads * (head_dim + value_dim)`` elements (Ainslie et al. 2023, GQA).
    """
    hidden = hidden_size(config)
    bias = on(config, traits.qkv_bias)
    gate = 2 if on(config, "attn_output_gate", default=traits.defaults.get("attn_output_gate") is True) else 1
    rows = sizes.heads * sizes.head_dim * gate
    keys, values = sizes.kv_heads * sizes.head_dim, sizes.kv_heads * sizes.value_dim
    made = {"inputs": hidden, "group": "qkv", "role": "attention"}
    linears = (
        Linear(name="self_attn.q_proj", outputs=rows, bias_elements=rows * bias, heads=sizes.heads, **made),
        Linear(
            name="self_attn.k_proj", outputs=keys, bias_elements=keys * bias, shard="kv", heads=sizes.kv_heads, **made
        ),
        Linear(
            name="self_attn.v_proj",
            outputs=values,
            bias_elements=values * bias,
            shard="kv",
            heads=sizes.kv_heads,
            **made,
        ),
        Linear(
            name="self_attn.o_proj",
            inputs=sizes.heads * sizes.value_dim,
            outputs=hidden,
            bias_elements=hidden * on(config, traits.o_bias),
            shard="row",
        ),
    )
    return Mixer(
        kind=kind,
        linears=linears,
        other_parameters=qk_norm_elements(config, traits, sizes),
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        value_dim=sizes.value_dim,
        window=window,
        kv_elements_per_token=keys + values,
    )


def window_of(config: Config, *keys: str) -> int | None:
    """Tokens of the window; None when there is none, or when it is no shorter than the longest context."""
    window = config.optional(*(keys or WINDOW), low=0, kind="positions")
    longest = config.optional("max_position_embeddings", "n_positions", "max_seq_len", kind="positions", low=0)
    if not window or (longest and window >= longest):
        return None
    return window


@mixers.register("attention")
def full_attention(config: Config, traits: Traits, index: int) -> Mixer:
    """Attention to every earlier token."""
    return grouped_query(config, traits, heads_of(config, index), "attention", None)


@mixers.register("sliding")
def sliding_attention(config: Config, traits: Traits, index: int) -> Mixer:
    """Attention to the last ``sliding_window`` tokens (Beltagy et al. 2020)."""
    sizes = heads_of(config, index)
    window = window_of(config)
    return grouped_query(config, traits, sizes, "attention" if window is None else "sliding", window)


@mixers.register("chunked")
def chunked_attention(config: Config, traits: Traits, index: int) -> Mixer:
    """Attention inside chunks of ``attention_chunk_size`` tokens (Llama 4)."""
    window = window_of(config, "attention_chunk_size", "chunk_size_attention")
    return grouped_query(config, traits, heads_of(config, index), "attention" if window is None else "chunked", window)


@mixers.register("none")
def no_attention(config: Config, traits: Traits, index: int) -> Mixer:
    """No token mixer in this block."""
    return replace(Mixer(kind="none"))
