"""``size-inference schema``: JSON Schemas of the plan file and of what ``--format json`` prints."""

from typing import Annotated

import typer

from sizing.cli._options import OutFile
from sizing.cli.output import emit


def command(
    name: Annotated[str, typer.Argument(help="plan-file (for --config), plan or simulation (of --format json).")]
    = "plan-file",
    out: OutFile = None,
) -> None:  # fmt: skip
    """Print the JSON Schema of a plan file, a plan or a simulation."""
    from sizing.reports.tabular import json_text
    from sizing.schema import json_schema

    emit(json_text(json_schema(name)), out)
