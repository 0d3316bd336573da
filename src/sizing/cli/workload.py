"""Traffic: what a trace holds, shipped shapes, and small files fitted to traces."""

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from sizing.cli._options import Format, OutFile


class Shown(NamedTuple):
    """Traffic as rows, with what stands above and below them, and what a fitted file would hold."""

    title: str
    rows: list[dict[str, object]]
    plots: list[str]
    notes: tuple[str, ...]
    fitted: Any


def command(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Trace or workload file, - for standard input; shipped shapes are listed if left out.",
            show_default=False,
        ),
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Trace format, when its content does not tell.")] = None,
    shape: Annotated[str | None, typer.Option(help="Show this shipped shape: chat, agents, ...")] = None,
    fit: Annotated[Path | None, typer.Option(help="Write the traffic as a small workload file, TOML or JSON.")] = None,
    rate: Annotated[str, typer.Option(help="Rate of the fit: mean or peak-minute.")] = "mean",
    lengths: Annotated[str, typer.Option(help="Lengths of the fit: quantiles, lognormal or mean.")] = "quantiles",
    rps: Annotated[str | None, typer.Option(help="Request rate of a shape or a workload file, or of the fit.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of arrivals inside clock ticks.")] = 0,
    format: Format = "table",
    out: OutFile = None,
    plot: Annotated[bool, typer.Option(help="Draw rate and lengths below the table.")] = True,
) -> None:
    """Show what a trace or a request shape holds; fit a workload file to it."""
    from sizing.cli.arguments import positive_rate
    from sizing.cli.output import emit, write_whole
    from sizing.errors import InputError
    from sizing.reports.tabular import render_rows
    from sizing.workload import describe
    from sizing.workload.files import form_of, workload_text

    wanted = positive_rate(rps, "--rps") if rps is not None else None
    if file is not None and shape is not None:
        raise InputError("--shape and a file: give one of them")
    if file is None and shape is None:
        if fit is not None:
            raise InputError("--fit: nothing to fit; give a trace, or a shape (--shape)")
        emit(render_rows(describe.shape_rows(), format=format, title="Request shapes"), out)
        return
    shown = _of_shape(str(shape), wanted) if file is None else _of_file(file, kind, wanted, rate, lengths, seed, fit)
    written: tuple[str, ...] = ()
    if fit is not None:
        write_whole(workload_text(shown.fitted, form_of(fit)), fit, "--fit")
        written = (f"written: {fit}, {shown.fitted.request_rate_per_s:.4g} requests/s",)
    plots = shown.plots if plot and format == "table" else []
    emit(render_rows(shown.rows, format=format, title=shown.title, notes=(*plots, *shown.notes, *written)), out)


def _of_shape(name: str, wanted: float | None) -> Shown:
    from sizing.workload import shape

    return _of_workload(shape(name, wanted or 1.0), name)


def _of_workload(traffic: Any, name: str) -> Shown:
    from sizing.workload import describe

    notes = tuple(filter(None, [traffic.source]))
    return Shown(f"{traffic.name or name}: workload", describe.workload_rows(traffic), [], notes, traffic)


def _of_file(
    file: Path, kind: str | None, wanted: float | None, rate: str, lengths: str, seed: int, fit: Path | None
) -> Shown:
    from sizing.cli.arguments import readable
    from sizing.cli.output import progress
    from sizing.workload import describe, read_trace
    from sizing.workload.files import is_workload_file, read_workload
    from sizing.workload.given import workload_of

    name = "standard input" if str(file) == "-" else str(file)
    with readable(str(file)) as path:
        if kind is None and is_workload_file(path):
            traffic = read_workload(path)
            return _of_workload(traffic.at_rate(wanted) if wanted else traffic, name)
        trace = read_trace(path, kind, seed=seed, progress=progress)
        fitted = None if fit is None else workload_of(trace, wanted, rate=rate, lengths=lengths)
    notes = trace.notes
    if wanted and fit is None:
        notes += ("--rps is the rate of a fit (--fit); the rows above are those of the trace",)
    rows, plots = describe.trace_rows(trace), describe.trace_plots(trace)
    return Shown(f"{name}: {trace.kind} trace", rows, plots, notes, fitted)
