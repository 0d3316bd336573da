"""Predictions against a load test of one's own."""

from pathlib import Path
from typing import Annotated

import typer

from sizing.cli import _bench as bench
from sizing.cli._options import Format, OutFile, option


@bench.told_of_a_run
def command(
    run: bench.Run,
    explain: Annotated[bool, typer.Option(help="Say which constant would explain the difference.")] = True,
    held_out: Annotated[bool, typer.Option(help="Fit a few concurrencies of each run, score the others.")] = False,
    lowest: Annotated[bool, typer.Option(help="With --held-out: fit the lowest, score the higher.")] = False,
    fitted: Annotated[str | None, option("Concurrencies to fit in each run, with --held-out; 3 if left out.")] = None,
    runs: Annotated[str | None, option("Runs to take at most, evenly through the file, with --held-out.")] = None,
    export: Annotated[Path | None, option("Write the points as llm-d benchmark reports 0.2.1.")] = None,
    format: Format = "table",
    out: OutFile = None,
) -> None:
    """Hold predictions against a load test: ratios by metric, and what explains them."""
    from sizing import units
    from sizing.cli.output import emit, progress
    from sizing.errors import InputError
    from sizing.fitting.report import held_out_report, validation_report
    from sizing.reports.tabular import render_rows

    alone = {"--lowest": lowest, "--fitted": fitted is not None, "--runs": runs is not None}
    if not held_out and any(alone.values()):
        raise InputError(f"{', '.join(name for name, given in alone.items() if given)}: give --held-out with it")
    points, settings = run.points(), run.settings()
    if export is not None:
        from sizing.benchmarks.export import llmd_text

        emit(llmd_text(points), export)
    if held_out:
        least = units.whole("3" if fitted is None else fitted, "--fitted", least=1)
        most = None if runs is None else units.whole(runs, "--runs", least=1)
        report = held_out_report(points, settings, run.calibration, least, most, progress, lowest=lowest)
    else:
        report = validation_report(points, settings, run.calibration, explain, progress)
    notes = [*report.notes, *bench.remarks(() if held_out else points)]
    emit(render_rows(report.rows, format=format, title=report.title, notes=notes), out)
