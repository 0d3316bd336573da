"""An engine's own time from measured serving runs."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    file: Annotated[
        Path | None, typer.Argument(help="CSV file of serving runs; the curated set if left out.", show_default=False)
    ] = None,
    engine: Annotated[str, typer.Option(help="Record of data/engines.toml to fit, or all of them.")] = "vllm",
    configs: Annotated[
        Path | None, typer.Option(help="Folder of owner--name.json files, tried before the catalogue.")
    ] = None,
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
    from sizing.fitting.serving import check_group, fit_engine, left_out, observations, record_of
    from sizing.reports.tabular import check_format, json_text, render_rows
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
    constants, text = fit.records(before), ""
    if leave_out is not None:
        heading, errors = f"{before.name}, each {leave_out} left out of the fit", left_out(seen, fit.timing, leave_out)
        if format == "json":
            apart = {"title": heading, "rows": errors}
            emit(json_text({"title": title, "rows": constants, "notes": notes, "left_out": apart}))
            return
        text = render_rows(errors, format=format, title=heading)
    if not (text and format == "csv"):
        text = "\n".join(filter(None, (render_rows(constants, format=format, title=title, notes=notes), text)))
    emit(text)


def _every(
    rows: list[dict[str, str]], configs: Path | None, leave_out: str | None, most: int, out: Path | None, format: str
) -> None:
    from sizing.cli.output import emit, progress
    from sizing.engines.timing import engine_timings
    from sizing.fitting.serving import fit_every
    from sizing.reports.tabular import json_text, render_rows

    names = list(engine_timings())
    found = fit_every(rows, names, configs, leave_out, most, lambda x: progress(x, len(x), "engines"))
    if out is not None:
        emit("\n".join(fit.toml() for fit in found.fits), out)
    title = f"{len(found.fits)} engines; median errors in per cent before and after"
    heading = f"each {leave_out} left out of its engine's fit"
    if format == "json":
        apart = {"left_out": {"title": heading, "rows": list(found.left_out)}} if leave_out else {}
        emit(json_text({"title": title, "rows": found.records(), **apart}))
        return
    parts = [] if leave_out and format == "csv" else [render_rows(found.records(), format=format, title=title)]
    if leave_out:
        parts.append(render_rows(list(found.left_out), format=format, title=heading))
    emit("\n".join(parts))
