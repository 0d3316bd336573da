"""k6 end-of-test summary: a hint only (request rate and response time)."""

import re
from collections.abc import Sequence
from typing import ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, Load
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.record import Record, latency_s


@READERS.register("k6")
class K6:
    """``k6 run --summary-export`` or ``handleSummary`` (which nests under ``values``)."""

    title: ClassVar[str] = "k6 summary JSON (hint: rate and response time only)"
    rank: ClassVar[int] = 40
    hint_only: ClassVar[bool] = True

    def recognises(self, document: Document) -> bool:
        """``metrics.http_req_duration``."""
        metrics = document.mapping.get("metrics")
        return isinstance(metrics, dict) and "http_req_duration" in metrics

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One refused point."""
        metrics = Record(document.name, document.mapping).part("metrics")
        duration, requests = _values(metrics, "http_req_duration"), _values(metrics, "http_reqs")
        levels = {
            float(found[1]): duration.amount(key) or 0.0
            for key in duration.values
            if (found := re.fullmatch(r"p\(([\d.]+)\)", key))
        }
        median = duration.amount("med")
        if median is not None:
            levels[50.0] = median
        point = BenchPoint(
            format="k6",
            source=document.name,
            sha256=document.sha256,
            load=Load(kind="offline", concurrency=_values(metrics, "vus_max").amount("max", "value")),
            e2e=latency_s(1e-3, mean=duration.amount("avg"), percentiles=levels),
            request_throughput_per_s=requests.amount("rate"),
            completed=requests.count("count"),
        )
        return [point.refused("a hint only: response time of whole HTTP calls; no TTFT, TPOT or tokens")]


def _values(metrics: Record, name: str) -> Record:
    metric = metrics.part(name)
    return metric.part("values") if metric.has("values") else metric
