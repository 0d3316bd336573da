"""Rows of a table as terminal table, CSV, JSON or Markdown; no arithmetic."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence

from sizing.errors import check_choice

FORMATS = ("table", "csv", "json", "md")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "|", "%")


def check_format(format: str) -> None:
    """Refuse a format that rows are not written in, before work is done.

    Parameters
    ----------
    format
        Name of the format.

    Raises
    ------
    InputError
        If it isn't one of :data:`FORMATS`.
    """
    check_choice("--format", format, FORMATS)


def render_rows(
    rows: Sequence[Mapping[str, object]],
    *,
    format: str,
    title: str = "",
    notes: Sequence[str] = (),
) -> str:
    """Rows with the same keys as text in one of :data:`FORMATS`.

    Parameters
    ----------
    rows
        One mapping a row; the first row's keys are the columns, in order.
    format
        ``table``, ``csv``, ``json`` or ``md``.
    title, notes
        Heading and lines below; JSON carries both, CSV carries neither.

    Raises
    ------
    InputError
        Unknown format.
    """
    check_format(format)
    if format == "json":
        return json_text({"title": title, "rows": [dict(r) for r in rows], "notes": list(notes)})
    if format == "csv":
        return csv_text(rows)
    return markdown_text(rows, title, notes) if format == "md" else table_text(rows, title, notes)


def json_value(value: object) -> object:
    """A value that strict JSON can hold: NaN and infinity become null, numpy numbers become Python's."""
    if isinstance(value, Mapping):
        return {str(k): json_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(v) for v in value]
    if hasattr(value, "tolist"):
        return json_value(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def json_text(document: Mapping[str, object]) -> str:
    """A document as strict JSON, indented, ending in a newline."""
    return json.dumps(json_value(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def csv_cell(value: object) -> object:
    """A cell that no spreadsheet takes for a formula: text that could start one gets a leading apostrophe."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.10g}" if math.isfinite(value) else ""
    if isinstance(value, int):
        return value
    text = str(value).replace("\x00", "")
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA_STARTS) else text


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows as CSV (RFC 4180, CRLF), header first."""
    out = io.StringIO()
    writer = csv.writer(out)
    if rows:
        columns = list(rows[0])
        writer.writerow([csv_cell(c) for c in columns])
        writer.writerows([csv_cell(row.get(c)) for c in columns] for row in rows)
    return out.getvalue()


def shown(value: object) -> str:
    """A value as a person reads it in a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "-" if math.isnan(value) else "inf"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def markdown_text(rows: Sequence[Mapping[str, object]], title: str, notes: Sequence[str]) -> str:
    """Rows as a Markdown table with the notes as a list below."""
    lines = [f"### {title}", ""] if title else []
    if rows:
        columns = list(rows[0])
        lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        lines += ["| " + " | ".join(shown(r.get(c)).replace("|", "\\|") for c in columns) + " |" for r in rows]
    if notes:
        lines += ["", *(f"- {n}" for n in notes)]
    return "\n".join(lines) + "\n"


def table_text(rows: Sequence[Mapping[str, object]], title: str, notes: Sequence[str]) -> str:
    """Rows as a plain aligned table: text to the left, numbers to the right."""
    lines = [title, ""] if title else []
    if rows:
        lines += aligned(rows)
    if notes:
        lines += ["", *notes]
    return "\n".join(lines) + "\n"


def aligned(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Lines of a table, each column as wide as its widest cell."""
    columns = list(rows[0])
    cells = [[shown(row.get(c)) for c in columns] for row in rows]
    right = [all(_is_number(row.get(c)) for row in rows) for c in columns]
    widths = [max(len(columns[i]), *(len(line[i]) for line in cells)) for i in range(len(columns))]

    def line(texts: Sequence[str]) -> str:
        parts = (t.rjust(w) if r else t.ljust(w) for t, w, r in zip(texts, widths, right, strict=True))
        return "  ".join(parts).rstrip()

    return [line(columns), line(["-" * w for w in widths]), *(line(c) for c in cells)]


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
