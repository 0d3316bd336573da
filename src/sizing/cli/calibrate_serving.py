"""An engine's own time from measured serving runs."""

from pathlib import Path
from typing import Annotated

import typer

from sizing.cli._configs import Configs


def command(
    file: Annotated[
        Path | None, typer.Argument(help="CSV file of serving runs; the curated set if left out.", show_default=False)
    ] = None,
    engine: Annotated[str, typer.Option(help="Record of data/engines.toml to fit, or all of them.")] = "vllm",
    configs: Configs = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows to look at, at most, drawn evenly from the cells.")] = 2000,
    leave_out: Annotated[
        str | None,
        typer.Option(help="Also predict each model, cell or gpu by constants fitted without it.", show_default=False),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the fitted table to this file.")] = None,
    format: Annotated[
        str, typer.Option(help="table, csv (with --leave-out: its errors alone), json (one document) or md.")
    ] = "table",
) -> None:
    """Fit an engine's constants to measured serving runs and print old against new."""
    from sizing.cli.output import emit
    from sizing.fitting.left_out import check_group, left_out
    from sizing.fitting.serving import fit_engine, observations, record_of
    from sizing.reports.tabular import check_format
    from sizing.validation.serving import read_rows

    check_format(format)
    if leave_out is not None:
        check_group(leave_out)
    if engine == "all":
        _every(read_rows(file), configs, leave_out, rows, out, format)
        return
    before = record_of(engine)
    seen = observations(read_rows(file), before.name, configs, rows)
    fit = fit_engine(seen, before)
    if out is not None:
        emit(fit.toml(), out)
    title = f"{before.name}: {fit.rows} rows of {fit.cells} cells of GPU, model and weight format"
    notes = [f"{metric}: median error {then:g} % before, {now:g} % after" for metric, (then, now) in fit.errors.items()]
    heading = f"{before.name}, each {leave_out} left out of the fit"
    apart = (heading, left_out(seen, fit.timing, leave_out)) if leave_out is not None else None
    _show(title, fit.records(before), {"notes": notes}, apart, format)


def _every(
    rows: list[dict[str, str]], configs: Path | None, leave_out: str | None, most: int, out: Path | None, format: str
) -> None:
    from sizing.cli.output import emit, progress
    from sizing.engines.timing import engine_timings
    from sizing.fitting.left_out import fit_every

    names = list(engine_timings())
    found = fit_every(rows, names, configs, leave_out, most, lambda x: progress(x, len(x), "engines"))
    if out is not None:
        emit("\n".join(fit.toml() for fit in found.fits), out)
    title = f"{len(found.fits)} engines; median errors in per cent before and after"
    apart = (f"each {leave_out} left out of its engine's fit", list(found.left_out)) if leave_out is not None else None
    _show(title, found.records(), {}, apart, format)


Records = list[dict[str, object]]


def _show(
    title: str, rows: Records, notes: dict[str, list[str]], apart: tuple[str, Records] | None, format: str
) -> None:
    """A table, and what was left out beside it: one document in JSON, the second table alone in CSV."""
    from sizing.cli.output import emit
    from sizing.reports.tabular import json_text, render_rows

    if format == "json":
        left = {"left_out": {"title": apart[0], "rows": apart[1]}} if apart else {}
        emit(json_text({"title": title, "rows": rows, **notes, **left}))
        return
    alone = apart is not None and format == "csv"
    parts = [] if alone else [render_rows(rows, format=format, title=title, **notes)]
    if apart is not None:
        parts.append(render_rows(apart[1], format=format, title=apart[0]))
    emit("\n".join(parts))
