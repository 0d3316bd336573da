"""Lightning attention (Qin et al. 2024; MiniMax-01 and M1): linear attention with a decay a head."""

from sizing.architecture.config import Config
from sizing.architecture.kinds import mixers
from sizing.architecture.kinds.attention import heads_of, hidden_size, matrix
from sizing.architecture.parts import Mixer
from sizing.architecture.traits import Traits


@mixers.register("lightning")
def lightning(config: Config, traits: Traits, index: int) -> Mixer:
    """Queries, keys, values and an output gate of all heads; a state of ``head_dim x head_dim`` a head."""
    hidden = hidden_size(config)
    sizes = heads_of(config, index)
    wide = sizes.heads * sizes.head_dim
    linears = (
        matrix("self_attn.qkv_proj", hidden, 3 * wide, heads=sizes.heads),
        matrix("self_attn.output_gate", hidden, wide, heads=sizes.heads),
        matrix("self_attn.out_proj", wide, hidden, shard="row"),
    )
    return Mixer(
        kind="linear",
        recurrence="lightning",
        linears=linears,
        other_parameters=wide,
        heads=sizes.heads,
        head_dim=sizes.head_dim,
        value_dim=sizes.head_dim,
        state_elements=sizes.heads * sizes.head_dim**2,
    )
