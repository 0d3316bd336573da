"""Failures: how often something breaks, and how many of a fleet are up."""

import math

from sizing.errors import InputError


def interruption_interval_s(period_s: float, interruptions: float) -> float:
    """Mean time between interruptions of a fleet. [s]

    Parameters
    ----------
    period_s
        Time watched. [s]
    interruptions
        Interruptions in it. [1]

    Notes
    -----
    Llama 3 training: 419 unplanned interruptions in 54 days on 16,384 GPUs, one every 3.09 hours (Llama 3
    paper, arXiv 2407.21783, table 5).
    """
    if period_s <= 0 or interruptions <= 0:
        raise InputError(f"interruptions: {interruptions!r} in {period_s!r} s is not allowed; give positive numbers")
    return period_s / interruptions


def availability(mtbf_s: float, mttr_s: float) -> float:
    """Share of time that a unit is up: MTBF / (MTBF + MTTR). [1]

    Parameters
    ----------
    mtbf_s, mttr_s
        Mean time between failures and to repair. [s]
    """
    return mtbf_s / (mtbf_s + mttr_s)


def at_least_up(required: int, units: int, unit_availability: float) -> float:
    """Probability that at least ``required`` of ``units`` independent units are up. [1]

    Parameters
    ----------
    required, units
        Replicas. [replica]
    unit_availability
        Share of time that one is up. [1]

    Notes
    -----
    Sum over j = required..units of C(units, j) a^j (1-a)^(units-j). Units that share a failure domain (a
    node, an NVLink rack) are not independent: count the domain as the unit.
    """
    if required <= 0:
        return 1.0
    if required > units:
        return 0.0
    if unit_availability >= 1.0:
        return 1.0
    log_up, log_down = math.log(unit_availability), math.log1p(-unit_availability)
    terms = (
        math.exp(math.lgamma(units + 1) - math.lgamma(j + 1) - math.lgamma(units - j + 1)
                 + j * log_up + (units - j) * log_down)
        for j in range(required, units + 1)
    )  # fmt: skip
    return min(1.0, math.fsum(terms))


def spares_for(required: int, unit_availability: float, target: float, most: int = 10_000) -> int:
    """Fewest spare units with which ``required`` are up with probability ``target``. [replica]

    Raises
    ------
    InputError
        The target is not below 1, or needs more than ``most`` spares.
    """
    if not 0 < target < 1 or not 0 < unit_availability <= 1:
        raise InputError(f"availability: target {target!r}, unit {unit_availability!r}; give shares between 0 and 1")
    for spares in range(most + 1):
        if at_least_up(required, required + spares, unit_availability) >= target:
            return spares
    raise InputError(f"availability: {target!r} of {required} units at {unit_availability!r} needs over {most} spares")
