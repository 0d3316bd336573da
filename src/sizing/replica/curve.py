"""One replica over the number of requests that decode: rate, TPOT, time to first token."""

from dataclasses import dataclass

import numpy as np

from sizing.engines.timing import Scheduling
from sizing.replica.loads import TIE, Lengths, Values
from sizing.steptable import delivery_share
from sizing.steptime import StepModel

POINTS = 28
"""Batch sizes that a curve is computed at. [1]"""


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
    decode_s, stall_s
        Time per output token without prompts; by how much one prompt holds up those that decode. [s]
    """

    decoding: Values
    rate_per_s: Values
    tpot_s: Values
    start_s: Values
    active: Values
    full_step_s: Values
    decode_s: Values
    stall_s: Values


def decode_grid(most: float, points: int = POINTS) -> Values:
    """Numbers of decoding requests that a curve is computed at. [request]

    Parameters
    ----------
    most
        The largest. [request]
    points
        How many of them are 1 or more. [1]
    """
    most = max(most, 1.0)
    return np.concatenate([[1e-6, 0.05, 0.2, 0.5], np.geomspace(1.0, most * 1.02 + 1.0, points)])


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


def chunks_of(lengths: Lengths, scheduling: Scheduling) -> float:
    """Steps that the mean prompt takes, a token budget each. [1]

    Parameters
    ----------
    lengths, scheduling
        Of requests and engine.
    """
    return max(float(np.ceil(lengths.input_tokens / scheduling.step_tokens)), 1.0)


def prefill_s(steps: StepModel, counts: Values, lengths: Lengths, scheduling: Scheduling) -> Values:
    """Steps that do nothing but prefill so many prompts of the mean length, in chunks of the token budget. [s]

    Parameters
    ----------
    steps
        Step times.
    counts
        Prompts of a step. [request]
    lengths, scheduling
        Of requests and engine.
    """
    prompt, none, chunks = lengths.input_tokens, np.zeros_like(counts), chunks_of(lengths, scheduling)
    pairs = counts * prompt * (prompt + 1.0) / 2.0
    return np.asarray(chunks * steps.step_s(none, none, counts * prompt / chunks, pairs / chunks, counts))


def run_curve(steps: StepModel, lengths: Lengths, scheduling: Scheduling, most: float, others: float = 1.0,
              points: int = POINTS) -> Curve:  # fmt: skip
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
    points
        Of the grid, see :func:`decode_grid`. [1]
    """
    decoding = decode_grid(most, points)
    in_step = lengths.fixed and scheduling.lockstep and others < 1.0
    prompt, output = lengths.input_tokens, max(lengths.output_tokens - 1.0, TIE)
    budget = scheduling.step_tokens
    chunks = chunks_of(lengths, scheduling) if scheduling.chunked else 1.0
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

    group: Values | float = min(together, max(most, 1.0)) if in_step else 1.0
    stall, rate, tpot, own = at(group)
    if not in_step and together > 1.0:
        for _ in range(3):
            group = np.clip(1.0 + others * rate * (decode_s + own) / 2.0, 1.0, together)
            stall, rate, tpot, own = at(group)
    start = chunks * own + _wait_s(rate, own, decode_s, chunks, others, in_step, most, full_s / together)
    held_s = steps.engine.first_token_steps * delivery_share(seen) * decode_s
    start = steps.engine.start_scale * start + steps.engine.first_token_s + held_s
    return Curve(decoding=decoding, rate_per_s=rate, tpot_s=tpot, start_s=start,
                 active=decoding + rate * start, full_step_s=full_s, decode_s=decode_s, stall_s=stall)  # fmt: skip


def _wait_s(rate: Values, own_s: Values, decode_s: Values, chunks: float, others: float, in_step: bool,
            most: float, share_s: Values) -> Values:  # fmt: skip
    """Wait for the step under way and for prompts ahead. [s]

    In lockstep a prompt arrives as a step ends and waits for one more decode step (the scheduler has begun it).
    Otherwise it arrives at random: half a step, of the kind that is under way, and a queue as in M/D/1 that
    a finite number of users bounds.
    """
    busy = np.minimum(1.0, np.maximum(most - 1.0, 0.0)) if others < 1.0 else 1.0
    if in_step:
        return busy * 0.5 * decode_s
    load = np.minimum(others * rate * chunks * own_s, 1.0)
    under_way = 0.5 * ((1.0 - load) * decode_s + load * own_s)
    service = chunks * share_s
    use = np.minimum(others * rate * service, 0.999)
    queue = use * service / (2.0 * (1.0 - use))
    bound = max(most, 1.0) * service / 2.0 if others < 1.0 else np.inf
    return busy * under_way + 1.0 / (1.0 / np.maximum(queue, TIE) + 1.0 / bound)


def curve_at(curve: Curve, axis: Values, target: Values | float) -> dict[str, Values]:
    """Every quantity of the curve where ``axis`` reaches a value, draw by draw."""
    rising = np.maximum.accumulate(np.atleast_2d(axis), axis=-1)
    found: dict[str, Values] = {}
    goal = np.broadcast_to(np.asarray(target, dtype=float), rising.shape[:-1])
    below = np.clip((rising < goal[:, None]).sum(axis=-1) - 1, 0, rising.shape[-1] - 2)
    row = np.arange(len(rising))
    low, high = rising[row, below], rising[row, below + 1]
    share = np.clip((goal - low) / np.maximum(high - low, TIE), 0.0, 1.0)
    for name in ("decoding", "rate_per_s", "tpot_s", "start_s", "full_step_s", "active"):
        values = np.broadcast_to(getattr(curve, name), rising.shape)
        found[name] = values[row, below] * (1.0 - share) + values[row, below + 1] * share
    return found
