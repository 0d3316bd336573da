"""Which kind of token mixer and of feed-forward each layer has, from every way a config says it."""

from sizing.architecture.config import Config
from sizing.architecture.kinds.attention import WINDOW, window_of
from sizing.architecture.kinds.mamba import HEAD_DIM2, HEADS2, STATE
from sizing.architecture.kinds.moe import experts_of
from sizing.architecture.traits import Traits
from sizing.errors import InputError

LAYERS = ("decoder_layers", "num_decoder_layers", "num_hidden_layers", "n_layer", "n_layers", "num_layers")

#: Names in ``layer_types`` and their kin -> ``attention``, ``sliding``, ``chunked``, ``linear``, ``compressed``
#: or, for models that count blocks, ``moe`` and ``dense``.
NAMED = {
    "full_attention": "attention", "attention": "attention", "global_attention": "attention", "full": "attention",
    "global": "attention", "sliding_attention": "sliding", "local_attention": "sliding", "sliding": "sliding",
    "local": "sliding", "swa": "sliding", "sliding_window_attention": "sliding", "chunked_attention": "chunked",
    "chunked": "chunked", "linear_attention": "linear", "lightning_attention": "linear", "mamba": "linear",
    "mamba2": "linear", "linear": "linear", "conv": "linear", "recurrent": "linear", "gated_deltanet": "linear",
    "kda": "linear", "hybrid": "hybrid", "deepseek_sparse_attention": "sparse", "sparse_attention": "sparse",
    "minimax_m3_sparse": "sparse", "dsa": "sparse", "indexed_attention": "sparse", "hybrid_sliding": "sliding",
    "reference_sliding_attention": "sliding", "cross_attention": "cross", "compressed_sparse_attention": "compressed",
    "heavily_compressed_attention": "compressed", "moe": "moe", "mlp": "dense", "dense": "dense",
}  # fmt: skip
#: Letters of ``hybrid_override_pattern`` (Nemotron-H), one a block.
LETTERS = {"M": "linear", "*": "attention", "-": "dense", "E": "moe", "G": "linear"}


def layer_count(config: Config) -> int:
    """How many layers, or blocks where the config counts blocks."""
    if config.has(*LAYERS):
        halves = 2 if config.has("zero_expert_num") else 1  # LongCat: two attentions and feed-forwards a layer
        return halves * config.integer(*LAYERS, kind="layers", low=1)
    for key in ("hybrid_override_pattern", "layers_block_type", "layer_types", "block_configs"):
        value = config.get(key)
        if isinstance(value, str | list) and value:
            return min(len(value), 2_000)
    return config.integer(*LAYERS, required=True, kind="layers", low=1)


def kinds_of(config: Config, traits: Traits, index: int) -> tuple[str, str]:
    """Kinds of token mixer and feed-forward of a layer; blocks have one of the two."""
    block = _block(config, index)
    if block in {"dense", "moe"}:
        return "none", block
    if block is not None:
        return _concrete(config, traits, block, index), "none"
    mixer = _concrete(config, traits, mixer_kind(config, traits, index), index)
    return mixer, feed_forward_kind(config, traits, index)


def _block(config: Config, index: int) -> str | None:
    """Kind of a block where a config lists blocks rather than layers, else None."""
    letters = config.get("hybrid_override_pattern")
    if isinstance(letters, str) and letters:
        if index >= len(letters) or letters[index] not in LETTERS:
            shown = letters[index] if index < len(letters) else "nothing"
            raise InputError(
                f"config hybrid_override_pattern has {shown!r} for block {index}; known: {''.join(LETTERS)}"
            )
        return LETTERS[letters[index]]
    listed = config.texts("layers_block_type", "layer_types")
    if listed and {"moe", "mlp"} & set(listed) and index < len(listed):
        return _named(config, listed[index], index)
    return None


def _named(config: Config, name: str, index: int) -> str:
    if name not in NAMED:
        raise InputError(f"config layer_types[{index}] is {name!r}; known: {', '.join(NAMED)}")
    return NAMED[name]


def mixer_kind(config: Config, traits: Traits, index: int) -> str:
    """Kind of token mixer of a layer, before it is known which recurrence or attention it is."""
    listed = config.texts("layer_types", "layers_block_type")
    if listed:
        if index >= len(listed):
            config.warn(f"layer_types lists {len(listed)} layers: the rest follow its order again")
        return _slid(config, _named(config, listed[index % len(listed)], index))
    if index in (config.items("cross_attention_layers") or []):
        return "cross"
    hybrid = _hybrid(config, traits, index)
    if hybrid is not None:
        return hybrid
    if config.has("attention_chunk_size"):
        return "attention" if _without_rotary(config, index) else "chunked"
    return "sliding" if _slides(config, traits, index) else "attention"


def _slid(config: Config, kind: str) -> str:
    return "attention" if kind == "sliding" and window_of(config) is None else kind


def _hybrid(config: Config, traits: Traits, index: int) -> str | None:
    """Attention or recurrence in models that mix them without ``layer_types``."""
    kinds = config.items("attn_type_list")
    if kinds and index < len(kinds):
        return "attention" if kinds[index] == 1 else "linear"
    pattern = config.items("hybrid_layer_pattern")
    if pattern and index < len(pattern):
        return _slid(config, "sliding" if pattern[index] == 1 else "attention")
    linear = config.level("linear_attn_config")
    if linear is not None and linear.has("full_attn_layers"):
        return "attention" if index + 1 in (linear.items("full_attn_layers") or []) else "linear"
    for key in ("attn_layer_indices", "full_attn_idxs", "full_attention_layers"):
        listed = config.items(key)
        if listed is not None:
            return "attention" if index in listed else "linear"
    blocks = config.texts("block_types", "_block_types")
    if blocks:
        named = _named(config, blocks[index % len(blocks)], index)
        return _slid(config, "sliding" if config.has("lru_width") and named == "attention" else named)
    return _periodic(config, traits, index)


def _periodic(config: Config, traits: Traits, index: int) -> str | None:
    if config.has("attn_layer_period"):
        period = config.integer("attn_layer_period", kind="layers")
        return "attention" if index % period == config.integer("attn_layer_offset", default=0, low=0) else "linear"
    for key in ("full_attention_interval", "layer_group_size"):
        if config.has(key) and config.has("linear_num_value_heads", "linear_head_dim", "layer_group_size"):
            return "attention" if (index + 1) % config.integer(key, kind="layers") == 0 else "linear"
    if traits.mixer:
        return traits.mixer
    if traits.linear_period:
        return "linear" if (index + 1) % traits.linear_period == 0 else "attention"
    return None


def _concrete(config: Config, traits: Traits, kind: str, index: int) -> str:
    """Name of the reader: which recurrence, which attention."""
    if kind == "linear":
        return recurrence(config, traits)
    if kind == "hybrid":
        return "parallel_mamba2" if config.has(*HEADS2, *HEAD_DIM2, *STATE) else "attention"
    if config.has("compress_ratios") or kind == "compressed" or traits.mixer == "compressed":
        return "compressed"
    if config.has("block_configs"):
        return "searched"
    if config.has("kv_lora_rank") and config.flag("use_mla", default=True):
        if kind == "sliding":
            return "sliding_mla"
        return "sparse" if config.has("index_topk", "index_head_dim") else "mla"
    if kind == "sparse":
        config.warn("sparse attention without a latent cache is read as full attention")
        return "attention"
    return kind


def recurrence(config: Config, traits: Traits) -> str:
    """Which recurrence the linear layers of a config are."""
    if config.has("linear_attn_config", "linear_head_dim"):
        return "kimi_delta"
    if config.has("linear_num_value_heads", "linear_num_key_heads"):
        return "gated_delta"
    if config.has("conv_L_cache"):
        return "short_conv"
    if config.has("lru_width", "conv1d_width"):
        return "gated_recurrence"
    if config.has(*HEADS2, *HEAD_DIM2) or config.text("model_type") == "mamba2":
        return "mamba2"
    if config.has(*STATE):
        return "mamba1"
    if config.has("attn_type_list") or config.text("model_type").startswith("minimax"):
        return "lightning"
    raise InputError(
        "config has linear-attention layers of a kind that is not known: it names neither linear_num_value_heads,"
        " nor mamba_d_state, nor conv_L_cache, nor attn_type_list"
    )


def _without_rotary(config: Config, index: int) -> bool:
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
    if traits.sliding == "none":
        return False
    if isinstance(config.get("sliding_window_pattern"), str):
        letters = config.text("sliding_window_pattern")
        return bool(letters) and letters[index % len(letters)] in "LS"
    period = config.integer(
        "sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers", "layer_switch",
        default=traits.sliding_period, low=0, kind="layers",
    )  # fmt: skip
    if traits.last_full and index == layer_count(config) - 1:
        return False
    if traits.full_first:
        return not period or index % period != 0
    return not period or (index + 1) % period != 0


def feed_forward_kind(config: Config, traits: Traits, index: int) -> str:
    """Kind of feed-forward of a layer."""
    if config.has("block_configs"):
        return "searched"
    if traits.no_feed_forward:
        return "none"
    if not experts_of(config, index):
        return "dense"
    if config.has("zero_expert_num"):
        return "dense" if index % 2 else "moe"
    return "moe" if routes(config, traits, index) else "dense"


def routes(config: Config, traits: Traits, index: int) -> bool:
    """Whether a layer of a model with experts routes to them."""
    listed = config.texts("mlp_layer_types")
    if listed and len(listed) > index:
        return listed[index] in {"sparse", "moe", "hash_moe"}
    chosen = _listed_moe(config)
    if chosen is not None:
        return index in chosen
    frequency = config.get("moe_layer_freq")
    if isinstance(frequency, list):
        return bool(frequency[index]) if index < len(frequency) else True
    first = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", "first_dense_layers")
    start = config.integer(*first, default=0, low=0, kind="layers")
    if index < start or index > config.integer("moe_layer_end_index", default=10**4, low=-1, kind="small") >= 0:
        return False
    only = config.items("mlp_only_layers")
    if only and index in only:
        return False
    return _every(config, index)


def _listed_moe(config: Config) -> set[object] | None:
    """Indices of layers that route, where a config lists them."""
    text = config.get("moe_layers_enum")
    if isinstance(text, str):
        return {int(part) for part in text.split(",") if part.strip().isdigit()}
    listed = config.get("moe_layers")
    if isinstance(listed, list) and listed:
        return {value for value in listed if isinstance(value, int)}
    return None


def _every(config: Config, index: int) -> bool:
    for key in ("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_interval", "moe_every_n_layers"):
        if config.has(key):
            step = config.integer(key, low=0, kind="layers")
            return bool(step) and (index + 1) % step == 0
    if config.has("moe_layer_freq"):
        step = config.integer("moe_layer_freq", low=0, kind="layers")
        return bool(step) and index % step == 0
    if config.has("expert_layer_period"):
        period = config.integer("expert_layer_period", kind="layers")
        return index % period == config.integer("expert_layer_offset", default=0, low=0, kind="layers")
    return True
