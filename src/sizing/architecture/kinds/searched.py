"""Layers of different sizes found by architecture search (Nemotron-NAS): each block lists its own."""

from sizing.architecture.config import Config
from sizing.architecture.kinds import feed_forwards, mixers
from sizing.architecture.kinds.attention import Heads, grouped_query, heads_of, hidden_size, matrix
from sizing.architecture.kinds.dense import dense_linears
from sizing.architecture.parts import FeedForward, Mixer
from sizing.architecture.traits import Traits
from sizing.errors import InputError

#: Widths are rounded up to a multiple of this.
ROUND_TO = 256


def _half(config: Config, index: int, *keys: str) -> Config:
    blocks = config.items("block_configs") or []
    block = blocks[index] if index < len(blocks) else None
    if not isinstance(block, dict):
        raise InputError(f"config block_configs has no object for block {index}")
    half = Config(block, f"block_configs[{index}]", config.warnings).level(*keys)
    if half is None:
        raise InputError(f"config block_configs[{index}] has no {keys[0]}")
    return half


@mixers.register("searched")
def searched_attention(config: Config, traits: Traits, index: int) -> Mixer:
    """Attention with its own number of KV heads, a single matrix, or nothing."""
    half = _half(config, index, "attention")
    if half.flag("no_op"):
        return Mixer(kind="none")
    hidden = hidden_size(config)
    if half.flag("replace_with_linear"):
        return Mixer(kind="none", linears=(matrix("self_attn.linear_attn", hidden, hidden),))
    sizes = heads_of(config)
    group = half.integer("n_heads_in_group", default=sizes.heads // sizes.kv_heads, kind="heads")
    kv_heads = half.integer("num_key_value_heads", default=max(1, sizes.heads // group), kind="heads")
    window = half.optional("window_length", low=0, kind="positions")
    sized = Heads(heads=sizes.heads, kv_heads=kv_heads, head_dim=sizes.head_dim, value_dim=sizes.value_dim)
    return grouped_query(config, traits, sized, "sliding" if window else "attention", window or None)


@feed_forwards.register("searched")
def searched_feed_forward(config: Config, traits: Traits, index: int) -> FeedForward:
    """A feed-forward with its own width, a single matrix, or nothing."""
    half = _half(config, index, "ffn", "mlp")
    if half.flag("no_op"):
        return FeedForward(kind="none")
    hidden = hidden_size(config)
    if half.flag("replace_with_linear"):
        return FeedForward(kind="dense", linears=(matrix("mlp.linear_mlp", hidden, hidden),))
    width = half.integer("intermediate_size", default=0, low=0, kind="intermediate")
    if not width:
        multiple = half.number("ffn_mult", default=0.0)
        width = -(-int(2 * multiple * hidden / 3) // ROUND_TO) * ROUND_TO
    if not 0 < width <= 10**7:
        raise InputError(f"config block_configs[{index}].ffn gives a width of {width}")
    return FeedForward(kind="dense", linears=dense_linears(hidden, width, gated=True, bias=False))
