"""What a framework builds for a model type that no config.json says: biases, norms, ties, class defaults.

The facts are data, ``data/model_types.toml``, one table a model type. A type that has no table is read with
the commonest answers and a warning that names it.
"""

from dataclasses import dataclass, field, fields
from functools import lru_cache

from sizing.catalog.tables import read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Facts of one model type.

    ``qkv_bias``, ``o_bias`` and ``mlp_bias`` are true, false, or the name of the flag in the config that says.

    Parameters
    ----------
    known
        False when the type has no table.
    tied
        Whether embeddings are tied when the config does not say.
    qkv_bias, o_bias, mlp_bias
        Biases of the attention's and the feed-forward's matrices.
    qk_norm
        ``head`` (one weight a head element), ``full`` (one an element of all heads), or ``""``; a flag may
        follow after a colon (``head:use_qk_norm``).
    norms
        Norms of model width in a layer.
    norm_bias
        Whether norms have a bias.
    norm_weight
        Whether norms have weights at all.
    gated
        Whether the feed-forward has a gate (three matrices) or not (two).
    parallel
        Whether attention and feed-forward share one norm.
    head_bias
        Whether the output head has a bias.
    positions
        Name of the field that sizes learned position embeddings, or ``""``.
    sliding
        ``all``, ``none``, ``alternate``, or ``pattern``: what a bare window means.
    sliding_period
        Every how many layers attention is full, when the config does not say [layer].
    shared_gate
        Whether a shared expert has a gate of its own.
    router_bias
        Whether the router has a bias that counts as a parameter.
    mtp_copies
        Whether the MTP module ships copies of embedding and head.
    defaults
        Class defaults of fields that configs of this type leave out.
    like
        A type whose other facts hold too.
    """

    known: bool = True
    tied: bool = False
    qkv_bias: bool | str = "attention_bias"
    o_bias: bool | str = "attention_bias"
    mlp_bias: bool | str = "mlp_bias"
    qk_norm: str = ""
    norms: int = 2
    norm_bias: bool = False
    norm_weight: bool = True
    gated: bool = True
    parallel: bool = False
    head_bias: bool = False
    positions: str = ""
    sliding: str = "all"
    sliding_period: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool | str = False
    mtp_copies: bool = False
    defaults: dict[str, object] = field(default_factory=dict)
    like: str = ""


_NAMES = tuple(entry.name for entry in fields(Traits))


@lru_cache(maxsize=128)
def traits_of(model_type: str) -> Traits:
    """Facts of a model type; an unknown one gets the commonest answers and ``known=False``."""
    table = read_table("model_types.toml", model_type)
    if table is None:
        return Traits(known=False)
    facts = {key: value for key, value in table.items() if key in _NAMES}
    like = facts.get("like")
    if isinstance(like, str) and like != model_type:
        parent = traits_of(like)
        inherited = {name: getattr(parent, name) for name in _NAMES}
        facts["defaults"] = {**parent.defaults, **facts.get("defaults", {})}
        facts = {**inherited, **facts}
    return Traits(**facts)
