"""Memory budgets against engine start-up logs."""

from pathlib import Path
from typing import Annotated

import typer

from sizing.cli._configs import Configs
from sizing.cli._options import Format, PredictionsFile


def command(
    file: Annotated[
        Path | None, typer.Argument(help="CSV file of start-up logs; the curated set if left out.", show_default=False)
    ] = None,
    configs: Configs = None,
    out: PredictionsFile = None,
    format: Format = "table",
) -> None:
    """Predict the memory budget of each start-up log and print the error table."""
    from sizing.cli.output import emit, progress
    from sizing.reports.tabular import render_rows
    from sizing.validation.memory import compare, predict_row, read_rows

    rows = read_rows(file)
    predictions = [predict_row(row, configs) for row in progress(rows, len(rows), "predicting")]
    result = compare(rows, predictions)
    if out is not None:
        emit(render_rows([p.cells() for p in predictions], format="csv"), out)
    notes = [f"{p.id}: {p.reason}" for p in result.unanswered]
    title = f"{len(rows)} start-ups, {len(rows) - len(notes)} answered in full"
    emit(render_rows(result.table(), format=format, title=title, notes=notes))
