"""``vllm bench sweep``: ``summary.json`` (a list of results) or ``summary.csv`` (a row a result).

The folder of a sweep is read through its ``run=N.json`` files, each a ``vllm bench serve`` result.
"""

import csv
import io
from collections.abc import Sequence
from typing import ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.readers.vllm_serve import is_vllm, vllm_point


@READERS.register("vllm-sweep")
class VllmSweep:
    """Summary of ``vllm bench sweep serve``."""

    title: ClassVar[str] = "vllm bench sweep (summary.json, summary.csv or its folder)"
    rank: ClassVar[int] = 10
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """A list of serving results with ``run_number``, or such a table."""
        rows = document.mappings or _rows(document)
        return bool(rows) and "run_number" in rows[0] and is_vllm(rows[0])

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One point a row."""
        rows = document.mappings or _rows(document)
        return [vllm_point(document, row, n, "vllm-sweep") for n, row in enumerate(rows)]


def _rows(document: Document) -> list[dict[str, str | None]]:
    text = document.text
    head = (text or "").split("\n", 1)[0]
    if text is None or "_ttft_ms" not in head or "," not in head:
        return []
    return [{k: v or None for k, v in row.items() if k is not None} for row in csv.DictReader(io.StringIO(text))]
