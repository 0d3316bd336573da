"""Which kind of token mixer and of feed-forward each layer has, from every way a config says it."""

from sizing.architecture.config import Config
from sizing.architecture.kinds.attention import WINDOW, on, window_of
from sizing.architecture.kinds.moe import experts_of
from sizing.architecture.traits import Traits
from sizing.errors import InputError


LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "num_decoder_layers")

#: Names in ``layer_types`` and their kin -> kind of mixer.
NAMED = {
    "full_attention": "attention", "attention": "attention", "global_attention": "attention", "full": "attention",
    "sliding_attention": "sliding", "local_attention": "sliding", "sliding": "sliding", "swa": "sliding",
    "chunked_attention": "chunked", "chunked": "chunked",
    "linear_attention": "linear", "lightning_attention": "linear", "mamba": "linear", "mamba2": "linear",
    "linear": "linear", "conv": "linear", "recurrent": "linear", "hybrid": "linear",
    "deepseek_sparse_attention": "sparse", "sparse_attention": "sparse",
}  # fmt: skip


def layer_count(config: Config) -> int:
    """How many layers, or blocks where the config counts blocks."""
    return config.integer(*LAYERS, required=True, kind="layers", low=1)


def mixer_kind(config: Config, traits: Traits, index: int) -> str:
    """Kind of token mixer of a layer."""
    listed = config.texts("layer_types", "layers_block_type")
    if listed and len(listed) >= index + 1:
        name = listed[index]
        if name not in NAMED:
            raise InputError(f"config layer_types[{index}] is {name!r}; known: {', '.join(NAMED)}")
        kind = NAMED[name]
        return "attention" if kind == "sliding" and window_of(config) is None else kind
    if config.has("attention_chunk_size"):
        return "attention" if _nope(config, index) else "chunked"
    return "sliding" if _slides(config, traits, index) else "attention"


def _nope(config: Config, index: int) -> bool:
    """Whether a Llama-4 layer has no rotary positions, and so no chunks."""
    rope = config.items("no_rope_layers")
    if rope and len(rope) > index:
        return not rope[index]
    every = config.integer("no_rope_layer_interval", default=4, low=0, kind="layers")
    return bool(every) and (index + 1) % every == 0


def _slides(config: Config, traits: Traits, index: int) -> bool:
    if window_of(config) is None or not config.has(*WINDOW):
        return False
    if config.has("use_sliding_window"):
        if not config.flag("use_sliding_window"):
            return False
        return index >= config.integer("max_window_layers", default=0, low=0, kind="layers")
    period = config.integer(
        "sliding_window_pattern", "_sliding_window_pattern", default=traits.sliding_period, low=0, kind="layers"
    )
    if traits.sliding == "none":
        return False
    return not period or (index + 1) % period != 0


def feed_forward_kind(config: Config, traits: Traits, index: int) -> str:
    """Kind of feed-forward of a layer."""
    if not experts_of(config, index):
        return "dense"
    return "moe" if routes(config, traits, index) else "dense"


def routes(config: Config, traits: Traits, index: int) -> bool:
    """Whether a layer of a model with experts routes to them."""
    listed = config.texts("mlp_layer_types")
    if listed and len(listed) > index:
        return listed[index] in {"sparse", "moe"}
    frequency = config.get("moe_layer_freq")
    if isinstance(frequency, list):
        return bool(frequency[index]) if index < len(frequency) else True
    if index < config.integer("first_k_dense_replace", "num_dense_layers", default=0, low=0, kind="layers"):
        return False
    only = config.items("mlp_only_layers")
    if only and index in only:
        return False
    for every in ("moe_layer_freq", "interleave_moe_layer_step", "decoder_sparse_step"):
        if config.has(every):
            step = config.integer(every, low=0, kind="layers")
            shift = 0 if every == "moe_layer_freq" else 1
            return bool(step) and (index + shift) % step == 0
    if config.has("expert_layer_period"):
        period = config.integer("expert_layer_period", kind="layers")
        return index % period == config.integer("expert_layer_offset", default=0, low=0, kind="layers")
    return True


__all__ = ["LAYERS", "feed_forward_kind", "layer_count", "mixer_kind", "on", "routes"]
