"""Time per output token of the requests of a replica: each averages the company it has over its own answer.

Counted in steps, a request stays for exactly as many as its answer has tokens, and the number that decode and the
prompts that stall them answer linearly to arrivals (van Kampen's linear noise, Stochastic Processes in Physics and
Chemistry, ch. X): a step of n decoders takes t(n), each prompt adds d, and a longer step lets more requests arrive. So

    response of a step to an arrival   H(w) = (t' K h / ((1 - f) (1 - e h)) + d) / (1 - f)

with K the mean answer, h the transform of the answers' survival over K, f the share of prefill, e = n t' / t. The
variance of a request's TPOT is the spectrum of the steps through the window of its answer. A request also sees its own
burst: in mean, H times the excess of the arrivals around one, closed through 1 + rate H.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sizing.replica.prompts import Prompts, left_behind
from sizing.replica.renewal import Renewal, renewal
from sizing.replica.tabulated import percentile_of
from sizing.workload import Workload

Values = NDArray[np.float64]
EDGES = np.unique(np.concatenate([[0.0, 0.005, 0.015, 0.03, 0.06], np.linspace(0.1, 0.9, 13), [0.96, 0.99, 1.0]]))
"""Shares that answers are cut at by length. [1]"""
WEIGHTS = np.diff(EDGES)
MIDDLES = (EDGES[1:] + EDGES[:-1]) / 2.0
FREQUENCIES = 96
"""Frequencies that spectra are integrated over. [1]"""
LEVELS = 40
"""Values that the distribution of TPOT is tabulated at. [1]"""
MOST_SHARE, MOST_ELASTICITY = 0.97, 0.95
"""Bounds of f and e: beyond them linear noise says nothing. [1], [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """A replica at each point of its curve.

    Attributes
    ----------
    decoding, rate_per_s
        Requests that decode, and arrivals that keep them so. [request], [request/s]
    decode_s, slope_s
        A step of them and one more; how it grows with one more in a burst. [s]
    fixed_s, stall_s
        Extra time of a step that prefills; by how much a prompt holds up the others. [s]
    """

    decoding: Values
    rate_per_s: Values
    decode_s: Values
    slope_s: Values
    fixed_s: Values
    stall_s: Values

    @property
    def share(self) -> Values:
        """Share of the time that prefill takes. [1]"""
        return np.clip(self.rate_per_s * self.stall_s, 0.0, MOST_SHARE)

    @property
    def tpot_s(self) -> Values:
        """Time per output token with Poisson arrivals, which see time averages. [s]"""
        return np.asarray(self.decode_s / (1.0 - self.share))

    @property
    def elasticity(self) -> Values:
        """Relative change of a decode step over that of those that decode. [1]"""
        return np.clip(self.decoding * self.slope_s / self.decode_s, 0.0, MOST_ELASTICITY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """What requests see of one another, at each point.

    Attributes
    ----------
    rate_per_s
        Arrivals that lead to the point; fewer than while the replica is busy. [request/s]
    level_s, below
        TPOT, points x levels, and the share of requests that stay below. [s], [1]
    spread
        Variance of the number that decode. [request^2]
    others
        Requests of its own burst that a request has beside it. [request]
    """

    rate_per_s: Values
    level_s: Values
    below: Values
    spread: Values
    others: Values

    def percentile_s(self, percentile: float) -> Values:
        """Percentile over requests of a request's TPOT. [s]

        Parameters
        ----------
        percentile
            Between 0 and 100. [%]
        """
        return percentile_of(self.level_s, self.below, percentile)

    def mean_s(self) -> Values:
        """Mean over requests. [s]"""
        middle = (self.level_s[:, 1:] + self.level_s[:, :-1]) / 2.0
        mass = np.diff(self.below, axis=1)
        rest = 1.0 - self.below[:, -1]
        return np.asarray((mass * middle).sum(axis=1) + self.below[:, 0] * self.level_s[:, 0]
                          + rest * self.level_s[:, -1])  # fmt: skip


def company(points: Points, prompts: Prompts, workload: Workload, stream: Renewal, *, mixed: bool = True) -> Company:
    """Distribution over requests of TPOT, at each point of a replica's curve.

    Parameters
    ----------
    points, prompts
        The replica, and what prompts cost it.
    workload, stream
        Lengths of answers, and how bursty arrivals are.
    mixed
        Whether prompts share their step with those that decode.
    """
    steps = np.maximum(workload.output_length.quantile(MIDDLES) - 1.0, 1.0)
    own, delay = _own_step(points, prompts, stream, mixed)
    found = _linear_noise(points, prompts, stream, steps, own, delay)
    levels, below = _distribution(points, prompts, found)
    return Company(
        rate_per_s=points.rate_per_s * _while_busy(points, stream, steps), level_s=levels, below=below,
        spread=found.spread, others=found.others,
    )  # fmt: skip


def poisson_mean_s(points: Points, prompts: Prompts, workload: Workload, *, mixed: bool = True) -> Values:
    """Mean over requests of TPOT under Poisson arrivals, which see time averages, and their own long first step. [s]

    Parameters
    ----------
    points, prompts, workload, mixed
        As for :func:`company`.
    """
    steps = np.maximum(workload.output_length.quantile(MIDDLES) - 1.0, 1.0)
    own, _ = _own_step(points, prompts, renewal(1.0), mixed)
    return np.asarray(points.tpot_s + _after_own_step(points, own, steps) @ WEIGHTS)


def _after_own_step(points: Points, own: Values, steps: Values) -> Values:
    """What prompts that came in one's own step add to TPOT, points x answers: each longer step lets more in. [s]"""
    f = points.share[:, None]
    stalls = (points.share * points.tpot_s * own)[:, None] / (1.0 - f)
    return np.asarray(stalls / steps * (1.0 - f**steps))


def _own_step(points: Points, prompts: Prompts, stream: Renewal, mixed: bool) -> tuple[Values, Values]:
    """By how many mean steps the step of a request's own prefill is longer, and its delay. [step], [step]

    Prompts that come in that step stall the request; those that came before it began and fit it do not.
    """
    tpot, share = points.tpot_s, points.share
    squares = points.rate_per_s * points.stall_s**2 * (1.0 + prompts.variation**2)
    residual = (tpot + squares / (1.0 - share**2)) / 2.0
    after = stream.arrivals_after(points.rate_per_s * residual)
    left = left_behind(after, prompts.together)
    beside = points.decode_s if mixed else np.zeros_like(tpot)
    own = beside + points.fixed_s + prompts.mean_s * np.minimum(1.0 + 2.0 * after, prompts.together)
    squared = max(stream.gap_cv**2, 1.0)
    return np.clip(own / tpot - 1.0, 0.0, 50.0), residual / tpot * np.maximum(1.0 - left, 0.0) ** squared


def _while_busy(points: Points, stream: Renewal, steps: Values) -> Values:
    """Arrivals over those while the replica is busy, against the same for Poisson arrivals. [1]

    Bursts leave a replica idle more often: with bursts of b it is so when the longest answer of the last is over.
    """
    if not stream.bursty:
        return np.ones_like(points.tpot_s)
    step_s = np.sqrt(points.decode_s[0] * points.tpot_s)
    longest = steps @ np.diff(EDGES**stream.burst)
    single = -np.expm1(-points.rate_per_s * step_s * (steps @ WEIGHTS))
    burst = -np.expm1(-points.rate_per_s / stream.burst * step_s * longest)
    return np.asarray(burst / np.maximum(single, 1e-12))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noise:
    """Mean and variance of TPOT, points x answers [s], [s^2]; of the mean, what comes by the number that decode."""

    mean_s: Values
    variance: Values
    by_number_s: Values
    number_share: Values
    spread: Values
    others: Values


def _linear_noise(points: Points, prompts: Prompts, stream: Renewal, steps: Values, own: Values,
                  delay: Values) -> _Noise:  # fmt: skip
    """Spectra of the steps through the windows of the answers."""
    f, e, tpot = points.share[:, None], points.elasticity[:, None], points.tpot_s
    rate, slope, stall = points.rate_per_s[:, None], points.slope_s[:, None], points.stall_s[:, None]
    mean = float(steps @ WEIGHTS)
    w = np.geomspace(0.02 / steps.max(), 30.0, FREQUENCIES)
    dw = np.gradient(w) / np.pi
    window = (1.0 - np.exp(-1j * w[:, None] * steps)) / (1j * w[:, None] * steps)
    survival = (window * steps) @ WEIGHTS
    h = survival / mean
    arrivals = rate * tpot[:, None]
    burst = stream.dispersion(w / arrivals)
    closed = (1.0 - f) * (1.0 - e * h)
    number = mean * h / closed
    by_number, by_stall = slope * number / (1.0 - f), stall / (1.0 - f)
    by_size = slope * number * rate / (1.0 - f)
    lengths = 2.0 * ((mean - survival) / (1j * w)).real
    noise = arrivals * dw
    size = (stall * prompts.variation) ** 2
    # windows of the number and of the stalls, which begin as one's own prefill does
    seen = np.conj(window)
    longer = steps + own[:, None]
    phase = 1j * w[None, :, None]
    later = np.exp(phase * delay[:, None, None])
    stalls = (np.exp(phase * longer[:, None, :]) - 1.0) / (phase * steps) * later
    answer = by_number[:, :, None] * seen + by_stall[:, :, None] * stalls
    sized = by_size[:, :, None] * seen + stalls / (1.0 - f[:, :, None])
    plain = np.abs(seen) ** 2
    through = (noise * np.abs(slope / closed) ** 2 * lengths) @ plain
    of_number = through + (noise * burst * np.abs(by_number) ** 2) @ plain
    variance = through + _sum(noise * burst, np.abs(answer) ** 2) + _sum(noise * size, np.abs(sized) ** 2)
    around = arrivals * (longer + 1.0)
    variance = of_number + np.maximum(variance - of_number, 0.0) * stream.spread_share(around)
    # the mean: one's own burst, closed through what long steps let in; the own step is in the window already
    excess = (burst - 1.0) * dw
    counted = (steps / longer)[:, None, :] ** 2
    loop = np.conj(1.0 + rate[:, :, None] * (by_number[:, :, None] + counted * by_stall[:, :, None]))
    extra = _sum(excess, (answer * loop).real)
    open_loop = _sum(excess, answer.real)
    by_number_s = _sum(excess, (by_number[:, :, None] * seen * loop).real)
    mean_s = tpot[:, None] + extra + _after_own_step(points, own, steps)
    least = points.decode_s[0]
    tilt = 1.0 + 0.8 * np.maximum(extra - open_loop, 0.0) / np.maximum(tpot - least, 1e-9)[:, None]
    share = np.sqrt(np.clip((of_number @ WEIGHTS) / np.maximum(variance @ WEIGHTS, 1e-30), 0.0, 1.0))
    spread = (noise * (np.abs(number) ** 2 * (burst + (rate * stall * prompts.variation) ** 2)
                       + np.abs((1.0 - f) / closed) ** 2 * lengths)).sum(axis=1)  # fmt: skip
    others = np.maximum(by_number_s @ WEIGHTS, 0.0) * (1.0 - f[:, 0]) / np.maximum(points.slope_s, 1e-12)
    return _Noise(mean_s=np.maximum(mean_s, least * (1.0 + 1e-6)), variance=np.maximum(variance * tilt, 1e-16),
                  by_number_s=by_number_s @ WEIGHTS, number_share=share, spread=spread, others=others)  # fmt: skip


def _sum(weight: Values, values: Values) -> Values:
    """Sum over frequencies: points x frequencies with points x frequencies x answers."""
    return np.asarray(np.einsum("pw,pwj->pj", weight, values))


def _distribution(points: Points, prompts: Prompts, noise: _Noise) -> tuple[Values, Values]:
    """TPOT at levels, and the share of requests below each: shifted Gamma laws, mixed over answers. [s], [1]

    No step is shorter than one of a single request, nor longer than one with a full budget of prompts.
    """
    least = points.decode_s[0]
    mean = noise.mean_s - least
    shape, scale = mean**2 / noise.variance, noise.variance / mean
    most = (mean + 14.0 * np.sqrt(noise.variance)).max(axis=1)
    over = most[:, None] * np.linspace(0.0, 1.0, LEVELS) ** 3
    below = gamma_below(shape[:, None, :], over[:, :, None] / (shape * scale)[:, None, :]) @ WEIGHTS
    level = over + least
    # a step is no straight line of the number that decode
    slope = np.maximum(points.slope_s, 1e-12)[:, None]
    moved = noise.by_number_s[:, None] + noise.number_share[:, None] * (level - (noise.mean_s @ WEIGHTS)[:, None])
    number = np.maximum(moved * (1.0 - points.share[:, None]) / slope, -points.decoding[:, None])
    at = points.decoding[:, None] + number
    step = np.interp(at, points.decoding, points.decode_s)
    step = step + np.maximum(at - points.decoding[-1], 0.0) * points.slope_s[-1]
    bent = (step - points.decode_s[:, None] - points.slope_s[:, None] * number) / (1.0 - points.share[:, None])
    full = points.decode_s + points.fixed_s + prompts.full_s
    level = np.minimum(np.maximum.accumulate(np.maximum(level + bent, least), axis=1), full[:, None])
    return level, np.clip(np.maximum.accumulate(below, axis=1), 0.0, 1.0)


@lru_cache(maxsize=1)
def _gamma_table() -> tuple[Values, Values, Values]:
    from scipy.special import gammainc

    shape = np.geomspace(1e-3, 1e4, 141)
    at = np.linspace(-12.0, 12.0, 193)
    ratio = np.maximum(1.0 + at / (3.0 * np.sqrt(shape[:, None])), 0.0) ** 3
    ratio[shape < 1.0] = np.exp(at * 1.5)
    return shape, at, gammainc(shape[:, None], shape[:, None] * ratio)


def gamma_below(shape: Values, ratio: Values) -> Values:
    """Share of a Gamma law below a ratio to its mean, from a table. [1]

    Tabulated over the cube root of the ratio, in which the law is nearly normal (Wilson and Hilferty, PNAS 17, 1931),
    and over its logarithm for shapes below 1.

    Parameters
    ----------
    shape, ratio
        Arrays that broadcast. [1], [1]
    """
    shapes, at, table = _gamma_table()
    shape, ratio = np.broadcast_arrays(np.clip(shape, shapes[0], shapes[-1] * 0.999), np.maximum(ratio, 0.0))
    across = np.log(shape / shapes[0]) / np.log(shapes[1] / shapes[0])
    row = across.astype(np.int64)
    part = across - row
    step = at[1] - at[0]
    found = np.zeros(shape.shape)
    for which, weight in ((row, 1.0 - part), (row + 1, part)):
        of = shapes[which]
        normal = 3.0 * np.sqrt(of) * (np.cbrt(ratio) - 1.0)
        place = np.where(of < 1.0, np.log(np.maximum(ratio, 1e-9)) / 1.5, normal)
        u = np.clip((place - at[0]) / step, 0.0, len(at) - 1.001)
        left = u.astype(np.int64)
        found += weight * (table[which, left] * (1.0 - (u - left)) + table[which, left + 1] * (u - left))
    return np.asarray(np.where(ratio <= 0.0, 0.0, found))
