"""What ``validate serving`` and ``validate latency`` share: predict each row, write the rows, print the table."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sizing.cli.output import emit, progress


def predict_and_report(
    rows: Sequence[Any],
    predict: Callable[[Any], Any],
    report: Callable[[Any, Any], tuple[str, Any, Any]],
    out: Path | None,
    format: str,
) -> None:
    """Predict every row, write them to ``out`` if asked for, and print the error table."""
    from sizing.reports.tabular import render_rows

    predictions = [predict(row) for row in progress(rows, len(rows), "predicting")]
    if out is not None:
        emit(render_rows([p.cells() for p in predictions], format="csv"), out)
    title, table, notes = report(rows, predictions)
    emit(render_rows(table, format=format, title=title, notes=notes))
