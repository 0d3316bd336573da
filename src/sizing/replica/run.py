"""What a run at a given load looks like on one replica: TTFT, TPOT, ITL, throughput, with error bars.

One curve answers every kind of load. Let B requests decode on average. A step takes ``t(B)``; each prompt
stalls those that decode by ``d`` (a mixed step is longer, or a prefill step comes between), so that

    TPOT = t / (1 - k X d)        X = B / ((O - 1) t + k B d)        active = B + X S

with X requests per second (Little's law), S the time a prompt spends before its first token and ``k`` the
share of the others' prompts that a request sees: (A - 1) / A in a closed loop of A, 1 in an open one. A
closed loop is the point of the curve where ``active`` is the number of users, an open loop where X is the
arrival rate, an offline run a closed loop as large as memory and the engine allow.
"""

import numpy as np

from sizing.calibration import EngineTime
from sizing.engines.timing import WIDER, Scheduling
from sizing.replica.curve import Curve, curve_at, decode_grid, decode_tokens_s, run_curve
from sizing.replica.loads import (
    ClosedLoop,
    Estimate,
    Lengths,
    Offline,
    OpenLoop,
    Room,
    Run,
    RunLoad,
    Targeted,
    Values,
    estimate,
)
from sizing.replica.waves import wave
from sizing.steptime import StepModel

__all__ = [
    "ClosedLoop", "Curve", "Estimate", "Lengths", "Offline", "OpenLoop", "Room", "Run", "RunLoad", "Targeted",
    "curve_at", "decode_grid", "decode_tokens_s", "estimate", "kv_requests", "predict_run", "run_curve", "run_of",
]  # fmt: skip


def kv_requests(memory: object, lengths: Lengths, scheduling: Scheduling) -> float:
    """Requests whose caches fit into the KV room of a replica. [request]

    Engines that admit by the prompt hold ``I + O (1 + cv^2) / 2`` tokens a request on average, long answers being
    there for longer (and a tenth of the answer more, for what a full room must leave free); those that reserve the
    longest answer hold ``I + O (1 + sqrt(3) cv)``, the upper end of evenly spread lengths.

    Parameters
    ----------
    memory
        A :class:`sizing.memory.MemoryBudget`.
    lengths
        Of the requests.
    scheduling
        Of the engine.
    """
    cv = lengths.output_cv
    share = 1.0 + 3.0**0.5 * cv if scheduling.reserves_output else 0.55 * (1.0 + cv**2)
    held = lengths.input_tokens + lengths.output_tokens * share
    return float(memory.max_requests(held))  # type: ignore[attr-defined]


def predict_run(
    steps: StepModel,
    room: Room,
    load: RunLoad,
    lengths: Lengths,
    scheduling: Scheduling,
    *,
    spread: dict[str, float] | None = None,
) -> Run:
    """A run at a load on one replica.

    Parameters
    ----------
    steps
        Step times. When the calibration holds draws, their spread widens the bounds.
    room
        Requests that run at once; more wait.
    load
        Closed loop, open loop, offline, or the largest rate within targets.
    lengths
        Of the requests.
    scheduling
        How the engine forms its steps.
    spread
        Log-sigma of measured over predicted that the constants don't explain, by ``ttft``, ``tpot``,
        ``rate``. [1]
    """
    if room.most < 1.0 - 1e-9:
        return _nothing(room)
    if isinstance(load, ClosedLoop):
        found, state = _closed(steps, room, load, lengths, scheduling)
    elif isinstance(load, OpenLoop) and np.isfinite(load.request_rate_per_s):
        found, state = _open(steps, room, load, lengths, scheduling)
    elif isinstance(load, Targeted):
        found, state = _targeted(steps, room, load, lengths, scheduling)
    else:
        found, state = _burst(steps, room, load.requests, lengths, scheduling)
    return run_of(found, state, lengths, spread or {})


def _nothing(room: Room) -> Run:
    never, none = Estimate(value=np.inf, low=np.inf, high=np.inf), Estimate(value=0.0, low=0.0, high=0.0)
    limit = "weights_do_not_fit" if room.kv_requests < 1.0 else "max_num_seqs"
    return Run(ttft_s=never, tpot_s=never, itl_s=never, output_tokens_per_s=none, request_rate_per_s=none,
               decoding=0.0, active=0.0, waiting=0.0, limited_by=limit, kv_short=True)  # fmt: skip


SUSTAINED = 0.95
"""Share of the saturated rate that a rate known to be sustained is taken to keep to, at most. [1]"""
State = dict[str, float | str | bool]


def _first_wave_s(found: dict[str, Values], users: float, lengths: Lengths, scheduling: Scheduling,
                  own: EngineTime) -> Values:  # fmt: skip
    """Mean time to first token when all users start together: the mean over a queue of full steps. [s]"""
    steps_needed = users * lengths.input_tokens / scheduling.step_tokens
    mean = found["full_step_s"] * (max(steps_needed, 1.0) + 1.0) / 2.0
    return np.asarray(np.maximum(np.ravel(own.start_scale) * mean + np.ravel(own.first_token_s), found["start_s"]))


def _closed(steps: StepModel, room: Room, load: ClosedLoop, lengths: Lengths, scheduling: Scheduling
            ) -> tuple[dict[str, Values], State]:  # fmt: skip
    users = max(load.users, 1e-6)
    slots = max(users - scheduling.idle_slots, 1.0)
    active = min(users, room.most, slots)
    limit = "load" if active == slots else _limit(room)
    if lengths.fixed and scheduling.lockstep and active >= 2.0:
        return _lockstep(steps, active, load, lengths, scheduling, limit)
    curve = run_curve(steps, lengths, scheduling, active, max(active - 1.0, 0.0) / max(active, 1.0))
    found = curve_at(curve, curve.active, active)
    requests = max(load.requests or 10.0 * users, 1.0)
    first = min(users / requests, 1.0)
    first_wave = _first_wave_s(found, active, lengths, scheduling, steps.engine)
    waiting = users - active
    queue = waiting / found["rate_per_s"] * max(1.0 - active / requests, 0.0)
    found["ttft_s"] = first * first_wave + (1.0 - first) * found["start_s"] + queue
    found["rate_per_s"] = found["rate_per_s"] * _busy_share(load, lengths)
    limited = "load" if waiting <= 1e-9 else limit
    return found, {"waiting": waiting, "limited_by": limited, "kv_short": limited == "kv_room"}


def _busy_share(load: ClosedLoop, lengths: Lengths) -> float:
    """Throughput of a run that ends over that of one that goes on: users who have no next request wait for the last.

    Users drift apart by ``cv sqrt(k)`` of a request in k requests each; the end costs some 1.5 times that, at most the
    longest answer that is still on its way less the mean of what is left, ``(1 + cv^2) / 2``. Measured: 0.27 requests
    of ten with lengths uniform in [0.8, 1], 1.2 of 25 with ShareGPT's, none with equal lengths.
    """
    if not load.requests:
        return 1.0
    each, cv = max(load.requests / max(load.users, 1.0), 1.0), lengths.output_cv
    longest = lengths.longest_of(4.0 * load.users)
    lost = min(1.5 * cv * each**0.5, max(longest - (1.0 + cv**2) / 2.0, 0.0))
    return float(each / (each + lost))


def _lockstep(steps: StepModel, active: float, load: ClosedLoop, lengths: Lengths, scheduling: Scheduling, limit: str
              ) -> tuple[dict[str, Values], State]:  # fmt: skip
    """Equal requests of an engine that keeps them in step."""
    seen = wave(steps, active, lengths, scheduling)
    rate, waiting = seen.rate_per_s, max(load.users, 1e-6) - active
    queue = waiting / rate * max(1.0 - active / max(load.requests or 10.0 * load.users, 1.0), 0.0)
    everywhere = np.full_like(rate, active)
    found = {"decoding": everywhere, "rate_per_s": rate, "tpot_s": seen.tpot_s, "start_s": seen.start_s,
             "full_step_s": seen.full_step_s, "active": everywhere, "ttft_s": seen.start_s + queue}  # fmt: skip
    limited = "load" if waiting <= 1e-9 else limit
    return found, {"waiting": waiting, "limited_by": limited, "kv_short": limited == "kv_room"}


def _limit(room: Room) -> str:
    return "kv_room" if room.kv_requests <= room.max_num_seqs else "max_num_seqs"


def _open(steps: StepModel, room: Room, load: OpenLoop, lengths: Lengths, scheduling: Scheduling
          ) -> tuple[dict[str, Values], State]:  # fmt: skip
    most = min(room.most, 16_384.0)
    curve = run_curve(steps, lengths, scheduling, most)
    top = curve_at(curve, curve.active, most)
    rate = load.request_rate_per_s
    sustained = load.sustained
    aimed = np.minimum(rate, SUSTAINED * top["rate_per_s"]) if sustained else np.full_like(top["rate_per_s"], rate)
    found = curve_at(curve, curve.rate_per_s, aimed)
    over = top["rate_per_s"] < rate
    if sustained:
        queue = np.zeros_like(aimed)
        found["rate_per_s"] = np.full_like(aimed, rate)
    else:
        for name in found:
            found[name] = np.where(over, top[name], found[name])
        queue = np.where(over, (load.requests or 1000.0) / 2.0 * (1.0 / top["rate_per_s"] - 1.0 / rate), 0.0)
    found["ttft_s"] = found["start_s"] + np.maximum(queue, 0.0)
    overloaded = bool(over[0])
    limited = "overload" if overloaded else "load"
    return found, {"waiting": 0.0, "limited_by": limited, "kv_short": overloaded}


TTFT_TAIL, TPOT_TAIL = 3.0, 1.2
"""The 99th percentile over the mean near the largest rate (assumed; the simulator gives 2.5-4 and 1.1-1.4). [1]"""


def _targeted(steps: StepModel, room: Room, load: Targeted, lengths: Lengths, scheduling: Scheduling
              ) -> tuple[dict[str, Values], State]:  # fmt: skip
    """The largest rate within targets, at most the share of the saturated rate that a replica keeps up with."""
    most = min(room.most, 16_384.0)
    curve = run_curve(steps, lengths, scheduling, most)
    top = SUSTAINED * curve_at(curve, curve.active, most)["rate_per_s"]
    by_tpot = curve_at(curve, curve.tpot_s, load.tpot_s / TPOT_TAIL)["rate_per_s"]
    by_ttft = curve_at(curve, curve.start_s, load.ttft_s / TTFT_TAIL)["rate_per_s"]
    found = curve_at(curve, curve.rate_per_s, np.minimum(np.minimum(by_tpot, by_ttft), top))
    found["ttft_s"] = found["start_s"]
    return found, {"waiting": 0.0, "limited_by": "load", "kv_short": False}


def _burst(steps: StepModel, room: Room, requests: float | None, lengths: Lengths, scheduling: Scheduling
           ) -> tuple[dict[str, Values], State]:  # fmt: skip
    """All requests at once: waves as large as the replica runs."""
    count = requests or 1e9
    active = min(room.most, count, 1e6)
    others = (active - 1.0) / active if active > 1 else 0.0
    curve = run_curve(steps, lengths, scheduling, active, others)
    found = curve_at(curve, curve.active, active)
    first_wave = _first_wave_s(found, active, lengths, scheduling, steps.engine)
    first = min(active / count, 1.0)
    alone = _first_tpot_s(steps, found, active, lengths, scheduling)
    residence = found["start_s"] + (lengths.output_tokens - 1.0) * found["tpot_s"]
    first_s = np.maximum(first_wave + (lengths.output_tokens - 1.0) * alone, residence)
    found["tpot_s"] = first * np.maximum(alone, found["tpot_s"]) + (1.0 - first) * found["tpot_s"]
    waiting = max(count - active, 0.0)
    fresh = residence * max(1.0 - lengths.output_cv**2, 0.0) / 2.0 if waiting else 0.0
    queue = waiting / found["rate_per_s"] / 2.0 + fresh
    found["ttft_s"] = first * first_wave + (1.0 - first) * (found["start_s"] + queue)
    if count < 1e8:
        last_s = np.ravel(decode_tokens_s(steps, np.array([max(active / 16.0, 1.0)]), lengths, scheduling))
        found["rate_per_s"] = count / (first_s + _later_s(curve, residence, count, active, lengths, last_s))
    limited = "load" if count <= active else _limit(room)
    return found, {"waiting": max(count - active, 0.0) if requests else 0.0, "limited_by": limited,
                   "kv_short": limited == "kv_room"}  # fmt: skip


def _later_s(curve: Curve, residence_s: Values, count: float, active: float, lengths: Lengths, last_s: Values
             ) -> Values:  # fmt: skip
    """Time of a burst's waves after the first. [s]

    Equal requests go in whole waves, of which the last is smaller and faster; others drift apart, and at the end the
    longest answers go on in small batches (``last_s`` a token; 0.8 of it in simulations).
    """
    waves = max(count / active, 1.0)
    if not lengths.fixed:
        longest = max(lengths.longest_of(count) - 1.0, 0.0)
        return np.asarray((waves - 1.0) * residence_s + 0.8 * longest * lengths.output_tokens * last_s)
    full = np.floor(waves + 1e-9)
    rest = count - full * active
    if rest < 0.5:
        return np.asarray((full - 1.0) * residence_s)
    last = curve_at(curve, curve.active, rest)
    last_s = last["start_s"] + (lengths.output_tokens - 1.0) * last["tpot_s"]
    return np.asarray((full - 1.0) * residence_s + np.minimum(last_s, residence_s))


def _first_tpot_s(steps: StepModel, found: dict[str, Values], active: float, lengths: Lengths, scheduling: Scheduling
                  ) -> Values:  # fmt: skip
    """Mean time per output token of requests that all start together. [s]

    While prompts are left, every step is full of them: a request is held up by half of those steps on average, spread
    over its own answer, so short answers see more of it: the mean of 1/O is (1 + cv^2) / E[O] for lognormal lengths.
    """
    needed = active * lengths.input_tokens / scheduling.step_tokens
    held_s = found["full_step_s"] * max(needed - 1.0, 0.0) / 2.0
    decode_s = np.ravel(decode_tokens_s(steps, np.array([active]), lengths, scheduling))
    return np.asarray(decode_s + held_s * (1.0 + lengths.output_cv**2) / max(lengths.output_tokens - 1.0, 1e-9))


def run_of(found: dict[str, Values], state: State, lengths: Lengths, spread: dict[str, float]) -> Run:
    """Values with their bounds.

    Parameters
    ----------
    found
        A point of the curve, nominal value first, then draws.
    state
        What limits the run.
    lengths
        Of the requests.
    spread
        Log-sigma of residuals. [1]
    """
    tokens = found["rate_per_s"] * lengths.output_tokens
    wider = WIDER["short of room"] if state["kv_short"] else {}
    spread = {metric: sigma * wider.get(metric, 1.0) for metric, sigma in spread.items()}
    return Run(
        ttft_s=estimate(found["ttft_s"], spread.get("ttft", 0.0)),
        tpot_s=estimate(found["tpot_s"], spread.get("tpot", 0.0)),
        itl_s=estimate(found["tpot_s"], spread.get("tpot", 0.0)),
        output_tokens_per_s=estimate(tokens, spread.get("rate", 0.0)),
        request_rate_per_s=estimate(found["rate_per_s"], spread.get("rate", 0.0)),
        decoding=float(found["decoding"][0]), active=float(found["active"][0]),
        waiting=float(state["waiting"]), limited_by=str(state["limited_by"]), kv_short=bool(state["kv_short"]),
    )  # fmt: skip
