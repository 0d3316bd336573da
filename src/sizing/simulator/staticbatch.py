"""Request-level batching, as engines did before continuous batching: for comparison.

A replica that is free takes the requests that wait, up to a batch; prefills them together; decodes until the
longest answer is done, with finished sequences as padding; and returns the batch as a whole (Yu et al., Orca,
OSDI 2022, section 3). Requests wait in one queue for all replicas. With contiguous reservation the batch is what
the cache holds of requests of the longest length.
"""

import heapq

import numpy as np

from sizing.errors import InputError
from sizing.simulator.packing import gap_bin, gap_bins, to_ps
from sizing.simulator.records import DONE, PS, REFUSED, UNFINISHED, Records
from sizing.simulator.spec import FleetPlan, Scheduler, check_requests
from sizing.steptable import Floats, StepTable, delivery_share
from sizing.workload.requests import Requests


def batch_times(steps: StepTable, prompts: Floats, longest: int) -> tuple[float, Floats]:
    """Time of a batch's prefill, and of each of its decode steps. [s]"""
    tokens = float(prompts.sum())
    pairs = float((prompts * (prompts + 1) / 2).sum())
    prefill_s = float(steps.time_s(0, 0, tokens, pairs, len(prompts)))
    n = len(prompts)
    context = tokens + n * np.arange(1, longest, dtype=np.float64)
    return prefill_s, np.asarray(steps.time_s(np.full(len(context), n), context), dtype=np.float64)


def taken(requests: Requests, waiting: np.ndarray, scheduler: Scheduler) -> int:
    """How many of the waiting requests a batch takes."""
    if scheduler.kv_reservation == "longest":
        return min(len(waiting), scheduler.max_num_seqs, scheduler.kv_tokens // scheduler.longest_request_tokens)
    part = waiting[: scheduler.max_num_seqs]
    total = np.cumsum(requests.input_tokens[part] + requests.output_tokens[part])
    return max(1, int(np.searchsorted(total, scheduler.kv_tokens, side="right")))


def replay_static(
    requests: Requests, steps: StepTable, scheduler: Scheduler, fleet: FleetPlan, *, seed: int = 0,
    horizon_s: float | None = None,
) -> Records:  # fmt: skip
    """Simulate static batches; arguments as for :func:`sizing.simulator.replay`."""
    check_requests(requests)
    if fleet.events or fleet.down_at_start or (requests.after is not None and np.any(requests.after >= 0)):
        raise InputError("batching: static batches are simulated in open loop and without events only")
    count = len(requests)
    first, finish, scheduled = (np.full(count, -1, dtype=np.int64) for _ in range(3))
    replica, delivery = np.full(count, -1, dtype=np.int32), np.zeros(count, dtype=np.int64)
    fits = requests.input_tokens + requests.output_tokens <= scheduler.longest_request_tokens
    queue = np.flatnonzero(fits)
    queue = queue[np.argsort(requests.arrival_s[queue], kind="stable")]
    arrival_ps = to_ps(requests.arrival_s)
    horizon = np.inf if horizon_s is None else horizon_s * 1e12
    free = [(0, r) for r in range(fleet.replicas)]
    gaps = np.zeros(len(gap_bins()), dtype=np.int64)
    done_steps, busy = np.zeros(fleet.replicas, dtype=np.int64), np.zeros(fleet.replicas)
    while len(queue):
        now, r = heapq.heappop(free)
        now = max(now, int(arrival_ps[queue[0]]))
        if now >= horizon:
            break
        waiting = queue[: int(np.searchsorted(arrival_ps[queue], now, side="right"))]
        batch, queue = np.split(queue, [taken(requests, waiting, scheduler)])
        longest = int(requests.output_tokens[batch].max())
        prefill_s, decode_s = batch_times(steps, requests.input_tokens[batch].astype(np.float64), longest)
        scheduled[batch], first[batch], replica[batch] = now, now + int(to_ps(prefill_s)), r
        end = int(first[batch[0]]) + int(to_ps(decode_s.sum()))
        finish[batch] = end
        if len(decode_s):
            delivery[batch] = to_ps(steps.first_token_steps * delivery_share(len(batch)) * decode_s[0])
        answering = len(batch) - np.searchsorted(np.sort(requests.output_tokens[batch]), np.arange(2, longest + 1))
        np.add.at(gaps, gap_bin(to_ps(decode_s)), answering)  # padding is no token of anybody
        done_steps[r] += longest
        busy[r] += (end - now) * PS
        heapq.heappush(free, (end, r))
    late = finish > horizon
    finish[late] = -1
    first[first > horizon] = -1
    status = np.where(fits, np.where(finish >= 0, DONE, UNFINISHED), REFUSED).astype(np.int8)
    end_s = float(finish.max(initial=0)) * PS if horizon_s is None else horizon_s
    until = np.where(finish >= 0, finish * PS, end_s)
    stayed = np.where(replica >= 0, until - requests.arrival_s, 0.0)
    none = np.zeros(fleet.replicas, dtype=np.int64)
    return Records(
        arrival_ps=arrival_ps, scheduled_ps=scheduled, first_token_ps=first, finish_ps=finish,
        input_tokens=requests.input_tokens, output_tokens=requests.output_tokens, replica=replica,
        preempted=np.zeros(count, dtype=np.int32), hit_tokens=np.zeros(count, dtype=np.int32), status=status,
        client_s=np.asarray(steps.request_s + steps.request_token_s * requests.input_tokens, dtype=np.float64),
        delivery_ps=delivery, steps=done_steps, busy_s=busy,
        prefilled_tokens=none, preemptions=none, peak_kv_blocks=none,
        present_request_s=np.asarray(
            np.bincount(np.maximum(replica, 0), weights=stayed, minlength=fleet.replicas), dtype=np.float64
        ),
        gap_s=gap_bins(), gap_count=gaps, end_s=end_s,
    )  # fmt: skip
