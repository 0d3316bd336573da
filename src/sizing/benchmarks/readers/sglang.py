"""SGLang ``bench_serving``: JSON lines, a literal ``Infinity``, no model unless the server answered."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, load_of
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.readers.vllm_serve import mean_length
from sizing.benchmarks.record import Record, flat_latency

MS = 1e-3


@READERS.register("sglang")
class SglangServing:
    """Lines that ``sglang.bench_serving --output-file`` appends."""

    title: ClassVar[str] = "SGLang bench_serving"
    rank: ClassVar[int] = 10
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """SGLang's own name for end-to-end latency."""
        found = document.mappings
        return bool(found) and ("mean_e2e_latency_ms" in found[0] or "median_e2e_latency_ms" in found[0])

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One point a line."""
        return [_point(document, values, n) for n, values in enumerate(document.mappings)]


def _point(document: Document, values: Mapping[str, Any], index: int) -> BenchPoint:
    record = Record(f"{document.name}, line {index + 1}", values)
    server = values.get("server_info")
    info = Record(f"{record.where}: server_info", server if isinstance(server, Mapping) else {})
    completed = record.count("completed")
    point = BenchPoint(
        format="sglang",
        source=document.name,
        sha256=document.sha256,
        index=index,
        load=load_of(record.rate("max_concurrency"), record.rate("request_rate")),
        ttft=flat_latency(record, "ttft_ms", MS),
        tpot=flat_latency(record, "tpot_ms", MS),
        itl=flat_latency(record, "itl_ms", MS),
        e2e=flat_latency(record, "e2e_latency_ms", MS),
        tpot_definition="after_first_token" if "mean_tpot_ms" in values else "absent",
        input_tokens=mean_length(record.amount("total_input_tokens"), completed),
        output_tokens=mean_length(record.amount("total_output_tokens"), completed),
        length_range=_length_range(record),
        request_throughput_per_s=record.amount("request_throughput"),
        output_tokens_per_s=record.amount("output_throughput"),
        input_tokens_per_s=record.amount("input_throughput"),
        completed=completed,
        duration_s=record.amount("duration"),
        model=info.text("model_path", "served_model_name"),
        engine="sglang",
        engine_version=info.text("version"),
        tp=info.count("tp_size"),
        pp=info.count("pp_size"),
        ep=info.count("ep_size"),
        dp=info.count("dp_size"),
    )
    return point.warned(*_token_warnings(record))


def _length_range(record: Record) -> float | None:
    """Random lengths are drawn from [ratio x nominal, nominal]; a ratio of 0 reaches down to one token."""
    if not (record.text("dataset_name") or "").startswith("random"):
        return None
    return record.amount("random_range_ratio")


def _token_warnings(record: Record) -> list[str]:
    told, counted = record.amount("total_output_tokens"), record.amount("total_output_tokens_retokenized")
    if told and counted and abs(counted / told - 1.0) > 0.1:
        return [f"output tokens: {told:g} by the server (used), {counted:g} by the client's tokenizer"]
    return []
