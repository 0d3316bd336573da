"""LLMPerf ``*_summary.json``: its inter-token latency is end-to-end over output tokens, TTFT included."""

from collections.abc import Sequence
from typing import ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, Latency, load_of
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.record import Record, latency_s, percentile_of


@READERS.register("llmperf")
class Llmperf:
    """Summary of ``token_benchmark_ray.py``."""

    title: ClassVar[str] = "LLMPerf summary"
    rank: ClassVar[int] = 10
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """Keys that begin with ``results_ttft_s``."""
        return any(key.startswith(("results_ttft_s", "results_inter_token_latency_s")) for key in document.mapping)

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One point."""
        record = Record(document.name, document.mapping)
        per_minute = record.amount("results_num_completed_requests_per_min")
        point = BenchPoint(
            format="llmperf",
            format_version=record.text("version"),
            source=document.name,
            sha256=document.sha256,
            load=load_of(record.rate("num_concurrent_requests"), None),
            ttft=_latency(record, "results_ttft_s"),
            tpot=_latency(record, "results_inter_token_latency_s"),
            e2e=_latency(record, "results_end_to_end_latency_s"),
            tpot_definition="includes_ttft",
            input_tokens=record.amount("results_number_input_tokens_mean", "mean_input_tokens"),
            output_tokens=record.amount("results_number_output_tokens_mean", "mean_output_tokens"),
            request_throughput_per_s=None if per_minute is None else per_minute / 60.0,
            output_tokens_per_s=record.amount("results_mean_output_throughput_token_per_s"),
            completed=record.count("results_num_completed_requests"),
            failed=record.count("results_number_errors"),
            model=record.text("model"),
        )
        return [point]


def _latency(record: Record, head: str) -> Latency | None:
    percentiles = {}
    for key in record.values:
        level = percentile_of(key.removeprefix(f"{head}_quantiles_")) if key.startswith(f"{head}_quantiles_") else None
        value = None if level is None else record.amount(key)
        if level is not None and value is not None:
            percentiles[level] = value
    return latency_s(
        1.0, mean=record.amount(f"{head}_mean"), std=record.amount(f"{head}_stddev"), percentiles=percentiles
    )
