"""Dense feed-forward: two matrices, or three with a gate (Shazeer 2020, GLU variants)."""

from sizing.architecture.config import Config
from sizing.architecture.kinds import feed_forwards
from sizing.architecture.kinds.attention import hidden_size, on
from sizing.architecture.parts import FeedForward, Linear
from sizing.architecture.traits import Traits
from sizing.errors import InputError

#: Width of dense layers where ``intermediate_size`` is the experts'.
DENSE_WIDTH = ("intermediate_size_mlp", "dense_intermediate_size", "intermediate_size_dense", "mlp_intermediate_size")
#: Types whose feed-forward is four times the model's width.
FOUR_TIMES = frozenset(
    {"gpt2", "gptj", "gpt_neo", "gpt_bigcode", "bloom", "mpt", "falcon", "codegen", "RefinedWebModel", "RefinedWeb"}
)
#: Types whose ``intermediate_size`` counts gate and up together.
HALVED = frozenset({"recurrent_gemma", "qwen"})
INTERMEDIATE = (
    "decoder_ffn_dim",
    "intermediate_size",
    "n_inner",
    "ffn_dim",
    "ffn_hidden_size",
    "d_ff",
    "inner_hidden_size",
    "d_inner",
    "hidden_dim",
)


def intermediate_size(config: Config, index: int) -> int:
    """Width of a dense feed-forward. [element]"""
    width = config.per_layer(index, *INTERMEDIATE, default=0, low=1, kind="intermediate")
    if width:
        return width
    if config.has("expansion_ratio", "ffn_hidden_ratio"):
        return int(hidden_size(config) * config.number("expansion_ratio", "ffn_hidden_ratio", default=4.0))
    if config.text("model_type") in FOUR_TIMES:
        return 4 * hidden_size(config)
    raise InputError(f"config has no {config.name_of('intermediate_size')} (nor n_inner, ffn_dim, d_ff)")


def dense_width(config: Config, index: int) -> int:
    """Width of the dense feed-forward of a layer. [element]"""
    given = config.per_layer(index, *DENSE_WIDTH, default=0, low=0, kind="intermediate")
    if not given and config.integer("num_local_experts", default=1, low=0, kind="experts") == 0:
        given = config.integer("shared_intermediate_size", default=0, low=0, kind="intermediate")
    width = given or intermediate_size(config, index)
    if config.text("model_type") in HALVED:
        width //= 2
    if config.flag("use_double_wide_mlp"):  # Gemma 4: layers that share another's cache are twice as wide
        shared = config.integer("num_kv_shared_layers", default=0, low=0, kind="layers")
        layers = config.integer("num_hidden_layers", default=0, low=0, kind="layers")
        width *= 2 if shared and index >= layers - shared else 1
    if config.flag("block_auto_adjust_ff_dim"):  # LFM2: two thirds, then up to a multiple
        scaled = int(config.number("block_ffn_dim_multiplier", default=1.0) * int(2 * width / 3))
        multiple = config.integer("block_multiple_of", default=256)
        width = -(-scaled // multiple) * multiple
    return width


def dense_linears(
    inputs: int, width: int, *, gated: bool, bias: bool, name: str = "mlp", role: str = "mlp", outputs: int = 0
) -> tuple[Linear, ...]:
    """Matrices of one feed-forward of that width."""
    outputs = outputs or inputs
    names = ("gate_proj", "up_proj") if gated else ("up_proj",)
    first = tuple(
        Linear(
            name=f"{name}.{each}",
            inputs=inputs,
            outputs=width,
            bias_elements=width * bias,
            role=role,
            group=f"{role}_gate_up" if gated else "",
        )
        for each in names
    )
    down = Linear(
        name=f"{name}.down_proj", inputs=width, outputs=outputs, bias_elements=outputs * bias, shard="row", role=role
    )
    return (*first, down)


@feed_forwards.register("dense")
def dense(config: Config, traits: Traits, index: int) -> FeedForward:
    """A feed-forward that every token goes through."""
    width = dense_width(config, index)
    bias = on(config, traits.mlp_bias)
    return FeedForward(kind="dense", linears=dense_linears(hidden_size(config), width, gated=traits.gated, bias=bias))


@feed_forwards.register("none")
def nothing(config: Config, traits: Traits, index: int) -> FeedForward:
    """No feed-forward in this block."""
    return FeedForward(kind="none")
