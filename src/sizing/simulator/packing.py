"""From specifications to the packed arrays of the kernels, and back to records."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizing.errors import InputError
from sizing.simulator import layout as at
from sizing.simulator.records import DONE, PS, REFUSED, UNFINISHED, Records
from sizing.simulator.spec import ROUTERS, FleetPlan, Scheduler, check_requests
from sizing.steptable import DELIVERY_SEQUENCES, StepTable
from sizing.workload.requests import Requests

EVENT_KINDS = {"fail": at.FAIL, "start": at.START, "drain": at.DRAIN}


@dataclass(slots=True)
class Packed:
    """The arrays of one run; ``order[k]`` is the caller's index of row ``k``."""

    s: at.Ints
    w: at.Small
    q: at.SmallRows
    t: at.IntRows
    f: at.Floats
    e: at.IntRows
    parameters: dict[str, int]
    order: NDArray[np.int64]


def to_ps(seconds: Any) -> at.Ints:
    """Seconds as whole picoseconds."""
    whole = np.asarray(np.asarray(seconds, dtype=np.float64) * 1e12)
    np.rint(whole, out=whole)
    return whole.astype(np.int64)


class Cursor:
    """Hands out consecutive places in an arena."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, length: int) -> int:
        """Begin of the next ``length`` places."""
        begin = self.size
        self.size += int(length)
        return begin


def pack_steps(
    steps: StepTable, scheduler: Scheduler, longest: int, cursor: Cursor
) -> tuple[dict[str, int], at.Floats]:
    """The table in picoseconds, dense in tokens and in batch; ``longest`` is the most tokens of a request."""
    most = scheduler.max_num_seqs
    batch = np.arange(most + 1, dtype=np.float64)
    knots = np.unique(np.rint(steps.decode_context))
    bare = StepTable(
        tokens=steps.tokens, linear_s=steps.linear_s * 0, decode_batch=steps.decode_batch,
        decode_context=steps.decode_context, decode_attention_s=steps.decode_attention_s,
        prefill_tokens=steps.prefill_tokens, prefill_context=steps.prefill_context,
        prefill_attention_s=steps.prefill_attention_s,
    )  # fmt: skip
    value = bare.time_s(batch[:, None], batch[:, None] * knots) * 1e12
    slope = np.zeros_like(value)
    slope[1:, :-1] = np.diff(value[1:], axis=1) / (batch[1:, None] * np.diff(knots))
    budget = scheduler.max_num_batched_tokens
    if not scheduler.chunked:
        budget = max(budget, longest + most)
    dense = np.arange(budget + 1, dtype=np.float64)
    linear = np.interp(dense, steps.tokens, steps.linear_s)
    beyond = dense > steps.tokens[-1]
    last = (steps.linear_s[-1] - steps.linear_s[-2]) / (steps.tokens[-1] - steps.tokens[-2])
    linear[beyond] = steps.linear_s[-1] + last * (dense[beyond] - steps.tokens[-1])
    seconds = (steps.step_s, steps.sequence_s, steps.prefill_step_s, steps.prefill_sequence_s)
    host = (steps.host_step_s, steps.host_sequence_s)
    costs = np.array([*seconds, 0.0, steps.request_s, steps.request_token_s, *host, 0.0]) * 1e12
    costs[at.C_FIRST_TOKEN], costs[at.C_DELIVERY] = steps.first_token_steps, DELIVERY_SEQUENCES
    parts = {
        "linear": linear * 1e12, "knots": knots, "decode": np.stack([value, slope], axis=2).ravel(),
        "prefill_q": steps.prefill_tokens, "prefill_c": steps.prefill_context,
        "prefill": steps.prefill_attention_s.ravel() * 1e12, "costs": costs,
    }  # fmt: skip
    places = {name: cursor.take(len(values)) for name, values in parts.items()}
    places |= {"knot_count": len(knots), "prefill_q_count": len(steps.prefill_tokens)}
    places |= {"prefill_c_count": len(steps.prefill_context)}
    return places, np.concatenate(list(parts.values())).astype(np.float64)


def _rows(order: NDArray[np.int64], count: int) -> Any:
    """An index of the requests that are kept; one that copies nothing where it is all of them in their order."""
    same = len(order) == count and np.all(order[1:] > order[:-1])
    return slice(None) if same else order


def pack_requests(requests: Requests, order: NDArray[np.int64], draws: at.Small) -> tuple[at.SmallRows, at.IntRows]:
    """Rows of the requests that are kept, in that order."""
    count, kept = len(order), _rows(order, len(requests))
    q = np.zeros((count, at.COLUMNS), dtype=np.int32)
    t = np.full((count, at.TIMES), -1, dtype=np.int64)
    q[:, at.PROMPT], q[:, at.OUTPUT] = requests.input_tokens[kept], requests.output_tokens[kept]
    q[:, at.CHAIN] = -1
    if requests.chain is not None and requests.shared_tokens is not None:
        q[:, at.CHAIN], q[:, at.SHARED] = requests.chain[kept], requests.shared_tokens[kept]
    if requests.priority is not None:
        q[:, at.CLASS] = requests.priority[kept]
    q[:, at.NEXT] = q[:, at.REPLICA] = q[:, at.THEN] = -1
    q[:, at.DRAW] = draws[kept]
    t[:, at.ARRIVAL], t[:, at.DELIVERY] = to_ps(requests.arrival_s[kept]), 0
    if requests.after is not None and requests.pause_s is not None:
        waits = requests.after[kept] >= 0
        t[waits, at.SCHEDULED] = -2 - to_ps(requests.pause_s[kept][waits])
    return q, t


def links(requests: Requests, refused: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Whom each request waits for once refused ones are skipped, and the order: by the clock, then the others."""
    count = len(requests)
    if requests.after is None:
        clock = np.flatnonzero(~refused)
        arrival = requests.arrival_s if len(clock) == count else requests.arrival_s[clock]
        if np.any(arrival[1:] < arrival[:-1]):
            clock = clock[np.argsort(arrival, kind="stable")]
        return np.broadcast_to(np.int64(-1), count), clock
    after = np.array(requests.after, dtype=np.int64)
    if np.any(after >= np.arange(count)) or np.any(after < -1):
        raise InputError("after: a request can only wait for one before it")
    waits = after >= 0
    if len(np.unique(after[waits])) != np.count_nonzero(waits):
        raise InputError("after: only one request can wait for a completion")
    follower = np.full(count, -1)
    follower[after[waits]] = np.flatnonzero(waits)
    for i in np.flatnonzero(refused & (follower >= 0)):
        after[follower[i]] = after[i]
        if after[i] >= 0:
            follower[after[i]] = follower[i]
    clock = np.flatnonzero((after < 0) & ~refused)
    clock = clock[np.argsort(requests.arrival_s[clock], kind="stable")]
    return after, np.concatenate([clock, np.flatnonzero((after >= 0) & ~refused)])


def _arena(scheduler: Scheduler, longest: int, classes: int, chains: int, blocks: int) -> dict[str, int]:
    cursor, most = Cursor(), scheduler.max_num_seqs
    ring = 1 << int(longest + 1).bit_length()
    run_size = blocks + 2 if chains else 0
    places = {
        "ring": ring, "ring_head": cursor.take(ring), "ring_tail": cursor.take(ring),
        "slot": cursor.take(most * at.SLOT_ARRAYS), "grow": cursor.take(scheduler.block_tokens),
        "pool": cursor.take(most), "order": cursor.take(2 * classes), "queue": cursor.take(2 * classes),
        "cached": cursor.take(chains), "top": cursor.take(chains), "active": cursor.take(chains),
        "full": cursor.take(chains), "run_size": run_size, "runs": cursor.take(run_size * at.RUN_ARRAYS),
    }  # fmt: skip
    return places | {"arena": cursor.size}


def pack(
    requests: Requests, steps: StepTable, scheduler: Scheduler, fleet: FleetPlan, *, seed: int,
    horizon_s: float | None, ready: bool = False,
) -> Packed:  # fmt: skip
    """Arrays of a run. Requests longer than the engine can hold are left out (refused)."""
    check_requests(requests)
    total = requests.input_tokens + requests.output_tokens
    refused = total > scheduler.longest_request_tokens
    after, order = links(requests, refused)
    arrivals = int(np.count_nonzero(after[order] < 0))
    draws = np.random.default_rng([seed, 0x5EED]).integers(0, 1 << 30, len(requests), dtype=np.int32)
    q, t = pack_requests(requests, order, draws)
    if arrivals < len(order):
        row = np.empty(len(requests), dtype=np.int64)
        row[order] = np.arange(len(order))
        q[row[after[order[arrivals:]]], at.THEN] = np.arange(arrivals, len(order))
    whole = scheduler.kv_reservation == "longest"
    caching = scheduler.prefix_caching and requests.chain is not None and not whole and not ready
    if not caching:
        q[:, at.CHAIN] = -1
    chains = int(requests.chain.max()) + 1 if caching and requests.chain is not None else 0
    if chains and requests.chain_parent is not None:
        chains = len(requests.chain_parent)
    longest_blocks = -(-scheduler.longest_request_tokens // scheduler.block_tokens)
    reserved = {"paged": 0, "answer": -1, "longest": longest_blocks}[scheduler.kv_reservation]
    most_used = longest_blocks * len(total) if whole else int(total.sum()) // scheduler.block_tokens + len(total)
    blocks = min(scheduler.kv_tokens // scheduler.block_tokens, most_used)
    classes = 1 if requests.priority is None else int(requests.priority.max()) + 1
    longest = int(q[:, at.OUTPUT].max(initial=1))
    arena = _arena(scheduler, longest, classes, chains, blocks)
    cursor_w, cursor_s, cursor_f = Cursor(), Cursor(), Cursor()
    cursor_w.take(arena["arena"] * fleet.replicas)
    cursor_s.take(at.FIRST_ROW + at.ROW * fleet.replicas)
    table, values = pack_steps(steps, scheduler, int(total[~refused].max(initial=0)), cursor_f)
    o = dict(
        replicas=fleet.replicas, arrivals=arrivals, events=len(fleet.events), router=ROUTERS.index(fleet.router),
        budget=scheduler.max_num_batched_tokens, most_running=scheduler.max_num_seqs,
        block=scheduler.block_tokens, blocks=blocks, reserved=reserved,
        mixed=int(scheduler.mixed or ready), chunked=int(scheduler.chunked), ready=int(ready),
        chained=int(arrivals < len(order)), load_tokens=fleet.request_weight_tokens, miss_weight=fleet.miss_weight,
        horizon=at.NEVER - 1 if horizon_s is None else int(to_ps(horizon_s)),
        classes=classes, chains=chains, fleet=cursor_s.take(at.FLEET_ROW), gaps=cursor_s.take(2 * at.GAP_BINS),
        heap=cursor_s.take(len(order) - arrivals), parent=cursor_w.take(chains), start=cursor_w.take(chains),
        up=cursor_w.take(fleet.replicas + 1), present=cursor_f.take(fleet.replicas), **arena, **table,
    )  # fmt: skip
    w = np.zeros(cursor_w.size, dtype=np.int32)
    w[o["parent"] : o["parent"] + chains] = -1
    if chains and requests.chain_parent is not None and requests.chain_start_tokens is not None:
        w[o["parent"] : o["parent"] + chains] = requests.chain_parent
        w[o["start"] : o["start"] + chains] = requests.chain_start_tokens // scheduler.block_tokens
    s = np.zeros(cursor_s.size, dtype=np.int64)
    for name, value in o.items():
        s[getattr(at, f"P_{name.upper()}")] = value
    states = s[at.FIRST_ROW : at.FIRST_ROW + at.ROW * fleet.replicas].reshape(-1, at.ROW)[:, at.STATE]
    states[:] = at.UP
    states[list(fleet.down_at_start)] = at.DOWN
    rows = sorted((int(to_ps(x.time_s)), k, x.replica, EVENT_KINDS[x.kind]) for k, x in enumerate(fleet.events))
    e = np.array([(a, c, d) for a, _, c, d in rows], dtype=np.int64).reshape(-1, 3)
    f = np.concatenate([values, np.zeros(fleet.replicas)])
    return Packed(s, w, q, t, f, e, o, order)


def gap_bins() -> at.Floats:
    """Middles of the bins of token gaps. [s]"""
    k = np.arange(at.GAP_BINS) + 0.5
    return np.concatenate([k * at.FINE_GAP_PS, k * at.COARSE_GAP_PS]) * PS


def gap_bin(gap_ps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bin of each token gap, as the kernels count them. [ps]"""
    coarse = at.GAP_BINS + np.minimum(gap_ps // at.COARSE_GAP_PS, at.GAP_BINS - 1)
    fine = gap_ps // at.FINE_GAP_PS
    return np.where(fine < at.GAP_BINS, fine, coarse)


def unpack(p: Packed, requests: Requests, steps: StepTable) -> Records:
    """Records in the caller's order."""
    count, kept = len(requests), _rows(p.order, len(requests))
    times = p.t
    if not isinstance(kept, slice):
        times = np.full((count, at.TIMES), -1, dtype=np.int64)
        times[:, at.ARRIVAL], times[:, at.DELIVERY] = to_ps(requests.arrival_s), 0
        times[kept] = p.t
    np.maximum(times[:, at.SCHEDULED], -1, out=times[:, at.SCHEDULED])
    facts = np.zeros((count, 3), dtype=np.int32)
    facts[:, 0] = -1
    facts[kept] = p.q[:, [at.REPLICA, at.PREEMPTED, at.HIT]]
    status = np.full(count, REFUSED, dtype=np.int8)
    status[kept] = np.where(p.t[:, at.FINISH] >= 0, DONE, UNFINISHED)
    o = p.parameters
    rows = p.s[at.FIRST_ROW : at.FIRST_ROW + at.ROW * o["replicas"]].reshape(-1, at.ROW)
    if o["horizon"] < at.NEVER - 1:
        end = o["horizon"]
    else:
        end = max(int(times[:, at.FINISH].max()), int(rows[:, at.LAST_CHANGE].max()))
    rest = rows[:, at.PRESENT] * np.maximum(end - rows[:, at.LAST_CHANGE], 0) * PS
    return Records(
        arrival_ps=times[:, 0], scheduled_ps=times[:, 1], first_token_ps=times[:, 2], finish_ps=times[:, 3],
        input_tokens=requests.input_tokens, output_tokens=requests.output_tokens, replica=facts[:, 0],
        preempted=facts[:, 1], hit_tokens=facts[:, 2], status=status,
        client_s=np.asarray(steps.request_s + steps.request_token_s * requests.input_tokens, dtype=np.float64),
        delivery_ps=times[:, at.DELIVERY],
        steps=rows[:, at.STEPS].copy(), busy_s=np.asarray(rows[:, at.WORKING] * PS, dtype=np.float64),
        prefilled_tokens=rows[:, at.PREFILLED].copy(),
        preemptions=rows[:, at.PREEMPTIONS].copy(),
        present_request_s=p.f[o["present"] : o["present"] + o["replicas"]] + rest,
        peak_kv_blocks=rows[:, at.PEAK_USED].copy(), gap_s=gap_bins(),
        gap_count=p.s[o["gaps"] : o["gaps"] + 2 * at.GAP_BINS].copy(), end_s=end * PS,
    )  # fmt: skip
