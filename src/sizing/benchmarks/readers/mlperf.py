"""MLPerf LoadGen ``mlperf_log_summary.txt``: nanoseconds; only a VALID result counts.

``Completed tokens per second`` stands twice (result and statistics); the rate of a Server run is the one
that was really scheduled, a Poisson draw around ``target_qps``.
"""

import re
from collections.abc import Sequence
from typing import ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, Latency, Load
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.record import Record, latency_s

NS = 1e-9
LINE = re.compile(r"^\s*([A-Za-z0-9_.() /]+?)\s*:\s*(\S.*?)\s*$")


@READERS.register("mlperf")
class MlperfLoadgen:
    """LoadGen summary of the Server, Interactive, Offline or SingleStream scenario."""

    title: ClassVar[str] = "MLPerf LoadGen mlperf_log_summary.txt"
    rank: ClassVar[int] = 10
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """LoadGen's own title."""
        return "MLPerf Results Summary" in (document.text or "")[:2000]

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One point, refused unless LoadGen called it valid."""
        lines: dict[str, str] = {}
        for line in (document.text or "").splitlines():
            found = LINE.match(line)
            if found:
                lines.setdefault(found[1].lower(), found[2])
        record = Record(document.name, lines)
        verdict, mode = record.text("result is"), record.text("mode")
        point = _point(document, record)
        if verdict != "VALID":
            point = point.refused(f"LoadGen says the result is {verdict or 'missing'}, not VALID")
        if mode and mode != "PerformanceOnly":
            point = point.refused(f"mode is {mode}: latencies of an accuracy run are not a measurement")
        return [point]


def _point(document: Document, record: Record) -> BenchPoint:
    scenario = (record.text("scenario") or "").lower()
    done = record.amount("completed samples per second", "samples per second", "queries per second")
    tokens = record.amount("completed tokens per second", "tokens per second")
    scheduled = record.rate("scheduled samples per second", "target_qps")
    load = Load(kind="offline")
    if scenario in ("server", "interactive"):
        load = Load(kind="open", request_rate_per_s=scheduled, burstiness=1.0)
    elif scenario == "singlestream":
        load = Load(kind="closed", concurrency=1.0)
    point = BenchPoint(
        format="mlperf",
        source=document.name,
        sha256=document.sha256,
        load=load,
        ttft=_latency(record, "first token latency", "first token latency"),
        tpot=_latency(record, "time per output token", "time to output token"),
        e2e=_latency(record, "latency", "latency"),
        tpot_definition="after_first_token" if record.has("mean time per output token (ns)") else "absent",
        output_tokens=tokens / done if tokens and done else None,
        request_throughput_per_s=done,
        output_tokens_per_s=tokens,
    )
    target = record.rate("target_qps")
    if load.kind == "open" and target and scheduled and abs(scheduled / target - 1.0) > 0.03:
        return point.warned(f"{scheduled:g} requests/s were scheduled where the target was {target:g}")
    return point


def _latency(record: Record, mean: str, percentile: str) -> Latency | None:
    levels: dict[float, float] = {}
    for key in record.values:
        found = re.match(rf"([\d.]+) percentile {re.escape(percentile)} \(ns\)$", key)
        if found:
            levels[float(found[1])] = record.amount(key) or 0.0
    return latency_s(NS, mean=record.amount(f"mean {mean} (ns)"), percentiles=levels)
