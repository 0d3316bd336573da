"""``vllm bench latency --output-json``: seconds of a whole batch; the batch and lengths are not recorded."""

from collections.abc import Sequence
from typing import ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, Load
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.record import Record, latency_s


@READERS.register("vllm-latency")
class VllmLatency:
    """Result of ``vllm bench latency``."""

    title: ClassVar[str] = "vllm bench latency"
    rank: ClassVar[int] = 10
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """``avg_latency`` with a mapping of percentiles."""
        return "avg_latency" in document.mapping and isinstance(document.mapping.get("percentiles"), dict)

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One static point: the end-to-end time of the batch."""
        record = Record(document.name, document.mapping)
        levels = record.part("percentiles")
        percentiles = {float(key): levels.amount(key) or 0.0 for key in levels.values if key.isdigit()}
        runs = document.mapping.get("latencies")
        point = BenchPoint(
            format="vllm-latency",
            source=document.name,
            sha256=document.sha256,
            load=Load(kind="static"),
            e2e=latency_s(1.0, mean=record.amount("avg_latency"), percentiles=percentiles),
            completed=len(runs) if isinstance(runs, list) else None,
            model=record.text("model_id"),
            engine="vllm",
        )
        return [point.warned("batch, input and output tokens are not recorded: give them by option")]
