"""Means and percentiles over requests of TTFT and TPOT under open traffic, in closed form.

Two things make requests differ. Prompts queue for one another: M/G/1 with a bursty arrival stream. And the
number of requests that decode wanders while a request is answered: a birth-death process whose deaths slow
down as it grows, taken in its linear-noise approximation. Requests are there more often when many others are, so
even their mean is above that of a steady number. Both are averages over a request's own lifetime, so a short
answer sees more of the wandering than a long one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sizing.batching import crossing
from sizing.replica.predicted import Prediction
from sizing.workload import Slo, Workload

Values = NDArray[np.float64]
MOST_REMEMBERED = 512
"""Answers kept with a prediction. [1]"""
NODES = 48
"""Equal shares that a length distribution is cut into. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How the requests of a replica differ, at each point of its curve; arrays have one entry a point.

    Attributes
    ----------
    rate_per_s
        Request rate. [request/s]
    prefill_share
        Share of time that prefill takes. [1]
    own_s
        Prefill of a mean prompt in company. [s]
    fixed_s
        Rest of the mean TTFT: the step under way and what the engine takes. [s]
    waiting, wait_s
        Share of prompts that wait for others, and their mean wait. [1], [s]
    tpot_s, decoding, elasticity
        Mean TPOT, requests decoding, and relative change of TPOT over that of the requests decoding. [s], [1], [1]
    """

    rate_per_s: Values
    prefill_share: Values
    own_s: Values
    fixed_s: Values
    waiting: Values
    wait_s: Values
    tpot_s: Values
    decoding: Values
    elasticity: Values


def spread_of(prediction: Prediction, workload: Workload) -> Spread:
    """What makes requests differ, from the replica's curve; remembered by the burstiness of the arrivals.

    Parameters
    ----------
    prediction
        Curve of the replica.
    workload
        Lengths and arrivals.
    """
    key = ("spread", workload.arrivals.gap_cv)
    if key not in prediction.remembered:
        prediction.remembered[key] = _spread(prediction, workload)
    found: Spread = prediction.remembered[key]
    return found


def _spread(prediction: Prediction, workload: Workload) -> Spread:
    rate, tpot, start, _ = prediction.nominal
    decoding = prediction.curve.decoding
    stall = np.broadcast_to(np.atleast_2d(prediction.curve.stall_s)[0], rate.shape)
    share = np.clip(rate * stall, 0.0, 1.0 - 1e-6)
    own = prediction.start_scale * stall
    isl = workload.input_length
    burst = (workload.arrivals.gap_cv**2 + isl.variation**2) / 2.0
    waiting = np.maximum(_gap_below(share, workload.arrivals.gap_cv), share)
    wait = own * burst / (1.0 - share)
    queue = share * own * (1.0 + isl.variation**2) / 2 / (1 - share)
    slope = np.gradient(np.log(tpot), np.log(decoding))
    return Spread(
        rate_per_s=rate, prefill_share=share, own_s=own, fixed_s=np.maximum(start - own - queue, 0.0),
        waiting=waiting, wait_s=wait, tpot_s=tpot, decoding=decoding, elasticity=np.clip(slope, 0.0, 0.9),
    )  # fmt: skip


def _gap_below(share: Values, gap_cv: float) -> Values:
    """Share of gaps, Gamma with that variation, shorter than the prefill of the prompt before. [1]"""
    if gap_cv == 1.0:
        return np.asarray(-np.expm1(-share))
    from scipy.special import gammainc

    shape = 1.0 / max(gap_cv, 0.05) ** 2
    return np.asarray(gammainc(shape, shape * share))


def seen_spread(spread: Spread, workload: Workload) -> Values:
    """Variance over mean of the number decoding, at each point: z / (1 - e). [request]

    z = (c_a^2 + 1) / 2 is the peakedness of the stream, e the elasticity of TPOT (linear noise approximation of a
    birth-death process, van Kampen, Stochastic Processes in Physics and Chemistry, ch. X).
    """
    return np.asarray((workload.arrivals.gap_cv**2 + 1.0) / 2.0 / (1.0 - spread.elasticity))


def mean_tpot_s(spread: Spread, workload: Workload) -> Values:
    """Mean over requests of TPOT at each point of the curve. [s]

    A request shares its steps with B + theta others on average, theta the variance over the mean (the number that
    a request sees is size-biased), where the curve has B + 1; what TPOT gains by it comes back through Little's law,
    1 / (1 - e) times.
    """
    e = spread.elasticity
    more = (seen_spread(spread, workload) - 1.0) / np.maximum(spread.decoding, 1.0)
    seen = spread.tpot_s * (1.0 + e / (1.0 - e) * np.clip(more, -0.5, 2.0))
    return np.asarray(np.minimum(seen, spread.tpot_s[-1]))


def ttft_percentile_s(spread: Spread, workload: Workload, percentile: float) -> Values:
    """Percentile over requests of TTFT at each point of the curve. [s]

    P(TTFT <= t) = mean over prompts of 1 - p exp(-(t - S) / w): a share p of prompts waits (those whose gap is
    shorter than the prefill before), exponentially long with Kingman's mean over all (Kingman 1961; exact for
    M/M/1), and each then takes its own prefill S.

    Parameters
    ----------
    spread, workload
        Of the replica, its lengths.
    percentile
        Between 0 and 100. [%]
    """
    isl = workload.input_length
    nodes = isl.nodes(NODES) / isl.mean
    own = spread.own_s[:, None] * nodes
    share, wait = spread.waiting[:, None], np.maximum(spread.wait_s, 1e-12)[:, None]
    low, high = np.zeros(len(own)), own.max(axis=1) + wait[:, 0] * 20.0
    for _ in range(40):
        middle = (low + high) / 2
        over = np.maximum(middle[:, None] - own, 0.0)
        done = np.where(middle[:, None] >= own, 1.0 - share * np.exp(-over / wait), 0.0).mean(axis=1)
        low, high = np.where(done < percentile / 100, middle, low), np.where(done < percentile / 100, high, middle)
    return np.maximum.accumulate(high + spread.fixed_s)


def tpot_percentile_s(spread: Spread, workload: Workload, percentile: float) -> Values:
    """Percentile over requests of a request's TPOT at each point of the curve. [s]

    The number that a request sees has relative variance theta / (B + theta) and is forgotten in O TPOT / (1 - e). A
    request averages it over its own lifetime L, which leaves a share 2 (x - 1 + exp(-x)) / x^2 of the variance, x = L
    over that time. Prompts that arrive in L add r L (c_a^2 + c_s^2) to the count of stalls; the two go together as
    far as the noise comes from arrivals, c_a^2 / (c_a^2 + 1).

    Parameters
    ----------
    spread, workload, percentile
        As for :func:`ttft_percentile_s`.
    """
    from scipy.special import ndtr

    osl = workload.output_length
    tokens = np.maximum(osl.nodes(NODES), 2.0)
    mean = mean_tpot_s(spread, workload)
    e, b = spread.elasticity[:, None], spread.decoding[:, None]
    life = (tokens - 1.0) * mean[:, None]
    squared = workload.arrivals.gap_cv**2
    x = np.maximum((tokens - 1.0) * (1.0 - e) / (osl.mean - 1.0), 1e-6)
    kept = 2.0 * (x - 1.0 + np.exp(-x)) / x**2
    theta = seen_spread(spread, workload)[:, None]
    step_part = e * np.sqrt(kept * theta / (b + theta))
    share, stalls = spread.prefill_share[:, None], spread.rate_per_s[:, None] * life
    stall_part = (
        share / (1.0 - share) * np.sqrt((squared + workload.input_length.variation**2) / np.maximum(stalls, 1e-9))
    )
    together = squared / (squared + 1.0)
    sigma = np.minimum(np.sqrt(step_part**2 + stall_part**2 + 2 * together * step_part * stall_part), 3.0)
    low, high = np.full(len(b), -3.0), np.full(len(b), 12.0)
    for _ in range(40):
        middle = (low + high) / 2
        below = ndtr((middle[:, None] + sigma**2 / 2) / np.maximum(sigma, 1e-9)).mean(axis=1)
        low, high = np.where(below < percentile / 100, middle, low), np.where(below < percentile / 100, high, middle)
    return np.maximum.accumulate(np.minimum(mean * np.exp(high), spread.tpot_s[-1]))


def curves_at(prediction: Prediction, workload: Workload, slo: Slo) -> tuple[Values, Values]:
    """TTFT and TPOT at each point of the curve, in the statistic that the targets are about. [s], [s]

    Parameters
    ----------
    prediction, workload
        As for :func:`spread_of`.
    slo
        Percentile of each target; means where it has none.
    """
    key = ("curves", slo.ttft_at, slo.tpot_at, workload.arrivals.gap_cv)
    if key not in prediction.remembered:
        prediction.remembered[key] = _curves(prediction, workload, slo)
    found: tuple[Values, Values] = prediction.remembered[key]
    return found


def _curves(prediction: Prediction, workload: Workload, slo: Slo) -> tuple[Values, Values]:
    _, _, start, _ = prediction.nominal
    spread = spread_of(prediction, workload)
    if slo.ttft_at is not None:
        start = ttft_percentile_s(spread, workload, slo.ttft_at)
    if slo.tpot_at is not None:
        return start, tpot_percentile_s(spread, workload, slo.tpot_at)
    return start, np.maximum.accumulate(mean_tpot_s(spread, workload))


def rate_within(prediction: Prediction, workload: Workload, slo: Slo) -> tuple[float, str]:
    """Largest request rate at which the targets hold in their own statistic, and what limits it. [request/s]

    Parameters
    ----------
    prediction, workload, slo
        As for :func:`curves_at`.
    """
    key = ("rate", slo, workload.arrivals.gap_cv)
    if key not in prediction.remembered:
        if len(prediction.remembered) > MOST_REMEMBERED:
            prediction.remembered.clear()
        prediction.remembered[key] = _rate_within(prediction, workload, slo)
    found: tuple[float, str] = prediction.remembered[key]
    return found


def _rate_within(prediction: Prediction, workload: Workload, slo: Slo) -> tuple[float, str]:
    if prediction.room.most < 1.0 - 1e-9:
        return 0.0, "weights_do_not_fit" if prediction.room.kv_requests < 1.0 else "max_num_seqs"
    rate, _, _, active = prediction.nominal
    start, tpot = curves_at(prediction, workload, slo)
    room = "kv_room" if prediction.room.kv_requests <= prediction.room.max_num_seqs else "max_num_seqs"
    limits = {
        "tpot": crossing(rate, tpot, slo.tpot_s),
        "ttft": crossing(rate, start, slo.ttft_s),
        room: crossing(rate, active, prediction.room.most),
    }
    limited_by = min(limits, key=lambda name: limits[name])
    return limits[limited_by], limited_by


def over_mean(prediction: Prediction, workload: Workload, slo: Slo, rate_per_s: float) -> tuple[float, float]:
    """TTFT and TPOT in the statistic of the targets, over their means, at a request rate. [1], [1]

    Parameters
    ----------
    prediction, workload, slo
        As for :func:`curves_at`.
    rate_per_s
        Of the replica. [request/s]
    """
    rate, tpot, start, _ = prediction.nominal
    ttft_p, tpot_p = curves_at(prediction, workload, slo)
    return float(np.interp(rate_per_s, rate, ttft_p / start)), float(np.interp(rate_per_s, rate, tpot_p / tpot))


def out_of_depth(prediction: Prediction, workload: Workload, rate_per_s: float) -> str:
    """Why the closed form should not be relied on at a rate; empty when it may be.

    Parameters
    ----------
    prediction, workload
        As for :func:`spread_of`.
    rate_per_s
        Of the replica. [request/s]
    """
    spread = spread_of(prediction, workload)
    decoding = float(np.interp(rate_per_s, spread.rate_per_s, spread.decoding))
    theta = float(np.interp(rate_per_s, spread.rate_per_s, seen_spread(spread, workload)))
    peak = decoding + 2.326 * np.sqrt(theta * decoding) + theta
    if peak <= prediction.room.most:
        return ""
    return (
        f"bursts bring {peak:,.0f} requests at once where {prediction.room.most:,.0f} fit: they queue, which the "
        "closed form does not follow; hold it against --verify"
    )
