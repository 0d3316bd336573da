"""``vllm bench throughput --output-json``: offline; ``tokens_per_second`` counts input and output."""

from collections.abc import Sequence
from typing import ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, Load
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.record import Record


@READERS.register("vllm-throughput")
class VllmThroughput:
    """Result of ``vllm bench throughput``."""

    title: ClassVar[str] = "vllm bench throughput"
    rank: ClassVar[int] = 10
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """``tokens_per_second`` beside ``total_num_tokens``."""
        return {"tokens_per_second", "total_num_tokens", "requests_per_second"} <= set(document.mapping)

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One offline point."""
        record = Record(document.name, document.mapping)
        point = BenchPoint(
            format="vllm-throughput",
            source=document.name,
            sha256=document.sha256,
            load=Load(kind="offline"),
            request_throughput_per_s=record.amount("requests_per_second"),
            completed=record.count("num_requests"),
            duration_s=record.amount("elapsed_time"),
            model=record.text("model_id"),
            engine="vllm",
        )
        return [point.warned("tokens_per_second counts input and output together: give both lengths by option")]
