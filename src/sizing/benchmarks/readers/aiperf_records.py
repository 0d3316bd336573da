"""AIPerf ``profile_export.jsonl``: one request a line; the statistics are computed here."""

from collections.abc import Sequence
from typing import Any, ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, Latency, Load
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.record import Record, seconds_per

LEVELS = (50.0, 90.0, 95.0, 99.0)


@READERS.register("aiperf-records")
class AiperfRecords:
    """Per-request export of ``aiperf profile``."""

    title: ClassVar[str] = "AIPerf per-request records (JSON lines)"
    rank: ClassVar[int] = 9
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """Lines with ``metadata`` and ``metrics`` of single requests."""
        first = document.mappings[0] if document.mappings else {}
        metrics = first.get("metrics")
        return isinstance(metrics, dict) and isinstance(first.get("metadata"), dict) and "request_latency" in metrics

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One point over all requests of the profiling phase."""
        rows = [
            Record(f"{document.name}, line {n + 1}", values)
            for n, values in enumerate(document.mappings)
            if (values.get("metadata") or {}).get("benchmark_phase", "profiling") == "profiling"
        ]
        requests = [row for row in rows if isinstance(row.values.get("metrics"), dict)]
        server = [_tokens(row, "usage_completion_tokens") for row in requests]
        outputs = server if all(server) else [_tokens(row, "output_sequence_length") for row in requests]
        e2e = [_seconds(row, "request_latency") for row in requests]
        ttft = [_seconds(row, "time_to_first_token") for row in requests]
        tpot = [
            (e - f) / (n - 1.0) if e is not None and f is not None and n and n > 1.0 else None
            for e, f, n in zip(e2e, ttft, outputs, strict=True)
        ]
        span_s = _span_s(requests)
        point = BenchPoint(
            format="aiperf-records",
            source=document.name,
            sha256=document.sha256,
            load=Load(kind="closed"),
            ttft=_statistics(ttft),
            tpot=_statistics(tpot),
            e2e=_statistics(e2e),
            tpot_definition="after_first_token",
            input_tokens=_mean([_tokens(row, "input_sequence_length") for row in requests]),
            output_tokens=_mean(outputs),
            request_throughput_per_s=len(requests) / span_s if span_s else None,
            output_tokens_per_s=sum(n for n in outputs if n) / span_s if span_s else None,
            completed=len(requests),
            failed=len(rows) - len(requests),
            duration_s=span_s,
        )
        return [point.warned("the records do not say the concurrency asked for")]


def _seconds(row: Record, name: str) -> float | None:
    metric = row.part("metrics").part(name)
    value = metric.amount("value")
    return None if value is None else value * seconds_per(metric.text("unit") or "", metric.where)


def _tokens(row: Record, name: str) -> float | None:
    return row.part("metrics").part(name).amount("value")


def _present(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float | None]) -> float | None:
    found = _present(values)
    return sum(found) / len(found) if found else None


def _statistics(values: Sequence[float | None]) -> Latency | None:
    import numpy as np

    found = _present(values)
    if not found:
        return None
    levels: Any = np.percentile(found, LEVELS)
    return Latency(
        mean_s=float(np.mean(found)),
        std_s=float(np.std(found)),
        percentiles_s=dict(zip(LEVELS, map(float, levels), strict=True)),
    )


def _span_s(rows: Sequence[Record]) -> float | None:
    starts = _present([row.part("metadata").amount("request_start_ns") for row in rows])
    ends = _present([row.part("metadata").amount("request_end_ns") for row in rows])
    span = (max(ends) - min(starts)) * 1e-9 if starts and ends else 0.0
    return span if span > 0.0 else None
