"""A replica that prefills and decodes on the same GPUs: the request rate it carries within its targets."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sizing.batching import Batch, Steps
from sizing.errors import InputError
from sizing.workload import Slo, Workload

METHODS = ("additive", "time-share", "predicted")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCapacity:
    """What one replica carries.

    Attributes
    ----------
    request_rate_per_s
        Largest rate within TTFT, TPOT and memory, before headroom. [request/s]
    saturated_rate_per_s
        Rate at which the queue grows without end. [request/s]
    prefill_s
        Prefill of one mean prompt, alone. [s]
    decode_gpu_s
        Decode time that one request costs at the largest batch: OSL x step / batch. [s]
    limited_by
        ``tpot``, ``ttft``, ``kv_room``, ``max_num_seqs`` or ``weights_do_not_fit``.
    method
        One of :data:`METHODS`.
    """

    request_rate_per_s: float
    saturated_rate_per_s: float
    prefill_s: float
    decode_gpu_s: float
    limited_by: str
    method: str

    def planned_rate_per_s(self, utilization: float) -> float:
        """Rate planned for at a target utilisation. [request/s]

        Headroom is taken off the capacity within the targets; in the time-share form, as the seeds have it, off
        the rate at which the queue grows without end, and the targets hold at the planned rate itself.
        """
        if self.method == "time-share":
            return min(self.request_rate_per_s, utilization * self.saturated_rate_per_s)
        return utilization * self.request_rate_per_s

    def utilization(self, rate_per_s: float) -> float:
        """Share of the capacity that headroom is taken off. [1]"""
        whole = self.saturated_rate_per_s if self.method == "time-share" else self.request_rate_per_s
        return rate_per_s / whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """State of one replica at a request rate.

    Attributes
    ----------
    ttft_s, tpot_s
        Mean time to first token and per token after it. [s]
    concurrency
        Requests decoding. [request]
    prefill_share
        Share of time that goes into prefill. [1]
    """

    ttft_s: NDArray[np.float64] | float
    tpot_s: NDArray[np.float64] | float
    concurrency: NDArray[np.float64] | float
    prefill_share: NDArray[np.float64] | float


def rate_at_batch_per_s(batch: Batch, workload: Workload, prefill_s: float) -> NDArray[np.float64]:
    """Request rate that keeps each batch of the curve in flight. [request/s]

    Prefill takes r t_p of each second, so TPOT = t(B) / (1 - r t_p); with Little's law B = r OSL TPOT this
    solves to r = B / (OSL t(B) + B t_p).
    """
    decode = workload.mean_output_tokens * batch.grid_step_s
    return np.maximum.accumulate(batch.grid_requests / (decode + batch.grid_requests * prefill_s))


def load_at_rate(
    rate_per_s: ArrayLike, batch: Batch, workload: Workload, prefill_s: float, *, method: str = "time-share",
) -> Load:  # fmt: skip
    """Mean TTFT, TPOT and requests in flight at request rates that one replica carries.

    Parameters
    ----------
    rate_per_s
        Request rates, any shape. [request/s]
    batch
        The batching curve.
    workload
        Mean lengths.
    prefill_s
        Prefill of one mean prompt. [s]
    method
        ``time-share``: TPOT is stretched by the prefill share of the same GPUs. ``additive``: prefill takes GPUs
        of its own out of the sum, so TPOT is the decode step.

    Notes
    -----
    Prompts wait for one another as in M/D/1 (Pollaczek-Khinchine: f t_p / (2 (1 - f))) and for the rest of
    the decode step under way. Beyond the rate that memory allows, both latencies are infinite.
    """
    rate = np.asarray(rate_per_s, dtype=float)
    curve = rate_at_batch_per_s(batch, workload, prefill_s)
    concurrency = np.interp(rate, curve, batch.grid_requests, left=batch.grid_requests[0], right=np.inf)
    share = rate * prefill_s
    step = np.interp(concurrency, batch.grid_requests, batch.grid_step_s, right=np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        stretched = step / (1 - share) if method == "time-share" else step
        tpot = np.where(share < 1, stretched, np.inf)
        wait = np.where(share < 1, share * prefill_s / (2 * (1 - share)), np.inf)
    return Load(ttft_s=wait + step / 2 + prefill_s, tpot_s=tpot, concurrency=concurrency,
                prefill_share=share)  # fmt: skip


def replica_capacity(
    workload: Workload,
    slo: Slo,
    batch: Batch,
    steps: Steps,
    *,
    method: str = "additive",
    within: tuple[float, str] | None = None,
    prefill_s: float | None = None,
) -> ReplicaCapacity:
    """Largest request rate one colocated replica sustains within its targets.

    Parameters
    ----------
    workload, slo
        Mean lengths and targets.
    batch
        From :func:`sizing.batching.largest_batch`.
    steps
        Step times.
    method
        ``additive``: prefill and decode seconds of a request at the largest batch add up to one second, r =
        1 / (t_p + OSL t(B) / B). ``time-share``: largest r with t(B) / (1 - r t_p) <= TPOT where B = r OSL TPOT.
        ``predicted``: ``within``, from the curve that ``predict_run`` reads.
    within
        Rate within the targets and what limits it (:func:`sizing.replica.predicted.rate_within`). [request/s]
    prefill_s
        Prefill of one mean prompt when it is known already. [s]

    Raises
    ------
    InputError
        Unknown method, or ``predicted`` without ``within``.
    """
    if method not in METHODS or (method == "predicted" and within is None):
        raise InputError(f"method: {method!r} is not allowed here; choose {' or '.join(METHODS)}")
    if prefill_s is None:
        prefill_s = float(steps.prefill_s(workload.mean_input_tokens))
    if batch.max_requests <= 0 or not np.isfinite(prefill_s):
        limit = batch.limited_by
        return ReplicaCapacity(request_rate_per_s=0.0, saturated_rate_per_s=0.0, prefill_s=prefill_s,
                               decode_gpu_s=float("inf"), limited_by=limit, method=method)  # fmt: skip
    decode_gpu_s = workload.mean_output_tokens * batch.step_s / batch.max_requests
    if within is not None:
        rate, limit = within
        return ReplicaCapacity(request_rate_per_s=rate, saturated_rate_per_s=float("nan"), prefill_s=prefill_s,
                               decode_gpu_s=decode_gpu_s, limited_by=limit, method=method)  # fmt: skip
    curve = rate_at_batch_per_s(batch, workload, prefill_s)
    load = load_at_rate(curve, batch, workload, prefill_s, method=method)

    def ttft_s(rate: NDArray[np.float64]) -> ArrayLike:
        return load_at_rate(rate, batch, workload, prefill_s, method=method).ttft_s

    rates = {"ttft": _refined(curve, load.ttft_s, slo.ttft_s, ttft_s)}
    if method == "time-share":
        rates["tpot"] = _largest(curve, load.tpot_s, slo.tpot_s)
        if rates["tpot"] >= curve[-1]:
            rates["kv_room" if batch.kv_requests <= batch.engine_requests else "max_num_seqs"] = rates.pop("tpot")
    else:
        rates[batch.limited_by] = 1.0 / (prefill_s + decode_gpu_s)
    limited_by = min(rates, key=lambda name: rates[name])
    return ReplicaCapacity(
        request_rate_per_s=rates[limited_by], saturated_rate_per_s=float(curve[-1]), prefill_s=prefill_s,
        decode_gpu_s=decode_gpu_s, limited_by=limited_by, method=method,
    )  # fmt: skip


REFINED = 33
"""Rates between two of the curve's that a crossing is looked for again at. [1]"""


def _refined(rates: NDArray[np.float64], values: ArrayLike, limit: float,
             at: Callable[[NDArray[np.float64]], ArrayLike]) -> float:  # fmt: skip
    """Largest rate within a limit, sought twice more between the curve's points: a queue bends between them."""
    for _ in range(2):
        found = _largest(rates, values, limit)
        above = int(np.searchsorted(rates, found, side="right"))
        if above == 0 or above == len(rates):
            return found
        rates = np.linspace(rates[above - 1], rates[above], REFINED)
        values = at(rates)
    return _largest(rates, values, limit)


def _largest(rates: NDArray[np.float64], values: ArrayLike, limit: float) -> float:
    from sizing.batching import crossing

    array = np.asarray(values, dtype=float)
    finite = np.where(np.isfinite(array), array, np.finfo(float).max)
    return crossing(rates, np.maximum.accumulate(finite), limit)
