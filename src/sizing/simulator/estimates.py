"""From records to figures with confidence intervals."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizing.errors import LawBroken
from sizing.simulator.records import PS, REFUSED, UNFINISHED, Records
from sizing.workload.slo import Slo, goodput, value_at

PERCENTILES = (None, 50, 90, 95, 99)
BATCHES = 20
LEAST_IN_BATCH = 10
SHARES = ("goodput", "prefix_hit_share", "utilization")
LITTLE_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure and its 95 % confidence interval (NaN where one run says nothing of its spread)."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the interval."""
        return (self.high - self.low) / 2


def label(metric: str, percentile: float | None) -> str:
    """Name of a statistic: ``ttft_mean_s``, ``tpot_p99_s``."""
    return f"{metric}_{'mean' if percentile is None else f'p{percentile:g}'}_s"


def counted(records: Records, warm_up: float) -> tuple[NDArray[np.bool_], float]:
    """Requests after the warm-up, and when it ends: a share of the time in which requests arrive. [s]"""
    arrival = records.arrival_s
    cut = float(arrival.min() + warm_up * (arrival.max() - arrival.min()))
    return arrival >= cut, cut


Columns = dict[str, NDArray[np.generic]]


def columns(records: Records) -> Columns:
    """What figures are made of, one entry a request; latencies of one refused or unfinished are infinite."""
    latencies = {"ttft": records.ttft_s, "tpot": records.tpot_s, "latency": records.latency_s}
    found: Columns = {name: np.where(records.done, values, np.inf) for name, values in latencies.items()}
    more: Columns = {
        "queue": records.queue_s, "done": records.done, "status": records.status, "prompt": records.input_tokens,
        "hit": records.hit_tokens, "preempted": records.preempted,
    }  # fmt: skip
    return found | more


def measures(seen: Columns, keep: NDArray[np.bool_] | NDArray[np.int64], slo: Slo | None) -> dict[str, float]:
    """Figures of one run over the requests in ``keep``, a mask or positions."""
    kept: dict[str, Any] = {name: values[keep] for name, values in seen.items()}
    found: dict[str, float] = {}
    for metric in ("ttft", "tpot", "latency", "queue"):
        for percentile in PERCENTILES:
            found[label(metric, percentile)] = value_at(kept[metric], percentile)
    if slo is not None:
        found["goodput"] = goodput(slo, kept["ttft"], kept["tpot"], kept["done"])
        found[label("ttft", slo.ttft_at)] = value_at(kept["ttft"], slo.ttft_at)
        found[label("tpot", slo.tpot_at)] = value_at(kept["tpot"], slo.tpot_at)
    found["unfinished"] = float(np.count_nonzero(kept["status"] == UNFINISHED))
    found["refused"] = float(np.count_nonzero(kept["status"] == REFUSED))
    found["prefix_hit_share"] = float(kept["hit"].sum()) / float(kept["prompt"].sum())
    found["preemptions_per_request"] = float(kept["preempted"].mean())
    return found


def whole_run(records: Records) -> dict[str, float]:
    """Figures that belong to a run as a whole, warm-up included."""
    for_s = max(records.end_s - float(records.arrival_s.min()), 1e-12)
    done = records.done
    tokens = records.gap_count
    return {
        "requests_per_s": float(done.sum()) / for_s,
        "output_tokens_per_s": float(records.output_tokens[done].sum()) / for_s,
        "utilization": float(records.busy_s.mean()) / for_s,
        "requests_present": float(records.present_request_s.sum()) / for_s,
        "itl_mean_s": value_at(records.gap_s, None, tokens),
        "itl_p50_s": value_at(records.gap_s, 50, tokens),
        "itl_p99_s": value_at(records.gap_s, 99, tokens),
    }


def steady_rates(records: Records, users: int, from_s: float) -> dict[str, float]:
    """Rates of a closed loop from one completion to another, while all its users are there.

    Parameters
    ----------
    records, users
        Of the run, and who sends: the last so many requests are the last of each. [request]
    from_s
        End of the warm-up. [s]
    """
    finish_s = np.where(records.done, records.finish_ps * PS, np.inf)
    inside = (finish_s >= from_s) & (finish_s <= finish_s[-users:].min()) & records.done
    if not inside.any() or finish_s[inside].min() == finish_s[inside].max():
        return {}
    first, last = finish_s[inside].min(), finish_s[inside].max()
    inside &= finish_s > first
    return {
        "requests_per_s": float(inside.sum()) / (last - first),
        "output_tokens_per_s": float(records.output_tokens[inside].sum()) / (last - first),
    }


def replica_rows(records: Records) -> list[dict[str, object]]:
    """Each replica of one run: requests that ended there, share of time in steps, what it computed and held."""
    for_s = max(records.end_s - float(records.arrival_s.min()), 1e-12)
    last = records.replica[records.done]
    requests = np.bincount(last, minlength=len(records.steps))
    tokens = np.bincount(last, weights=records.output_tokens[records.done], minlength=len(records.steps))
    return [
        {
            "replica": k, "requests": int(requests[k]), "output_tokens": int(tokens[k]), "steps": int(records.steps[k]),
            "utilization": float(records.busy_s[k]) / for_s, "prefilled_tokens": int(records.prefilled_tokens[k]),
            "preemptions": int(records.preemptions[k]),
            "requests_present": float(records.present_request_s[k]) / for_s,
            "peak_kv_blocks": int(records.peak_kv_blocks[k]),
        }
        for k in range(len(records.steps))
    ]  # fmt: skip


def check_laws(records: Records, kv_blocks: int, everywhere_up: bool) -> None:
    """Little's law and the size of the cache, on every run; a run that breaks one is a fault of ours."""
    if int(records.peak_kv_blocks.max()) > kv_blocks:
        raise LawBroken(f"simulation used {records.peak_kv_blocks.max()} KV blocks of {kv_blocks}; please report it")
    if not everywhere_up:
        return  # requests held while nothing is up are present nowhere
    until = np.where(records.done, records.finish_ps * PS, records.end_s)
    stayed = np.where((records.status != REFUSED) & (records.replica >= 0), until - records.arrival_s, 0.0)
    present, sojourn = float(records.present_request_s.sum()), float(stayed.sum())
    if not math.isclose(present, sojourn, rel_tol=LITTLE_TOLERANCE, abs_tol=1e-6):
        raise LawBroken(
            f"simulation breaks Little's law: {present:.6g} request-seconds present, {sojourn:.6g} from latencies;"
            " please report it"
        )


def within_t(angle: float, degrees: int) -> float:
    """Probability that Student's t lies within ``tan(angle) sqrt(degrees)`` of 0.

    A finite sum for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4).
    """
    odd = degrees % 2
    term = math.cos(angle) if odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(2 + odd, degrees - 1, 2):
        term *= math.cos(angle) ** 2 * (k - 1) / k
        total += term
    return (angle + math.sin(angle) * total) * 2 / math.pi if odd else math.sin(angle) * total


@lru_cache(maxsize=64)
def student_t(degrees: int) -> float:
    """The 97.5 % quantile of Student's t, by bisection; loading scipy for it would take longer than the rest."""
    low, high = 0.0, math.pi / 2
    while high - low > 1e-15 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if within_t(middle, degrees) < 0.95 else (low, middle)
    return math.tan(high) * math.sqrt(degrees)


def interval(values: Sequence[float], middle: float | None = None) -> Estimate:
    """Mean of independent figures and its 95 % interval; around ``middle`` if that is given."""
    array = np.asarray(values, dtype=np.float64)
    value = float(array.mean()) if middle is None else middle
    if len(array) < 2 or not np.all(np.isfinite(array)):
        return Estimate(value=value, low=math.nan, high=math.nan)
    half = student_t(len(array) - 1) * float(array.std(ddof=1)) / math.sqrt(len(array))
    return Estimate(value=value, low=value - half, high=value + half)


def possible(name: str, found: Estimate) -> Estimate:
    """An estimate whose interval holds nothing that can't be: no share above 1, nothing below 0."""
    most = 1.0 if name in SHARES else math.inf
    return Estimate(value=found.value, low=_between(found.low, 0.0, most), high=_between(found.high, 0.0, most))


def _between(value: float, least: float, most: float) -> float:
    return value if math.isnan(value) else min(max(value, least), most)


def over_replications(runs: Sequence[dict[str, float]]) -> dict[str, Estimate]:
    """Each figure over independent replications."""
    return {name: possible(name, interval([run[name] for run in runs])) for name in runs[0]}


def over_batches(records: Records, keep: NDArray[np.bool_], slo: Slo | None) -> dict[str, Estimate]:
    """Figures of a single run, intervals from the same figures of consecutive batches of requests.

    Batch means (Law, Simulation Modeling and Analysis, section 9.5.3): batches long enough are nearly
    independent. A percentile's interval is centred on that of the whole run.
    """
    seen = columns(records)
    whole = measures(seen, keep, slo)
    positions = np.flatnonzero(keep)
    if len(positions) < LEAST_IN_BATCH * BATCHES:
        return {name: interval([value]) for name, value in whole.items()}
    order = positions[np.argsort(records.arrival_ps[positions], kind="stable")]
    parts = [measures(seen, part, slo) for part in np.array_split(order, BATCHES)]
    counts = ("unfinished", "refused")
    return {
        name: possible(name, interval([value] if name in counts else [part[name] for part in parts], value))
        for name, value in whole.items()
    }
