"""Parameter counts against the framework's and the files'."""

from pathlib import Path
from typing import Annotated

import typer

from sizing.cli._configs import Configs
from sizing.cli._options import Format


def command(
    file: Annotated[
        Path | None,
        typer.Argument(help="CSV file of parameter counts; the shipped set if left out.", show_default=False),
    ] = None,
    configs: Configs = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write each row to this CSV (or .json) file.")] = None,
    format: Format = "table",
) -> None:
    """Count the parameters of each model and print the error table."""
    from sizing.cli.output import emit, progress
    from sizing.reports.tabular import render_rows
    from sizing.validation.parameters import count_row, error_table, read_rows

    rows = read_rows(file)
    counts = [count_row(row, configs) for row in progress(rows, len(rows), "counting")]
    if out is not None:
        kind = "json" if out.suffix == ".json" else "csv"
        emit(render_rows([count.cells() for count in counts], format=kind), out)
    notes = [f"{count.id}: {count.reason}" for count in counts if count.reason]
    answered = sum(count.parameters is not None for count in counts)
    title = f"{len(rows)} models, {answered} counted, {len(notes)} explained below"
    emit(render_rows(error_table(rows, counts), format=format, title=title, notes=notes))
