"""Step times against measured static batches."""

from pathlib import Path
from typing import Annotated

import typer

from sizing.cli._configs import Configs
from sizing.cli._options import Constants, Format, PredictionsFile


def command(
    file: Annotated[
        Path | None, typer.Argument(help="CSV file of static batches; the curated set if left out.", show_default=False)
    ] = None,
    configs: Configs = None,
    out: PredictionsFile = None,
    calibration: Constants = "measured",
    format: Format = "table",
) -> None:
    """Predict each measured static batch and print the error table."""
    from sizing.cli._predictions import predict_and_report
    from sizing.validation.latency import latency_report, latency_rows, predict_latency

    predict_and_report(
        latency_rows(file), lambda row: predict_latency(row, configs, calibration), latency_report, out, format
    )
