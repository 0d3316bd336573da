"""What a planner needs to know of recorded requests: rates, burstiness, lengths, reuse.

References
----------
.. [1] R. Gusella, "Characterizing the variability of arrival processes with indexes of dispersion", IEEE JSAC 9(2),
   1991: index of dispersion of counts.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sizing.workload.lengths import Floats, Ints
from sizing.workload.requests import Requests
from sizing.workload.trace import Trace

MINUTE_S = 60.0


class LengthSummary(NamedTuple):
    """Lengths in a few numbers. [token]"""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    most: float
    cv: float


class TurnReuse(NamedTuple):
    """Requests at one place in their conversations, and how much of their prompts was there before."""

    turn: int
    requests: int
    mean_input_tokens: float
    reused_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A trace in numbers; rates are NaN where the file fixes none.

    Attributes
    ----------
    requests
        Number of requests.
    span_s
        From the first arrival to the last. [s]
    rate_per_s
        Mean arrival rate. [request/s]
    peak_minute_per_s
        Rate of the busiest whole minute. [request/s]
    peak_to_mean
        Busiest whole minute over the mean of whole minutes. [1]
    gap_cv
        Standard deviation over mean of the gaps. [1]
    dispersion_1s, dispersion_60s
        Variance over mean of the counts in whole seconds and minutes. [1]
    input, output
        Lengths. [token]
    correlation
        Rank correlation of input and output. [1]
    reused_share
        Prompt tokens an unlimited prefix cache would hold over all prompt tokens; NaN if not recorded. [1]
    own_session_share
        The same, from earlier turns of the same conversation only. [1]
    sessions
        Number of conversations.
    turns
        Mean turns of a conversation. [request]
    by_turn
        Reuse by place in the conversation.
    """

    requests: int
    span_s: float
    rate_per_s: float
    peak_minute_per_s: float
    peak_to_mean: float
    gap_cv: float
    dispersion_1s: float
    dispersion_60s: float
    input: LengthSummary
    output: LengthSummary
    correlation: float
    reused_share: float
    own_session_share: float
    sessions: int
    turns: float
    by_turn: tuple[TurnReuse, ...]


def summarise(trace: Trace) -> Summary:
    """Summary of a trace."""
    requests = trace.requests
    rates = trace.timed and not trace.closed_loop and requests.span_s > 0
    times = requests.arrival_s if rates else np.empty(0)
    per_minute = counts_by(times, MINUTE_S)
    mean_minute = float(per_minute.mean()) if len(per_minute) else np.nan
    peak = float(per_minute.max()) if len(per_minute) else np.nan
    sessions = requests.session[requests.session >= 0] if requests.session is not None else np.empty(0, dtype=np.int64)
    distinct = len(np.unique(sessions))
    return Summary(
        requests=len(requests), span_s=requests.span_s if trace.timed else np.nan,
        rate_per_s=len(requests) / requests.span_s if rates else np.nan,
        peak_minute_per_s=peak / MINUTE_S, peak_to_mean=peak / mean_minute,
        gap_cv=gap_cv(times), dispersion_1s=dispersion(times, 1.0), dispersion_60s=dispersion(times, MINUTE_S),
        input=length_summary(requests.input_tokens), output=length_summary(requests.output_tokens),
        correlation=rank_correlation(requests.input_tokens, requests.output_tokens),
        reused_share=reused_share(requests), own_session_share=own_session_share(requests),
        sessions=distinct, turns=len(sessions) / distinct if distinct else np.nan, by_turn=reuse_by_turn(requests),
    )  # fmt: skip


def counts_by(arrival_s: Floats, window_s: float) -> Ints:
    """Arrivals in each whole window from the first one on; a part of a window at the end is left out."""
    if len(arrival_s) < 2:
        return np.empty(0, dtype=np.int64)
    since = arrival_s - arrival_s[0]
    windows = int(since[-1] // window_s)
    if not 1 <= windows <= 500_000_000:
        return np.empty(0, dtype=np.int64)
    place = (since / window_s).astype(np.int64)
    return np.bincount(place[place < windows], minlength=windows)


def gap_cv(arrival_s: Floats) -> float:
    """Standard deviation over mean of the gaps between arrivals. [1]"""
    gaps = np.diff(arrival_s)
    return float(gaps.std() / gaps.mean()) if len(gaps) and gaps.mean() > 0 else np.nan


def dispersion(arrival_s: Floats, window_s: float) -> float:
    """Index of dispersion of counts [1]_: variance over mean of the counts in whole windows. [1]"""
    counts = counts_by(arrival_s, window_s)
    return float(counts.var() / counts.mean()) if len(counts) > 1 and counts.any() else np.nan


def length_summary(tokens: Ints) -> LengthSummary:
    """Lengths in a few numbers. [token]"""
    p50, p90, p95, p99 = (float(v) for v in np.percentile(tokens, (50, 90, 95, 99)))
    mean = float(tokens.mean())
    return LengthSummary(mean, p50, p90, p95, p99, float(tokens.max()), float(tokens.std() / mean))


def _ranks(values: npt.ArrayLike) -> Floats:
    """Ranks, equal values at their mean rank."""
    _, place, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - 0.5 * (counts - 1))[place])


def rank_correlation(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Spearman's rank correlation. [1]"""
    a, b = _ranks(first), _ranks(second)
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return np.nan
    return float(np.corrcoef(a, b)[0, 1])


def reused_share(requests: Requests) -> float:
    """Prompt tokens an unlimited prefix cache would hold, over all prompt tokens. [1]"""
    reused = requests.reused_tokens
    if reused is None:
        return own_session_share(requests) if requests.chain is not None else np.nan
    return float(reused.sum() / requests.input_tokens.sum())


def _reused_in_session(requests: Requests) -> Ints | None:
    """Prompt tokens that the conversation's turn before had, in prompt or answer; None if not known."""
    if requests.session is None or requests.turn is None or requests.chain is None:
        return None
    order = np.lexsort((np.arange(len(requests)), requests.turn, requests.session))
    session, inputs = requests.session[order], requests.input_tokens[order]
    held = inputs + requests.output_tokens[order]
    follows = np.concatenate([[False], (session[1:] == session[:-1]) & (session[1:] >= 0)])
    before = np.concatenate([[0], held[:-1]])
    reused = np.empty(len(order), dtype=np.int64)
    reused[order] = np.where(follows, np.minimum(before, inputs), 0)
    if requests.reused_tokens is not None:
        return np.minimum(reused, requests.reused_tokens)
    return reused


def own_session_share(requests: Requests) -> float:
    """Prompt tokens that earlier turns of the same conversation had, over all prompt tokens. [1]"""
    reused = _reused_in_session(requests)
    return np.nan if reused is None else float(reused.sum() / requests.input_tokens.sum())


def reuse_by_turn(requests: Requests, most: int = 12) -> tuple[TurnReuse, ...]:
    """Reuse by place in the conversation, the last line for all later turns; empty where it is not known."""
    reused = requests.reused_tokens if requests.reused_tokens is not None else _reused_in_session(requests)
    if requests.turn is None or reused is None or not len(requests):
        return ()
    place = np.minimum(requests.turn, most)
    rows = []
    for turn in np.unique(place).tolist():
        chosen = place == turn
        inputs = requests.input_tokens[chosen]
        share = float(reused[chosen].sum() / inputs.sum())
        rows.append(TurnReuse(turn, int(chosen.sum()), float(inputs.mean()), share))
    return tuple(rows)
