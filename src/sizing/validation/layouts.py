"""How a row's deployment is laid out: ranks of one replica, copies of it, or pools of prefill and decode workers."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sizing.architecture import Model
from sizing.catalog import Gpu
from sizing.deployment import Parallelism
from sizing.validation.stated import Stated, stated


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """Prefill and decode workers of a disaggregated deployment."""

    prefill: Parallelism
    decode: Parallelism
    prefill_workers: float = 1.0
    decode_workers: float = 1.0


@dataclass(slots=True)
class Notes:
    """Assumptions gathered while a row is read, and whether a length was guessed."""

    texts: list[str] = field(default_factory=list)
    guessed: bool = False


def number(row: Mapping[str, str], name: str) -> float | None:
    """A cell as a number; None when it is blank or no number."""
    text = (row.get(name) or "").strip()
    match = re.match(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?", text)
    if not match:
        return None
    try:
        value = float(match[0])
    except ValueError:
        return None
    return value if value == value else None


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and value >= 1 else None


def _fits(model: Model, gpu: Gpu, weights: str | None, tp: int) -> bool:
    return model.weights_bytes(weights, tp=tp) < 0.8 * gpu.memory_bytes


def _offline(row: Mapping[str, str]) -> bool:
    return (row.get("load_kind") or "") == "offline" or (row.get("len_dist") or "").startswith("mlperf")


def _copies_cache(model: Model) -> bool:
    """Whether every rank of tensor parallelism holds the whole cache, as with latent attention, beside experts."""
    return model.is_moe and any(layer.mixer.latent_dim for layer in model.layers)


@dataclass(slots=True)
class _Ranks:
    """What a row says of its ranks, as the rules of :data:`RULES` complete it; ``tp`` is None until one is found."""

    row: Mapping[str, str]
    said: Stated
    model: Model
    gpu: Gpu
    weights: str | None
    tp: int | None
    pp: int
    dp: int
    ep: int
    gpus: int | None

    @property
    def tensor(self) -> int:
        """Tensor parallel ranks, one where none are known."""
        return self.tp or 1


def layout_of(
    row: Mapping[str, str], model: Model, gpu: Gpu, weights: str | None, notes: Notes
) -> tuple[Parallelism, float]:
    """Ranks of one replica, and how many replicas share the load.

    Parameters
    ----------
    row
        Cells by column.
    model, gpu, weights
        What is served, on what, in which weight format.
    notes
        Gathers what is assumed.
    """
    said = stated(row)
    tp, pp, dp, ep = (_whole(number(row, name)) for name in ("tp", "pp", "dp", "ep"))
    ranks = _Ranks(row=row, said=said, model=model, gpu=gpu, weights=weights, tp=tp, pp=pp or 1, dp=dp or 1,
                   ep=ep or said.ep or 1, gpus=_whole(number(row, "num_gpus")))  # fmt: skip
    for rule in RULES:
        text = rule(ranks)
        if text:
            notes.texts.append(text)
    tensor, dp = ranks.tensor, ranks.dp
    layout = Parallelism(tp=tensor, pp=min(ranks.pp, 64), dp=dp, ep=min(ranks.ep, tensor * dp))
    return layout, max((ranks.gpus or layout.gpus) / layout.gpus, 1.0)


def _caches_apart(ranks: _Ranks) -> str | None:
    """Offline, who is free to choose does not hold the same latent cache on every rank."""
    if ranks.tp is not None or ranks.dp > 1 or (ranks.gpus or 1) == 1:
        return None
    if not (_offline(ranks.row) and _copies_cache(ranks.model)):
        return None
    ranks.tp, ranks.dp = 1, min(ranks.gpus or 1, ranks.gpu.gpus_per_node)
    ranks.ep = ranks.dp
    return f"attention data-parallel over {ranks.dp} GPUs: tensor parallel ranks would hold copies of the cache"


def _tensor_of_experts(ranks: _Ranks) -> str | None:
    """Tensor parallel ranks that other ranks leave."""
    if ranks.tp is None and max(ranks.dp, ranks.ep) > 1:
        ranks.tp = max(ranks.ep // ranks.dp, 1)
    return None


def _smallest(ranks: _Ranks) -> str | None:
    """The fewest ranks that hold the weights, in stages where a tensor is not enough."""
    if ranks.tp is not None:
        return None
    tp = 1
    while tp * 2 <= (ranks.gpus or 8) and not _fits(ranks.model, ranks.gpu, ranks.weights, tp):
        tp *= 2
    if not _fits(ranks.model, ranks.gpu, ranks.weights, tp) and ranks.gpus and ranks.gpus > tp:
        ranks.pp = max(ranks.pp, -(-ranks.gpus // tp))
    ranks.tp = tp
    return f"TP{tp}: the smallest that holds the weights"


def _counted_twice(ranks: _Ranks) -> str | None:
    """A source that multiplies TP by DP counts the same GPUs under both."""
    tp, dp = ranks.tensor, ranks.dp
    if not (ranks.said.gpus_computed and tp == dp > 1 and ranks.ep in (tp, tp * dp) and ranks.model.is_moe):
        return None
    ranks.tp, ranks.ep, ranks.gpus = 1, dp, dp
    return f"attention data-parallel over {dp} GPUs, which the source's formula counts {dp} times"


def _attention(ranks: _Ranks) -> str | None:
    """Tensor and data parallelism of attention, where ranks may be counted under either."""
    tp, dp = ranks.tensor, ranks.dp
    if ranks.said.attention_dp and dp == 1:
        dp = min(ranks.said.dp or tp, tp)
    if ranks.gpus and dp > 1 and tp * ranks.pp * dp > ranks.gpus:
        tp = max(tp // dp, 1)
    ranks.tp, ranks.dp = min(tp, 64), min(dp, 512)
    return None


def _experts_wide(ranks: _Ranks) -> str | None:
    """Experts on more GPUs than a tensor: attention runs in data parallel on the rest."""
    tp, ep = ranks.tensor, ranks.ep
    if not (ranks.model.is_moe and ranks.dp == 1 and tp < ep <= (ranks.gpus or 1) and ep % tp == 0):
        return None
    ranks.dp = ep // tp
    return f"attention data-parallel over {ranks.dp} ranks: experts lie on {ep} GPUs, a tensor on {tp}"


def _experts_spread(ranks: _Ranks) -> str | None:
    """Experts that are said to be spread, not over how many."""
    if not (ranks.ep == 1 and ranks.said.experts_spread and ranks.model.is_moe):
        return None
    ranks.ep = ranks.tensor * ranks.dp
    return f"experts spread over all {ranks.ep} GPUs: the row says that they are, not over how many"


RULES: tuple[Callable[[_Ranks], str | None], ...] = (
    _caches_apart, _tensor_of_experts, _smallest, _counted_twice, _attention, _experts_wide, _experts_spread,
)  # fmt: skip
"""What completes a row's ranks, in this order; each says what it assumed."""


def wider_layouts(
    row: Mapping[str, str], layout: Parallelism, replicas: float, gpu: Gpu
) -> tuple[tuple[Parallelism, float], ...]:
    """Layouts of the same GPUs with wider tensor parallelism, where the row states none.

    Whoever seeks the most throughput, or the largest rate within targets, takes the layout that carries it.

    Parameters
    ----------
    row
        Cells by column.
    layout, replicas
        The smallest that holds the weights, and its copies.
    gpu
        What it runs on.
    """
    if number(row, "tp") is not None or layout.gpus != layout.tp:
        return ()
    whole, most = round(layout.tp * replicas), min(gpu.gpus_per_node or 8, 8)
    wider = [tp for tp in (1, 2, 4, 8) if layout.tp < tp <= most and whole % tp == 0]
    return tuple((Parallelism(tp=tp), whole / tp) for tp in wider)


POOL = re.compile(r"(prefill|decode)=\{([^}]*)\}")


def pools_of(row: Mapping[str, str], notes: Notes) -> Pools | None:
    """Workers of a disaggregated row, as its notes state the configuration; None for an aggregated one.

    Parameters
    ----------
    row
        Cells by column.
    notes
        Gathers what is assumed.
    """
    if "disagg" not in (row.get("deploy") or ""):
        return None
    found: dict[str, tuple[Parallelism, float]] = {}
    for name, body in POOL.findall(row.get("notes") or ""):
        part = {k.strip(): float(v) for k, _, v in (x.partition(":") for x in body.split(",")) if v.strip()}
        tp, dp = int(part.get("tp", 1)), int(part.get("dp", 1))
        ep = int(part.get("moe_ep", 1))
        if dp == 1 and tp > 1 and ep == tp and tp > 8:
            tp, dp = 1, tp
            notes.texts.append("attention data-parallel in a wide expert-parallel worker")
        layout = Parallelism(tp=min(tp, 64), pp=int(part.get("pp", 1)), dp=min(dp, 512), ep=min(ep, tp * dp))
        found[name] = (layout, max(part.get("num_workers", 0.0), 0.0))
    if "decode" not in found:
        layout = Parallelism(tp=min(_whole(number(row, "tp")) or 8, 64))
        notes.texts.append("one prefill and one decode worker of the stated layout")
        return Pools(prefill=layout, decode=layout)
    if found["decode"][1] == 0.0:
        notes.texts.append("number of workers not stated: one of each")
    prefill = found.get("prefill", found["decode"])
    return Pools(prefill=prefill[0], decode=found["decode"][0], prefill_workers=prefill[1] or 1.0,
                 decode_workers=found["decode"][1] or 1.0)  # fmt: skip


LARGEST_TP = 16
"""Ranks of tensor parallelism that any engine is run with, at most: two nodes of eight. [gpu]"""
PREFILL_GPUS = 4
"""GPUs of a prefill worker in a rack: one tray. [gpu]"""
DECODE_GPUS = (8, 16, 24, 32)
"""GPUs of the decode side of a rack. [gpu]"""
DECODED = 4.0
"""Time of a decoded token over that of a prompt's at large batches (assumed). [1]"""
LIGHT = 4.0
"""Users for each GPU below which decode workers run for latency: tensor parallel, eight GPUs each. [request]"""


def rack_pools(row: Mapping[str, str], model: Model, tokens: tuple[float, float], users: float, notes: Notes
               ) -> Pools | None:  # fmt: skip
    """Pools that a wider "tensor parallel" group than engines run is taken as; None for ordinary layouts.

    Sources count the GPUs of a rack as one layout; what runs there is workers for prefill, of four GPUs with
    data-parallel attention, and the rest for decode. GPUs are shared out as the tokens of a request ask.

    Parameters
    ----------
    row
        Cells by column.
    model
        What is served.
    tokens
        Mean input and output of a request. [token]
    users
        Requests in flight. [request]
    notes
        Gathers the assumption.
    """
    gpus = _whole(number(row, "tp")) or 1
    if gpus <= LARGEST_TP or not model.is_moe:
        return None
    light = users < LIGHT * gpus
    asked = 0.15 if light else tokens[0] / (tokens[0] + DECODED * tokens[1])
    fitting = [size for size in DECODE_GPUS if size <= gpus - PREFILL_GPUS]
    decode = min(fitting, key=lambda size: abs((gpus - size) / gpus - asked))
    whole = light or decode not in (8, 16, 32)
    each = Parallelism(tp=8, ep=8) if whole else Parallelism(dp=decode, ep=decode)
    notes.texts.append(f"{gpus} GPUs taken as pools: {decode} decode, the rest prefill")
    return Pools(prefill=Parallelism(dp=PREFILL_GPUS, ep=PREFILL_GPUS), decode=each,
                 prefill_workers=float((gpus - decode) // PREFILL_GPUS), decode_workers=decode / each.gpus)  # fmt: skip
