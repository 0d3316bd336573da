"""JSON lines to objects, and numbers out of them; lines that are no object are counted."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sizing.workload.source import Source
from sizing.workload.trace import NOT_JSON, RowLog

Row = Mapping[str, Any]


def objects(source: Source, log: RowLog) -> Iterator[tuple[int, dict[str, Any]]]:
    """Objects of a JSON lines file, each with the number of its line."""
    load = json.loads
    for first, block in source.blocks():
        for line, text in enumerate(block, first):
            if not text or text.isspace():
                continue
            try:
                value = load(text)
            except (ValueError, RecursionError):
                value = None
            if isinstance(value, dict):
                yield line, value
            else:
                log.skip(NOT_JSON, line)


def number(row: Row, names: Sequence[str]) -> float:
    """First number found under one of the names; NaN if there is none or it is no number."""
    for name in names:
        if name in row:
            value = row[name]
            if isinstance(value, bool):
                return math.nan
            if isinstance(value, int | float):
                try:
                    return float(value)
                except OverflowError:
                    return math.inf
            if isinstance(value, str):
                try:
                    return float(value)
                except ValueError:
                    return math.nan
            return math.nan
    return math.nan


class Interned:
    """Whole numbers for names of any kind, in order of appearance."""

    def __init__(self) -> None:
        self._known: dict[object, int] = {}

    def number(self, name: object) -> int:
        """The number of a name; None and an empty text have none (-1)."""
        if name is None or name == "":
            return -1
        key = name if isinstance(name, str | int | float) else repr(name)
        return self._known.setdefault(key, len(self._known))

    def __len__(self) -> int:
        """Names seen."""
        return len(self._known)
