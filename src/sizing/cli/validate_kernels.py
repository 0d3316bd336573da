"""Kernel times against measured tables."""

from pathlib import Path
from typing import Annotated

import typer

from sizing.cli._options import Format, PredictionsFile


def command(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of kernel tables (Parquet or CSV), or one CSV file; the shipped table if left out.",
            show_default=False,
        ),
    ] = None,
    calibration: Annotated[str, typer.Option(help="Constants: measured, rule-of-thumb or a TOML file.")] = "measured",
    out: PredictionsFile = None,
    format: Format = "table",
) -> None:
    """Predict the time of each measured kernel and print the error table by GPU, engine and operation."""
    from sizing.cli.output import emit, progress
    from sizing.reports.tabular import render_rows
    from sizing.validation.kernels import (
        compare,
        error_rows,
        exclusion_notes,
        goal_rows,
        kernel_tables,
        prediction_rows,
    )

    found = compare(kernel_tables(folder), calibration, progress)
    if out is not None:
        emit(render_rows(prediction_rows(found), format="csv"), out)
    rows = error_rows(found)
    count = sum(len(item.table) for item in found)
    title = f"{count} kernel calls, calibration {calibration}"
    if format in ("json", "csv"):
        emit(render_rows(rows, format=format, title=title, notes=exclusion_notes(found)))
        return
    emit(render_rows(rows, format=format, title=title))
    goals = "All GPUs and engines together"
    emit(render_rows(goal_rows(found), format=format, title=goals, notes=exclusion_notes(found)))
