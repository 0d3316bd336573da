"""The option ``--configs`` of every verb that has it: a folder that is not there is refused in one place."""

from pathlib import Path
from typing import Annotated

import typer

from sizing.errors import UnknownFile


def _there(configs: Path | None) -> Path | None:
    if configs is not None and not configs.is_dir():
        raise UnknownFile(f"--configs: no folder {str(configs)!r}; give the folder of owner--name.json files")
    return configs


Configs = Annotated[
    Path | None,
    typer.Option("--configs", callback=_there, help="Folder of owner--name.json files, tried before the catalogue."),
]
