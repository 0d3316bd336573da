"""Step times and runs against measured serving runs."""

from pathlib import Path
from typing import Annotated

import typer

from sizing.cli._configs import Configs
from sizing.cli._options import Constants, Format, PredictionsFile


def command(
    file: Annotated[
        Path | None, typer.Argument(help="CSV file of serving runs; the curated set if left out.", show_default=False)
    ] = None,
    configs: Configs = None,
    out: PredictionsFile = None,
    calibration: Constants = "measured",
    format: Format = "table",
) -> None:
    """Predict each measured serving run and print the error table."""
    from sizing.cli._predictions import predict_and_report
    from sizing.validation.scores import report
    from sizing.validation.serving import predict_row, read_rows

    predict_and_report(read_rows(file), lambda row: predict_row(row, configs, calibration), report, out, format)
