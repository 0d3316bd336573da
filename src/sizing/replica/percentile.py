"""Means and percentiles over requests of TTFT and TPOT under open traffic, in closed form.

The replica's curve says what a steady number of requests sees. Around it, prompts queue for one another
(:mod:`sizing.replica.prompts`) and requests have more or less company while they are answered
(:mod:`sizing.replica.company`), the more so the burstier arrivals are (:mod:`sizing.replica.renewal`). Where bursts
overflow the room, or answers are too short for any of it, :func:`out_of_depth` says so.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sizing.batching import crossing
from sizing.replica.company import Company, Points, company, poisson_mean_s
from sizing.replica.predicted import Prediction, lengths_of
from sizing.replica.prompts import FULLEST, MIDDLES, WEIGHTS, FirstTokens, Prompts, first_tokens, prompts_of
from sizing.replica.renewal import Renewal, renewal
from sizing.steptable import delivery_share
from sizing.workload import Slo, Workload
from sizing.workload.arrivals import Gamma, Poisson

Values = NDArray[np.float64]
MOST_REMEMBERED = 512
"""Answers kept with a prediction. [1]"""
POINTS = 12
"""Points of a replica's curve that distributions are computed at. [1]"""
BUSY = 0.6
"""Share of the largest rate at which prompts of every length are timed. [1]"""
LONG_ANSWER = 256.0
"""Fixed answers from which on the curve itself is the mean: a request's own step adds under 2 %. [token]"""
MOST_CV = 3.0
"""CV of the gaps up to which the closed form was held against the simulator; burstier streams count as such. [1]"""
OVERFLOW = 2e-4
"""Share of requests that may find the room full at p99, were all of one length. A replica whose requests differ was
seen to stay slow for good within half a million requests at 3.4e-5, a quarter above what is left to it. [1]"""
MOST_BEND = 1.05
"""Slope of a step over that after a burst, up to which linear noise was found to hold for few requests. [1]"""
LEAST_EXCESS = 0.1
"""Squared CV of the gaps above one, below which a stream counts as Poisson. [1]"""
MOST_GAIN = 3.5
"""Steady answer of a step to one request more over the open one, up to which linear noise was found to hold. [1]"""
MOST_BURSTY_LOAD = 0.35
"""Load of the queue of prompts where the gaps' CV is above 2. [1]"""
MOST_FIXED = 0.6
"""Extra time of a step for prefilling at all, which prompts of a step share, over that of a decode step. [1]"""
MOST_VARIED, SOME_PREFILL, MANY = 1.2, 0.2, 20.0
"""Squared CV of what requests hold and share of prefill, both above which a long prompt stops many answers and one that
is computed again after a preemption stops more; requests that decode with which that averages out. [1], [request]"""
MOST_OF_ROOM = 0.25
"""Share of the KV room that one request may take. [1]"""
LONGEST_S = 1e4
"""TTFT said where a queue does not empty. [s]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How the requests of a replica differ, at points of its curve.

    Attributes
    ----------
    points
        The replica at each point.
    prompts
        What prompts cost.
    company
        Distribution of TPOT.
    first
        Distribution of the time to the end of the prefill.
    after_s
        What passes until the client has the first token. [s]
    overflow
        Share of requests that find the room full. [1]
    load
        Load of the queue of prompts. [1]
    varied, longest
        Squared CV of the tokens that a request holds while it decodes, and the longest request over their mean. [1]
    """

    points: Points
    prompts: Prompts
    company: Company
    first: FirstTokens
    after_s: Values
    overflow: Values
    load: Values
    varied: float
    longest: float


def spread_of(prediction: Prediction, workload: Workload) -> Spread:
    """How requests differ, from the replica's curve; remembered by the burstiness of the arrivals.

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
    stream, engine = renewal(min(workload.arrivals.gap_cv, MOST_CV)), prediction.steps.engine
    points, prompts = _points(prediction, workload, stream)
    mixed = prediction.scheduling.mixed
    seen = company(points, prompts, workload, stream, mixed=mixed)
    overflow, overflow_s = _overflow(prediction, workload, points, seen, stream)
    first = first_tokens(
        prompts, points.fixed_s, points.decode_s, seen.rate_per_s, stream, mixed=mixed,
        overflow=overflow, overflow_s=overflow_s,
    )  # fmt: skip
    steps = np.ravel(engine.first_token_steps)[0] * delivery_share(1.0 + points.decoding)
    after = np.ravel(engine.first_token_s)[0] + steps * points.decode_s
    held, varied = _held(workload)
    longest = workload.mean_input_tokens - workload.input_length.mean + workload.input_length.most
    work_s = prompts.mean_s + (points.decode_s * mixed + points.fixed_s) / prompts.together
    return Spread(points=points, prompts=prompts, company=seen, first=first, after_s=after, overflow=overflow,
                  load=seen.rate_per_s * work_s, varied=varied,
                  longest=(longest + workload.output_length.most) / held)  # fmt: skip


def _points(prediction: Prediction, workload: Workload, stream: Renewal) -> tuple[Points, Prompts]:
    """The curve with each prompt at its own length, at some of its points."""
    curve = prediction.curve
    decoding, decode_s = curve.decoding, np.atleast_2d(curve.decode_s)[0]
    lengths = lengths_of(workload)
    rate = np.atleast_2d(curve.rate_per_s)[0]
    busy = float(np.interp(BUSY * prediction.nominal[0][-1], prediction.nominal[0], decoding))
    prompts = prompts_of(
        prediction.steps, prediction.scheduling, workload, decoding, lengths.mean_context_tokens, busy
    )  # fmt: skip
    answer = max(workload.output_length.mean - 1.0, 1.0)
    beside = decode_s if prediction.scheduling.mixed else np.zeros_like(decode_s)
    stall = prompts.mean_s + prompts.fixed_s
    for _ in range(3):
        together = 1.0 + rate * (decode_s + beside + prompts.fixed_s + prompts.mean_s) / 2.0
        stall = prompts.mean_s + prompts.fixed_s / np.minimum(together, prompts.together)
        rate = decoding / (answer * decode_s + decoding * stall)
    some = np.unique(np.linspace(1, len(decoding) - 1, POINTS).round().astype(np.int64))
    slope = _slope(decoding, decode_s, max(stream.gap_cv**2 - 1.0, 0.0) / 2.0)
    points = Points(decoding=decoding[some], rate_per_s=rate[some], decode_s=decode_s[some], slope_s=slope[some],
                    fixed_s=prompts.fixed_s[some], stall_s=stall[some])  # fmt: skip
    return points, prompts


def _slope(decoding: Values, decode_s: Values, burst: float) -> Values:
    """How a decode step grows with one request more: the chord over a burst where that is flatter. [s]"""
    tangent = np.maximum(np.gradient(decode_s, decoding), 1e-12)
    if burst < 0.1:
        return np.asarray(tangent)
    inside = decoding + burst <= decoding[-1]
    chord = (np.interp(decoding + burst, decoding, decode_s) - decode_s) / burst
    return np.asarray(np.where(inside, np.maximum(np.minimum(tangent, chord), 1e-12), tangent))


def _overflow(
    prediction: Prediction, workload: Workload, points: Points, seen: Company, stream: Renewal
) -> tuple[Values, Values]:
    """Share of requests that find the room full, and their mean wait. [1], [s]

    Below the room the number is taken as Gamma with the variance of its linear noise; above it, where departures no
    longer grow, as the diffusion of a queue: exponential with decay 2 (D - r) / (r c_a^2 / (1 - f)^2 + D)
    (Whitt, Management Science 50(10), 2004).
    """
    from scipy.special import gammainc, gammaln

    room, answer = prediction.room, workload.output_length.mean
    most = max(room.most, 1.0)
    rate = seen.rate_per_s
    spread = seen.spread
    if room.kv_requests <= room.max_num_seqs:
        spread = spread + points.decoding * _held(workload)[1]
    mean = np.maximum(points.decoding + seen.others + rate * 1.5 * points.decode_s, 1e-6)
    shape, scale = mean**2 / spread, spread / mean
    below = gammainc(shape, most / scale)
    density = np.exp((shape - 1.0) * np.log(most / scale) - most / scale - gammaln(shape)) / scale
    full_s = float(np.interp(most, points.decoding, points.decode_s))
    share = np.clip(rate * points.stall_s[-1], 0.0, 0.9)
    departures = most * (1.0 - share) / (max(answer - 1.0, 1.0) * full_s)
    slack = np.maximum(departures - rate, 0.02 * departures)
    decay = 2.0 * slack / (rate * stream.gap_cv**2 / (1.0 - share) ** 2 + departures)
    above = density / decay
    return np.asarray(above / np.maximum(below + above, 1e-12)), np.asarray(1.0 / (decay * departures))


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
    if _plain(workload, slo):
        return prediction.nominal[2], _plain_tpot_s(prediction, workload)
    spread = spread_of(prediction, workload)
    return _ttft_s(prediction, spread, slo.ttft_at), _tpot_s(prediction, spread, slo.tpot_at)


def _plain(workload: Workload, slo: Slo) -> bool:
    """Whether means under Poisson arrivals are asked for, which see time averages (Wolff, Operations Research 30)."""
    return slo.on_means and workload.arrivals.gap_cv == 1.0


def _plain_tpot_s(prediction: Prediction, workload: Workload) -> Values:
    """Mean TPOT at each point of the curve, each prompt at its own length. [s]"""
    rate, tpot, _, _ = prediction.nominal
    isl, osl = workload.input_length, workload.output_length
    if isl.variation == osl.variation == 0.0 and osl.mean >= LONG_ANSWER:
        return tpot
    points, prompts = _points(prediction, workload, renewal(1.0))
    mean = poisson_mean_s(points, prompts, workload, mixed=prediction.scheduling.mixed)
    return np.asarray(np.maximum.accumulate(np.maximum(_at_rates(rate, points.rate_per_s, mean), tpot)))


def _ttft_s(prediction: Prediction, spread: Spread, percentile: float | None) -> Values:
    rate, _, start, _ = prediction.nominal
    found = spread.first.mean_s() if percentile is None else spread.first.percentile_s(percentile)
    found = np.where(spread.load < FULLEST, prediction.start_scale * found + spread.after_s, LONGEST_S)
    values = _at_rates(rate, spread.company.rate_per_s, found)
    return np.asarray(np.maximum.accumulate(np.maximum(values, start) if percentile is None else values))


def _tpot_s(prediction: Prediction, spread: Spread, percentile: float | None) -> Values:
    rate, tpot, _, _ = prediction.nominal
    found = spread.company.mean_s() if percentile is None else spread.company.percentile_s(percentile)
    values = _at_rates(rate, spread.company.rate_per_s, np.maximum.accumulate(found))
    return np.asarray(np.maximum.accumulate(np.maximum(values, tpot) if percentile is None else values))


def _at_rates(rate: Values, at: Values, values: Values) -> Values:
    """Values at points, at the rates of the curve: even in logarithm between points. [s]"""
    rising = np.maximum.accumulate(at) + 1e-9 * np.arange(len(at))
    return np.asarray(np.exp(np.interp(rate, rising, np.log(values))))


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


def as_seen(prediction: Prediction, workload: Workload, slo: Slo, utilization: float) -> tuple[Workload, int]:
    """The workload as one replica of the smallest fleet sees it, and the replicas that this takes at least. [replica]

    Of a renewal stream a share p picked at random has gaps of squared CV 1 + p (c^2 - 1) (thinning; Cox and Isham,
    Point Processes, 1980, section 4.3). A router that looks at loads splits it more evenly still, so the answer is on
    the safe side. Fleets are looked at by doubling, each at the burstiness of its smallest size.

    Parameters
    ----------
    prediction
        Of one replica.
    workload, slo
        Of the fleet, and its targets.
    utilization
        Share of the capacity that is planned for. [1]
    """
    excess = workload.arrivals.gap_cv**2 - 1.0
    if excess <= LEAST_EXCESS:
        return workload, 1
    rate = workload.request_rate_per_s
    most = float(prediction.nominal[0][-1]) * utilization
    sharers = 2 ** max(math.floor(math.log2(max(rate / most, 1.0))), 0) if most > 0 else 1
    while True:
        left = excess / sharers
        one = replace(workload, arrivals=Gamma(cv=math.sqrt(1.0 + left)) if left > LEAST_EXCESS else Poisson())
        planned = rate_within(prediction, one, slo)[0] * utilization
        needed = math.ceil(rate / planned - 1e-9) if planned > 0 else math.inf
        if needed < 2 * sharers or left <= LEAST_EXCESS:
            return one, sharers
        sharers *= 2


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


def out_of_depth(prediction: Prediction, workload: Workload, rate_per_s: float, slo: Slo | None = None) -> str:
    """Why the closed form may be off by more than a tenth at a rate; empty when it should not be.

    Parameters
    ----------
    prediction, workload
        As for :func:`spread_of`.
    rate_per_s
        Of the replica. [request/s]
    slo
        Statistic that is asked for; None for p99.
    """
    if workload.prefix is not None or workload.sessions is not None:
        return "prompts share beginnings, and prefix cache hits are not in the closed form"
    if workload.arrivals.gap_cv > MOST_CV:
        return f"arrivals with a CV of {workload.arrivals.gap_cv:.3g} are burstier than the closed form knows"
    if slo is not None and _plain(workload, slo):
        return _plain_depth(prediction, workload, rate_per_s)
    spread = spread_of(prediction, workload)

    def at(values: Values) -> float:
        return float(np.interp(rate_per_s, spread.company.rate_per_s, values))

    room = prediction.room
    longest = spread.longest / max(room.kv_requests, 1e-9)
    if longest > MOST_OF_ROOM:
        return f"the longest request takes {longest:.0%} of the KV room, so that a few of them overflow it"
    asked = [q for q in ((None, None) if slo is None else (slo.ttft_at, slo.tpot_at)) if q is not None]
    overflow = at(spread.overflow)
    if overflow > OVERFLOW * (100.0 - max(asked, default=99.0)) / (1.0 + spread.varied) ** 2:
        waiting = (
            f"one request in {1.0 / overflow:,.0f} waits" if overflow < 1e-3 else f"{overflow:.1%} of requests wait"
        )
        return f"bursts overflow the room for {room.most:,.0f} requests, and {waiting} for it"
    decoding, share = at(spread.points.decoding), at(spread.points.share)
    stream = renewal(workload.arrivals.gap_cv)
    if stream.bursty and decoding < stream.burst:
        return f"bursts of {stream.burst:.1f} requests come where {decoding:.1f} decode"
    if decoding < 4.0 * stream.burst and _bend(spread.points, decoding, stream) > MOST_BEND:
        return f"with {decoding:.1f} requests that decode a step is no straight line of their number"
    if stream.gap_cv > 2.0 and at(spread.load) > MOST_BURSTY_LOAD:
        return f"bursts of prompts keep the queue for prefill {at(spread.load):.0%} busy"
    return _much_prefill(spread, decoding, share)


def _much_prefill(spread: Spread, decoding: float, share: float) -> str:
    """Whether prefill takes so much of the time that noise is not small, or a step much to begin; in words."""
    points = spread.points
    if share > 0.4 and decoding < 8.0:
        return f"answers are short: prefill takes {share:.0%} of the time and {decoding:.1f} requests decode"
    if different := _different_prompts(share, decoding, lambda: spread.varied):
        return different
    if (gain := _gain(points, decoding, share)) > MOST_GAIN:
        return f"prefill takes {share:.0%} of the time, and one request more counts {gain:.1f} times"
    fixed = float(np.interp(decoding, points.decoding, points.fixed_s / points.decode_s))
    if fixed > MOST_FIXED:
        return f"a step that prefills takes {fixed:.1f} decode steps more, however many prompts share it"
    return ""


def _bend(points: Points, decoding: float, stream: Renewal) -> float:
    """How much steeper a step grows with the number that decodes than it does after a burst. [1]"""
    slope = np.maximum(np.gradient(points.decode_s, points.decoding), 1e-12)
    before, after = np.interp([decoding, decoding + stream.burst], points.decoding, slope)
    return float(before / after)


def _gain(points: Points, decoding: float, share: float) -> float:
    """1 / ((1 - f) (1 - e)): longer steps let in more, by the share f of prefill and the elasticity e of a step. [1]"""
    elasticity = points.decoding * np.gradient(points.decode_s, points.decoding) / points.decode_s
    growth = float(np.interp(decoding, points.decoding, elasticity))
    return 1.0 / ((1.0 - share) * max(1.0 - growth, 0.1))


def _different_prompts(share: float, decoding: float, varied: Callable[[], float]) -> str:
    """Whether prompts take much of the time and differ so much that a replica which preempts one stays slow."""
    if share <= SOME_PREFILL or decoding >= MANY or varied() <= MOST_VARIED:
        return ""
    return f"prefill of very different prompts takes {share:.0%} of the time, and {decoding:.1f} requests decode"


def _plain_depth(prediction: Prediction, workload: Workload, rate_per_s: float) -> str:
    """Whether prompts differ much, or the number that decodes passes the room once in a hundred by its linear noise."""
    curve = prediction.curve
    decoding = float(np.interp(rate_per_s, prediction.nominal[0], curve.decoding))
    decode_s = float(np.interp(decoding, curve.decoding, np.atleast_2d(curve.decode_s)[0]))
    share = 1.0 - rate_per_s * max(workload.output_length.mean - 1.0, 1.0) * decode_s / max(decoding, 1e-9)
    if different := _different_prompts(share, decoding, lambda: _held(workload)[1]):
        return different
    if "peak" not in prediction.remembered:
        slope = np.gradient(np.log(prediction.nominal[1]), np.log(curve.decoding))
        spread = 1.0 / (1.0 - np.clip(slope, 0.0, 0.9))
        prediction.remembered["peak"] = curve.decoding + 2.326 * np.sqrt(spread * curve.decoding) + spread
    peak = float(np.interp(rate_per_s, prediction.nominal[0], prediction.remembered["peak"]))
    if peak <= prediction.room.most:
        return ""
    return f"bursts bring {peak:,.0f} requests at once where {prediction.room.most:,.0f} fit, and the others wait"


def _held(workload: Workload) -> tuple[float, float]:
    """Tokens in the cache of a request that decodes, on average over time, and their squared CV. [token], [1]"""
    isl, osl = workload.input_length, workload.output_length
    answers = np.maximum(osl.quantile(MIDDLES), 1.0)
    grown = float(answers**2 @ WEIGHTS) / osl.mean / 2.0
    squared = float(answers**3 @ WEIGHTS) / osl.mean / 3.0
    context = workload.mean_input_tokens + grown
    return context, (isl.std**2 + max(squared - grown**2, 0.0)) / context**2
