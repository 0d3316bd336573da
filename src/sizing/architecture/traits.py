"""What a framework builds for a model type that no config.json says: biases, norms, ties, class defaults.

The facts are data, ``data/model_types.toml``, one table a model type. A type that has no table is read with
the commonest answers and a warning that names it.
"""

from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

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
    last_full
        Whether the last layer is full whatever the period says.
    full_first
        Whether the full layer is the first of each period rather than the last.
    attention_gate
        Gate on the output of attention: ``head`` (one a head), ``full`` (one an element), ``query`` (inside a
        query matrix twice as wide), or ``""``; a flag may follow after a colon.
    sinks
        Learned attention sinks, one a head: ``all`` layers, the ``sliding`` ones, or ``""``.
    mixer
        Kind of token mixer of every layer where no field says (``linear``, ``hybrid``, ``encoder``).
    linear_period
        Every how many layers the mixer is linear, when the config does not say [layer].
    no_feed_forward
        Whether layers have no feed-forward at all.
    shared_gate
        Whether a shared expert has a gate of its own.
    router_bias
        Whether the router has a bias that counts as a parameter.
    expert_bias
        Whether experts have biases.
    correction_bias
        Whether the files ship a correction bias for the router that the framework keeps as a buffer.
    beside
        Whether a dense feed-forward runs beside the experts.
    mtp
        What the files ship for multi-token prediction: ``declared`` (as the config says), ``always`` (one
        layer, whatever it says), ``never``.
    mtp_copies
        Whether the MTP module ships copies of embedding and head.
    embedding_norm
        Norms on the embedding, of model width.
    final_norms
        Norms after the last layer.
    pooler
        Whether an encoder has a pooling matrix.
    headless
        Whether there is no head over the vocabulary.
    position_offset
        Rows that learned position embeddings have more than the longest context (OPT: 2).
    head_copy
        Whether the files ship a copy of the tied embedding as head.
    mask_buffers
        Whether the files ship a causal mask for each layer.
    defaults
        Class defaults of fields that configs of this type leave out.
    nested
        More class defaults, of fields that only a config nested in another leaves out.
    caution
        What of the type is not read, so that its numbers are near rather than exact.
    refusal
        What of the type is not read and changes sizes so much that no number is given.
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
    last_full: bool = False
    full_first: bool = False
    attention_gate: str = ""
    sinks: str = ""
    mixer: str = ""
    linear_period: int = 0
    no_feed_forward: bool = False
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool | str = False
    correction_bias: bool = False
    beside: bool = False
    mtp: str = "declared"
    mtp_copies: bool = False
    embedding_norm: int = 0
    final_norms: int = 1
    pooler: bool = False
    headless: bool = False
    position_offset: int = 0
    head_copy: bool = False
    mask_buffers: bool = False
    defaults: dict[str, object] = field(default_factory=dict)
    nested: dict[str, object] = field(default_factory=dict)
    caution: str = ""
    refusal: str = ""
    like: str = ""


_NAMES = frozenset(entry.name for entry in fields(Traits))


@lru_cache(maxsize=128)
def traits_of(model_type: str) -> Traits:
    """Facts of a model type; an unknown one gets the commonest answers and ``known=False``."""
    table = read_table("model_types.toml", model_type)
    if table is None:
        return Traits(known=False)
    facts: dict[str, Any] = {key: value for key, value in table.items() if key in _NAMES}
    like = facts.get("like")
    if not isinstance(like, str) or like == model_type:
        return Traits(**facts)
    parent = traits_of(like)
    facts["defaults"] = {**parent.defaults, **facts.get("defaults", {})}
    return replace(parent, **facts)
