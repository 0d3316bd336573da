"""GuideLLM ``benchmarks.json``, both report schemas (``args`` up to 0.6, ``config.spec`` from 0.7).

``inter_token_latency_ms`` is the TPOT of this project; ``time_per_output_token_ms`` includes TTFT.
Request latency is in seconds, the other latencies in milliseconds.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, Latency, Load
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.record import Record

STRATEGY_PLACES = (("config", "strategy"), ("args", "strategy"), ("scheduler", "strategy"), ("strategy",))
BACKEND_PLACES = (("config", "backend"), ("backend",), ("worker",), ("args",), ("benchmarker", "backend"))


@READERS.register("guidellm")
class Guidellm:
    """Report of ``guidellm run`` / ``guidellm benchmark``."""

    title: ClassVar[str] = "GuideLLM benchmarks.json (report schemas 1 and 2)"
    rank: ClassVar[int] = 10
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """A list of benchmarks with metrics of successful requests."""
        found = document.mapping.get("benchmarks")
        first = found[0] if isinstance(found, list) and found else None
        return isinstance(first, dict) and isinstance(first.get("metrics"), dict)

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One point a benchmark."""
        report = Record(document.name, document.mapping)
        metadata = report.part("metadata")
        schema = metadata.number("version")
        version = metadata.text("guidellm_version")
        points = []
        for index, bench in enumerate(report.items("benchmarks")):
            points.append(_point(document, report, bench, index, version or (f"schema {schema:g}" if schema else None)))
        return points


def _point(document: Document, report: Record, bench: Record, index: int, version: str | None) -> BenchPoint:
    metrics = bench.part("metrics")
    totals = metrics.part("request_totals")
    point = BenchPoint(
        format="guidellm",
        format_version=version,
        source=document.name,
        sha256=document.sha256,
        index=index,
        load=_load(bench),
        ttft=_latency(metrics, "time_to_first_token_ms", 1e-3),
        tpot=_latency(metrics, "inter_token_latency_ms", 1e-3),
        e2e=_latency(metrics, "request_latency", 1.0),
        tpot_definition="after_first_token",
        input_tokens=_mean(metrics, "prompt_token_count"),
        output_tokens=_mean(metrics, "output_token_count"),
        request_throughput_per_s=_mean(metrics, "requests_per_second"),
        output_tokens_per_s=_mean(metrics, "output_tokens_per_second"),
        input_tokens_per_s=_mean(metrics, "prompt_tokens_per_second"),
        completed=totals.count("successful"),
        failed=totals.count("errored"),
        duration_s=bench.amount("duration"),
        model=_model(report, bench),
        length_range=_length_range(report),
    )
    incomplete = totals.count("incomplete")
    return point.warned(f"{incomplete} requests were cut off at the end") if incomplete else point


def _load(bench: Record) -> Load:
    """Strategies: synchronous, concurrent, throughput, constant, poisson (async in older reports)."""
    strategy = next((found for path in STRATEGY_PLACES if (found := bench.part(*path)).values), bench.part("none"))
    kind = strategy.text("type_", "kind", "type") or ""
    if kind == "synchronous":
        return Load(kind="closed", concurrency=1.0)
    if kind == "concurrent":
        return Load(kind="closed", concurrency=strategy.rate("streams", "max_concurrency"))
    rate = strategy.rate("rate")
    if rate is not None:
        return Load(kind="open", request_rate_per_s=rate, burstiness=1.0 if kind == "poisson" else None)
    return Load(kind="offline", concurrency=strategy.rate("max_concurrency"))


def _latency(metrics: Record, name: str, scale_s: float) -> Latency | None:
    return metrics.part(name, "successful").latency(scale_s)


def _mean(metrics: Record, name: str) -> float | None:
    return metrics.part(name, "successful").amount("mean")


def _model(report: Record, bench: Record) -> str | None:
    for record in (bench, report):
        for path in (*BACKEND_PLACES, ("config", "spec", "backend")):
            part: Any = record.values
            for key in path:
                part = part.get(key) if isinstance(part, dict) else None
            name = Record(record.where, part).text("model", "backend_model") if isinstance(part, dict) else None
            if name:
                return name
    return None


def _length_range(report: Record) -> float | None:
    """Fixed lengths (1.0) when the synthetic data has no spread; None when it has, or is not synthetic."""
    data = report.part("config", "spec").values.get("data")
    if not isinstance(data, list) or len(data) != 1 or not isinstance(data[0], dict):
        return None
    spread = [data[0].get(key) for key in ("prompt_tokens_stdev", "output_tokens_stdev")]
    return 1.0 if data[0].get("kind") == "synthetic_text" and not any(spread) else None
