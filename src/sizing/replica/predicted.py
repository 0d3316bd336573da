"""Capacity of a replica by the very curve that ``predict_run`` reads, with error bars from the constants."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizing.engines.timing import Scheduling, engine_timing
from sizing.replica.curve import POINTS, Curve, run_curve
from sizing.replica.loads import QUANTILE_80, Estimate, Lengths, Room
from sizing.replica.run import kv_requests
from sizing.steptime import StepModel
from sizing.workload import Workload

Values = NDArray[np.float64]
LEAST_SLOPE = 0.05
"""Least relative change of a latency over that of the rate that a spread is divided by. [1]"""
MOST_SPREAD = 2.0
"""Largest log-sigma that is said. [1]"""
COARSE = 6
"""Batch sizes that spreads are computed at, small ones apart. [1]"""
DRAWS = 64
"""Joint draws of the constants that an error bar is made from. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A replica over its request rate, by the nominal constants.

    Attributes
    ----------
    room
        Requests that run at once.
    curve
        Rate, TPOT, time to first token and requests in flight.
    nominal
        Rate, TPOT, time to first token and active requests, each never falling.
    steps, scheduling
        Step times, and how the engine forms steps.
    start_scale
        Factor on the wait and prefill before the first token, of a user's calibration. [1]
    remembered
        Curves in other statistics than these means, by what they depend on (:mod:`sizing.replica.percentile`).
    """

    room: Room
    curve: Curve
    nominal: tuple[Values, Values, Values, Values]
    steps: StepModel = field(compare=False, repr=False)
    scheduling: Scheduling
    start_scale: float = 1.0
    remembered: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """How far the draws of the constants, and what they leave unexplained, move a prediction.

    Attributes
    ----------
    rate_per_s
        Points. [request/s]
    latency
        Log-sigma of ``tpot`` and ``ttft`` at a given rate, at each point. [1]
    capacity
        Log-sigma of the rate at which ``tpot``, ``ttft`` or the room is reached, at each point. [1]
    """

    rate_per_s: Values
    latency: dict[str, Values]
    capacity: dict[str, Values]


def lengths_of(workload: Workload) -> Lengths:
    """Means and variation of a workload's lengths, history and shared prefixes included."""
    isl, osl = workload.input_length, workload.output_length
    mean = workload.mean_input_tokens
    return Lengths(
        input_tokens=mean, output_tokens=osl.mean, input_cv=isl.std / mean, output_cv=osl.std / osl.mean
    )  # fmt: skip


def _run(steps: StepModel, workload: Workload, most: float, budget: float, points: int = POINTS) -> Curve:
    timing = engine_timing(steps.deployment.settings.engine)
    return run_curve(steps, lengths_of(workload), timing.scheduling(budget), most, points=points)


def predict_replica(
    steps: StepModel, memory: Any, workload: Workload, max_num_seqs: float, budget: float
) -> Prediction:
    """Curve of a replica under open traffic.

    Parameters
    ----------
    steps
        Step times by the nominal constants.
    memory
        Budget of the replica.
    workload
        Lengths of the requests; the rate plays no part.
    max_num_seqs, budget
        The engine's limits: requests and tokens of a step. [request], [token]
    """
    scheduling = engine_timing(steps.deployment.settings.engine).scheduling(budget)
    room = Room(kv_requests=kv_requests(memory, lengths_of(workload), scheduling), max_num_seqs=max_num_seqs)
    curve = _run(steps, workload, most_of(room), budget)
    rows = (curve.rate_per_s, curve.tpot_s, curve.start_s, curve.active)
    rate, tpot, start, active = (np.maximum.accumulate(np.atleast_2d(row)[0]) for row in rows)
    scale = float(np.median(steps.engine.start_scale))
    return Prediction(
        room=room, curve=curve, nominal=(rate, tpot, start, active), steps=steps, scheduling=scheduling,
        start_scale=scale,
    )  # fmt: skip


def most_of(room: Room) -> float:
    """Requests that a curve goes up to. [request]"""
    return max(min(room.most, 1e5), 1.0)


def predict_spreads(steps: StepModel, prediction: Prediction, workload: Workload, budget: float) -> Spreads:
    """Spread of a prediction, to first order along a coarser curve.

    Parameters
    ----------
    steps
        Step times by constants with draws, the nominal ones first.
    prediction, workload, budget
        As for :func:`predict_replica`.
    """
    timing = engine_timing(steps.deployment.settings.engine)
    curve = _run(steps, workload, most_of(prediction.room), budget, COARSE)
    own = steps.calibration.evidence.get("engine")
    deployment = steps.deployment
    known = timing.residual_on(deployment.gpu.id, ["experts"] if deployment.model.is_moe else [])
    residual = {**known, **(own.residuals if own else {})}
    latency, capacity = _spreads(curve, residual)
    rate = np.maximum.accumulate(np.atleast_2d(curve.rate_per_s)[0])
    return Spreads(rate_per_s=rate, latency=latency, capacity=capacity)


def _spreads(curve: Curve, residual: dict[str, float]) -> tuple[dict[str, Values], dict[str, Values]]:
    """Log-sigma of latency at a rate, and of the rate at a latency, to first order along the nominal curve.

    With L the log of a draw over the nominal at the same batch and s = d ln value / d ln rate, a latency at a
    given rate moves by L_value - s L_rate, and the rate at a given latency by L_rate - L_value / s.
    """
    rates = np.maximum.accumulate(np.atleast_2d(curve.rate_per_s), axis=-1)
    moved_rate = np.log(rates / rates[:1])
    along = np.log(rates[0]) + 1e-9 * np.arange(rates.shape[-1])
    latency: dict[str, Values] = {}
    capacity: dict[str, Values] = {}
    for name, source in (("tpot", curve.tpot_s), ("ttft", curve.start_s), ("room", curve.active)):
        values = np.broadcast_to(np.atleast_2d(source), rates.shape)
        moved = np.log(values / values[:1])
        slope = np.clip(np.gradient(np.log(values[0]), along), LEAST_SLOPE, None)
        own = residual.get(name, residual.get("rate", 0.0))
        if name != "room":
            latency[name] = np.minimum(np.hypot(np.std((moved - slope * moved_rate)[1:], axis=0), own), MOST_SPREAD)
        drawn = np.std((moved_rate - moved / slope)[1:], axis=0)
        capacity[name] = np.minimum(np.hypot(drawn, own / slope), MOST_SPREAD)
    return latency, capacity


def spread_of_rate(spreads: Spreads, rate_per_s: float, limited_by: str) -> float:
    """Log-sigma of the capacity of a replica. [1]

    Parameters
    ----------
    spreads
        Of its prediction.
    rate_per_s, limited_by
        The capacity by the nominal constants, and what sets it. [request/s]
    """
    return float(np.interp(rate_per_s, spreads.rate_per_s, spreads.capacity.get(limited_by, spreads.capacity["room"])))


def at_rate(prediction: Prediction, spreads: Spreads, rate_per_s: float) -> dict[str, Estimate]:
    """TTFT, TPOT and requests decoding at a request rate, with 80 % bounds.

    Parameters
    ----------
    prediction, spreads
        Of the replica.
    rate_per_s
        Request rate of the replica. [request/s]

    Notes
    -----
    Rate and TPOT never fall with the batch here, even where the curve dips as a larger tile begins; requests decoding
    are raised with both, by Little's law.
    """
    rate, tpot, start, _ = prediction.nominal
    found: dict[str, Estimate] = {}
    for name, values in (("tpot", tpot), ("ttft", start)):
        value = float(np.interp(rate_per_s, rate, values))
        width = float(np.exp(QUANTILE_80 * np.interp(rate_per_s, spreads.rate_per_s, spreads.latency[name])))
        found[f"{name}_s"] = Estimate(value=value, low=value / width, high=value * width)
    curve = prediction.curve
    raised = rate * tpot / (np.atleast_2d(curve.rate_per_s)[0] * np.atleast_2d(curve.tpot_s)[0])
    decoding = float(np.interp(rate_per_s, rate, curve.decoding * raised))
    found["decoding"] = Estimate(value=decoding, low=decoding, high=decoding)
    return found
