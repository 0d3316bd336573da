"""Rows of the CSV files that predictions are held against."""

import csv
from collections.abc import Sequence
from pathlib import Path

from sizing.errors import InputError, UnknownFile


def csv_rows(path: Path, wanted: str, needed: Sequence[str] = ()) -> list[dict[str, str]]:
    """Rows of a CSV file as text by column; blank where a row is short.

    Parameters
    ----------
    path
        The file.
    wanted
        What it should be, for the message when it is not there.
    needed
        Columns that it must have.

    Raises
    ------
    UnknownFile
        No such file.
    InputError
        Not a CSV file in UTF-8, or a needed column is missing.
    """
    if not path.is_file():
        raise UnknownFile(f"no file {str(path)!r}; give a CSV file {wanted}")
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            reader = csv.DictReader(handle)
            rows = [{k: v or "" for k, v in row.items() if isinstance(k, str)} for row in reader]
            columns = reader.fieldnames or ()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{str(path)!r} can't be read as CSV: {error}") from None
    missing = [name for name in needed if name not in columns]
    if missing:
        raise InputError(f"{str(path)!r} lacks column {', '.join(missing)}; it has {', '.join(columns) or 'none'}")
    return rows
