"""AIPerf ``profile_export_aiperf.json`` and GenAI-Perf ``profile_export_genai_perf.json``.

Each metric is a mapping with its own ``unit``. ``inter_token_latency`` is a mean per request (TPOT),
``inter_chunk_latency`` the gap between chunks (ITL). Output lengths come from the client's tokenizer unless
``--use-server-token-count`` was given: the server's count is preferred where the file has it.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, Load, load_of
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.record import Record


@READERS.register("aiperf")
class Aiperf:
    """Export of ``aiperf profile``."""

    title: ClassVar[str] = "AIPerf profile_export_aiperf.json"
    rank: ClassVar[int] = 10
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """Metrics with units, and AIPerf's schema version."""
        return is_perf_export(document.mapping) and (
            "aiperf_version" in document.mapping or "schema_version" in document.mapping
        )

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One point."""
        return [perf_point(document, "aiperf")]


@READERS.register("genai-perf")
class GenaiPerf:
    """Export of ``genai-perf profile``."""

    title: ClassVar[str] = "GenAI-Perf profile_export_genai_perf.json"
    rank: ClassVar[int] = 11
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """The same metrics without a schema version."""
        return is_perf_export(document.mapping)

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One point."""
        return [perf_point(document, "genai-perf")]


def is_perf_export(values: dict[str, Any]) -> bool:
    """Whether a mapping holds AIPerf's or GenAI-Perf's metrics."""
    metrics = values.get("records", values)
    latency = metrics.get("request_latency") if isinstance(metrics, dict) else None
    return isinstance(latency, dict) and "unit" in latency


def perf_point(document: Document, kind: str) -> BenchPoint:
    """Point of one export."""
    report = Record(document.name, document.mapping)
    metrics = report.part("records") if isinstance(document.mapping.get("records"), dict) else report
    config = report.part("input_config")
    point = BenchPoint(
        format=kind,
        format_version=report.text("aiperf_version", "schema_version"),
        source=document.name,
        sha256=document.sha256,
        load=_load(config, metrics),
        ttft=metrics.part("time_to_first_token").latency(),
        tpot=metrics.part("inter_token_latency").latency(),
        itl=metrics.part("inter_chunk_latency").latency(),
        e2e=metrics.part("request_latency").latency(),
        tpot_definition="after_first_token" if metrics.has("inter_token_latency") else "absent",
        input_tokens=_average(metrics, "input_sequence_length"),
        output_tokens=_average(metrics, "output_sequence_length"),
        request_throughput_per_s=_average(metrics, "request_throughput"),
        output_tokens_per_s=_average(metrics, "output_token_throughput"),
        completed=_whole(_average(metrics, "request_count")),
        duration_s=_duration_s(metrics),
        model=_model(config),
    )
    return _with_server_tokens(point, metrics).warned(*_state_warnings(report))


def _average(metrics: Record, name: str) -> float | None:
    return metrics.part(name).amount("avg")


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _duration_s(metrics: Record) -> float | None:
    duration = metrics.part("benchmark_duration").latency() if metrics.has("benchmark_duration") else None
    return duration.mean_s if duration else None


def _load(config: Record, metrics: Record) -> Load:
    """Concurrency or rate, wherever this version of the tool keeps it."""
    places = [
        *(phase for phase in _phases(config) if phase.text("kind", "name") != "warmup"),
        config.part("loadgen"),
        config.part("perf_analyzer", "stimulus"),
        config,
    ]
    for place in places:
        concurrency, rate = place.rate("concurrency"), place.rate("request_rate", "rate")
        if concurrency is not None or rate is not None:
            return load_of(concurrency if rate is None else None, rate)
    measured = _average(metrics, "effective_concurrency")
    return Load(kind="closed", concurrency=float(round(measured)) if measured else None)


def _phases(config: Record) -> list[Record]:
    return config.items("phases") if isinstance(config.values.get("phases"), list) else []


def _model(config: Record) -> str | None:
    """First model named in the tool's own configuration."""
    held = config.values.get("models", config.values.get("model"))
    if isinstance(held, dict):
        held = held.get("items")
    if held is None and isinstance(config.values.get("endpoint"), dict):
        held = config.values["endpoint"].get("model_names")
    first = held[0] if isinstance(held, list) and held else held
    name = first.get("name") if isinstance(first, dict) else first
    return name if isinstance(name, str) else None


def _with_server_tokens(point: BenchPoint, metrics: Record) -> BenchPoint:
    """Use the server's own count of output tokens when the client's tokenizer disagrees."""
    import dataclasses

    server, client = _average(metrics, "usage_completion_tokens"), point.output_tokens
    if not server or not client or abs(server / client - 1.0) <= 0.02:
        return point
    factor = (client - 1.0) / (server - 1.0) if server > 1.0 else 1.0
    scaled = point.tpot and dataclasses.replace(
        point.tpot,
        mean_s=None if point.tpot.mean_s is None else point.tpot.mean_s * factor,
        percentiles_s={level: value * factor for level, value in point.tpot.percentiles_s.items()},
        std_s=None,
    )
    rate = point.output_tokens_per_s
    changed = dataclasses.replace(
        point,
        output_tokens=server,
        input_tokens=_average(metrics, "usage_prompt_tokens") or point.input_tokens,
        tpot=scaled,
        output_tokens_per_s=None if rate is None else rate * server / client,
    )
    return changed.warned(
        f"the client's tokenizer counted {client:g} output tokens, the server {server:g}, used here "
        "(run with --use-server-token-count)"
    )


def _state_warnings(report: Record) -> list[str]:
    found = []
    if report.values.get("was_cancelled") is True:
        found.append("the run was cancelled")
    if report.values.get("is_complete") is False:
        found.append("the run is not complete")
    return found
