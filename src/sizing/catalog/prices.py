"""USD per GPU and hour: dated quotes, and the median of the current on-demand ones."""

import functools
from dataclasses import dataclass
from typing import Any

from sizing.catalog.facts import Fact
from sizing.catalog.gpus import resolve_gpu
from sizing.catalog.overlay import layers, on_change
from sizing.catalog.tables import read_table
from sizing.errors import InputError

CURRENT = "on-demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """One dated price of one provider.

    Attributes
    ----------
    usd_per_hour
        Price of one GPU; None when only a range was quoted. [USD/h]
    low, high
        The range. [USD/h]
    kind
        ``on-demand`` counts; capacity block, spot, stale, disputed, estimate are for reading.
    """

    usd_per_hour: float | None
    low: float | None = None
    high: float | None = None
    provider: str = ""
    instance: str = ""
    kind: str = CURRENT
    date: str = ""
    source: str = ""
    note: str = ""


def quotes(gpu_id: str) -> tuple[Quote, ...]:
    """Every quote that ships for an accelerator, in file order; empty when there is none."""
    table = read_table("prices.toml", gpu_id)
    if table is None:
        return ()
    names = {"usd_per_hour_low": "low", "usd_per_hour_high": "high"}
    rows: Any = table["quotes"]
    blank = {"usd_per_hour": None}
    return tuple(Quote(**blank | {names.get(k, k): v for k, v in row.items()}) for row in rows)


@functools.cache
def price(gpu_id: str) -> Fact | None:
    """Price of one GPU for one hour: the median of its current on-demand quotes. [USD/h]

    Returns
    -------
    Fact or None
        None when nobody quotes it; such an accelerator is ranked last.
    """
    gpu_id = resolve_gpu(gpu_id)[0]
    for file, entries in reversed(layers("prices")):
        if gpu_id in entries:
            return Fact(_own_price(file, gpu_id, entries[gpu_id]), "USD/h", "user", file)
    current = [q for q in quotes(gpu_id) if q.kind == CURRENT and q.usd_per_hour is not None]
    if not current:
        return None
    value = _median([float(q.usd_per_hour or 0.0) for q in current])
    said = ", ".join(f"{q.provider} {q.usd_per_hour:g}" for q in current)
    pages = "; ".join(dict.fromkeys(q.source for q in current))
    return Fact(value, "USD/h", "quoted", pages, f"median of {len(current)} on-demand quotes: {said}")


def _median(values: list[float]) -> float:
    """Median to a hundredth of a cent; the standard library's costs 15 ms to import."""
    ordered, middle = sorted(values), len(values) // 2
    if len(values) % 2:
        return ordered[middle]
    return round((ordered[middle - 1] + ordered[middle]) / 2, 4)


def _own_price(file: str, gpu_id: str, entry: Any) -> float:
    value = entry.get("usd_per_hour")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
        raise InputError(f"{file}: prices.{gpu_id}.usd_per_hour is {value!r}; give USD per GPU and hour, 0 or more")
    return float(value)


on_change(price.cache_clear)
