"""Selective state spaces: Mamba-1 (Gu and Dao 2023) and Mamba-2 (Dao and Gu 2024).

A sequence keeps a state of fixed size, whatever its length, and the last ``conv - 1`` inputs of a convolution.
"""

from dataclasses import replace

from sizing.architecture.config import Config
from sizing.architecture.kinds import mixers
from sizing.architecture.kinds.attention import full_attention, hidden_size, matrix
from sizing.architecture.parts import Mixer
from sizing.architecture.traits import Traits
from sizing.errors import InputError

STATE = ("mamba_d_state", "ssm_state_size", "state_size", "d_state")
CONV = ("mamba_d_conv", "conv_kernel", "d_conv", "mamba_conv_kernel")
HEADS2 = ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads")
HEAD_DIM2 = ("mamba_d_head", "mamba_head_dim", "mamba_headdim")
GROUPS = ("mamba_n_groups", "n_groups", "mamba_ngroups", "ngroups")


def _inner(config: Config, hidden: int) -> int:
    given = config.integer("mamba_d_ssm", "mamba_intermediate_size", default=0, low=0)
    return given or int(hidden * config.number("mamba_expand", "expand", default=2.0))


@mixers.register("mamba1")
def mamba1(config: Config, traits: Traits, index: int) -> Mixer:
    """Mamba-1: a state of ``inner x state`` elements, step sizes from a low rank."""
    hidden = hidden_size(config)
    inner = _inner(config, hidden)
    state = config.integer(*STATE, default=16)
    conv = config.integer(*CONV, default=4, kind="small")
    rank = _rank(config, hidden)
    bias = config.flag("mamba_proj_bias", "use_bias")
    linears = (
        matrix("mamba.in_proj", hidden, 2 * inner, bias=bias),
        replace(matrix("mamba.x_proj", inner, rank + 2 * state, shard="row"), quantized=False),
        replace(matrix("mamba.dt_proj", rank, inner, bias=True), quantized=False),
        matrix("mamba.out_proj", inner, hidden, shard="row", bias=bias),
    )
    convolution = inner * (conv + config.flag("mamba_conv_bias", "use_conv_bias", default=True))
    norms = rank + 2 * state if config.text("model_type") == "jamba" else 0
    return Mixer(
        kind="linear",
        recurrence="mamba1",
        linears=linears,
        other_parameters=inner * state + inner + convolution + norms,
        heads=inner,
        head_dim=state,
        value_dim=1,
        state_elements=inner * state,
        conv_elements=inner * (conv - 1),
    )


def _rank(config: Config, hidden: int) -> int:
    if isinstance(config.get("mamba_dt_rank", "time_step_rank"), str):
        return -(-hidden // 16)  # "auto"
    return config.integer("mamba_dt_rank", "time_step_rank", default=-(-hidden // 16))


@mixers.register("mamba2")
def mamba2(config: Config, traits: Traits, index: int) -> Mixer:
    """Mamba-2: a state of ``heads x head_dim x state`` elements."""
    hidden = hidden_size(config)
    heads, width = _heads2(config, hidden)
    inner = heads * width
    state = config.integer(*STATE, default=128)
    groups = config.integer(*GROUPS, default=1, kind="heads")
    conv = config.integer(*CONV, default=4, kind="small")
    bias = config.flag("mamba_proj_bias", "use_bias", "add_bias_linear")
    channels = inner + 2 * groups * state
    linears = (
        matrix("mamba.in_proj", hidden, inner + channels + heads, bias=bias, heads=heads),
        matrix("mamba.out_proj", inner, hidden, shard="row", bias=bias),
    )
    convolution = channels * (conv + config.flag("mamba_conv_bias", "use_conv_bias", default=True))
    norm = inner if config.flag("mamba_rms_norm", default=True) else 0
    return Mixer(
        kind="linear",
        recurrence="mamba2",
        linears=linears,
        other_parameters=3 * heads + convolution + norm,
        heads=heads,
        head_dim=state,
        value_dim=width,
        state_elements=inner * state,
        conv_elements=channels * (conv - 1),
    )


def _heads2(config: Config, hidden: int) -> tuple[int, int]:
    inner = _inner(config, hidden)
    heads = config.integer(*HEADS2, default=0, low=0, kind="heads")
    width = config.integer(*HEAD_DIM2, default=0, low=0, kind="head_dim")
    if not heads and not width and config.text("model_type") == "mamba2":
        heads = config.integer("num_heads", default=128, kind="heads")
        width = config.integer("head_dim", default=64, kind="head_dim")
    if heads and not width:
        width = inner // heads
    if width and not heads:
        heads = inner // width
    if not heads or not width:
        raise InputError("config has a Mamba-2 layer without mamba_n_heads or mamba_d_head")
    return heads, width


@mixers.register("parallel_mamba2")
def attention_beside_mamba2(config: Config, traits: Traits, index: int) -> Mixer:
    """Attention and Mamba-2 side by side on the same input (Falcon-H1)."""
    attention, recurrent = full_attention(config, traits, index), mamba2(config, traits, index)
    return replace(
        attention,
        linears=(*attention.linears, *recurrent.linears),
        other_parameters=attention.other_parameters + recurrent.other_parameters,
        state_elements=recurrent.state_elements,
        conv_elements=recurrent.conv_elements,
        recurrence="mamba2",
    )
