"""``vllm bench serve`` (and the older ``benchmark_serving.py``): flat JSON, or JSON lines when appended.

Scalars are in milliseconds, the arrays beside them (``ttfts``, ``latencies``, ...) in seconds. GPU and
parallelism are there only when the run was given ``--metadata key=value``, which merges text at top level.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, load_of
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.record import Record, flat_latency

MS = 1e-3


@READERS.register("vllm-serve")
class VllmServe:
    """Result of ``vllm bench serve --save-result``."""

    title: ClassVar[str] = "vllm bench serve"
    rank: ClassVar[int] = 20
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """Keys in ``_ttft_ms`` or ``_e2el_ms`` beside a throughput, and none of SGLang's."""
        found = document.mappings
        return bool(found) and is_vllm(found[0])

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One point a mapping."""
        return [vllm_point(document, values, n) for n, values in enumerate(document.mappings)]


def is_vllm(values: Mapping[str, Any]) -> bool:
    """Whether a flat mapping is of vLLM's serving benchmark."""
    latencies = any(key.endswith(("_ttft_ms", "_tpot_ms", "_e2el_ms")) for key in values)
    return latencies and "request_throughput" in values and "mean_e2e_latency_ms" not in values


def vllm_point(document: Document, values: Mapping[str, Any], index: int, kind: str = "vllm-serve") -> BenchPoint:
    """Point of one flat mapping."""
    record = Record(f"{document.name}: result {index}", values)
    completed = record.count("completed")
    return BenchPoint(
        format=kind,
        source=document.name,
        sha256=document.sha256,
        index=index,
        load=load_of(
            record.rate("max_concurrency"),
            record.rate("request_rate"),
            burstiness=record.amount("burstiness"),
        ),
        ttft=flat_latency(record, "ttft_ms", MS),
        tpot=flat_latency(record, "tpot_ms", MS),
        itl=flat_latency(record, "itl_ms", MS),
        e2e=flat_latency(record, "e2el_ms", MS),
        tpot_definition="after_first_token" if "mean_tpot_ms" in values or "median_tpot_ms" in values else "absent",
        input_tokens=mean_length(record.amount("total_input_tokens"), completed),
        output_tokens=mean_length(record.amount("total_output_tokens"), completed),
        length_range=_length_range(values.get("output_lens")),
        request_throughput_per_s=record.amount("request_throughput"),
        output_tokens_per_s=record.amount("output_throughput"),
        completed=completed,
        failed=record.count("failed"),
        duration_s=record.amount("duration"),
        **deployment_facts(record),
    )


def deployment_facts(record: Record) -> dict[str, Any]:
    """Deployment as flat metadata keys give it."""
    return {
        "model": record.text("model_id", "model"),
        "engine": record.text("engine", "backend", "endpoint_type"),
        "engine_version": record.text("engine_version", "vllm_version"),
        "gpu": record.text("gpu", "hw", "accelerator"),
        "gpus": record.count("gpus", "num_gpus"),
        "tp": record.count("tp", "tp_size", "tensor_parallel_size"),
        "pp": record.count("pp", "pp_size", "pipeline_parallel_size"),
        "dp": record.count("dp", "dp_size", "data_parallel_size"),
        "ep": record.count("ep", "ep_size"),
    }


def mean_length(tokens: float | None, requests: int | None) -> float | None:
    """Mean tokens per request; None when either is missing."""
    return tokens / requests if tokens is not None and requests else None


def _length_range(lengths: object) -> float | None:
    """Shortest over longest output, of the lengths that a detailed result lists."""
    if not isinstance(lengths, list):
        return None
    numbers = [n for n in lengths if isinstance(n, int) and n > 0]
    return min(numbers) / max(numbers) if len(numbers) > 1 else None
