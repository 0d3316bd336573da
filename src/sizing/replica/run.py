"""What a run at a given load looks like on one replica: TTFT, TPOT, ITL, throughput, with error bars.

One curve answers every kind of load. Let B requests decode on average. A step takes ``t(B)``; each prompt
stalls those that decode by ``d`` (a mixed step is longer, or a prefill step comes between), so that

    TPOT = t / (1 - k X d)        X = B / ((O - 1) t + k B d)        active = B + X S

with X requests per second (Little's law), S the time a prompt spends before its first token and ``k`` the
share of the others' prompts that a request sees: (A - 1) / A in a closed loop of A, 1 in an open one. A
closed loop is the point of the curve where ``active`` is the number of users, an open loop where X is the
arrival rate, an offline run a closed loop as large as memory and the engine allow.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sizing.engines.timing import Scheduling
from sizing.errors import InputError
from sizing.steptime import StepModel

Values = NDArray[np.float64]
POINTS = 28
"""Batch sizes that a curve is computed at. [1]"""
TIE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths of requests.

    Attributes
    ----------
    input_tokens, output_tokens
        Means. [token]
    input_cv, output_cv
        Coefficient of variation; 0 for fixed lengths. [1]
    """

    input_tokens: float
    output_tokens: float
    input_cv: float = 0.0
    output_cv: float = 0.0

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens"):
            value = getattr(self, name)
            if not 0 < value < 1e9:
                raise InputError(f"{name}: {value!r} is not allowed; give a positive number of tokens")

    @classmethod
    def uniform(cls, input_tokens: float, output_tokens: float, low: float = 0.8) -> "Lengths":
        """Lengths drawn evenly from ``low`` times the nominal length up to it.

        Parameters
        ----------
        input_tokens, output_tokens
            Nominal, the longest. [token]
        low
            Shortest over longest. [1]
        """
        mean = (1.0 + low) / 2.0
        cv = (1.0 - low) / 12.0**0.5 / mean
        return cls(input_tokens=max(input_tokens * mean, 1.0), output_tokens=max(output_tokens * mean, 1.0),
                   input_cv=cv, output_cv=cv)  # fmt: skip

    @property
    def fixed(self) -> bool:
        """Whether all requests are alike, so that a closed loop runs in lockstep."""
        return self.input_cv == 0.0 and self.output_cv == 0.0

    @property
    def mean_context_tokens(self) -> float:
        """Tokens in the cache of a decoding request, averaged over time: I + O (1 + cv^2) / 2. [token]"""
        return self.input_tokens + self.output_tokens * (1.0 + self.output_cv**2) / 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """So many users, each sends its next request when the last one is answered.

    Attributes
    ----------
    users
        Requests in flight. [request]
    requests
        Requests of the run, the first wave among them; None: ten a user. [request]
    """

    users: float
    requests: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoop:
    """Arrivals at a rate, whatever the replica does.

    Attributes
    ----------
    request_rate_per_s
        Mean rate; infinite when all requests are there at the start. [request/s]
    requests
        Requests of the run, which bound the queue of an overloaded one; None: 1000. [request]
    poisson
        Memoryless arrivals; False for even gaps.
    """

    request_rate_per_s: float
    requests: float | None = None
    poisson: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Offline:
    """All requests at once, throughput is what counts.

    Attributes
    ----------
    requests
        Requests of the run; None: many times what runs at once. [request]
    """

    requests: float | None = None


RunLoad = ClosedLoop | OpenLoop | Offline


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with the bounds that hold it in 80 % of runs."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run, predicted.

    Attributes
    ----------
    ttft_s, tpot_s, itl_s
        Means over requests. [s]
    output_tokens_per_s, request_rate_per_s
        Of the whole replica. [token/s], [request/s]
    decoding, active
        Requests that decode, and that are admitted, on average. [request]
    waiting
        Requests that wait because the KV room or the engine's limit is full. [request]
    limited_by
        ``load``, ``kv_room``, ``max_num_seqs``, ``overload`` or ``weights_do_not_fit``.
    kv_short
        Whether requests queue for KV room, so that TTFT is a cliff and not a number to rely on.
    """

    ttft_s: Estimate
    tpot_s: Estimate
    itl_s: Estimate
    output_tokens_per_s: Estimate
    request_rate_per_s: Estimate
    decoding: float
    active: float
    waiting: float
    limited_by: str
    kv_short: bool
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The replica at each mean number of decoding requests; arrays end with the batch axis.

    Attributes
    ----------
    decoding
        Requests that decode. [request]
    rate_per_s, tpot_s, start_s, active
        Throughput; time per output token; time from admission to the first token; requests admitted.
    full_step_s
        A step with a full token budget of prefill. [s]
    """

    decoding: Values
    rate_per_s: Values
    tpot_s: Values
    start_s: Values
    active: Values
    full_step_s: Values


def decode_grid(most: float) -> Values:
    """Numbers of decoding requests that a curve is computed at. [request]

    Parameters
    ----------
    most
        The largest. [request]
    """
    most = max(most, 1.0)
    return np.concatenate([[1e-6, 0.05, 0.2, 0.5], np.geomspace(1.0, most * 1.02 + 1.0, POINTS)])


def decode_tokens_s(steps: StepModel, batch: Values, lengths: Lengths, scheduling: Scheduling) -> Values:
    """Time per output token of a batch that only decodes. [s]

    With drafts, a step verifies ``1 + k`` tokens a sequence and yields ``accepted`` of them; each draft costs
    a layer or so.

    Parameters
    ----------
    steps
        Step times.
    batch
        Sequences. [sequence]
    lengths, scheduling
        Of requests and engine.
    """
    context = batch * lengths.mean_context_tokens
    if scheduling.drafts <= 0:
        return np.asarray(steps.step_s(batch, context))
    step_s = np.asarray(steps.step_s(batch * (1.0 + scheduling.drafts), context))
    draft = scheduling.drafts * 1.5 / max(steps.deployment.model.num_layers, 1)
    return (step_s + draft * np.asarray(steps.step_s(batch, context))) / scheduling.accepted


def run_curve(steps: StepModel, lengths: Lengths, scheduling: Scheduling, most: float, others: float = 1.0) -> Curve:
    """Throughput and latency of a replica over the number of decoding requests.

    Parameters
    ----------
    steps
        Step times; constants with draws give a leading draw axis.
    lengths
        Of the requests.
    scheduling
        Token budget, whether prefill and decode share steps.
    most
        Largest number of requests in flight. [request]
    others
        Share of the load that is not one's own: (A - 1) / A in a closed loop, 1 in an open one. [1]
    """
    decoding = decode_grid(most)
    prompt, output = lengths.input_tokens, max(lengths.output_tokens - 1.0, TIE)
    budget = max(scheduling.token_budget, 16.0)
    chunks = max(np.ceil(prompt / budget), 1.0) if scheduling.chunked else 1.0
    several = max(budget / prompt, 1.0)
    seen = 1.0 + others * decoding
    attended = prompt * (prompt + 1.0) / 2.0 * (1.0 + lengths.input_cv**2)
    together = min(several, max(most, 1.0))
    context = lengths.mean_context_tokens
    beside = seen - 1.0 if scheduling.mixed else np.zeros_like(seen)
    batch = np.concatenate([seen, beside, beside])
    shape = np.ones_like(seen)
    new = np.concatenate([0 * shape, shape * prompt / chunks, shape * prompt * together / chunks])
    pairs = np.concatenate([0 * shape, shape * attended / chunks, shape * attended * together / chunks])
    prompts = np.concatenate([0 * shape, shape, shape * together])
    time_s = np.asarray(steps.step_s(batch, batch * context, new, pairs, prompts))
    decode_s, one_s, full_s = np.split(time_s, 3, axis=-1)
    plain_s = decode_s
    if scheduling.drafts > 0:
        decode_s = decode_tokens_s(steps, seen, lengths, scheduling)
    alone_s = plain_s if scheduling.mixed else 0.0
    stall_one, stall_full = (np.maximum(x - alone_s, 0.05 * x) for x in (one_s, full_s))
    slope = (stall_full - stall_one) / max(together - 1.0, 1.0) if together > 1.0 else stall_one
    fixed = np.maximum(stall_one - slope, 0.0)

    def at(group: Values | float) -> tuple[Values, Values, Values, Values]:
        stall = chunks * (fixed / group + slope)
        rate = decoding / (output * decode_s + others * decoding * stall)
        tpot = decode_s / np.maximum(1.0 - others * rate * stall, 1e-9)
        own = alone_s + fixed + slope * group
        return stall, rate, tpot, own

    group: Values | float = min(together, max(most, 1.0)) if lengths.fixed else 1.0
    stall, rate, tpot, own = at(group)
    if not lengths.fixed and together > 1.0:
        for _ in range(3):
            group = np.clip(1.0 + others * rate * (decode_s + own) / 2.0, 1.0, together)
            stall, rate, tpot, own = at(group)
    start = chunks * own + _wait_s(rate, own, decode_s, chunks, others, lengths, most, full_s / together)
    start = start + steps.engine.first_token_s
    return Curve(decoding=decoding, rate_per_s=rate, tpot_s=tpot, start_s=start,
                 active=decoding + rate * start, full_step_s=full_s)  # fmt: skip


def _wait_s(rate: Values, own_s: Values, decode_s: Values, chunks: float, others: float, lengths: Lengths,
            most: float, share_s: Values) -> Values:  # fmt: skip
    """Wait for the step under way and for prompts ahead. [s]

    In lockstep a prompt arrives as a step ends and waits for one more decode step (the scheduler has begun it).
    Otherwise it arrives at random: half a step, of the kind that is under way, and a queue as in M/D/1 that
    a finite number of users bounds.
    """
    busy = np.minimum(1.0, np.maximum(most - 1.0, 0.0)) if others < 1.0 else 1.0
    if lengths.fixed and others < 1.0:
        return busy * 0.5 * decode_s
    load = np.minimum(others * rate * chunks * own_s, 1.0)
    under_way = 0.5 * ((1.0 - load) * decode_s + load * own_s)
    service = chunks * share_s
    use = np.minimum(others * rate * service, 0.999)
    queue = use * service / (2.0 * (1.0 - use))
    bound = max(most, 1.0) * service / 2.0 if others < 1.0 else np.inf
    return busy * under_way + 1.0 / (1.0 / np.maximum(queue, TIE) + 1.0 / bound)


def curve_at(curve: Curve, axis: Values, target: float) -> dict[str, Values]:
    """Every quantity of the curve where ``axis`` reaches a value, draw by draw."""
    rising = np.maximum.accumulate(np.atleast_2d(axis), axis=-1)
    found: dict[str, Values] = {}
    below = np.clip((rising < target).sum(axis=-1) - 1, 0, rising.shape[-1] - 2)
    row = np.arange(len(rising))
    low, high = rising[row, below], rising[row, below + 1]
    share = np.clip((target - low) / np.maximum(high - low, TIE), 0.0, 1.0)
    for name in ("decoding", "rate_per_s", "tpot_s", "start_s", "full_step_s", "active"):
        values = np.broadcast_to(getattr(curve, name), rising.shape)
        found[name] = values[row, below] * (1.0 - share) + values[row, below + 1] * share
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many requests one replica runs at once.

    Attributes
    ----------
    kv_requests
        Requests whose caches fit, on average. [request]
    max_num_seqs
        The engine's limit. [request]
    """

    kv_requests: float
    max_num_seqs: float = 1e9

    @property
    def most(self) -> float:
        """The smaller of both. [request]"""
        return min(self.kv_requests, self.max_num_seqs)


def kv_requests(memory: object, lengths: Lengths, scheduling: Scheduling) -> float:
    """Requests whose caches fit into the KV room of a replica. [request]

    Engines that admit by the prompt hold ``I + O / 2`` tokens a request on average; those that reserve the
    longest answer hold ``I + O``.

    Parameters
    ----------
    memory
        A :class:`sizing.memory.MemoryBudget`.
    lengths
        Of the requests.
    scheduling
        Of the engine.
    """
    held = lengths.input_tokens + lengths.output_tokens * (1.0 if scheduling.reserves_output else 0.55)
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
        Closed loop, open loop or offline.
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
    else:
        found, state = _burst(steps, room, load.requests, lengths, scheduling)
    return run_of(found, state, lengths, spread or {})


def _nothing(room: Room) -> Run:
    never, none = Estimate(value=np.inf, low=np.inf, high=np.inf), Estimate(value=0.0, low=0.0, high=0.0)
    limit = "weights_do_not_fit" if room.kv_requests < 1.0 else "max_num_seqs"
    return Run(ttft_s=never, tpot_s=never, itl_s=never, output_tokens_per_s=none, request_rate_per_s=none,
               decoding=0.0, active=0.0, waiting=0.0, limited_by=limit, kv_short=True)  # fmt: skip


State = dict[str, float | str | bool]


def _first_wave_s(found: dict[str, Values], users: float, lengths: Lengths, scheduling: Scheduling,
                  first_token_s: Values | float) -> Values:  # fmt: skip
    """Mean time to first token when all users start together: the mean over a queue of full steps. [s]"""
    steps_needed = users * lengths.input_tokens / max(scheduling.token_budget, 16.0)
    mean = found["full_step_s"] * (max(steps_needed, 1.0) + 1.0) / 2.0
    return np.maximum(mean + np.ravel(first_token_s), found["start_s"])


def _closed(steps: StepModel, room: Room, load: ClosedLoop, lengths: Lengths, scheduling: Scheduling
            ) -> tuple[dict[str, Values], State]:  # fmt: skip
    users = max(load.users, 1e-6)
    active = min(users, room.most)
    curve = run_curve(steps, lengths, scheduling, active, max(active - 1.0, 0.0) / max(active, 1.0))
    found = curve_at(curve, curve.active, active)
    requests = max(load.requests or 10.0 * users, 1.0)
    first = min(users / requests, 1.0)
    wave = _first_wave_s(found, active, lengths, scheduling, steps.engine.first_token_s)
    waiting = users - active
    queue = waiting / found["rate_per_s"] * max(1.0 - active / requests, 0.0)
    found["ttft_s"] = first * wave + (1.0 - first) * found["start_s"] + queue
    limited = "load" if waiting <= 1e-9 else _limit(room)
    return found, {"waiting": waiting, "limited_by": limited, "kv_short": limited == "kv_room"}


def _limit(room: Room) -> str:
    return "kv_room" if room.kv_requests <= room.max_num_seqs else "max_num_seqs"


def _open(steps: StepModel, room: Room, load: OpenLoop, lengths: Lengths, scheduling: Scheduling
          ) -> tuple[dict[str, Values], State]:  # fmt: skip
    most = min(room.most, 1e6)
    curve = run_curve(steps, lengths, scheduling, most)
    rate = load.request_rate_per_s
    top = curve_at(curve, curve.active, most)
    found = curve_at(curve, np.minimum.accumulate(curve.rate_per_s[..., ::-1], axis=-1)[..., ::-1], rate)
    over = top["rate_per_s"] < rate
    requests = load.requests or 1000.0
    for name in found:
        found[name] = np.where(over, top[name], found[name])
    queue = np.where(over, requests / 2.0 * (1.0 / top["rate_per_s"] - 1.0 / rate), 0.0)
    found["ttft_s"] = found["start_s"] + np.maximum(queue, 0.0)
    overloaded = bool(np.mean(over) > 0.5)
    limited = "overload" if overloaded else "load"
    return found, {"waiting": 0.0, "limited_by": limited,
                   "kv_short": overloaded and _limit(room) == "kv_room"}  # fmt: skip


def _burst(steps: StepModel, room: Room, requests: float | None, lengths: Lengths, scheduling: Scheduling
           ) -> tuple[dict[str, Values], State]:  # fmt: skip
    """All requests at once: waves as large as the replica runs."""
    count = requests or 1e9
    active = min(room.most, count, 1e6)
    others = (active - 1.0) / active if active > 1 else 0.0
    curve = run_curve(steps, lengths, scheduling, active, others)
    found = curve_at(curve, curve.active, active)
    wave = _first_wave_s(found, active, lengths, scheduling, steps.engine.first_token_s)
    residence = found["start_s"] + (lengths.output_tokens - 1.0) * found["tpot_s"]
    first = min(active / count, 1.0)
    queue = np.maximum(count - active, 0.0) / found["rate_per_s"] / 2.0
    found["ttft_s"] = first * wave + (1.0 - first) * (found["start_s"] + queue)
    if count < 1e8:
        waves = max(count / active, 1.0)
        whole = waves if lengths.fixed or waves == 1.0 else waves + 0.5
        makespan = whole * residence + np.maximum(wave - found["start_s"], 0.0)
        found["rate_per_s"] = count / makespan
    limited = "load" if count <= active else _limit(room)
    return found, {"waiting": max(count - active, 0.0) if requests else 0.0, "limited_by": limited,
                   "kv_short": limited == "kv_room"}  # fmt: skip


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
    return Run(
        ttft_s=estimate(found["ttft_s"], spread.get("ttft", 0.0)),
        tpot_s=estimate(found["tpot_s"], spread.get("tpot", 0.0)),
        itl_s=estimate(found["tpot_s"], spread.get("tpot", 0.0)),
        output_tokens_per_s=estimate(tokens, spread.get("rate", 0.0)),
        request_rate_per_s=estimate(found["rate_per_s"], spread.get("rate", 0.0)),
        decoding=float(found["decoding"][0]), active=float(found["active"][0]),
        waiting=float(state["waiting"]), limited_by=str(state["limited_by"]), kv_short=bool(state["kv_short"]),
    )  # fmt: skip


QUANTILE_80 = 1.2815515655446004
"""Standard normal quantile at 90 %: what bounds the middle 80 %. [1]"""


def estimate(values: Values, sigma: float) -> Estimate:
    """The first value (nominal constants) with bounds from the draws that follow and a residual.

    Parameters
    ----------
    values
        Nominal value, then draws; or the nominal value alone.
    sigma
        Log-sigma of the residual. [1]
    """
    value = float(values[0])
    if not np.isfinite(value) or value <= 0:
        return Estimate(value=value, low=value, high=value)
    logs = np.log(np.maximum(values[1:], TIE)) if len(values) > 2 else np.zeros(1)
    width = float(np.exp(QUANTILE_80 * np.hypot(np.std(logs), sigma)))
    return Estimate(value=value, low=value / width, high=value * width)
