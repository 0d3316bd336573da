"""Capacity of a replica by the very curve that ``predict_run`` reads, with error bars from the constants."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizing.engines.timing import engine_timing
from sizing.replica.curve import Curve, run_curve
from sizing.replica.loads import Estimate, Lengths, Room, estimate
from sizing.replica.run import kv_requests
from sizing.steptime import StepModel
from sizing.workload import Slo, Workload

Values = NDArray[np.float64]
DRAWS = 48
"""Joint draws of the constants that an error bar is made from. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A replica over its request rate; arrays have one row for the nominal constants, then one a draw.

    Attributes
    ----------
    room
        Requests that run at once.
    curve
        Rate, TPOT, time to first token and requests in flight.
    residual
        Log-sigma of measured over predicted that the constants don't explain, by ``tpot``, ``ttft``, ``rate``. [1]
    nominal
        First row of rate, TPOT, time to first token and active requests, each never falling.
    """

    room: Room
    curve: Curve
    residual: dict[str, float]
    nominal: tuple[Values, Values, Values, Values]


def lengths_of(workload: Workload) -> Lengths:
    """Means and variation of a workload's lengths, history and shared prefixes included."""
    isl, osl = workload.input_length, workload.output_length
    mean = workload.mean_input_tokens
    return Lengths(
        input_tokens=mean, output_tokens=osl.mean, input_cv=isl.std / mean, output_cv=osl.std / osl.mean
    )  # fmt: skip


def predict_replica(steps: StepModel, memory: Any, workload: Workload, max_num_seqs: float, budget: float) -> Prediction:
    """Curve of a replica under open traffic.

    Parameters
    ----------
    steps
        Step times; constants with draws (nominal first) give rows.
    memory
        Budget of the replica.
    workload
        Lengths of the requests; the rate plays no part.
    max_num_seqs, budget
        The engine's limits: requests and tokens of a step. [request], [token]
    """
    timing = engine_timing(steps.deployment.settings.engine)
    scheduling = timing.scheduling(budget)
    lengths = lengths_of(workload)
    room = Room(kv_requests=kv_requests(memory, lengths, scheduling), max_num_seqs=max_num_seqs)
    curve = run_curve(steps, lengths, scheduling, max(min(room.most, 1e5), 1.0))
    rows = (curve.rate_per_s, curve.tpot_s, curve.start_s, curve.active)
    rate, tpot, start, active = (np.maximum.accumulate(np.atleast_2d(row)[0]) for row in rows)
    return Prediction(room=room, curve=curve, residual=dict(timing.residual), nominal=(rate, tpot, start, active))


def spread_of_rate(prediction: Prediction, slo: Slo) -> float:
    """Log-sigma of the rate within the targets: of the draws, and what the constants don't explain. [1]

    Parameters
    ----------
    prediction, slo
        Curve and targets; the spread is taken at the means.
    """
    curve = prediction.curve
    rate = np.maximum.accumulate(np.atleast_2d(curve.rate_per_s), axis=-1)
    limits = ((curve.tpot_s, slo.tpot_s), (curve.start_s, slo.ttft_s), (curve.active, prediction.room.most))
    rates = np.minimum.reduce([_at_limit(rate, values, limit) for values, limit in limits])[1:]
    sound = rates[rates > 0]
    spread = float(np.std(np.log(sound))) if len(sound) > 1 else 0.0
    return float(np.hypot(spread, prediction.residual.get("rate", 0.0)))


def _at_limit(rate: Values, values: Values, limit: float) -> Values:
    """Rate, row by row, at which a value that never falls reaches its limit. [request/s]"""
    rising = np.maximum.accumulate(np.broadcast_to(np.atleast_2d(values), rate.shape), axis=-1)
    last = (rising <= limit).sum(axis=-1) - 1
    row, low = np.arange(len(rate)), np.clip(last, 0, rate.shape[-1] - 2)
    v0, v1, r0, r1 = rising[row, low], rising[row, low + 1], rate[row, low], rate[row, low + 1]
    share = np.clip((limit - v0) / np.maximum(v1 - v0, 1e-300), 0.0, 1.0)
    return np.where(last < 0, 0.0, r0 + share * (r1 - r0))


def at_rate(prediction: Prediction, rate_per_s: float) -> dict[str, Estimate]:
    """TTFT, TPOT and requests decoding at a request rate, with 80 % bounds.

    Parameters
    ----------
    prediction
        Curve of the replica.
    rate_per_s
        Request rate of the replica. [request/s]
    """
    curve = prediction.curve
    rate = np.maximum.accumulate(np.atleast_2d(curve.rate_per_s), axis=-1)
    row = np.arange(len(rate))
    low = np.clip((rate < rate_per_s).sum(axis=-1) - 1, 0, rate.shape[-1] - 2)
    r0, r1 = rate[row, low], rate[row, low + 1]
    share = np.clip((rate_per_s - r0) / np.maximum(r1 - r0, 1e-300), 0.0, 1.0)
    found: dict[str, Estimate] = {}
    for name, source, residual in (("ttft_s", curve.start_s, "ttft"), ("tpot_s", curve.tpot_s, "tpot"),
                                   ("decoding", curve.decoding, "rate")):  # fmt: skip
        values = np.broadcast_to(np.atleast_2d(source), rate.shape)
        found[name] = estimate(values[row, low] * (1 - share) + values[row, low + 1] * share,
                             prediction.residual.get(residual, 0.0))  # fmt: skip
    return found
