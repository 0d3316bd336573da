"""Time to first token of the requests of a replica: prompts that queue for one another's prefill.

A prompt waits for the prefill ahead of it (a queue with general gaps and prompts, Wiener-Hopf), for the step under way,
and then for a step of its own that it shares with the prompts behind it that came in time and fit the token budget.
Each part is a distribution on a grid of times; their sum is a product of transforms.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sizing.engines.timing import Scheduling
from sizing.replica.renewal import Renewal
from sizing.replica.tabulated import percentile_of
from sizing.steptime import StepModel
from sizing.workload import Workload

Values = NDArray[np.float64]
Transform = NDArray[np.complex128]
EDGES = np.unique(np.concatenate([
    [0.0, 0.002, 0.005, 0.01, 0.02, 0.04], np.linspace(0.06, 0.94, 34),
    [0.95, 0.96, 0.97, 0.975, 0.98, 0.985, 0.99, 0.9925, 0.995, 0.9975, 0.999, 1.0],
]))  # fmt: skip
"""Shares that prompts are cut at by length, finely where percentiles lie. [1]"""
WEIGHTS = np.diff(EDGES)
MIDDLES = (EDGES[1:] + EDGES[:-1]) / 2.0
AROUND = np.linspace(0.75, 1.25, 9)
"""Lengths over their mean that the cost of the mean prompt is averaged over: step times jump where tiles fill. [1]"""
SHARES = (np.arange(9) + 0.5) / 9.0
"""Shares of prompts by length at which what they share is looked at beside those that decode. [1]"""
GRID = 1024
"""Times on a grid, a power of two. [1]"""
REACH = 8
"""Grid over the longest wait looked at: room for the idle time of a queue that is seldom busy. [1]"""
FULLEST = 0.97
"""Load of the queue beyond which it is taken as at it; it does not empty in time for a mean to mean much. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """What prompts cost a replica.

    Attributes
    ----------
    tokens, chunks
        Length at the middle of each share, and the steps that it is split over. [token], [step]
    marginal_s
        By how much each lengthens steps that prefill anyhow. [s]
    fixed_s
        By how much a step is longer for prefilling at all, at each point of the curve. [s]
    budget
        Tokens of a step, at most. [token]
    """

    tokens: Values
    chunks: Values
    marginal_s: Values
    fixed_s: Values
    budget: float

    @property
    def mean_s(self) -> float:
        """Mean of the marginal time. [s]"""
        return float(self.marginal_s @ WEIGHTS)

    @property
    def variation(self) -> float:
        """Standard deviation of the marginal time over its mean. [1]"""
        return float(np.sqrt(((self.marginal_s - self.mean_s) ** 2) @ WEIGHTS)) / self.mean_s

    @property
    def mean_tokens(self) -> float:
        """Mean length. [token]"""
        return float(self.tokens @ WEIGHTS)

    @property
    def together(self) -> float:
        """Mean prompts that fill the budget of a step. [request]"""
        return max(self.budget / self.mean_tokens, 1.0)

    @property
    def full_s(self) -> float:
        """Marginal time of a full budget. [s]"""
        return self.budget * self.mean_s / self.mean_tokens


def prompts_of(
    steps: StepModel, scheduling: Scheduling, workload: Workload, decoding: Values, context: float, busy: float
) -> Prompts:
    """Cost of prompts in company: extra time of a step with each, the part that all of a step share taken out.

    Parameters
    ----------
    steps, scheduling
        Step times, and how the engine forms steps.
    workload
        Lengths of the requests.
    decoding
        Numbers that decode, at each point of the curve. [request]
    context
        Tokens in the cache of each. [token]
    busy
        A number that decodes in a busy hour, at which prompts of every length are timed. [request]
    """
    isl = workload.input_length
    tokens = np.maximum(isl.quantile(MIDDLES) + workload.mean_input_tokens - isl.mean, 1.0)
    budget = scheduling.step_tokens
    mean = float(tokens @ WEIGHTS)
    around, some = mean * AROUND, np.interp(SHARES, MIDDLES, tokens)
    sizes = np.concatenate([tokens, around, 2.0 * around, some])
    prompts = np.repeat([1.0, 2.0, 1.0], [len(tokens) + len(around), len(around), len(some)])
    pairs = prompts * (sizes / prompts) * (sizes / prompts + 1.0) / 2.0
    chunks = np.maximum(np.ceil(sizes / budget), 1.0) if scheduling.chunked else np.ones_like(sizes)
    beside = decoding if scheduling.mixed else np.zeros_like(decoding)
    busy = busy if scheduling.mixed else 0.0
    many, each = len(beside), len(some)
    batch = np.concatenate([np.full(len(sizes), busy), np.tile(beside, each), [busy], beside])
    none = np.zeros(1 + many)
    new = np.concatenate([sizes / chunks, np.repeat((sizes / chunks)[-each:], many), none])
    attended = np.concatenate([pairs / chunks, np.repeat((pairs / chunks)[-each:], many), none])
    count = np.concatenate([prompts, np.ones(each * many), none])
    time_s = np.atleast_2d(steps.step_s(batch, batch * context, new, attended, count))[0]
    at_nodes, at_points, base, bases = np.split(time_s, np.cumsum([len(sizes), each * many, 1]))
    extra = np.maximum(at_nodes - base, 0.02 * at_nodes) * chunks
    parts = np.cumsum([len(tokens), len(around), len(around)])
    alone = float(chunks[parts[0] : parts[1]].mean())
    one, two = (float(part.mean()) / alone for part in np.split(extra, parts)[1:3])
    fixed = min(max(2.0 * one - two, 0.0), 0.95 * one) if alone == 1.0 else 0.0
    marginal, chunks = (extra / chunks)[: len(tokens)], chunks[: len(tokens)]
    marginal = np.maximum(marginal - fixed, 0.5 * (one - fixed) * alone / mean * tokens / chunks)
    of_some = float(np.interp(SHARES, MIDDLES, marginal).mean())
    at_points = at_points.reshape(each, many).mean(axis=0)
    return Prompts(tokens=tokens, chunks=chunks, marginal_s=np.maximum(marginal * chunks, 1e-9),
                   fixed_s=np.maximum(at_points - bases - of_some, 0.0), budget=budget)  # fmt: skip


def left_behind(after: Values, together: float) -> Values:
    """Share of the prompts that came while a prompt waited for its step and do not fit that step. [1]

    Of prompts ahead and behind in a burst, both geometric with mean ``after``, steps take ``together`` at a time.

    Parameters
    ----------
    after
        Prompts expected behind one. [request]
    together
        Prompts of a full step. [request]
    """
    p = after / (1.0 + after)
    return np.asarray(together * (1.0 - p) * p ** (together - 1.0) / (1.0 - p**together + 1e-300))


def on_grid(values_s: Values, grid_s: Values, weights: Values = WEIGHTS) -> Values:
    """Chances of a value on grids of times: points x nodes onto points x grid, split between neighbours. [1]

    Parameters
    ----------
    values_s
        A value at each share, points x nodes. [s]
    grid_s
        Spacing of each point's grid. [s]
    weights
        Of the nodes. [1]
    """
    at = np.minimum(values_s / grid_s[:, None], GRID - 2.0)
    left = at.astype(np.int64)
    rest = at - left
    rows = np.arange(len(at))[:, None] * GRID
    mass = np.broadcast_to(weights, at.shape)
    flat = np.bincount((rows + left).ravel(), (mass * (1.0 - rest)).ravel(), len(at) * GRID)
    flat += np.bincount((rows + left + 1).ravel(), (mass * rest).ravel(), len(at) * GRID)
    return np.asarray(flat.reshape(len(at), GRID))


def waits(work: Transform, mean_work_s: Values, rate_per_s: Values, grid_s: Values, stream: Renewal) -> Transform:
    """Transform of the wait in a queue of one server with general gaps and work (GI/G/1), a row a point.

    Wiener-Hopf: with psi the transform of work less gap, log E exp(-i w W) = C(0) - C(w), C the part at positive times
    of log(1 - psi) (Feller vol. II, ch. XII and XVIII). The zero of 1 - psi at w = 0 is divided out by that of a
    geometric step down, whose factor has no positive times. Gaps longer than any wait are all alike: they are
    spread out, so that the grid need not hold them.

    Parameters
    ----------
    work
        Transform of the work of a customer, points x grid.
    mean_work_s, rate_per_s
        Its mean, and arrivals. [s], [1/s]
    grid_s
        Spacing of each point's grid. [s]
    stream
        How bursty arrivals are.
    """
    half, longest = GRID // 2, GRID // REACH
    spacing = (grid_s * rate_per_s)[:, None]
    short = stream.short_of(np.arange(longest + 1) * spacing) / spacing
    gaps = np.zeros((len(grid_s), GRID))
    gaps[:, :longest] = np.diff(short, 2, axis=1, prepend=0.0)  # split between neighbours, so that means are kept
    below = gaps.sum(axis=1, keepdims=True)
    tail = np.exp(-np.arange(half - longest + 1) / (0.3 * longest))
    gaps[:, longest - 1 : half] += (1.0 - below) * tail / tail.sum()
    psi = work * np.conj(np.fft.rfft(gaps, axis=1))
    down = np.maximum((gaps @ np.arange(GRID)) - mean_work_s / grid_s, 1e-3)
    ratio = down / (1.0 + down)
    turn = np.exp(2j * np.pi * np.fft.rfftfreq(GRID))
    step = 1.0 - (1.0 - ratio[:, None]) / (1.0 - ratio[:, None] * turn)
    quotient = np.ones_like(psi)
    quotient[:, 1:] = (1.0 - psi[:, 1:]) / step[:, 1:]
    series = np.fft.irfft(np.log(quotient), GRID, axis=1)
    series[:, 0] = 0.0
    series[:, half:] = 0.0
    positive = np.fft.rfft(series, axis=1)
    return np.asarray(np.exp(positive[:, :1] - positive))


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstTokens:
    """Distribution of the time to first token, at each point.

    Attributes
    ----------
    time_s
        Grid of each point, points x grid. [s]
    below
        Share of requests answered by then. [1]
    """

    time_s: Values
    below: Values

    def mean_s(self) -> Values:
        """Mean. [s]"""
        mass = np.diff(self.below, axis=1, prepend=0.0)
        return np.asarray((mass * self.time_s).sum(axis=1) + (1.0 - self.below[:, -1]) * self.time_s[:, -1])

    def percentile_s(self, percentile: float) -> Values:
        """Percentile over requests. [s]

        Parameters
        ----------
        percentile
            Between 0 and 100. [%]
        """
        return percentile_of(self.time_s, self.below, percentile)


def first_tokens(
    prompts: Prompts, fixed_s: Values, decode_s: Values, rate_per_s: Values, stream: Renewal, *, mixed: bool,
    overflow: Values, overflow_s: Values,
) -> FirstTokens:  # fmt: skip
    """Time from arrival to the end of the step that completes the prefill.

    Parameters
    ----------
    prompts
        What prompts cost.
    fixed_s, decode_s
        Extra time of a step that prefills, and a step that only decodes, at each point. [s]
    rate_per_s, stream
        Arrivals. [request/s]
    mixed
        Whether prompts share their step with those that decode.
    overflow, overflow_s
        Share of requests that wait for room, and their mean wait, exponential. [1], [s]
    """
    beside = decode_s if mixed else np.zeros_like(decode_s)
    every = beside + fixed_s
    marginal = np.broadcast_to(prompts.marginal_s, (len(every), len(WEIGHTS)))
    work_s = marginal + every[:, None] * prompts.tokens / prompts.budget
    own_s = marginal + (prompts.chunks - 1.0) * every[:, None]
    mean_s = work_s @ WEIGHTS
    rate = np.minimum(rate_per_s, FULLEST / mean_s)
    load = rate * mean_s
    squares = stream.gap_cv**2 + prompts.variation**2
    longest_s = longest_wait_s(load, mean_s, squares, stream) + own_s.max(axis=1) + 6.0 * decode_s
    longest_s = longest_s + 2.0 * work_s.max(axis=1)
    longest_s = np.maximum(longest_s, np.where(overflow > 1e-4, 6.0 * overflow_s, 0.0))
    grid_s = REACH * longest_s / GRID
    wait = waits(np.fft.rfft(on_grid(work_s, grid_s), axis=1), mean_s, rate, grid_s, stream)
    at_once = np.clip(np.fft.irfft(wait, GRID, axis=1)[:, 0], 0.0, 1.0)
    waited_s = _mean_of(wait, grid_s) / np.maximum(1.0 - at_once, 1e-6)
    full_s = every + prompts.full_s
    residual_s = waited_s / (1.0 + waited_s / full_s) + decode_s / 2.0
    marginal_t = np.fft.rfft(on_grid(marginal, grid_s), axis=1)
    behind = [_behind(prompts, marginal_t, rate, r, stream) for r in (decode_s / 2.0, residual_s)]
    total = at_once[:, None] * behind[0] + (wait - at_once[:, None]) * behind[1]
    total = total * np.fft.rfft(on_grid(own_s, grid_s), axis=1)
    lighter = np.minimum(rate * prompts.mean_s, FULLEST)
    total = total * _rest(decode_s, grid_s) * _geometric(lighter / (1.0 - lighter) * beside / grid_s)
    total = total * (1.0 - overflow[:, None] * (1.0 - _geometric(overflow_s / grid_s)))
    mass = np.fft.irfft(total, GRID, axis=1)[:, : GRID // 2]
    below = np.clip(np.maximum.accumulate(np.cumsum(mass, axis=1), axis=1), 0.0, 1.0)
    return FirstTokens(time_s=np.arange(GRID // 2) * grid_s[:, None] + every[:, None], below=below)


def longest_wait_s(load: Values, mean_s: Values, squares: float, stream: Renewal) -> Values:
    """Wait that a queue's grid should reach: some means by Kingman's formula, and a few bursts. [s]

    Parameters
    ----------
    load, mean_s
        Of the queue, and the mean work of a customer. [1], [s]
    squares
        Squared CVs of gaps and work together. [1]
    stream
        How bursty arrivals are.
    """
    kingman_s = load * mean_s / (1.0 - load) * squares / 2.0
    return 4.0 * kingman_s + 4.0 * max(stream.gap_cv**2 - 1.0, 0.0) * (1.0 - load) * mean_s


def _mean_of(transform: Transform, grid_s: Values) -> Values:
    """Mean of what a transform is of. [s]"""
    mass = np.fft.irfft(transform, GRID, axis=1)[:, : GRID // REACH]
    return np.asarray(np.maximum((mass * np.arange(GRID // REACH)).sum(axis=1), 0.0) * grid_s)


def _behind(prompts: Prompts, marginal_t: Transform, rate: Values, residual_s: Values, stream: Renewal) -> Transform:
    """Transform of the prefill of prompts that come before one's own step begins, and fit it: geometrically many."""
    after = stream.arrivals_after(rate * residual_s)
    left = left_behind(after, prompts.together)
    # where one is left, part of it fills the step: half a prompt on average
    after = after * (1.0 - left) + 0.5 * left * after / (1.0 + after)
    p = (after / (1.0 + after))[:, None]
    return np.asarray((1.0 - p) / (1.0 - p * marginal_t))


def _rest(longest_s: Values, grid_s: Values) -> Transform:
    """Transform of what is left of a step under way: uniform up to its length, by three points of it."""
    parts = longest_s[:, None] * np.array([1.0, 3.0, 5.0]) / 6.0
    return np.asarray(np.fft.rfft(on_grid(parts, grid_s, np.full(3, 1.0 / 3.0)), axis=1))


def _geometric(mean: Values) -> Transform:
    """Transform of a geometric number of grid steps: an exponential time. [1]"""
    p = (mean / (1.0 + mean))[:, None]
    return np.asarray((1.0 - p) / (1.0 - p * np.exp(-2j * np.pi * np.fft.rfftfreq(GRID))))
