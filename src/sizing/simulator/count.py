"""The fewest replicas that hold targets in simulation, searched from a first guess."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from sizing.simulator.replicamodel import ReplicaModel
from sizing.simulator.simulation import SimulationResult, simulate
from sizing.workload import Slo, Workload

LEAST_REQUESTS, MOST_REQUESTS = 6_000, 60_000
"""Requests of one run. [request]"""
LONG_S = 120.0
"""Time of arrivals that a run should cover, within those bounds. [s]"""
RUNS = 3
"""Independent runs of each number of replicas. [1]"""
PATIENCE_S = 8.0
"""Time after which no further number of replicas is tried. [s]"""
FARTHEST = 8
"""Times the guess, beyond which no number is tried. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FewestReplicas:
    """What a search over the number of replicas found.

    Attributes
    ----------
    replicas
        Fewest that hold the targets; None where none was found in time. [replica]
    too_few
        Most that were seen not to hold them; 0 where all did. [replica]
    tried
        Replicas tried, and whether they hold.
    at_fewest
        The simulation of the fewest.
    """

    replicas: int | None
    too_few: int
    tried: tuple[tuple[int, bool], ...]
    at_fewest: SimulationResult | None

    @property
    def settled(self) -> bool:
        """Whether one replica less was seen not to hold."""
        return self.replicas is not None and self.too_few == self.replicas - 1


def run_length(rate_per_s: float) -> int:
    """Requests of a run at a rate. [request]"""
    return int(min(max(rate_per_s * LONG_S, LEAST_REQUESTS), MOST_REQUESTS))


def fewest_replicas(
    workload: Workload, slo: Slo, replica: ReplicaModel, guess: int, *, seed: int = 0, patience_s: float = PATIENCE_S,
    progress: Callable[[int], None] | None = None,
) -> FewestReplicas:  # fmt: skip
    """Search by growing steps from a guess and bisection, with the same random numbers at each number of replicas.

    More replicas are taken to hold whatever fewer do; over few runs that is true up to their noise.

    Parameters
    ----------
    workload, slo
        What the fleet carries, and the targets.
    replica
        One replica.
    guess
        Where to begin. [replica]
    seed
        Of the first run.
    patience_s
        Time after which no further number is tried. [s]
    progress
        Called with each number before it is tried.
    """
    until = time.monotonic() + patience_s
    tried: dict[int, bool] = {}
    best: list[SimulationResult | None] = [None]

    def holds(n: int) -> bool:
        if progress is not None:
            progress(n)
        result = simulate(workload, replica, replicas=n, slo=slo, seed=seed, replications=RUNS, warm_up=0.2,
                          requests=run_length(workload.request_rate_per_s))  # fmt: skip
        tried[n] = result.attained
        if result.attained:
            best[0] = result
        return result.attained

    def out_of_time() -> bool:
        return time.monotonic() > until

    low, high = 0, None
    n, step = max(guess, 1), max(guess // 16, 1)
    while not tried or (n <= FARTHEST * guess and not out_of_time()):
        if holds(n):
            high = n
            if n - low <= 1 or low > 0:
                break
            n = max(n - step, 1)
        else:
            low = n
            if high is not None:
                break
            n = n + step
        step *= 2
    while high is not None and high - low > 1 and not out_of_time():
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return FewestReplicas(replicas=high, too_few=low, tried=tuple(sorted(tried.items())), at_fewest=best[0])
