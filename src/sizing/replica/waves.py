"""Equal requests that keep step: users of a closed loop whose answers end together send their next prompts together."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sizing.engines.timing import Scheduling
from sizing.replica.curve import decode_tokens_s, prefill_s
from sizing.replica.loads import TIE, Lengths, Values
from sizing.steptable import delivery_share
from sizing.steptime import StepModel

ARRIVAL_S = 2e-3
"""Time between the prompts of one wave as they reach the engine: TTFT of 25 to 250 users with prompts of 200 tokens
(NIM, GenAI-Perf): 1 to 3 ms do alike, with 0 the TTFT of 100 users is 2-3 times too long. [s]"""
MOST_GROUPS, SAME = 16, 1e-2
"""Groups of a wave that are told apart, and the share that two of the same size may differ by. [1], [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """What each request of a wave sees; arrays over draws.

    Attributes
    ----------
    start_s
        Time to first token. [s]
    tpot_s
        Time per output token. [s]
    full_step_s
        A step full of prompts. [s]
    active
        Requests of the wave. [request]
    output_tokens
        Tokens after the first. [token]
    """

    start_s: Values
    tpot_s: Values
    full_step_s: Values
    active: float
    output_tokens: float

    @property
    def rate_per_s(self) -> Values:
        """Throughput, by Little's law. [request/s]"""
        return np.asarray(self.active / (self.start_s + self.output_tokens * self.tpot_s))


def wave(steps: StepModel, active: float, lengths: Lengths, scheduling: Scheduling) -> Wave:
    """A wave of equal requests.

    Parameters
    ----------
    steps
        Step times.
    active
        Requests of the wave. [request]
    lengths, scheduling
        Of requests and engine.
    """
    form = _mixed if scheduling.mixed else _prefill_first
    return form(steps, active, lengths, scheduling)


def _after(steps: StepModel, active: float, decode_s: Values) -> Values:
    """What a first token that is computed still waits for. [s]"""
    own = steps.engine
    return np.asarray(np.ravel(own.first_token_s) + np.ravel(own.first_token_steps) * delivery_share(active) * decode_s)


def _decode_s(steps: StepModel, active: float, lengths: Lengths, scheduling: Scheduling) -> Values:
    return np.ravel(decode_tokens_s(steps, np.array([active]), lengths, scheduling))


def _prefill_first(steps: StepModel, active: float, lengths: Lengths, scheduling: Scheduling) -> Wave:
    """All prompts of a wave, then all decode together.

    With n full prefill steps, a prompt waits for (n + 1) / 2 of them, and then, having its first token, for
    the other (n - 1) / 2.
    """
    count = min(active, max(scheduling.token_budget / lengths.input_tokens, 1.0))
    needed = active / count
    full_s = np.ravel(prefill_s(steps, np.array([count]), lengths, scheduling))
    decode_s = _decode_s(steps, active, lengths, scheduling)
    output = max(lengths.output_tokens - 1.0, TIE)
    start = np.ravel(steps.engine.start_scale) * full_s * (needed + 1.0) / 2.0 + _after(steps, active, decode_s)
    return Wave(start_s=start, tpot_s=decode_s + full_s * (needed - 1.0) / 2.0 / output, full_step_s=full_s,
                active=active, output_tokens=output)  # fmt: skip


def _mixed(steps: StepModel, active: float, lengths: Lengths, scheduling: Scheduling) -> Wave:
    """The first prompt of a wave goes alone, the others in groups, each of which came while the one before it ran.

    A group is what reached the engine during the step before, a prompt each :data:`ARRIVAL_S`, up to the budget; it
    waits for the rest of that step and for its own. It is held up by the groups that come after it; where not all
    prompts fit one step, by all others, since the next wave of the first groups begins before the last answers end.
    """
    most = max(scheduling.token_budget / lengths.input_tokens, 1.0)
    ends = np.atleast_2d(
        prefill_s(steps, np.array([1.0, max(min(active - 1.0, most), 1.0 + TIE)]), lengths, scheduling)
    )
    slope = (ends[:, 1] - ends[:, 0]) / max(min(active - 1.0, most) - 1.0, TIE)
    sizes, copies = groups_of(active, most, float(ends[0, 0]), float(slope[0]))
    time_s = ends[:, :1] + slope[:, None] * (sizes - 1.0)
    before_s = np.concatenate([0.0 * time_s[:, :1], time_s[:, :-1]], axis=1)
    # of several alike each but the first waits for one of its own kind
    waits_s = (before_s + (copies - 1.0) * time_s) / copies
    waits_s = np.maximum(waits_s - sizes * ARRIVAL_S / 2.0, 0.0)
    share = sizes * copies / active
    start = np.ravel(steps.engine.start_scale) * ((waits_s + time_s) * share).sum(axis=1)
    whole_s = copies * time_s
    later_s = np.cumsum(whole_s[:, ::-1], axis=1)[:, ::-1] - whole_s
    held_s = whole_s.sum(axis=1, keepdims=True) - time_s if active - 1.0 > most else later_s
    decode_s = _decode_s(steps, active, lengths, scheduling)
    output = max(lengths.output_tokens - 1.0, TIE)
    tpot = decode_s + (held_s * share).sum(axis=1) / output
    return Wave(start_s=start + _after(steps, active, decode_s), tpot_s=tpot, full_step_s=time_s[:, -1],
                active=active, output_tokens=output)  # fmt: skip


def groups_of(active: float, most: float, one_s: float, slope_s: float) -> tuple[NDArray[np.float64], ...]:
    """Sizes of the groups of a wave, in their order, and how many follow each other alike. [request], [1]

    Parameters
    ----------
    active
        Requests of the wave. [request]
    most
        Prompts that fit one step. [request]
    one_s, slope_s
        A step with one prompt, and what each further one adds. [s], [s]
    """
    sizes, copies = [1.0], [1.0]
    left = active - 1.0
    while left > TIE:
        came = (one_s + slope_s * (sizes[-1] - 1.0)) / ARRIVAL_S
        size = min(left, most, max(came, 1.0))
        steady = size == most or abs(size - sizes[-1]) < SAME * size or len(sizes) >= MOST_GROUPS
        alike = max(left // size, 1.0) if steady else 1.0
        sizes.append(size)
        copies.append(alike)
        left -= size * alike
    return np.array(sizes), np.array(copies)
