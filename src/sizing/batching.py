"""The largest batch of one replica: how many requests decode together, and what stops more."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sizing.memory import MemoryBudget
from sizing.workload import Slo, Workload


class Steps(Protocol):
    """What batching and replicas ask of a step model."""

    def decode_s(self, batch: ArrayLike, context_tokens: ArrayLike) -> NDArray[np.float64]:
        """Time of one decode step. [s]."""
        ...

    def prefill_s(self, tokens: ArrayLike, history_tokens: ArrayLike = 0.0) -> NDArray[np.float64]:
        """Time to prefill one prompt alone. [s]."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Requests in flight that one replica can hold and serve within TPOT.

    Attributes
    ----------
    max_requests
        The least of the three limits below. [request]
    step_s
        Decode step at that batch and the mean context. [s]
    mean_context_tokens
        Tokens in cache of a request half way through its answer. [token]
    tpot_requests, kv_requests, engine_requests
        Limits by decode step within TPOT, by KV room, by the engine's maximum of sequences. [request]
    limited_by
        ``tpot``, ``kv_room``, ``max_num_seqs`` or ``weights_do_not_fit``.
    grid_requests, grid_step_s
        The batching curve up to the memory limit, for the stages after. [request], [s]
    """

    max_requests: float
    step_s: float
    mean_context_tokens: float
    tpot_requests: float
    kv_requests: float
    engine_requests: float
    limited_by: str
    grid_requests: NDArray[np.float64]
    grid_step_s: NDArray[np.float64]


#: Batch sizes of every batching curve, even in logarithm: a thousandth of a request to 131,072. [request]
GRID = np.concatenate([np.geomspace(1e-3, 1.0, 8)[:-1], np.geomspace(1.0, 2.0**17, 120)])


def decode_curve_s(workload: Workload, steps: Steps) -> NDArray[np.float64]:
    """Decode step at every batch size of :data:`GRID` and the mean context, never falling. [s]"""
    context = workload.mean_input_tokens + workload.mean_output_tokens / 2
    return np.maximum.accumulate(np.asarray(steps.decode_s(np.maximum(GRID, 1.0), context), dtype=float))


def largest_batch(
    workload: Workload,
    slo: Slo,
    memory: MemoryBudget | float,
    steps: Steps,
    max_num_seqs: int,
    step_s: NDArray[np.float64] | None = None,
) -> Batch:
    """Largest batch whose decode step stays within TPOT and whose KV cache fits.

    Parameters
    ----------
    workload
        Mean lengths give the context: input plus half of the output. [token]
    slo
        TPOT target. [s]
    memory
        KV room of the replica, or how many requests of this length it holds. [request]
    steps
        Step times.
    max_num_seqs
        The engine's limit. [request]
    step_s
        :func:`decode_curve_s` when it is known already. [s]

    Notes
    -----
    B = max{b : t_decode(b, ISL + OSL/2) <= TPOT}, cut at the KV room / (ISL + OSL) and at the engine's limit.
    """
    context = workload.mean_input_tokens + workload.mean_output_tokens / 2
    whole = workload.mean_input_tokens + workload.mean_output_tokens
    kv_requests = float(memory.max_requests(whole) if isinstance(memory, MemoryBudget) else memory)
    memory_limit = min(kv_requests, float(max_num_seqs))
    if memory_limit < 1e-3:
        empty = np.array([1e-3])
        return Batch(
            max_requests=0.0, step_s=float("inf"), mean_context_tokens=context, tpot_requests=0.0, kv_requests=0.0,
            engine_requests=float(max_num_seqs), limited_by="weights_do_not_fit", grid_requests=empty,
            grid_step_s=np.array([np.inf]),
        )  # fmt: skip
    step_s = decode_curve_s(workload, steps) if step_s is None else step_s
    tpot_requests = crossing(GRID, step_s, slo.tpot_s)
    limits = {"tpot": tpot_requests, "kv_room": kv_requests, "max_num_seqs": float(max_num_seqs)}
    limited_by = min(limits, key=lambda name: limits[name])
    most = limits[limited_by]
    inside = int(np.searchsorted(GRID, memory_limit))
    at_limit, at_most = np.interp([memory_limit, most], GRID, step_s)
    return Batch(
        max_requests=most, step_s=float(at_most), mean_context_tokens=context, tpot_requests=tpot_requests,
        kv_requests=kv_requests, engine_requests=float(max_num_seqs), limited_by=limited_by,
        grid_requests=np.append(GRID[:inside], memory_limit), grid_step_s=np.append(step_s[:inside], at_limit),
    )  # fmt: skip


def crossing(grid: NDArray[np.float64], values: NDArray[np.float64], limit: float) -> float:
    """Largest abscissa at which a curve that never falls is at most ``limit``; zero when it never is."""
    if values[0] > limit:
        return 0.0
    last = int(values.searchsorted(limit, side="right")) - 1
    if last + 1 >= len(grid):
        return float(grid[-1])
    low, high = values[last], values[last + 1]
    return float(grid[last] + (grid[last + 1] - grid[last]) * (limit - low) / (high - low))
