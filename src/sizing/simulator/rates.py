"""The rate a fleet sustains, rate sweeps, and a plan held against the simulation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sizing.errors import InputError
from sizing.simulator.replicamodel import ReplicaModel
from sizing.simulator.simulation import SimulationResult, at_rate, draw, simulate
from sizing.workload import Slo, Workload

TOLERANCE = 0.01
MOST_DOUBLINGS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class SustainableRate:
    """The largest request rate at which enough requests are within the targets.

    Attributes
    ----------
    request_rate_per_s
        The largest rate found to hold; 0 where none does. [request/s]
    too_much_per_s
        The smallest rate found not to hold. [request/s]
    at_rate
        The simulation at the rate that holds; None where none does.
    saturated_per_s
        Requests over the time they take when all are there at once: no rate above it lasts, whatever the targets
        allow in a run that ends. [request/s]
    tried
        Rates tried, with the goodput of each.
    """

    request_rate_per_s: float
    too_much_per_s: float
    at_rate: SimulationResult | None
    saturated_per_s: float
    tried: tuple[tuple[float, float], ...]


def saturated_rate(workload: Workload, replica: ReplicaModel, **how: Any) -> float:
    """Requests a fleet answers in a second when all of a run are there at once. [request/s]

    Parameters
    ----------
    workload, replica
        Shape of the requests, and the replica.
    how
        Arguments of :func:`simulate`.
    """
    drawn = draw(workload, how.get("requests"), how.get("duration_s"), how.get("seed", 0))
    at_once = replace(drawn, arrival_s=np.zeros(len(drawn)))
    alone = {**how, "requests": None, "duration_s": None, "replications": 1, "warm_up": 0.0, "horizon_s": None}
    return simulate(at_once, replica, **alone)["requests_per_s"].value


def sustainable_rate(
    workload: Workload, replica: ReplicaModel, slo: Slo, *, share: float | None = None, tolerance: float = TOLERANCE,
    **how: Any,
) -> SustainableRate:  # fmt: skip
    """Search the largest rate that holds, by doubling and bisection with the same random numbers at each rate.

    Parameters
    ----------
    workload
        Shape of the requests; its rate is where the search begins.
    replica
        The replica.
    slo
        The targets.
    share
        Share of requests within both targets that is enough (goodput); None: the targets hold in their own
        statistic. [1]
    tolerance
        Relative width of the bracket to stop at. [1]
    how
        Arguments of :func:`simulate`.
    """
    if share is not None and not 0 < share <= 1:
        raise InputError(f"share: {share!r} is not allowed; give a share above 0 and up to 1")
    tried: list[tuple[float, float]] = []
    best: SimulationResult | None = None

    saturated = saturated_rate(workload, replica, **how)

    def holds(rate: float) -> bool:
        nonlocal best
        if rate > saturated:
            return False
        result = simulate(at_rate(workload, rate), replica, slo=slo, **how)
        tried.append((rate, result.goodput.value))
        good = result.attained if share is None else result.goodput.value >= share
        if good:
            best = result
        return good

    low, high = 0.0, workload.request_rate_per_s
    for _ in range(MOST_DOUBLINGS):
        if not holds(high):
            break
        low, high = high, high * 2 if high >= saturated else min(high * 2, saturated)
    if low == 0.0:
        for _ in range(MOST_DOUBLINGS):
            low, tested = 0.0, high / 2
            if holds(tested):
                low = tested
                break
            high = tested
    while low > 0 and high / low - 1 > tolerance:
        middle = (low * high) ** 0.5
        if holds(middle):
            low = middle
        else:
            high = middle
    return SustainableRate(
        request_rate_per_s=low, too_much_per_s=high, at_rate=best, saturated_per_s=saturated, tried=tuple(sorted(tried))
    )  # fmt: skip


def sweep_rates(
    workload: Workload, replica: ReplicaModel, rates_per_s: Sequence[float], **how: Any
) -> list[tuple[float, SimulationResult]]:
    """Simulate each request rate with the same random numbers.

    Parameters
    ----------
    workload, replica
        Shape of the requests, and the replica.
    rates_per_s
        Rates. [request/s]
    how
        Arguments of :func:`simulate`.
    """
    return [(rate, simulate(at_rate(workload, rate), replica, **how)) for rate in rates_per_s]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """A planned number of replicas, and its neighbours, replayed.

    Attributes
    ----------
    planned
        Replicas of the plan. [replica]
    claimed_ttft_s, claimed_tpot_s
        What the closed form says of it. [s]
    simulated
        Replicas with their simulation: one less (if there is one), the plan, one more.
    """

    planned: int
    claimed_ttft_s: float
    claimed_tpot_s: float
    simulated: tuple[tuple[int, SimulationResult], ...]

    @property
    def needed(self) -> int | None:
        """Fewest replicas, of those tried, that hold the targets; None if none does. [replica]"""
        return next((n for n, result in self.simulated if result.attained), None)

    @property
    def agrees(self) -> bool:
        """Whether the planned replicas hold the targets in the simulation too."""
        return dict(self.simulated)[self.planned].attained

    def to_records(self) -> list[dict[str, object]]:
        """A row a number of replicas."""
        rows: list[dict[str, object]] = []
        for n, result in self.simulated:
            own = n == self.planned
            ttft, tpot = (sum(getattr(a, x) for a in result.attainment) / len(result.attainment)
                          for x in ("ttft_s", "tpot_s"))  # fmt: skip
            rows.append({
                "replicas": n, "planned": own, "holds": result.attained, "ttft_s": ttft, "tpot_s": tpot,
                "goodput": result.goodput.value, "utilization": result["utilization"].value,
                "claimed_ttft_s": self.claimed_ttft_s if own else None,
                "claimed_tpot_s": self.claimed_tpot_s if own else None,
            })  # fmt: skip
        return rows

    def verdict(self) -> str:
        """In one line, whether plan and simulation agree."""
        if not self.agrees:
            more = f"{self.needed} would" if self.needed else "one more would not either"
            return f"simulation differs: {self.planned} replicas do not hold the targets; {more}"
        if self.needed is not None and self.needed < self.planned:
            return f"simulation agrees: {self.planned} replicas hold the targets, with room: {self.needed} would too"
        return f"simulation agrees: {self.planned} replicas hold the targets, one less would not"


def verify(
    workload: Workload, slo: Slo, replica: ReplicaModel, replicas: int, *, claimed_ttft_s: float,
    claimed_tpot_s: float, **how: Any,
) -> Verification:  # fmt: skip
    """Replay a plan, one replica less and one more.

    Parameters
    ----------
    workload, slo
        What is asked; the rate is that of the whole fleet.
    replica, replicas
        The replica, and how many of them the plan has. [replica]
    claimed_ttft_s, claimed_tpot_s
        Latency at the planned load by the closed form. [s]
    how
        Arguments of :func:`simulate`.
    """
    counts = [n for n in (replicas - 1, replicas, replicas + 1) if n >= 1]
    return Verification(
        planned=replicas, claimed_ttft_s=claimed_ttft_s, claimed_tpot_s=claimed_tpot_s,
        simulated=tuple((n, simulate(workload, replica, replicas=n, slo=slo, **how)) for n in counts),
    )  # fmt: skip
