"""Rolling out a new version: how much of the fleet keeps serving."""

import math
from dataclasses import dataclass

from sizing.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A rolling update.

    Attributes
    ----------
    unavailable, surge
        Replicas that may be down, and that may stand beside the fleet. [replica]
    least_serving, most_running
        Replicas serving at the worst moment, and replicas that need GPUs at the fullest. [replica]
    capacity_share
        Share of the fleet's capacity at the worst moment. [1]
    """

    unavailable: int
    surge: int
    least_serving: int
    most_running: int
    capacity_share: float


def rollout(replicas: int, max_unavailable: float | int, max_surge: float | int = 0) -> Rollout:
    """Capacity during a rolling update, with the rounding of Kubernetes Deployments.

    Parameters
    ----------
    replicas
        Fleet. [replica]
    max_unavailable, max_surge
        Replicas (int) or share of the fleet (float between 0 and 1). [replica] or [1]

    Notes
    -----
    A share of surge rounds up and of unavailable rounds down; when both come to nothing, one may be
    unavailable (kubernetes, pkg/controller/deployment/util, ResolveFenceposts).
    """
    if replicas < 1 or max_unavailable < 0 or max_surge < 0:
        raise InputError(
            f"rollout: {replicas!r} replicas, unavailable {max_unavailable!r}, surge {max_surge!r} is not allowed; "
            "give at least one replica and nothing negative"
        )
    down = math.floor(max_unavailable * replicas) if isinstance(max_unavailable, float) else max_unavailable
    more = math.ceil(max_surge * replicas) if isinstance(max_surge, float) else max_surge
    if down == 0 and more == 0:
        down = 1
    down = min(down, replicas)
    return Rollout(unavailable=down, surge=more, least_serving=replicas - down, most_running=replicas + more,
                   capacity_share=(replicas - down) / replicas)  # fmt: skip
