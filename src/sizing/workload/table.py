"""CSV columns by name to arrays, a block of lines at a time; rows that do not parse are counted."""

import csv
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from sizing.errors import InputError
from sizing.workload.lengths import Floats, Ints
from sizing.workload.source import Source
from sizing.workload.trace import FIELDS_MISSING, NOT_A_NUMBER, RowLog

EPOCH_S = 1_672_531_200.0  #: origin of parsed times, 2023-01-01 UTC: near enough for nanoseconds in a float [s]


@dataclass(frozen=True, slots=True)
class Column:
    """A column that a reader wants.

    Attributes
    ----------
    names
        Header names it goes by, in lower case.
    parse
        ``number``, ``time`` (a date and time, to seconds since :data:`EPOCH_S`) or ``text``.
    required
        Whether a file without it is refused.
    """

    names: tuple[str, ...]
    parse: str = "number"
    required: bool = True


@dataclass(slots=True)
class Table:
    """Columns of a CSV file.

    Attributes
    ----------
    numbers
        Numbers, and times [s]; NaN where a cell that may be empty is.
    texts
        Text columns.
    lines
        Line of each row.
    """

    numbers: dict[str, Floats]
    texts: dict[str, list[str]]
    lines: Ints


def read_table(source: Source, log: RowLog, wanted: Mapping[str, Column]) -> Table:
    """Wanted columns of a CSV file with a header.

    Raises
    ------
    InputError
        A required column is missing.
    """
    places: dict[str, int] = {}
    width = 0
    parts: dict[str, list[Floats]] = {k: [] for k, c in wanted.items() if c.parse != "text"}
    texts: dict[str, list[str]] = {k: [] for k, c in wanted.items() if c.parse == "text"}
    lines: list[Ints] = []
    for first, block in source.blocks():
        if not places:
            skip = next((i for i, line in enumerate(block) if line.strip()), None)
            if skip is None:
                continue
            names = [c.strip().lower() for c in _cells(block[skip])]
            places, width = _places(names, wanted, source, first + skip), len(names)
            first, block = first + skip + 1, block[skip + 1 :]
        kept, columns = _rows(first, block, width, log)
        values, good = _parsed(columns, places, wanted, kept, log)
        for key, numbers in values.items():
            parts[key].append(numbers)
        for key in texts:
            if key in places:
                column = columns[places[key]] if columns else ()
                texts[key] += [column[i] for i in good]
        lines.append(kept[good])
    joined = {k: np.concatenate(v) if v else np.empty(0) for k, v in parts.items() if k in places}
    whole = np.concatenate(lines) if lines else np.empty(0, dtype=np.int64)
    return Table(joined, {k: v for k, v in texts.items() if k in places}, whole)


def _places(names: Sequence[str], wanted: Mapping[str, Column], source: Source, line: int) -> dict[str, int]:
    places = {}
    for key, column in wanted.items():
        found = next((names.index(n) for n in column.names if n in names), None)
        if found is not None:
            places[key] = found
        elif column.required:
            raise InputError(
                f"{source.path}: line {line}: no column {column.names[0]!r} among "
                f"{', '.join(names)[:200]!r}; give the file its header"
            )
    return places


def _cells(line: str) -> list[str]:
    """Cells of a line with quotes; none if the quotes do not close or a cell is absurdly long."""
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return []


def _rows(first: int, block: list[str], width: int, log: RowLog) -> tuple[Ints, Sequence[Sequence[str]]]:
    """Line numbers and columns of the rows that have all their fields."""
    quoted = any('"' in line for line in block)
    if block and not quoted and width > 1 and all(line.count(",") == width - 1 for line in block):
        cells = ",".join(block).split(",")  # no list a row: a third of the time
        return np.arange(first, first + len(block), dtype=np.int64), [cells[i::width] for i in range(width)]
    rows = [_cells(line) for line in block] if quoted else [line.split(",") for line in block]
    kept = np.arange(first, first + len(rows), dtype=np.int64)
    if any(len(r) != width for r in rows):
        good = [len(r) == width for r in rows]
        for line, row in zip(kept.tolist(), rows, strict=True):
            if len(row) != width and any(cell.strip() for cell in row):
                log.skip(FIELDS_MISSING if len(row) < width else "too many fields", line)
        rows = [r for r, g in zip(rows, good, strict=True) if g]
        kept = kept[np.asarray(good)]
    return kept, list(zip(*rows, strict=True))


def _parsed(
    columns: Sequence[Sequence[str]], places: Mapping[str, int], wanted: Mapping[str, Column], lines: Ints, log: RowLog
) -> tuple[dict[str, Floats], Ints]:
    """Numbers of a block, and which of its rows they are from."""
    if not columns:
        return {}, np.empty(0, dtype=np.int64)
    values = {}
    for key, place in places.items():
        column = wanted[key]
        if column.parse != "text":
            values[key] = _PARSERS[column.parse](columns[place])
    blank = [np.isnan(v) for k, v in values.items() if wanted[k].required]
    wrong = np.logical_or.reduce(blank) if blank else np.zeros(len(lines), dtype=np.bool_)
    log.keep(wrong, NOT_A_NUMBER, lines)
    good = np.flatnonzero(~wrong)
    return {k: v[good] for k, v in values.items()}, good


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _numbers(column: Sequence[str]) -> Floats:
    try:
        return np.fromiter(map(float, column), dtype=np.float64, count=len(column))
    except ValueError:
        return np.fromiter(map(_number, column), dtype=np.float64, count=len(column))


def seconds_of(text: str) -> float:
    """Seconds since :data:`EPOCH_S` of an ISO date and time (UTC unless it says otherwise); NaN if it is none."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return math.nan
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return moment.timestamp() - EPOCH_S


def date_of(seconds: float) -> str:
    """Date and time, UTC, of seconds since :data:`EPOCH_S`."""
    return datetime.fromtimestamp(seconds + EPOCH_S, UTC).isoformat(sep=" ", timespec="seconds")


def _times(column: Sequence[str]) -> Floats:
    """Seconds since :data:`EPOCH_S`; the quick way for dates that are all alike, else one by one."""
    texts: Sequence[str] = column
    for zone in ("+00:00", "Z", " UTC"):
        if all(t.endswith(zone) for t in (column[0], column[-1])) and all(t.endswith(zone) for t in column):
            texts = [t[: -len(zone)] for t in column]
    try:
        if min(map(len, texts)) < 19 or "+" in "".join(texts):
            raise ValueError("not plain")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # numpy warns of zones that it drops
            whole = np.array(texts, dtype="datetime64[ns]")
        years = np.fromiter((int(t[:4]) for t in texts), dtype=np.int64, count=len(texts))
        if np.isnat(whole).any() or not np.array_equal(whole.astype("datetime64[Y]").astype(np.int64) + 1970, years):
            raise ValueError("outside the range of nanoseconds")
    except (ValueError, Warning):
        return np.fromiter(map(seconds_of, column), dtype=np.float64, count=len(column))
    return np.asarray((whole.astype(np.int64) - int(EPOCH_S) * 10**9) / 1e9)


_PARSERS: dict[str, Callable[[Sequence[str]], Floats]] = {"number": _numbers, "time": _times}
