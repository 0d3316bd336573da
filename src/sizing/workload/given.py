"""Traffic from whatever a caller gives: a trace, a workload file or a shipped shape; with what to say about it."""

import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sizing.workload.describe import trace_notes
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
        source = f" ({workload.source})" if workload.source else ""
        return Given(workload, None, (f"workload {path}{source}",))
    trace = read_trace(path, kind, progress=progress)
    if request_rate_per_s is None:
        workload = fit(trace, rate=rate, lengths=lengths)
    elif math.isfinite(trace.summary().rate_per_s):
        workload = replace(fit(trace, lengths=lengths), request_rate_per_s=request_rate_per_s)
    else:
        workload = fit_lengths(trace, request_rate_per_s, lengths=lengths)
    return Given(workload, trace, trace_notes(trace, workload))
