"""Gated short convolutions (LFM2) and the gated linear recurrent unit (De et al. 2024, Griffin)."""

from sizing.architecture.config import Config
from sizing.architecture.kinds import mixers
from sizing.architecture.kinds.attention import HEADS, hidden_size, matrix
from sizing.architecture.parts import Mixer
from sizing.architecture.traits import Traits


@mixers.register("short_conv")
def short_convolution(config: Config, traits: Traits, index: int) -> Mixer:
    """A gated convolution over the last ``conv_L_cache`` tokens."""
    hidden = hidden_size(config)
    length = config.integer("conv_L_cache", default=3, kind="small")
    bias = config.flag("conv_bias")
    linears = (
        matrix("conv.in_proj", hidden, 3 * hidden, bias=bias),
        matrix("conv.out_proj", hidden, hidden, shard="row", bias=bias),
    )
    return Mixer(
        kind="linear",
        recurrence="short_conv",
        linears=linears,
        other_parameters=hidden * (length + bias),
        conv_elements=hidden * (length - 1),
    )


@mixers.register("gated_recurrence")
def gated_recurrence(config: Config, traits: Traits, index: int) -> Mixer:
    """Two branches, one through a convolution and a gated linear recurrence of width ``lru_width``."""
    hidden = hidden_size(config)
    width = config.integer("lru_width", default=hidden)
    conv = config.integer("conv1d_width", default=4, kind="small")
    blocks = config.integer(*HEADS, default=1, kind="heads")
    linears = (
        matrix("temporal_block.linear_y", hidden, width, bias=True),
        matrix("temporal_block.linear_x", hidden, width, bias=True),
        matrix("temporal_block.linear_out", width, hidden, shard="row", bias=True),
    )
    gates = 2 * (width * width // blocks + width) + width
    return Mixer(
        kind="linear",
        recurrence="gated_recurrence",
        linears=linears,
        other_parameters=gates + width * (conv + 1),
        heads=blocks,
        state_elements=width,
        conv_elements=width * (conv - 1),
    )
