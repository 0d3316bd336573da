"""Percentiles over requests of TTFT and TPOT on one replica, in closed form.

Two things make requests differ. Prompts queue for one another: M/G/1 with a bursty arrival stream. And the
number of requests that decode wanders while a request is answered: a birth-death process whose deaths slow
down as it grows, taken in its linear-noise approximation. Both are averages over a request's own lifetime, so a
short answer sees more of the wandering than a long one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sizing.batching import crossing
from sizing.replica.predicted import Prediction
from sizing.workload import Slo, Workload

Values = NDArray[np.float64]
NODES = 48
"""Equal shares that a length distribution is cut into. [1]"""
DEEP_SHARE = 0.92
"""Busy share beyond which the closed form is out of its depth. [1]"""


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
    wait_s
        Mean wait of those that wait for other prompts. [s]
    tpot_s, decoding, elasticity
        Mean TPOT, requests decoding, and relative change of TPOT over that of the requests decoding. [s], [1], [1]
    """

    rate_per_s: Values
    prefill_share: Values
    own_s: Values
    fixed_s: Values
    wait_s: Values
    tpot_s: Values
    decoding: Values
    elasticity: Values


def spread_of(prediction: Prediction, workload: Workload) -> Spread:
    """What makes requests differ, from the replica's curve.

    Parameters
    ----------
    prediction
        Curve of the replica.
    workload
        Lengths and arrivals.
    """
    rate, tpot, start, _ = prediction.nominal
    decoding = prediction.curve.decoding
    own = np.broadcast_to(np.atleast_2d(prediction.curve.stall_s)[0], rate.shape)
    share = np.clip(rate * own, 0.0, 1.0 - 1e-6)
    isl = workload.input_length
    wait = own * (workload.arrivals.gap_cv**2 + isl.variation**2) / 2.0 / (1.0 - share)
    queue = share * own * (1.0 + isl.variation**2) / 2 / (1 - share)
    slope = np.gradient(np.log(tpot), np.log(decoding))
    return Spread(rate_per_s=rate, prefill_share=share, own_s=own, fixed_s=np.maximum(start - own - queue, 0.0),
                  wait_s=wait, tpot_s=tpot, decoding=decoding, elasticity=np.clip(slope, 0.0, 0.95))  # fmt: skip


def ttft_percentile_s(spread: Spread, workload: Workload, percentile: float) -> Values:
    """Percentile over requests of TTFT at each point of the curve. [s]

    P(TTFT <= t) = mean over prompts of 1 - f exp(-(t - S) / w): a share f of prompts waits, exponentially long
    with Kingman's mean (Kingman 1961; exact for M/M/1), and each then takes its own prefill S.

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
    share, wait = spread.prefill_share[:, None], np.maximum(spread.wait_s, 1e-12)[:, None]
    low, high = np.zeros(len(own)), own.max(axis=1) + wait[:, 0] * 20.0
    for _ in range(40):
        middle = (low + high) / 2
        over = np.maximum(middle[:, None] - own, 0.0)
        done = np.where(middle[:, None] >= own, 1.0 - share * np.exp(-over / wait), 0.0).mean(axis=1)
        low, high = np.where(done < percentile / 100, middle, low), np.where(done < percentile / 100, high, middle)
    return np.maximum.accumulate(high + spread.fixed_s)


def tpot_percentile_s(spread: Spread, workload: Workload, percentile: float) -> Values:
    """Percentile over requests of a request's TPOT at each point of the curve. [s]

    The number decoding has variance z B / (1 - e) and forgets itself in O TPOT / (1 - e), with z = (c_a^2 + 1) / 2
    the peakedness of the stream and e the elasticity of TPOT (linear noise approximation of a birth-death
    process, van Kampen, Stochastic Processes, ch. X). A request averages it over its own lifetime L, which
    leaves a share 2 (x - 1 + exp(-x)) / x^2 of the variance, x = L over that time. Prompts that arrive in L add
    r L (c_a^2 + c_s^2) to the count of stalls.

    Parameters
    ----------
    spread, workload, percentile
        As for :func:`ttft_percentile_s`.
    """
    from scipy.special import ndtr

    osl = workload.output_length
    tokens = np.maximum(osl.nodes(NODES), 2.0)
    e, b, tpot = spread.elasticity[:, None], spread.decoding[:, None], spread.tpot_s[:, None]
    life = (tokens - 1.0) * tpot
    burst = (workload.arrivals.gap_cv**2 + 1.0) / 2.0
    x = np.maximum(life * (1.0 - e) / ((osl.mean - 1.0) * tpot), 1e-6)
    kept = 2.0 * (x - 1.0 + np.exp(-x)) / x**2
    step_part = e * np.sqrt(burst * kept / np.maximum(b * (1.0 - e), 1e-9))
    stalls = spread.rate_per_s[:, None] * life
    variation = workload.arrivals.gap_cv**2 + workload.input_length.variation**2
    share = spread.prefill_share[:, None]
    stall_part = share / (1.0 - share) * np.sqrt(variation / np.maximum(stalls, 1e-9))
    sigma = np.minimum(np.hypot(step_part, stall_part), 3.0)
    low, high = np.full(len(b), -3.0), np.full(len(b), 12.0)
    for _ in range(40):
        middle = (low + high) / 2
        below = ndtr((middle[:, None] + sigma**2 / 2) / np.maximum(sigma, 1e-9)).mean(axis=1)
        low, high = np.where(below < percentile / 100, middle, low), np.where(below < percentile / 100, high, middle)
    return np.maximum.accumulate(spread.tpot_s * np.exp(high))


def curves_at(prediction: Prediction, workload: Workload, slo: Slo) -> tuple[Values, Values]:
    """TTFT and TPOT at each point of the curve, in the statistic that the targets are about. [s], [s]

    Parameters
    ----------
    prediction, workload
        As for :func:`spread_of`.
    slo
        Percentile of each target; means where it has none.
    """
    _, tpot, start, _ = prediction.nominal
    if slo.on_means:
        return start, tpot
    spread = spread_of(prediction, workload)
    if slo.ttft_at is not None:
        start = ttft_percentile_s(spread, workload, slo.ttft_at)
    if slo.tpot_at is not None:
        tpot = tpot_percentile_s(spread, workload, slo.tpot_at)
    return start, tpot


def rate_within(
    prediction: Prediction, workload: Workload, slo: Slo
) -> tuple[float, str]:
    """Largest request rate at which the targets hold in their own statistic, and what limits it. [request/s]

    Parameters
    ----------
    prediction, workload, slo
        As for :func:`curves_at`.
    """
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
    if slo.on_means:
        return 1.0, 1.0
    rate, tpot, start, _ = prediction.nominal
    ttft_p, tpot_p = curves_at(prediction, workload, slo)
    return float(np.interp(rate_per_s, rate, ttft_p / start)), float(np.interp(rate_per_s, rate, tpot_p / tpot))
