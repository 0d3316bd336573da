"""Traffic: what a trace holds, shipped shapes, and small files fitted to traces."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    file: Annotated[
        Path | None,
        typer.Argument(help="Trace or workload file; shipped shapes are listed if left out.", show_default=False),
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Trace format, when its content does not tell.")] = None,
    shape: Annotated[str | None, typer.Option(help="Show this shipped shape: chat, agents, ...")] = None,
    fit: Annotated[Path | None, typer.Option(help="Write the traffic as a small workload file, TOML or JSON.")] = None,
    rate: Annotated[str, typer.Option(help="Rate of the fit: mean or peak-minute.")] = "mean",
    lengths: Annotated[str, typer.Option(help="Lengths of the fit: quantiles, lognormal or mean.")] = "quantiles",
    rps: Annotated[str | None, typer.Option(help="Request rate of a shape, or of a trace without one.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of arrivals inside clock ticks.")] = 0,
    format: Annotated[str, typer.Option(help="table, csv, json or md.")] = "table",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file.")] = None,
    plot: Annotated[bool, typer.Option(help="Draw rate and lengths below the table.")] = True,
) -> None:
    """Show what a trace or a request shape holds; fit a workload file to it."""
    from sizing.cli.output import emit, progress, write_whole
    from sizing.reports.tabular import render_rows
    from sizing.units import positive, rate_per_s
    from sizing.workload import describe, read_trace
    from sizing.workload.files import form_of, is_workload_file, read_workload, workload_text
    from sizing.workload.fit import fit as fit_trace
    from sizing.workload.fit import fit_lengths
    from sizing.workload.shapes import shape as shipped

    wanted = positive(rate_per_s(rps, "--rps"), "--rps", "a rate such as 20/s") if rps is not None else None
    if file is None and shape is None:
        emit(render_rows(describe.shape_rows(), format=format, title="Request shapes"), out)
        return
    if file is not None and (kind is not None or not is_workload_file(file)):
        trace = read_trace(file, kind, seed=seed, progress=progress)
        rows, notes, title = describe.trace_rows(trace), trace.notes, f"{file}: {trace.kind} trace"
        plots = describe.trace_plots(trace) if plot and format == "table" else []
        if fit is not None:
            traffic = (
                fit_lengths(trace, wanted, lengths=lengths) if wanted else fit_trace(trace, rate=rate, lengths=lengths)
            )
            write_whole(workload_text(traffic, form_of(fit)), fit)
    else:
        traffic = shipped(shape or "", wanted or 1.0) if file is None else read_workload(file)
        traffic = traffic.at_rate(wanted) if wanted else traffic
        rows, notes, plots = describe.workload_rows(traffic), tuple(filter(None, [traffic.source])), []
        title = f"{traffic.name or file}: workload"
        if fit is not None:
            write_whole(workload_text(traffic, form_of(fit)), fit)
    written = (f"written: {fit}",) if fit is not None else ()
    emit(render_rows(rows, format=format, title=title, notes=(*plots, *notes, *written)), out)
