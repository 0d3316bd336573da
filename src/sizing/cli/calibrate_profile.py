"""Constants from a profile of one's own GPU."""

from pathlib import Path
from typing import Annotated

import typer

from sizing.cli._options import Format


def command(
    file: Annotated[Path, typer.Argument(help="Measurement file of profile-inference.", show_default=False)],
    gpu: Annotated[
        str | None, typer.Option(help="Accelerator in the catalogue; told by the driver's name if left out.")
    ] = None,
    engine: Annotated[str, typer.Option(help="Whose constants the fit begins from.")] = "vllm",
    calibration: Annotated[
        str, typer.Option(help="Constants that the fit begins from: measured, or a file.")
    ] = "measured",
    stand_ins: Annotated[
        bool, typer.Option(help="Also write constants of torch's stand-ins for an engine's kernels.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write a calibration for --calibration.")] = None,
    format: Format = "table",
) -> None:
    """Fit the kernels' constants to a profile and write them for --calibration."""
    from sizing.cli.output import emit
    from sizing.fitting.profile import calibrate_profile
    from sizing.fitting.profile_report import (
        achieved_rows,
        family_rows,
        model_rows,
        profile_text,
        stand_in_notes,
        step_rows,
        table_rows,
    )
    from sizing.reports.tabular import render_rows

    fit, notes = calibrate_profile(file, gpu, engine, calibration)
    if not stand_ins:
        notes = (*notes, *stand_in_notes(fit))
    if out is not None:
        emit(profile_text(fit, calibration, stand_ins=stand_ins), out)
        notes = (*notes, f"written: {out}; give it to any command as --calibration {out}")
    else:
        notes = (*notes, "not kept: give --out FILE to write a calibration for --calibration")
    title = f"Constants of {fit.calibration.gpu} from {file.name}, old against new"
    emit(render_rows(family_rows(fit), format=format, title=title, notes=notes))
    if format not in ("table", "md"):
        return
    emit("\n" + render_rows(achieved_rows(fit), format=format, title="Achieved, and measured over expected time"))
    if fit.tables:
        emit("\n" + render_rows(table_rows(fit), format=format, title="Beside published tables, at equal shapes"))
    if fit.steps:
        emit("\n" + render_rows(step_rows(fit), format=format, title="Whole decoder steps, predicted over measured"))
        emit("\n" + render_rows(model_rows(fit), format=format, title="Whole decoders by model"))
