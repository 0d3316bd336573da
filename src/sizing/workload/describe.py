"""Traces and workloads as rows and plots for people; numbers come from :mod:`sizing.workload.statistics`."""

import math
from collections.abc import Sequence

import numpy as np

from sizing.workload.lengths import Floats, Ints, Length
from sizing.workload.shapes import shape, shapes
from sizing.workload.statistics import LengthSummary, Summary, counts_by
from sizing.workload.trace import Trace
from sizing.workload.traffic import Workload

Row = dict[str, object]
_BARS = " ▁▂▃▄▅▆▇█"
PLOT_COLUMNS = 72


def _row(quantity: str, value: float | str, unit: str = "") -> Row:
    shown: object = value
    if isinstance(value, float):
        shown = None if math.isnan(value) else float(f"{value:.6g}")
    return {"quantity": quantity, "value": shown, "unit": unit}


def _length_rows(name: str, lengths: LengthSummary) -> list[Row]:
    parts = zip(("mean", "p50", "p90", "p95", "p99", "longest"), lengths[:6], strict=True)
    return [_row(f"{name} {part}", float(value), "token") for part, value in parts] + [
        _row(f"{name} CV", float(lengths.cv))
    ]


def summary_rows(summary: Summary) -> list[Row]:
    """Summary of a trace, a row a quantity."""
    rows = [
        _row("requests", float(summary.requests), "request"),
        _row("span", summary.span_s, "s"),
        _row("rate, mean", summary.rate_per_s, "request/s"),
        _row("rate, busiest minute", summary.peak_minute_per_s, "request/s"),
        _row("peak to mean by minute", summary.peak_to_mean),
        _row("CV of gaps", summary.gap_cv),
        _row("dispersion of counts, 1 s", summary.dispersion_1s),
        _row("dispersion of counts, 60 s", summary.dispersion_60s),
        *_length_rows("input", summary.input),
        *_length_rows("output", summary.output),
        _row("rank correlation of input and output", summary.correlation),
        _row("prefix reuse, unlimited cache", summary.reused_share, "share of prompt tokens"),
        _row("prefix reuse within conversations", summary.own_session_share, "share of prompt tokens"),
        _row("conversations", float(summary.sessions), "conversation"),
        _row("turns of a conversation", summary.turns, "request"),
    ]
    for turn in summary.by_turn:
        later = turn is summary.by_turn[-1] and len(summary.by_turn) > 12
        name = f"turn {turn.turn + 1}{' and later' if later else ''}"
        rows.append(_row(f"{name}: prompt", turn.mean_input_tokens, "token"))
        rows.append(_row(f"{name}: prefix reuse", turn.reused_share, "share of prompt tokens"))
    return rows


def trace_rows(trace: Trace) -> list[Row]:
    """Summary of a trace and the rows left out of it, a row a quantity."""
    left_out = [_row(f"left out: {reason}", float(count), "row") for reason, count in trace.skipped.items()]
    return [*summary_rows(trace.summary()), *left_out]


def _distribution_rows(name: str, length: Length) -> list[Row]:
    shares = ((0.5, "p50"), (0.9, "p90"), (0.95, "p95"), (0.99, "p99"))
    quantiles = [_row(f"{name} {label}", float(length.quantile(share)), "token") for share, label in shares]
    return [_row(f"{name} mean", length.mean, "token"), *quantiles, _row(f"{name} longest", length.most, "token")]


def workload_rows(workload: Workload) -> list[Row]:
    """A workload, a row a quantity."""
    whole = workload.sessions is None and workload.prefix is None
    rows = [
        _row("rate, mean", float(workload.request_rate_per_s), "request/s"),
        _row("rate, busiest time", float(workload.peak_rate_per_s), "request/s"),
        _row("CV of gaps at a steady rate", float(workload.arrivals.gap_cv)),
        _row("input mean, whole prompt", float(workload.mean_input_tokens), "token"),
        *_distribution_rows("input" if whole else "new input", workload.input_length),
        *_distribution_rows("output", workload.output_length),
        _row("prefix reuse, unlimited cache", float(workload.ideal_prefix_share), "share of prompt tokens"),
    ]
    if workload.sessions is not None:
        rows.append(_row("turns of a conversation", workload.sessions.mean_turns, "request"))
        rows.append(_row("pause between turns", workload.sessions.pauses.mean, "s"))
    if workload.prefix is not None:
        rows.append(_row("shared prefix", workload.prefix.mean_tokens, "token"))
        rows.append(_row("different shared prefixes", float(workload.prefix.groups), "prefix"))
    return rows


def shape_rows() -> list[Row]:
    """Shipped shapes, a row each."""
    rows: list[Row] = []
    for name, about in shapes().items():
        traffic = shape(name)
        rows.append({
            "shape": name, "input_tokens": round(traffic.mean_input_tokens),
            "output_tokens": round(traffic.mean_output_tokens), "gap_cv": round(traffic.arrivals.gap_cv, 2),
            "prefix_reuse": round(traffic.ideal_prefix_share, 3), "what": about,
        })  # fmt: skip
    return rows


def bars(values: Sequence[float] | Floats | Ints) -> str:
    """Values as a line of blocks, the highest a full one."""
    heights = np.asarray(values, dtype=np.float64)
    top = float(heights.max()) if len(heights) else 0.0
    if top <= 0:
        return " " * len(heights)
    return "".join(_BARS[round(8 * h / top)] if h > 0 else " " for h in heights)


def rate_plot(arrival_s: Floats) -> list[str]:
    """Arrival rate over time, as lines of text."""
    span_s = float(arrival_s[-1] - arrival_s[0]) if len(arrival_s) > 1 else 0.0
    if span_s <= 0:
        return []
    window_s = max(span_s / PLOT_COLUMNS * (1 - 1e-9), 1e-6)
    counts = counts_by(arrival_s, window_s)[:PLOT_COLUMNS]
    if not len(counts):
        return []
    return [f"requests/s over {span_s:,.0f} s, up to {counts.max() / window_s:.3g}/s", f"|{bars(counts)}|"]


def length_plot(name: str, tokens: Ints) -> list[str]:
    """Histogram of lengths on a logarithmic axis, as lines of text."""
    low, high = max(float(tokens.min()), 1.0), max(float(tokens.max()), 2.0)
    if high <= low:
        return []
    edges = np.geomspace(low, high * (1 + 1e-9), PLOT_COLUMNS + 1)
    counts = np.histogram(np.maximum(tokens, 1), edges)[0]
    return [f"{name} tokens from {low:,.0f} to {high:,.0f}, logarithmic", f"|{bars(counts)}|"]


def trace_plots(trace: Trace) -> list[str]:
    """Rate over time and both histograms of a trace."""
    rate = rate_plot(trace.arrival_s) if trace.timed and not trace.closed_loop else []
    return [*rate, *length_plot("input", trace.input_tokens), *length_plot("output", trace.output_tokens)]


def workload_notes(workload: Workload, path: str = "") -> tuple[str, ...]:
    """What a plan from a workload file or a shape has to say about it."""
    notes = [f"workload {path or workload.name}" + (f" ({workload.source})" if workload.source else "")]
    if workload.ideal_prefix_share > 0:
        notes.append(f"workload: an unlimited prefix cache would hold {workload.ideal_prefix_share:.0%} of the prompts")
    return tuple(notes)


def trace_notes(trace: Trace, workload: Workload | None = None) -> tuple[str, ...]:
    """What a plan from a trace has to say about it: what was read, left out and changed."""
    summary = trace.summary()
    first = (
        f"trace {trace.path}: {len(trace):,} requests ({trace.kind}), {_rate(summary)}, mean input "
        f"{summary.input.mean:,.0f} and output {summary.output.mean:,.0f} tokens"
    )
    if not math.isnan(summary.reused_share):
        first += f"; an unlimited prefix cache would hold {summary.reused_share:.0%} of the prompts"
    planned: tuple[str, ...] = ()
    if workload is not None:
        planned = (f"planned for {workload.request_rate_per_s:.3g} requests/s, CV {workload.arrivals.gap_cv:.3g}",)
    return (first, *planned, *(f"trace: {note}" for note in trace.notes))


def _rate(summary: Summary) -> str:
    if math.isnan(summary.rate_per_s):
        return "no request rate"
    peak = ""
    if not math.isnan(summary.peak_minute_per_s):
        peak = f" ({summary.peak_minute_per_s:.3g} in the busiest minute)"
    return f"{summary.rate_per_s:.3g} requests/s on average{peak}, CV of gaps {summary.gap_cv:.3g}"
