"""Compressed attention of DeepSeek-V4: one cache entry for several tokens, and a window of recent ones.

Every layer keeps the last ``sliding_window`` tokens; besides, one entry for every 4 tokens (picked from by an
indexer) or for every 128 (all read), as ``compress_ratios`` lists. Keys and values are one vector, shared by all
query heads. Read from the model's config and from Hugging Face transformers 5.24.0.
"""

from dataclasses import replace

from sizing.architecture.config import Config
from sizing.architecture.kinds import mixers
from sizing.architecture.kinds.attention import HEADS, hidden_size, matrix
from sizing.architecture.kinds.mla import index_key_bytes
from sizing.architecture.parts import Linear, Mixer
from sizing.architecture.traits import Traits

#: Compression at which entries overlap and an indexer picks among them.
INDEXED_RATIO = 4
RATIO_NAMED = {
    "compressed_sparse_attention": 4, "heavily_compressed_attention": 128, "sliding_attention": 0,
    "sliding_window_attention": 0,
}  # fmt: skip


def ratio_of(config: Config, index: int) -> int:
    """Tokens that share one entry in a layer; 0 where only the window is kept. [token]"""
    listed = config.items("compress_ratios")
    if listed and index >= len(listed):  # a module for multi-token prediction keeps the window only
        return 0
    if listed:
        return config.per_layer(index, "compress_ratios", default=0, low=0, kind="positions")
    named = config.texts("layer_types")
    if named and index < len(named):
        rates = config.level("compress_rates")
        default = RATIO_NAMED.get(named[index], 0)
        return rates.integer(named[index], default=default, low=0, kind="positions") if rates else default
    return 128 if index < 2 or index % 2 == 1 else INDEXED_RATIO


@mixers.register("compressed")
def compressed_attention(config: Config, traits: Traits, index: int) -> Mixer:
    """Shared-key attention over a window and compressed entries."""
    hidden = hidden_size(config)
    heads = config.integer(*HEADS, required=True, kind="heads")
    width = config.integer("head_dim", default=512, kind="head_dim")
    rank = config.integer("q_lora_rank", default=1024)
    groups = config.integer("o_groups", default=8, kind="heads")
    out = groups * config.integer("o_lora_rank", default=1024)
    linears = [
        matrix("self_attn.q_a_proj", hidden, rank, shard="replicated", group="qkv_a"),
        matrix("self_attn.q_b_proj", rank, heads * width, heads=heads),
        matrix("self_attn.kv_proj", hidden, width, shard="replicated", group="qkv_a"),
        matrix("self_attn.o_a_proj", heads * width // groups, out),
        matrix("self_attn.o_b_proj", out, hidden, shard="row"),
    ]
    window = config.integer("sliding_window", default=128, kind="positions")
    mixer = Mixer(
        kind="compressed",
        linears=tuple(linears),
        other_parameters=heads + rank + width,
        heads=heads,
        kv_heads=1,
        head_dim=width,
        value_dim=width,
        kv_replicated=True,
        kv_window_elements=width,
        window=window,
        latent_dim=width,
    )
    ratio = ratio_of(config, index)
    return _with_compressor(config, mixer, ratio, hidden, rank) if ratio else mixer


def _with_compressor(config: Config, mixer: Mixer, ratio: int, hidden: int, rank: int) -> Mixer:
    """The layer's compressor, and its indexer where entries are picked."""
    width, indexed = mixer.head_dim, ratio == INDEXED_RATIO
    overlap = 2 if indexed else 1
    made: list[Linear] = [
        _small("self_attn.compressor.kv_proj", hidden, overlap * width),
        _small("self_attn.compressor.gate_proj", hidden, overlap * width),
    ]
    others = mixer.other_parameters + ratio * overlap * width + width
    mixer = replace(mixer, kv_elements_per_token=width / ratio, kv_compression=ratio)
    if indexed:
        heads = config.integer("index_n_heads", default=64, kind="heads")
        index = config.integer("index_head_dim", default=128, kind="head_dim")
        made += [
            _small("self_attn.compressor.indexer.kv_proj", hidden, overlap * index),
            _small("self_attn.compressor.indexer.gate_proj", hidden, overlap * index),
            matrix("self_attn.compressor.indexer.q_b_proj", rank, heads * index, shard="replicated"),
            _small("self_attn.compressor.indexer.weights_proj", hidden, heads),
        ]
        others += ratio * overlap * index + index
        mixer = replace(
            mixer,
            attended_tokens=config.integer("index_topk", default=512, kind="positions"),
            index_heads=heads,
            index_dim=index,
            kv_extra_bytes_per_token=index_key_bytes(index) / ratio,
        )
    return replace(mixer, linears=(*mixer.linears, *made), other_parameters=others)


def _small(name: str, inputs: int, outputs: int) -> Linear:
    return replace(matrix(name, inputs, outputs, shard="replicated"), quantized=False)
