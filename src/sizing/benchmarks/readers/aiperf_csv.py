"""AIPerf and GenAI-Perf CSV exports: a table of statistics, then a table of single values."""

import csv
import io
import re
from collections.abc import Sequence
from typing import ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, Latency, Load
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.record import Record, seconds_per


@READERS.register("aiperf-csv")
class AiperfCsv:
    """``profile_export_aiperf.csv`` or ``profile_export_genai_perf.csv``."""

    title: ClassVar[str] = "AIPerf / GenAI-Perf CSV export"
    rank: ClassVar[int] = 10
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """A first column ``Metric`` with averages."""
        return (document.text or "")[:200].lstrip().lower().startswith("metric,avg")

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One point; the concurrency asked for is not in the file."""
        table = _table(document)
        measured = _value(document, table, "effective concurrency")
        completed = _value(document, table, "request count")
        point = BenchPoint(
            format="aiperf-csv",
            source=document.name,
            sha256=document.sha256,
            load=Load(kind="closed", concurrency=float(round(measured)) if measured else None),
            ttft=_latency(document, table, "time to first token"),
            tpot=_latency(document, table, "inter token latency"),
            itl=_latency(document, table, "inter chunk latency"),
            e2e=_latency(document, table, "request latency"),
            tpot_definition="after_first_token" if "inter token latency" in table else "absent",
            input_tokens=_value(document, table, "input sequence length"),
            output_tokens=_value(document, table, "output sequence length"),
            request_throughput_per_s=_value(document, table, "request throughput"),
            output_tokens_per_s=_value(document, table, "output token throughput"),
            completed=None if completed is None else round(completed),
        )
        return [point.warned("the CSV does not say the concurrency asked for: the measured one, rounded, is used")]


def _table(document: Document) -> dict[str, tuple[str, dict[str, str]]]:
    """Metric name in lower case to its unit and its row."""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    head: list[str] = []
    for row in csv.reader(io.StringIO(document.text or "")):
        if not row:
            continue
        if row[0].lower() == "metric":
            head = [cell.lower() for cell in row]
        elif head and len(row) <= len(head):
            name = re.match(r"([^(]+?)\s*(?:\(([^)]*)\))?$", row[0].strip())
            if name:
                cells = {key: cell for key, cell in zip(head[1:], row[1:], strict=False) if cell}
                found.setdefault(name[1].lower(), (name[2] or "", cells))
    return found


def _latency(document: Document, table: dict[str, tuple[str, dict[str, str]]], name: str) -> Latency | None:
    if name not in table:
        return None
    unit, cells = table[name]
    where = f"{document.name}: {name}"
    return Record(where, cells).latency(seconds_per(unit, where))


def _value(document: Document, table: dict[str, tuple[str, dict[str, str]]], name: str) -> float | None:
    if name not in table:
        return None
    return Record(f"{document.name}: {name}", table[name][1]).amount("avg", "value")
