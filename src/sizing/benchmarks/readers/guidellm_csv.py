"""GuideLLM ``benchmarks.csv``: three header rows (group, name, statistic), then a row a benchmark."""

import ast
import csv
import io
import json
from collections.abc import Sequence
from typing import ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, Latency, Load
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.record import Record, latency_s
from sizing.errors import InputError

LEVELS = (0.1, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
HEADERS = 3


@READERS.register("guidellm-csv")
class GuidellmCsv:
    """CSV report of ``guidellm run``."""

    title: ClassVar[str] = "GuideLLM benchmarks.csv"
    rank: ClassVar[int] = 10
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """GuideLLM's column groups."""
        head = (document.text or "").split("\n", 1)[0]
        return "Run Info" in head and "Time to First Token" in head

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One point a row after the headers."""
        rows = list(csv.reader(io.StringIO(document.text or "")))
        columns = ["|".join(parts).strip("|") for parts in zip(*rows[:HEADERS], strict=False)]
        return [
            _point(
                document,
                Record(f"{document.name}: row {n + HEADERS + 1}", dict(zip(columns, row, strict=False))),
                n,
            )
            for n, row in enumerate(rows[HEADERS:])
        ]


def _point(document: Document, row: Record, index: int) -> BenchPoint:
    return BenchPoint(
        format="guidellm-csv",
        source=document.name,
        sha256=document.sha256,
        index=index,
        load=_load(row),
        ttft=_latency(row, "Time to First Token|Successful ms", 1e-3),
        tpot=_latency(row, "Inter Token Latency|Successful ms", 1e-3),
        e2e=_latency(row, "Request Latency|Successful Sec", 1.0),
        tpot_definition="after_first_token",
        input_tokens=row.amount("Token Metrics|Successful Input Tokens|Mean"),
        output_tokens=row.amount("Token Metrics|Successful Output Tokens|Mean"),
        request_throughput_per_s=row.amount("Server Throughput|Successful Requests/Sec|Mean"),
        output_tokens_per_s=row.amount("Token Throughput|Successful Output Tokens/Sec|Mean"),
        completed=row.count("Request Counts|Successful"),
        failed=row.count("Request Counts|Errored"),
        duration_s=row.amount("Timings|Duration|Sec"),
        model=_model(row),
    )


def _load(row: Record) -> Load:
    """Strategy is text such as ``concurrent@4``, ``constant@2.0``, ``synchronous``."""
    kind, _, number = (row.text("Benchmark|Strategy") or "").partition("@")
    try:
        level = float(number) if number else None
    except ValueError:
        raise InputError(f"{row.where}: Strategy is {number!r}, expected a number after '@'") from None
    if kind == "synchronous":
        return Load(kind="closed", concurrency=1.0)
    if kind == "concurrent":
        return Load(kind="closed", concurrency=level)
    if level is not None and kind != "throughput":
        return Load(kind="open", request_rate_per_s=level, burstiness=1.0 if kind == "poisson" else None)
    return Load(kind="offline", concurrency=level)


def _latency(row: Record, name: str, scale_s: float) -> Latency | None:
    listed = row.text(f"{name}|Percentiles")
    try:
        values = ast.literal_eval(listed) if listed else ()
        levels = {level: float(value) for level, value in zip(LEVELS, values, strict=True)} if values else {}
    except (ValueError, SyntaxError, TypeError):
        raise InputError(f"{row.where}: {name} percentiles are not a list of {len(LEVELS)} numbers") from None
    return latency_s(scale_s, mean=row.amount(f"{name}|Mean"), std=row.amount(f"{name}|Std Dev"), percentiles=levels)


def _model(row: Record) -> str | None:
    try:
        backend = json.loads(row.text("Run Info|Backend") or "{}")
    except ValueError:
        return None
    name = backend.get("model") if isinstance(backend, dict) else None
    return name if isinstance(name, str) else None
