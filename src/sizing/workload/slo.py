r"""Latency targets, and whether a run meets them: one definition for plans, simulations and measurements.

Three statistics of token time are told apart, since they are different targets:

* ``mean``: the mean over requests of a request's TPOT (its mean gap after the first token);
* ``percentile``: the TPOT that a share of *requests* does not exceed;
* ``itl``: the gaps of all requests pooled, where a long answer counts as often as it has tokens.

A value at a percentile is the smallest observed one that at least that share of requests does not exceed, so that
the value meets the target exactly when that share of requests does. A request that was refused or did not finish
is a miss: its latencies count as infinite. A request of one token has no gap and can't miss a TPOT.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sizing.errors import InputError, nearest
from sizing.workload.checks import is_number, require

Floats = npt.NDArray[np.float64]
STATISTICS = ("request", "itl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Latency targets of a service.

    Attributes
    ----------
    ttft_s
        Time to first token, at most. [s]
    tpot_s
        Mean gap between the tokens after the first, at most. [s]
    percentile
        Share of requests that must meet each target, in percent; None means that the mean must. [%]
    ttft_percentile, tpot_percentile
        The same for one target alone, in place of ``percentile``. [%]
    statistic
        ``request``: the token target holds for each request's TPOT; ``itl``: for the gaps of all requests pooled.
    window_s
        Targets hold over every window of this length [s]; None for the whole run.
    """

    ttft_s: float = 1.0
    tpot_s: float = 0.020
    percentile: float | None = None
    ttft_percentile: float | None = None
    tpot_percentile: float | None = None
    statistic: str = "request"
    window_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("ttft_s", "tpot_s"):
            value = getattr(self, name)
            require(is_number(value) and 0 < value < math.inf, name, value, "a positive number of seconds")
        for name in ("percentile", "ttft_percentile", "tpot_percentile"):
            value = getattr(self, name)
            usable = value is None or (is_number(value) and 0 < value < 100)
            require(usable, name, value, "a number between 0 and 100")
        if self.statistic not in STATISTICS:
            near = nearest(self.statistic, STATISTICS)
            raise InputError(f"statistic: {self.statistic!r} is not known; choose {' or '.join(STATISTICS)}{near}")
        usable = self.window_s is None or (is_number(self.window_s) and 0 < self.window_s < math.inf)
        require(usable, "window_s", self.window_s, "a positive number of seconds")

    @property
    def ttft_at(self) -> float | None:
        """Percentile of the TTFT target, None for the mean. [%]"""
        return self.ttft_percentile if self.ttft_percentile is not None else self.percentile

    @property
    def tpot_at(self) -> float | None:
        """Percentile of the TPOT target, None for the mean. [%]"""
        return self.tpot_percentile if self.tpot_percentile is not None else self.percentile

    @property
    def on_means(self) -> bool:
        """Whether both targets are on means."""
        return self.ttft_at is None and self.tpot_at is None

    def describe(self) -> str:
        """The targets in a sentence, as a plan states them."""
        from sizing.units import format_duration

        gap = "TPOT" if self.statistic == "request" else "gap between tokens (ITL, all requests pooled)"
        ttft = f"{_which(self.ttft_at)} TTFT at most {format_duration(self.ttft_s)}"
        tpot = f"{_which(self.tpot_at)} {gap} at most {format_duration(self.tpot_s)}"
        over = "over the whole run" if self.window_s is None else f"in every {format_duration(self.window_s)}"
        return f"{ttft}, {tpot}, {over}; refused and unfinished requests count as misses"


def _which(percentile: float | None) -> str:
    return "mean" if percentile is None else f"p{percentile:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attainment:
    """How a run stands against its targets.

    Attributes
    ----------
    attained
        Whether every target holds, in every window.
    goodput
        Share of all requests that finished within both targets. [1]
    ttft_s, tpot_s
        Value of each statistic; that of the worst window where there are windows. [s]
    ttft_share, tpot_share
        Share of all requests within each target (for ``itl``, of gaps). [1]
    requests, unfinished
        Requests judged, and those of them that were refused or did not finish.
    windows
        Windows judged.
    """

    attained: bool
    goodput: float
    ttft_s: float
    tpot_s: float
    ttft_share: float
    tpot_share: float
    requests: int
    unfinished: int
    windows: int


def value_at(values: npt.ArrayLike, percentile: float | None, weights: npt.ArrayLike | None = None) -> float:
    """Mean, or the smallest value that at least the given share does not exceed. [unit of the values]

    Parameters
    ----------
    values
        Observed values; infinite for a miss, NaN for one that does not count.
    percentile
        The share, None for the mean. [%]
    weights
        How often each value occurred; None for once each. [1]
    """
    observed: Floats = np.asarray(values, dtype=np.float64)
    counted = ~np.isnan(observed)
    if not counted.any():
        return math.nan
    observed = observed[counted]
    if weights is not None:
        return _weighted(observed, percentile, np.asarray(weights, dtype=np.float64)[counted])
    if percentile is None:
        return float(observed.mean())
    rank = _rank(percentile, len(observed))
    return float(np.partition(observed, rank)[rank])


def _rank(percentile: float, n: int) -> int:
    """Place, from 0, of the smallest value that a share of ``n`` does not exceed."""
    exact = percentile * n / 100
    return max(math.ceil(exact - 1e-9 * max(exact, 1.0)) - 1, 0)


def _weighted(values: Floats, percentile: float | None, weights: Floats) -> float:
    if weights.sum() <= 0:
        return math.nan
    if percentile is None:
        some = weights > 0
        return float(np.average(values[some], weights=weights[some]))
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    place = np.searchsorted(reached, reached[-1] * percentile / 100 * (1 - 1e-12), side="left")
    return float(values[order][min(int(place), len(values) - 1)])


def latencies(
    ttft_s: npt.ArrayLike, tpot_s: npt.ArrayLike, finished: npt.ArrayLike | None = None
) -> tuple[Floats, Floats]:
    """TTFT and TPOT as they count against targets: infinite for a request that did not finish. [s]

    Parameters
    ----------
    ttft_s
        Time to first token of each request; NaN where it never came. [s]
    tpot_s
        Mean gap after the first token; NaN for a request of one token. [s]
    finished
        Whether each request finished; None if all whose TTFT is known did.
    """
    ttft = np.array(ttft_s, dtype=np.float64)
    tpot = np.array(tpot_s, dtype=np.float64)
    require(ttft.shape == tpot.shape, "tpot_s", tpot.shape, f"one value a request ({ttft.shape})")
    missed = np.isnan(ttft) if finished is None else ~np.asarray(finished, dtype=np.bool_) | np.isnan(ttft)
    ttft[missed] = tpot[missed] = np.inf
    return ttft, tpot


def within(slo: Slo, ttft_s: npt.ArrayLike, tpot_s: npt.ArrayLike, finished: npt.ArrayLike | None = None) -> (
    npt.NDArray[np.bool_]
):  # fmt: skip
    """Whether each request finished within both targets; its own TPOT counts, whatever the statistic."""
    ttft, tpot = latencies(ttft_s, tpot_s, finished)
    return (ttft <= slo.ttft_s) & ((tpot <= slo.tpot_s) | np.isnan(tpot))


def goodput(slo: Slo, ttft_s: npt.ArrayLike, tpot_s: npt.ArrayLike, finished: npt.ArrayLike | None = None) -> float:
    """Share of all requests that finished within both targets. [1]"""
    good = within(slo, ttft_s, tpot_s, finished)
    return float(good.mean()) if len(good) else math.nan


def evaluate(
    slo: Slo,
    *,
    ttft_s: npt.ArrayLike,
    tpot_s: npt.ArrayLike,
    finished: npt.ArrayLike | None = None,
    arrival_s: npt.ArrayLike | None = None,
    itl_s: npt.ArrayLike | None = None,
    itl_counts: npt.ArrayLike | None = None,
) -> Attainment:
    """How requests stand against targets.

    Parameters
    ----------
    slo
        The targets.
    ttft_s, tpot_s, finished
        As for :func:`latencies`. [s]
    arrival_s
        Arrivals; needed for targets by window. [s]
    itl_s, itl_counts
        Gaps between tokens of all requests, or the values of a histogram of them with its counts; needed when the
        statistic is ``itl``. [s], [1]

    Raises
    ------
    InputError
        No request, or the targets need values that were not given.
    """
    ttft, tpot = latencies(ttft_s, tpot_s, finished)
    require(len(ttft) > 0, "ttft_s", 0, "at least one request")
    pooled = slo.statistic == "itl"
    if pooled and (itl_s is None or slo.window_s is not None):
        raise InputError("statistic: 'itl' is judged over a whole run, from itl_s; only a simulation or a log has it")
    parts = _windows(slo, arrival_s, len(ttft))
    ttft_values = [value_at(ttft[p], slo.ttft_at) for p in parts]
    if pooled:
        assert itl_s is not None
        gaps = np.asarray(itl_s, dtype=np.float64)
        counts = np.ones(len(gaps)) if itl_counts is None else np.asarray(itl_counts, dtype=np.float64)
        tpot_values = [value_at(gaps, slo.tpot_at, counts)]
        tpot_share = float(counts[gaps <= slo.tpot_s].sum() / max(counts.sum(), 1.0))
    else:
        tpot_values = [value_at(tpot[p], slo.tpot_at) for p in parts]
        tpot_share = float(np.mean((tpot <= slo.tpot_s) | np.isnan(tpot)))
    worst_ttft, worst_tpot = _worst(ttft_values), _worst(tpot_values)
    return Attainment(
        attained=worst_ttft <= slo.ttft_s and (worst_tpot <= slo.tpot_s or math.isnan(worst_tpot)),
        goodput=float(np.mean((ttft <= slo.ttft_s) & ((tpot <= slo.tpot_s) | np.isnan(tpot)))),
        ttft_s=worst_ttft, tpot_s=worst_tpot,
        ttft_share=float(np.mean(ttft <= slo.ttft_s)), tpot_share=tpot_share,
        requests=len(ttft), unfinished=int(np.isinf(ttft).sum()), windows=len(parts),
    )  # fmt: skip


def _worst(values: list[float]) -> float:
    known = [v for v in values if not math.isnan(v)]
    return max(known) if known else math.nan


def _windows(slo: Slo, arrival_s: npt.ArrayLike | None, n: int) -> list[npt.NDArray[np.int64]]:
    """Requests of each window by arrival; a window too small to show the percentile joins the one before."""
    if slo.window_s is None:
        return [np.arange(n)]
    if arrival_s is None:
        raise InputError("window_s: targets by window need the arrival time of each request")
    times = np.asarray(arrival_s, dtype=np.float64)
    require(len(times) == n, "arrival_s", len(times), f"one arrival a request ({n})")
    order = np.argsort(times, kind="stable")
    window = np.floor((times[order] - times[order[0]]) / slo.window_s)
    cuts = np.flatnonzero(np.diff(window)) + 1
    strictest = max((p for p in (slo.ttft_at, slo.tpot_at) if p is not None), default=0.0)
    least = max(math.ceil(1 / (1 - strictest / 100) - 1e-9), 1)
    parts: list[npt.NDArray[np.int64]] = []
    for part in np.split(order, cuts):
        if parts and (len(part) < least or len(parts[-1]) < least):
            parts[-1] = np.concatenate([parts[-1], part])
        else:
            parts.append(part)
    return parts
