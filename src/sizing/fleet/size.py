"""How many replicas carry the traffic, and how many more stand by."""

import math
from dataclasses import dataclass

from sizing.errors import InputError
from sizing.replica.colocated import ReplicaCapacity
from sizing.replica.loads import QUANTILE_80
from sizing.workload import Workload

MOST_REPLICAS = 10**7


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """What the operator wants of the fleet beside latency.

    Attributes
    ----------
    utilization
        Share of a replica's capacity that is planned for; the rest is headroom. [1]
    spares
        Replicas that stand by for failures and rollouts. [replica]
    """

    utilization: float = 0.85
    spares: int = 2

    def __post_init__(self) -> None:
        if not 0 < self.utilization <= 1:
            raise InputError(f"utilization: {self.utilization!r} is not allowed; give a share above 0 and up to 1")
        if isinstance(self.spares, bool) or not isinstance(self.spares, int) or not 0 <= self.spares <= 10**6:
            raise InputError(f"spares: {self.spares!r} is not allowed; give a whole number from 0 to 1,000,000")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Replicas that carry the traffic.

    Attributes
    ----------
    replicas
        Serving replicas. [replica]
    exact_replicas
        Before rounding up: rate / (capacity x target utilisation). [replica]
    rate_per_replica_per_s
        Request rate of one replica when all serve. [request/s]
    utilization
        That rate over the capacity. [1]
    """

    replicas: int
    exact_replicas: float
    rate_per_replica_per_s: float
    utilization: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spares:
    """Replicas standing by."""

    replicas: int


def size_fleet(workload: Workload, replica: ReplicaCapacity, targets: Targets, at_least: int = 1) -> Fleet:
    """Replicas for the traffic with headroom: N = ceil(lambda / (capacity x utilisation)).

    Parameters
    ----------
    workload, replica, targets
        Traffic, one replica, headroom.
    at_least
        Replicas that the capacity was taken for: so many share a bursty stream. [replica]

    Notes
    -----
    With the additive capacity this is N = ceil((prefill GPUs + in flight / batch) / utilisation), the closed
    form of the seeds. A replica that carries nothing gives no replicas.
    """
    if replica.request_rate_per_s <= 0:
        return Fleet(replicas=0, exact_replicas=math.inf, rate_per_replica_per_s=0.0, utilization=math.inf)
    exact = workload.request_rate_per_s / replica.planned_rate_per_s(targets.utilization)
    replicas = max(replicas_for(exact), at_least)
    if replicas > MOST_REPLICAS:
        raise InputError(
            f"the plan needs {exact:.3g} replicas, above {MOST_REPLICAS:,}; check the rate and the lengths"
        )
    rate = workload.request_rate_per_s / replicas
    return Fleet(replicas=replicas, exact_replicas=exact, rate_per_replica_per_s=rate,
                 utilization=replica.utilization(rate))  # fmt: skip


def replicas_for(exact: float) -> int:
    """Replicas from their exact number: rounded up, at least one. [replica]"""
    return max(1, math.ceil(exact - 1e-9))


def replicas_between(workload: Workload, replica: ReplicaCapacity, targets: Targets, spread: float) -> tuple[int, int]:
    """Replicas with the capacity at the upper and at the lower bound of its 80 % interval. [replica]

    Parameters
    ----------
    workload, targets
        Rate and headroom.
    replica
        Capacity by the nominal constants.
    spread
        Log-sigma of the capacity. [1]
    """
    width = math.exp(QUANTILE_80 * spread)
    exact = workload.request_rate_per_s / replica.planned_rate_per_s(targets.utilization)
    return replicas_for(exact / width), replicas_for(exact * width)


def additive_replicas(
    input_tokens_per_s: float,
    output_tokens_per_s: float,
    prefill_tokens_per_s: float,
    decode_tokens_per_s: float,
) -> float:
    """Replicas before rounding when prefill and decode throughput of one replica are known. [replica]

    Parameters
    ----------
    input_tokens_per_s, output_tokens_per_s
        Traffic. [token/s]
    prefill_tokens_per_s, decode_tokens_per_s
        What one replica (or node) prefills alone, and decodes alone. [token/s]

    Notes
    -----
    N = input / prefill rate + output / decode rate: the two take their shares of time. DeepSeek's fleet,
    608e9 input and 168e9 output tokens a day at 73.7k and 14.8k tokens/s a node, comes to 226.9 nodes where
    226.75 were reported (DeepSeek open-infra-index, day 6).
    """
    return input_tokens_per_s / prefill_tokens_per_s + output_tokens_per_s / decode_tokens_per_s


def size_spares(fleet: Fleet, targets: Targets) -> Spares:
    """Spare replicas: the number the operator asked for, none for an empty fleet."""
    return Spares(replicas=targets.spares if fleet.replicas else 0)
