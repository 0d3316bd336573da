"""Linear attention with a delta rule: gated DeltaNet (Yang et al. 2024) and Kimi delta attention (2025).

A sequence keeps one ``key x value`` matrix a value head and the last inputs of a short convolution.
"""

from dataclasses import replace

from sizing.architecture.config import Config
from sizing.architecture.kinds import mixers
from sizing.architecture.kinds.attention import HEADS, hidden_size, matrix
from sizing.architecture.parts import Mixer
from sizing.architecture.traits import Traits


@mixers.register("gated_delta")
def gated_delta(config: Config, traits: Traits, index: int) -> Mixer:
    """Gated DeltaNet, as Qwen3-Next and Qwen3.5 build it."""
    hidden = hidden_size(config)
    key_heads = config.integer("linear_num_key_heads", required=True, kind="heads")
    heads = config.integer("linear_num_value_heads", default=key_heads, kind="heads")
    key = config.integer("linear_key_head_dim", default=128, kind="head_dim")
    value = config.integer("linear_value_head_dim", default=key, kind="head_dim")
    conv = config.integer("linear_conv_kernel_dim", default=4, kind="small")
    keys, values = key_heads * key, heads * value
    channels = 2 * keys + values
    small = matrix("linear_attn.in_proj_ba", hidden, 2 * heads, heads=heads)
    linears = (
        matrix("linear_attn.in_proj_qkv", hidden, channels, heads=key_heads, group="qkvz"),
        matrix("linear_attn.in_proj_z", hidden, values, heads=heads, group="qkvz"),
        replace(small, quantized=False),
        matrix("linear_attn.out_proj", values, hidden, shard="row"),
    )
    return Mixer(
        kind="linear",
        recurrence="gated_delta",
        linears=linears,
        other_parameters=2 * heads + channels * conv + value,
        heads=heads,
        head_dim=key,
        value_dim=value,
        state_elements=heads * key * value,
        conv_elements=channels * (conv - 1),
    )


@mixers.register("kimi_delta")
def kimi_delta(config: Config, traits: Traits, index: int) -> Mixer:
    """Kimi delta attention: a forget gate for each key element, gates through a low rank."""
    hidden = hidden_size(config)
    inner = config.level("linear_attn_config") or config
    heads = inner.integer("linear_num_heads", "num_heads", default=0, low=0, kind="heads")
    heads = heads or config.integer(*HEADS, required=True, kind="heads")
    width = inner.integer("linear_head_dim", "head_dim", default=128, kind="head_dim")
    conv = inner.integer("linear_conv_kernel_dim", "short_conv_kernel_size", default=4, kind="small")
    wide = heads * width
    linears = [matrix(f"self_attn.{name}_proj", hidden, wide, heads=heads, group="qkv") for name in ("q", "k", "v")]
    low_rank = config.text("model_type") not in {"bailing_hybrid"}
    if low_rank:
        linears += [
            matrix("self_attn.f_a_proj", hidden, width, shard="replicated"),
            matrix("self_attn.f_b_proj", width, wide, heads=heads),
            matrix("self_attn.g_a_proj", hidden, width, shard="replicated"),
            matrix("self_attn.g_b_proj", width, wide, heads=heads),
        ]
    else:
        linears += [matrix(f"self_attn.{name}_proj", hidden, wide, heads=heads) for name in ("f", "g")]
    linears += [
        replace(matrix("self_attn.b_proj", hidden, heads, heads=heads), quantized=False),
        matrix("self_attn.o_proj", wide, hidden, shard="row"),
    ]
    return Mixer(
        kind="linear",
        recurrence="kimi_delta",
        linears=tuple(linears),
        other_parameters=3 * wide * conv + wide + heads + width,
        heads=heads,
        head_dim=width,
        value_dim=width,
        state_elements=heads * width * width,
        conv_elements=3 * wide * (conv - 1),
    )
