"""Multi-head latent attention: keys and values of all heads from one cached latent.

DeepSeek-V2 (2024), section 2.1: a token leaves ``kv_lora_rank + qk_rope_head_dim`` elements a layer, one copy
for all heads, so tensor parallelism does not divide it. Sparse attention (DeepSeek-V3.2, GLM-5) adds an indexer
that scores all tokens and picks ``index_topk`` of them; its keys are cached in FP8 with an FP32 scale.
"""

from dataclasses import replace

from sizing.architecture.config import Config
from sizing.architecture.kinds import mixers
from sizing.architecture.kinds.attention import HEADS, hidden_size, matrix, on, output_gate, window_of
from sizing.architecture.parts import Linear, Mixer
from sizing.architecture.traits import Traits

#: Elements that share one FP32 scale in the indexer's cache.
INDEX_GROUP = 128


def index_key_bytes(width: int) -> int:
    """Bytes of one cached index key: FP8 elements and an FP32 scale for each 128 of them. [B]"""
    return width + 4 * -(-width // INDEX_GROUP)


@mixers.register("mla")
def latent_attention(config: Config, traits: Traits, index: int) -> Mixer:
    """Latent attention to every earlier token."""
    hidden = hidden_size(config)
    heads = config.per_layer(index, *HEADS, default=0, low=1, kind="heads") or config.integer(*HEADS, required=True)
    latent = config.integer("kv_lora_rank", required=True)
    rope = config.integer("qk_rope_head_dim", default=64, low=0, kind="head_dim")
    nope = config.integer("qk_nope_head_dim", default=128, kind="head_dim")
    value = config.integer("v_head_dim", "v_head_size", default=128, kind="head_dim")
    rank = config.integer("q_lora_rank", default=0, low=0)
    bias = on(config, traits.qkv_bias)
    width = heads * (nope + rope)
    if rank:
        linears = [
            matrix("self_attn.q_a_proj", hidden, rank, shard="replicated", bias=bias, group="qkv_a"),
            matrix("self_attn.q_b_proj", rank, width, heads=heads),
        ]
    else:
        linears = [matrix("self_attn.q_proj", hidden, width, heads=heads)]
    linears += [
        matrix("self_attn.kv_a_proj_with_mqa", hidden, latent + rope, shard="replicated", bias=bias, group="qkv_a"),
        matrix("self_attn.kv_b_proj", latent, heads * (nope + value), heads=heads),
        matrix("self_attn.o_proj", heads * value, hidden, shard="row", bias=on(config, traits.o_bias)),
    ]
    linears += output_gate(config, traits, hidden, heads, heads * value)
    return Mixer(
        kind="mla",
        linears=tuple(linears),
        other_parameters=rank + latent,
        heads=heads,
        kv_heads=1,
        head_dim=nope + rope,
        value_dim=value,
        kv_elements_per_token=latent + rope,
        kv_replicated=True,
        latent_dim=latent,
        rope_dim=rope,
    )


@mixers.register("sparse")
def sparse_latent_attention(config: Config, traits: Traits, index: int) -> Mixer:
    """Latent attention to the ``index_topk`` tokens that an indexer picks."""
    mixer = latent_attention(config, traits, index)
    linears, norms, heads, width = indexer(config, index)
    return replace(
        mixer,
        kind="sparse",
        linears=(*mixer.linears, *linears),
        other_parameters=mixer.other_parameters + norms,
        attended_tokens=config.integer("index_topk", default=2048, kind="positions"),
        index_heads=heads,
        index_dim=width,
        kv_extra_bytes_per_token=index_key_bytes(width) if width else 0,
    )


@mixers.register("sliding_mla")
def sliding_latent_attention(config: Config, traits: Traits, index: int) -> Mixer:
    """Latent attention to the last ``sliding_window`` tokens."""
    mixer = latent_attention(config, traits, index)
    window = window_of(config)
    return mixer if window is None else replace(mixer, kind="sliding", window=window)


def indexer(config: Config, index: int) -> tuple[list[Linear], int, int, int]:
    """Matrices, norm elements, heads and width of a layer's indexer; nothing where a layer shares one."""
    kinds = config.texts("indexer_types")
    if kinds and len(kinds) > index and kinds[index] != "full":
        return [], 0, 0, 0
    heads = config.integer("index_n_heads", default=64, kind="heads")
    width = config.integer("index_head_dim", default=128, kind="head_dim")
    hidden = hidden_size(config)
    rank = config.integer("q_lora_rank", default=0, low=0) or hidden
    linears = [
        matrix("self_attn.indexer.wq_b", rank, heads * width, shard="replicated"),
        matrix("self_attn.indexer.wk", hidden, width, shard="replicated"),
        replace(
            matrix("self_attn.indexer.weights_proj", hidden, heads, shard="replicated"), quantized=False, role="router"
        ),
    ]
    return linears, 2 * width, heads, width
