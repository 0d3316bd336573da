"""Constants from measured kernel tables."""

from pathlib import Path
from typing import Annotated

import typer

from sizing.cli._options import Format


def command(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Folder of kernel tables (Parquet or CSV), or one CSV file; the shipped table if left out.",
            show_default=False,
        ),
    ] = None,
    gpu: Annotated[list[str] | None, typer.Option(help="Only tables of this GPU; repeatable.")] = None,
    base: Annotated[str, typer.Option(help="Calibration that the old values and errors are those of.")] = "measured",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Calibration file to write; one GPU's tables only.")
    ] = None,
    format: Format = "table",
) -> None:
    """Fit efficiency constants to measured kernels and print old values and errors beside new ones."""
    from sizing.cli.output import emit, progress
    from sizing.fitting.kernel_report import calibration_text, constant_rows, fit_notes, fit_rows, of_gpus
    from sizing.fitting.kernels import fit_kernels
    from sizing.reports.tabular import render_rows
    from sizing.validation.kernels import kernel_tables

    tables = of_gpus(kernel_tables(folder), gpu, writes=out is not None)
    fits = fit_kernels(tables, base=base, progress=progress)
    if out is not None:
        emit(calibration_text(fits), out)
    emit(render_rows(fit_rows(fits), format=format, title="Errors, old constants against new"))
    if format not in ("csv", "json"):
        emit(render_rows(constant_rows(fits, base), format=format, title="Constants", notes=fit_notes(fits)))
