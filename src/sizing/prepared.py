"""A deployment made ready for any request rate and any targets.

Memory, step times, floors and curves depend on the deployment and on the lengths of requests, not on the rate nor
on the targets: they are computed once and remembered, since rates and targets are what a planner varies most.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizing.batching import GRID, Batch, decode_curve_s, largest_batch
from sizing.calibration import Calibration
from sizing.deployment import Deployment
from sizing.errors import InputError
from sizing.memory import MemoryBudget, memory_budget
from sizing.replica.predicted import DRAWS, Prediction, Spreads, predict_replica, predict_spreads
from sizing.steptime import StepModel, nominal_and_draws, step_model
from sizing.workload import Slo, Workload

MOST_REMEMBERED = 4096


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What a deployment does with requests of given lengths.

    Attributes
    ----------
    memory, steps
        Budget and step times.
    kv_requests, max_num_seqs
        Requests whose whole caches fit; the engine's limit. [request]
    decode_s, decode_floor_s
        Decode step at each batch of :data:`sizing.batching.GRID`, and its floor at the peaks. [s]
    prefill_s, prefill_floor_s, prefill_compute_s
        Prefill of one mean prompt, its floor at the peaks, and the floor of its operations alone. [s]
    prediction
        Curve of the run; None where only the seeds' sums are wanted.
    workload, budget
        Lengths that it was prepared for; tokens of a step, at most. [token]
    """

    deployment: Deployment
    memory: MemoryBudget
    steps: StepModel
    kv_requests: float
    max_num_seqs: int
    decode_s: NDArray[np.float64]
    decode_floor_s: NDArray[np.float64]
    prefill_s: float
    prefill_floor_s: float
    prefill_compute_s: float
    prediction: Prediction | None
    workload: Workload
    budget: float

    @cached_property
    def _batches(self) -> dict[float, Batch]:
        return {}

    def largest_batch(self, slo: Slo) -> Batch:
        """Largest batch within a TPOT target and the memory, remembered by the target."""
        if slo.tpot_s not in self._batches:
            if len(self._batches) >= MOST_REMEMBERED:
                self._batches.clear()
            self._batches[slo.tpot_s] = largest_batch(
                self.workload, slo, self.kv_requests, self.steps, self.max_num_seqs, self.decode_s
            )
        return self._batches[slo.tpot_s]

    @cached_property
    def spreads(self) -> Spreads:
        """How far the constants' spread moves the prediction; computed when asked for."""
        if self.prediction is None:
            raise InputError("spreads: this replica was prepared without a prediction; choose method 'predicted'")
        drawn = self.steps.with_calibration(nominal_and_draws(self.steps.calibration, DRAWS))
        return predict_spreads(drawn, self.prediction, self.workload, self.budget)


_REMEMBERED: dict[object, tuple[object, Prepared]] = {}


def prepare(deployment: Deployment, workload: Workload, efficiency: Calibration, predicted: bool) -> Prepared:
    """Memory, steps, floors and curves of a deployment for requests of these lengths.

    Parameters
    ----------
    deployment, efficiency
        What runs, under which constants.
    workload
        Lengths of the requests; the rate plays no part.
    predicted
        Whether the curve of the run is wanted.
    """
    key = (
        id(deployment.model), id(deployment.gpu), id(efficiency), deployment.parallelism, deployment.formats,
        deployment.settings, _lengths_key(workload), predicted,
    )  # fmt: skip
    if key not in _REMEMBERED:
        if len(_REMEMBERED) >= MOST_REMEMBERED:
            _REMEMBERED.clear()
        # the value keeps alive what the key names by identity
        _REMEMBERED[key] = ((deployment, efficiency, workload), _new(deployment, workload, efficiency, predicted))
    return _REMEMBERED[key][1]


def _lengths_key(workload: Workload) -> tuple[Any, ...]:
    """Identity of everything that the lengths of requests depend on."""
    plain = (int, float)
    ends = (workload.input_tokens, workload.output_tokens)
    return (
        *(e if isinstance(e, plain) else id(e) for e in ends),
        id(workload.sessions), id(workload.prefix), workload.prefix_hit_share,
    )  # fmt: skip


def _new(deployment: Deployment, workload: Workload, efficiency: Calibration, predicted: bool) -> Prepared:
    memory = memory_budget(deployment)
    steps = step_model(deployment, efficiency)
    most, budget = memory.limits
    isl, osl = workload.mean_input_tokens, workload.mean_output_tokens
    prediction = predict_replica(steps, memory, workload, most, budget) if predicted else None
    batch = np.maximum(GRID, 1.0)
    return Prepared(
        deployment=deployment, memory=memory, steps=steps, kv_requests=float(memory.max_requests(isl + osl)),
        max_num_seqs=most, decode_s=decode_curve_s(workload, steps),
        decode_floor_s=np.asarray(steps.floor_s(batch, batch * (isl + osl / 2))),
        prefill_s=float(steps.prefill_s(isl)), prefill_floor_s=float(steps.floor_s(0.0, 0.0, isl, isl * (isl + 1) / 2)),
        prefill_compute_s=steps.compute_floor_s(isl, isl * (isl + 1) / 2),
        prediction=prediction, workload=workload, budget=budget,
    )  # fmt: skip
