"""Constants from a load test of one's own."""

from typing import Annotated

from sizing.cli import _bench as bench
from sizing.cli._options import Format, OutFile, option


@bench.told_of_a_run
def command(
    run: bench.Run,
    constants: Annotated[str | None, option("Constants to free, separated by commas; all if left out.")] = None,
    format: Format = "table",
    out: OutFile = None,
) -> None:
    """Fit the engine's constants to a load test and write them for --calibration."""
    from sizing.cli.output import emit
    from sizing.fitting.report import calibration_report
    from sizing.reports.tabular import render_rows

    points, settings = run.points(), run.settings()
    names = [name.strip() for name in constants.split(",")] if constants else None
    report, text = calibration_report(points, settings, run.calibration, names)
    notes = [*report.notes, *bench.remarks(points)]
    if out is not None:
        emit(text, out)
        notes.append(f"written: {out}; give it to any command as --calibration {out}")
    else:
        notes.append("not kept: give --out FILE to write a calibration for --calibration")
    emit(render_rows(report.rows, format=format, title=report.title, notes=notes))
