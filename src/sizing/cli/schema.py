"""``size-inference schema``: JSON Schemas of the plan file and of the plan document."""

from pathlib import Path
from typing import Annotated

import typer

from sizing.cli.output import emit


def command(
    name: Annotated[str, typer.Argument(help="plan-file (what --config takes) or plan (what --format json prints).")]
    = "plan-file",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file.")] = None,
) -> None:  # fmt: skip
    """Print the JSON Schema of a plan file or of a plan."""
    from sizing.reports.tabular import json_text
    from sizing.schema import json_schema

    emit(json_text(json_schema(name)), out)
