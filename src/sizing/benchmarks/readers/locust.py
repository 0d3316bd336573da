"""Locust ``*_stats.csv``: a hint only (a streamed POST reports its first byte, percentiles two digits)."""

import csv
import io
from collections.abc import Sequence
from typing import ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, Latency, Load
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.record import Record, latency_s

LEVELS = ("50%", "66%", "75%", "80%", "90%", "95%", "98%", "99%")


@READERS.register("locust")
class Locust:
    """Request statistics of a Locust run."""

    title: ClassVar[str] = "Locust stats CSV (hint: rate and response time only)"
    rank: ClassVar[int] = 40
    hint_only: ClassVar[bool] = True

    def recognises(self, document: Document) -> bool:
        """Locust's own columns."""
        head = (document.text or "").split("\n", 1)[0]
        return "Request Count" in head and "Average Response Time" in head

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One refused point a row of requests; history files are left out."""
        rows = list(csv.DictReader(io.StringIO(document.text or "")))
        kept = [row for row in rows if row.get("Type") not in ("METRIC", "", None)]
        if "Timestamp" in (rows[0] if rows else {}):
            kept = rows[-1:]
        return [_point(document, Record(f"{document.name}: row {n + 2}", row), n) for n, row in enumerate(kept)]


def _point(document: Document, row: Record, index: int) -> BenchPoint:
    point = BenchPoint(
        format="locust",
        source=document.name,
        sha256=document.sha256,
        index=index,
        load=Load(kind="offline", concurrency=row.amount("User Count")),
        e2e=_latency(row),
        request_throughput_per_s=row.amount("Requests/s"),
        completed=row.count("Request Count", "Total Request Count"),
        failed=row.count("Failure Count", "Total Failure Count"),
    )
    return point.refused("a hint only: response time is the first byte when streaming; no TTFT, TPOT or tokens")


def _latency(row: Record) -> Latency | None:
    levels = {float(key[:-1]): value for key in LEVELS if (value := row.amount(key)) is not None}
    return latency_s(1e-3, mean=row.amount("Average Response Time", "Total Average Response Time"), percentiles=levels)
