"""Traffic from whatever a caller gives: a trace, a workload file or a shipped shape; with what to say about it."""

import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sizing.workload.describe import trace_notes, workload_notes
from sizing.workload.files import is_workload_file, read_workload
from sizing.workload.fit import fit, fit_lengths
from sizing.workload.source import Progress
from sizing.workload.trace import Trace, read_trace
from sizing.workload.traffic import Workload


class Given(NamedTuple):
    """Traffic, the trace it came from if any, and what a plan has to say about it."""

    workload: Workload
    trace: Trace | None
    notes: tuple[str, ...]


def traffic_from(
    path: str | Path,
    *,
    request_rate_per_s: float | None = None,
    kind: str | None = None,
    rate: str = "mean",
    lengths: str = "quantiles",
    progress: Progress | None = None,
) -> Given:
    """Traffic of a trace or a workload file.

    Parameters
    ----------
    path
        The file.
    request_rate_per_s
        Rate in place of the file's; a trace that fixes none needs it. [request/s]
    kind
        Trace format, None to tell it by the content.
    rate, lengths
        As for :func:`sizing.workload.fit.fit`.
    progress
        Shows progress while a trace is read.

    Raises
    ------
    UnknownFile
        There is no such file.
    InputError
        Neither a trace nor a workload file, or no rate.
    """
    path = Path(path)
    if kind is None and is_workload_file(path):
        workload = read_workload(path)
        if request_rate_per_s is not None:
            workload = workload.at_rate(request_rate_per_s)
        return Given(workload, None, workload_notes(workload, str(path)))
    trace = read_trace(path, kind, progress=progress)
    workload = workload_of(trace, request_rate_per_s, rate=rate, lengths=lengths)
    return Given(workload, trace, trace_notes(trace, workload))


def workload_of(
    trace: Trace, request_rate_per_s: float | None = None, *, rate: str = "mean", lengths: str = "quantiles"
) -> Workload:
    """Traffic of a trace, at a rate of one's own if one is given: its profile and burstiness stay.

    Parameters
    ----------
    trace
        The trace.
    request_rate_per_s, rate, lengths
        As for :func:`traffic_from`.
    """
    if request_rate_per_s is None:
        return fit(trace, rate=rate, lengths=lengths)
    if math.isfinite(trace.summary().rate_per_s):
        return replace(fit(trace, rate=rate, lengths=lengths), request_rate_per_s=request_rate_per_s)
    return fit_lengths(trace, request_rate_per_s, lengths=lengths)
