"""Simulate a workload or a trace on a fleet, and say what came of it, with confidence intervals."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from sizing.deployment import Deployment
from sizing.errors import InputError
from sizing.simulator.estimates import (
    Estimate,
    check_laws,
    columns,
    counted,
    interval,
    label,
    measures,
    over_batches,
    over_replications,
    replica_rows,
    steady_rates,
    whole_run,
)
from sizing.simulator.playback import replay
from sizing.simulator.pools import PrefillPool, replay_pools
from sizing.simulator.records import Records
from sizing.simulator.replicamodel import ReplicaModel, replica_model
from sizing.simulator.spec import FleetPlan, check_whole, in_turns
from sizing.units import format_duration
from sizing.workload import Profile, Slo, Workload
from sizing.workload.requests import Requests
from sizing.workload.slo import Attainment, evaluate

REQUESTS = 10_000
REPLICATIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """What a simulation found.

    Attributes
    ----------
    estimates
        Figures by name, each with its 95 % interval: ``ttft_p99_s``, ``tpot_mean_s``, ``goodput``, ...
    attainment
        How each replication stands against the targets.
    records
        Records of the first replication (of all of them only if asked for).
    replications
        Independent runs.
    warm_up_s
        Requests that arrived before this time of a run are left out of the figures on requests. [s]
    notes
        How to read the figures.
    """

    estimates: Mapping[str, Estimate]
    attainment: tuple[Attainment, ...]
    records: tuple[Records, ...]
    replications: int
    warm_up_s: float
    slo: Slo | None
    notes: tuple[str, ...]

    def __getitem__(self, name: str) -> Estimate:
        """A figure by its name."""
        return self.estimates[name]

    @property
    def attained(self) -> bool:
        """Whether the targets hold on average over the replications."""
        if self.slo is None:
            return False
        ttft, tpot = self._judged()
        return ttft.value <= self.slo.ttft_s and not tpot.value > self.slo.tpot_s

    @property
    def goodput(self) -> Estimate:
        """Share of requests answered within both targets. [1]"""
        return self.estimates["goodput"]

    def _judged(self) -> tuple[Estimate, Estimate]:
        """TTFT and TPOT as the targets mean them: worst window, percentile or mean, requests or gaps."""
        return (interval([a.ttft_s for a in self.attainment]), interval([a.tpot_s for a in self.attainment]))

    @property
    def verdict(self) -> dict[str, object]:
        """TTFT and TPOT in the statistic of the targets, and whether they hold. [s]"""
        if self.slo is None:
            return {}
        ttft, tpot = self._judged()
        return {"attained": self.attained, "ttft_s": asdict(ttft), "tpot_s": asdict(tpot)}

    def judgement(self) -> str:
        """Whether the targets hold, and at which values, in a line."""
        if self.slo is None:
            return ""
        ttft, tpot = self._judged()
        gap = "TPOT" if self.slo.statistic == "request" else "gap"
        shares = f"{self.goodput.value:.4g} of requests within both"
        found = f"TTFT {_seconds(ttft.value)}, {gap} {_seconds(tpot.value)}, {shares}"
        return f"targets {'hold' if self.attained else 'missed'}: {found}"

    def summary(self) -> dict[str, object]:
        """Figures by metric and statistic, each with its interval: ``summary()["ttft_s"]["p99"]["value"]``."""
        found: dict[str, Any] = {}
        for name, estimate in self.estimates.items():
            metric, _, statistic = name.removesuffix("_s").rpartition("_")
            if statistic == "mean" or statistic.removeprefix("p").replace(".", "").isdigit():
                found.setdefault(f"{metric}_s", {})[statistic] = asdict(estimate)
            else:
                found[name] = asdict(estimate)
        return found

    def per_replica(self) -> list[dict[str, object]]:
        """What each replica did in the first replication, warm-up included."""
        return replica_rows(self.records[0])

    def to_records(self) -> list[dict[str, object]]:
        """A row a figure."""
        return [{"figure": name, "value": e.value, "low": e.low, "high": e.high} for name, e in self.estimates.items()]


def _seconds(value_s: float) -> str:
    """A latency as people read it; a mean or percentile that a miss is part of is infinite."""
    if math.isnan(value_s):
        return "none"
    return format_duration(value_s) if math.isfinite(value_s) else "infinite"


def _judge(records: Records, keep: Any, slo: Slo) -> Attainment:
    """One run against the targets."""
    finished = records.done[keep]
    pooled: dict[str, Any] = {}
    if slo.statistic == "itl":
        pooled = {"itl_s": records.gap_s, "itl_counts": records.gap_count}
    ttft, tpot = (np.where(np.isinf(x), np.nan, x)[keep] for x in (records.ttft_s, records.tpot_s))
    return evaluate(slo, ttft_s=ttft, tpot_s=tpot, finished=finished, arrival_s=records.arrival_s[keep], **pooled)


def draw(traffic: Any, requests: int | None, duration_s: float | None, seed: int) -> Requests:
    """Requests of one replication."""
    if isinstance(traffic, Workload):
        if duration_s is not None:
            return traffic.sample_for(duration_s, seed)
        return traffic.sample(requests or REQUESTS, seed)
    drawn = getattr(traffic, "requests", traffic)
    if not isinstance(drawn, Requests):
        raise InputError(f"traffic: {type(traffic).__name__} is neither a workload, a trace nor requests")
    kept: Requests = drawn
    if duration_s is not None:
        kept = kept.take(kept.arrival_s < kept.arrival_s[0] + duration_s)
    return kept.take(slice(0, requests)) if requests is not None else kept


def simulate(
    traffic: Any, replica: Deployment | ReplicaModel, *, replicas: int = 1, router: str = "least-loaded",
    slo: Slo | None = None, requests: int | None = None, duration_s: float | None = None,
    replications: int | None = None, seed: int = 0, warm_up: float = 0.1, horizon_s: float | None = None,
    fleet: FleetPlan | None = None, prefill: PrefillPool | None = None, keep_records: bool = False,
    concurrency: int | None = None, pause_s: float = 0.0, progress: Callable[[float], None] | None = None,
) -> SimulationResult:  # fmt: skip
    """Simulate a fleet, iteration by iteration.

    Parameters
    ----------
    traffic
        A workload (drawn anew in each replication), a trace, or requests.
    replica
        A deployment, or a replica as :func:`replica_model` makes it.
    replicas, router
        The fleet, unless ``fleet`` says more: random, round-robin, least-loaded, prefix-aware, sticky. [replica]
    slo
        Targets that requests are held against.
    requests, duration_s
        Length of one replication; 10,000 requests of a workload, the whole of a trace, if left out.
        [request], [s]
    replications
        Independent runs, seeds ``seed``, ``seed + 1``, ...; 5 of a workload, 1 of a trace, if left out.
    warm_up
        Share of the time of arrivals whose requests are left out of the figures. [1]
    horizon_s
        End of a run: who arrived and is not done by then is a miss. None: until everybody is done. [s]
    fleet
        Replicas, router, failures, starts and drains.
    prefill
        A prefill pool; ``replica`` then only decodes.
    keep_records
        Keep the records of every replication.
    concurrency, pause_s
        So many users, each of whom sends the next request a pause after the answer to the one before: a closed loop,
        in which the request rate is an answer. None: requests arrive by the clock. [request], [s]
    progress
        Called with the share that is done.
    """
    if not 0 <= warm_up < 1:
        raise InputError(f"warm_up: {warm_up!r} is not allowed; give a share from 0 to below 1")
    if not isinstance(replica, ReplicaModel | Deployment):
        raise InputError(f"replica: {type(replica).__name__} is not allowed; give a Deployment or a ReplicaModel")
    model = replica if isinstance(replica, ReplicaModel) else replica_model(replica)
    plan = fleet or FleetPlan(replicas=replicas, router=router)
    runs = (REPLICATIONS if isinstance(traffic, Workload) else 1) if replications is None else replications
    check_whole("replications", runs, 1, 10_000)
    check_whole("requests", REQUESTS if requests is None else requests, 1, 1 << 31)
    check_whole("seed", seed, 0, 1 << 62)
    figures: list[dict[str, float]] = []
    judged: list[Attainment] = []
    kept: list[Records] = []
    for k in range(runs):
        drawn = draw(traffic, requests, duration_s, seed + k)
        if horizon_s is not None and concurrency is None and drawn.after is None:
            drawn = drawn.take(drawn.arrival_s < horizon_s)
        if concurrency is not None:
            drawn = in_turns(drawn, concurrency, pause_s)
        share = None if progress is None else _part(progress, k, runs)
        records = _run(drawn, model, plan, prefill, seed + k, horizon_s, share)
        keep, warm_up_s = counted(records, warm_up)
        whole = whole_run(records) | ({} if concurrency is None else steady_rates(records, concurrency, warm_up_s))
        figures.append(whole if runs == 1 else measures(columns(records), keep, slo) | whole)
        if slo is not None:
            judged.append(_judge(records, keep, slo))
        if keep_records or not kept:
            kept.append(records)
    if runs > 1:
        estimates = over_replications(figures)
    else:
        estimates = over_batches(kept[0], counted(kept[0], warm_up)[0], slo)
        estimates |= {name: interval([value]) for name, value in figures[0].items()}
    return SimulationResult(
        estimates=estimates, attainment=tuple(judged), records=tuple(kept), replications=runs, warm_up_s=warm_up_s,
        slo=slo, notes=_notes(runs, warm_up, warm_up_s, horizon_s, slo, estimates, concurrency)
        + _too_long(estimates, model) + _unlike(traffic, kept[0], concurrency),
    )  # fmt: skip


def _part(progress: Callable[[float], None], k: int, runs: int) -> Callable[[float], None]:
    return lambda share: progress((k + share) / runs)


def _run(
    drawn: Requests, model: ReplicaModel, plan: FleetPlan, prefill: PrefillPool | None, seed: int,
    horizon_s: float | None, progress: Callable[[float], None] | None,
) -> Records:  # fmt: skip
    """One replication, held against the laws."""
    if prefill is not None:
        return replay_pools(drawn, prefill, model, plan, seed=seed, horizon_s=horizon_s)[0]
    records = replay(drawn, model.steps, model.scheduler, plan, seed=seed, horizon_s=horizon_s, progress=progress)
    steady = not plan.events and not plan.down_at_start
    check_laws(records, model.scheduler.kv_tokens // model.scheduler.block_tokens, steady)
    return records


def _notes(
    runs: int, warm_up: float, warm_up_s: float, horizon_s: float | None, slo: Slo | None,
    estimates: Mapping[str, Estimate], concurrency: int | None,
) -> tuple[str, ...]:  # fmt: skip
    if runs > 1:
        notes = [f"95 % intervals from {runs} independent replications"]
    elif math.isnan(estimates["ttft_p50_s"].low):
        notes = ["one run, too short or with too many misses for intervals"]
    else:
        notes = ["95 % intervals from 20 consecutive batches of requests of one run"]
    if warm_up:
        notes.append(f"the requests of the first {warm_up:.0%} of the time ({warm_up_s:.0f} s) are left out: warm-up")
    notes.append("runs until all are answered" if horizon_s is None else f"stops at {horizon_s:g} s")
    if concurrency is not None:
        notes.append(f"closed loop of {concurrency} users, who all begin at once; rates are those while all are there")
    if slo is not None:
        notes.append(slo.describe())
    missed = estimates["refused"].value + estimates["unfinished"].value
    if missed:
        notes.append(f"{missed:,.4g} requests per run refused or unfinished: their latencies count as infinite")
    return tuple(notes)


def _too_long(estimates: Mapping[str, Estimate], model: ReplicaModel) -> tuple[str, ...]:
    if not estimates["refused"].value:
        return ()
    longest = model.scheduler.longest_request_tokens
    return (f"refused: prompt and answer of more than {longest:,} tokens, the longest that a replica takes",)


def _unlike(traffic: Any, records: Records, concurrency: int | None) -> tuple[str, ...]:
    """Where what was replayed is not quite the workload."""
    if not isinstance(traffic, Workload):
        return ()
    notes = []
    if traffic.prefix_hit_share and traffic.sessions is None and traffic.prefix is None:
        notes.append(
            f"prompts share nothing here: of a measured prefix reuse of {traffic.prefix_hit_share:.0%} it is not known "
            "who shares what; simulate the trace itself for prefix hits"
        )
    arrivals, span_s = traffic.arrivals, float(np.ptp(records.arrival_s))
    if concurrency is None and isinstance(arrivals, Profile) and span_s < 0.95 * arrivals.period_s:
        notes.append(
            f"{span_s:,.0f} s of a profile of {arrivals.period_s:,.0f} s were replayed, from its begin: give a "
            f"duration for all of it; its busiest time has {traffic.peak_rate_per_s:.3g} requests/s"
        )
    return tuple(notes)


def at_rate(workload: Workload, rate_per_s: float) -> Workload:
    """The same workload at another rate. [request/s]"""
    return replace(workload, request_rate_per_s=rate_per_s)


__all__ = ["PrefillPool", "SimulationResult", "at_rate", "label", "simulate"]
