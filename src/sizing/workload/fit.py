r"""From a trace to the traffic that it is a sample of, and to a file of a few kilobytes.

Arrivals are fitted in two steps: the rate by equal windows of time, then the burstiness that is left when time is
stretched so that the rate is constant, :math:`s_i = \Lambda(t_i)` (the time-rescaling theorem, [1]_): the square root
of the index of dispersion of counts over :data:`STAY_S`, about as long as a request stays, since that is what queues
feel (peakedness, [3]_); a Gamma stream of that CV has it. Lengths are measured quantiles or lognormals of the same mean
and CV, tied by the rank correlation :math:`\rho_s` through normals of correlation :math:`2\sin(\pi\rho_s/6)` ([2]_).

References
----------
.. [1] E. Brown et al., "The time-rescaling theorem and its application to neural spike train data analysis", Neural
   Computation 14, 2002.
.. [2] M. Kendall, J. Gibbons, "Rank correlation methods", 5th ed., 1990, ch. 10 (normal samples).
.. [3] A. Eckberg, "Generalized peakedness of teletraffic processes", 10th International Teletraffic Congress, 1983.
"""

import math

import numpy as np

from sizing.errors import InputError, nearest
from sizing.workload.arrivals import Arrivals, Gamma, Poisson, Profile
from sizing.workload.lengths import Fixed, Floats, Ints, Length, Lognormal
from sizing.workload.measured import Quantiles
from sizing.workload.statistics import MINUTE_S, Summary, counts_by, dispersion, gap_cv
from sizing.workload.trace import Trace
from sizing.workload.traffic import Workload

RATES = ("mean", "peak-minute")
LENGTHS = ("quantiles", "lognormal", "mean")
MOST_STEPS = 288
LEAST_PER_STEP = 30  #: fewest requests in a step of a fitted profile, so that it is more than chance
STAY_S = 5.0  #: window over which burstiness is taken; at least :data:`STAY_GAPS` gaps [s]
STAY_GAPS = 5.0
LEAST_WINDOWS = 100  #: fewest windows for it; else the CV of the gaps is taken
LEAST_CORRELATION = 0.02  #: rank correlation below which lengths are taken as independent


def fit(trace: Trace, *, rate: str = "mean", lengths: str = "quantiles") -> Workload:
    """Workload that a trace is a sample of.

    Parameters
    ----------
    trace
        The trace.
    rate
        ``mean`` for the mean rate with the trace's profile on top, ``peak-minute`` for a steady rate as high as in
        the busiest whole minute.
    lengths
        ``quantiles`` as measured, ``lognormal`` of the same mean and CV, or ``mean``.

    Raises
    ------
    InputError
        The trace fixes no rate (no arrival times, or a closed loop): give one with
        :func:`fit_lengths` or ``--rps``.
    """
    _choice("rate", rate, RATES)
    summary = trace.summary()
    if not math.isfinite(summary.rate_per_s):
        why = "its turns wait for answers" if trace.closed_loop else "it has no span of time"
        raise InputError(f"{trace.path}: the trace fixes no request rate ({why}); give the rate (--rps)")
    steady = rate == "peak-minute"
    if steady and math.isfinite(summary.peak_minute_per_s):
        chosen = max(summary.peak_minute_per_s, summary.rate_per_s)
    else:
        chosen = summary.rate_per_s
    arrivals = fit_arrivals(trace.arrival_s)
    if steady and isinstance(arrivals, Profile):
        arrivals = arrivals.stream
    return _workload(trace, summary, chosen, arrivals, lengths)


def fit_lengths(trace: Trace, request_rate_per_s: float, *, lengths: str = "quantiles") -> Workload:
    """Workload with the lengths of a trace at a rate of one's own, Poisson arrivals.

    Parameters
    ----------
    trace
        The trace; it needs no arrival times.
    request_rate_per_s
        Mean arrival rate. [request/s]
    lengths
        As for :func:`fit`.
    """
    return _workload(trace, trace.summary(), request_rate_per_s, Poisson(), lengths)


def _choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        near = nearest(value, choices)
        raise InputError(f"{name}: {value!r} is not known; choose one of {', '.join(choices)}{near}")


def _workload(trace: Trace, summary: Summary, rate_per_s: float, arrivals: Arrivals, lengths: str) -> Workload:
    _choice("lengths", lengths, LENGTHS)
    tied = lengths != "mean" and abs(summary.correlation) >= LEAST_CORRELATION and len(trace) >= 100
    reused = summary.reused_share
    return Workload(
        request_rate_per_s=rate_per_s, arrivals=arrivals,
        input_tokens=fit_length(trace.input_tokens, lengths),
        output_tokens=fit_length(trace.output_tokens, lengths),
        correlation=min(max(2 * math.sin(math.pi * summary.correlation / 6), -0.99), 0.99) if tied else 0.0,
        prefix_hit_share=min(max(reused, 0.0), 1.0) if math.isfinite(reused) else None,
        name=trace.path.replace("\\", "/").rsplit("/", 1)[-1],
        source=f"{trace.kind} trace of {len(trace):,} requests" + (f" from {trace.start}" if trace.start else ""),
    )  # fmt: skip


def fit_length(tokens: Ints, lengths: str = "quantiles") -> Length:
    """Distribution of measured lengths [token], in one of :data:`LENGTHS`."""
    mean, most = float(tokens.mean()), float(tokens.max())
    if lengths == "mean" or most == float(tokens.min()):
        return Fixed(tokens=mean)
    if lengths == "lognormal":
        return Lognormal(mean_tokens=mean, cv=float(tokens.std() / mean), most_tokens=max(most, 2.0))
    return Quantiles.of(tokens)


def fit_arrivals(arrival_s: Floats) -> Arrivals:
    """Rate profile by equal windows, and the burstiness that is left around it. [s]"""
    n = len(arrival_s)
    span_s = float(arrival_s[-1] - arrival_s[0]) if n else 0.0
    if n < 3 or span_s <= 0:
        return Poisson()
    steps = min(MOST_STEPS, n // LEAST_PER_STEP, int(span_s // MINUTE_S))
    if steps < 2:
        return _stream(burstiness(arrival_s))
    step_s = span_s / steps * (1 - 1e-12)
    counts = counts_by(arrival_s, step_s)[:steps]
    factors = counts / counts.mean()
    since = arrival_s - arrival_s[0]
    edges = np.arange(len(factors) + 1) * step_s
    stretched = np.interp(since, edges, np.concatenate([[0.0], np.cumsum(factors) * step_s]))
    stream = _stream(burstiness(stretched, step_s))
    return Profile(factors=tuple(float(f) for f in factors.round(6)), step_s=round(step_s, 6), stream=stream)


def burstiness(arrival_s: Floats, step_s: float = math.inf) -> float:
    """CV of the Gamma stream whose counts over a request's stay vary as much as these arrivals'. [1]

    Parameters
    ----------
    arrival_s
        Arrivals, at a steady rate. [s]
    step_s
        Step in which the rate was made steady: it took its share ``window / step`` of the variance with it, which
        is put back. [s]
    """
    span_s = float(arrival_s[-1] - arrival_s[0])
    window_s = max(STAY_S, STAY_GAPS * span_s / len(arrival_s))
    if span_s < LEAST_WINDOWS * window_s:
        return gap_cv(arrival_s)
    kept = 1 - min(window_s / step_s, 0.5)
    return math.sqrt(dispersion(arrival_s, window_s) / kept)


def _stream(cv: float) -> Poisson | Gamma:
    if not math.isfinite(cv) or abs(cv - 1) < 0.02:
        return Poisson()
    return Gamma(cv=round(min(max(cv, 0.01), 30.0), 4))
