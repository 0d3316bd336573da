"""Table of serving runs in this project's own layout (``data/measured/``): one run a row, milliseconds.

``*_unspec_ms`` is a statistic that the source did not name; it is read as a mean. Lengths are nominal
unless ``isl_actual`` and ``osl_actual`` are given; ``len_dist`` says how they were drawn.
"""

import csv
import io
import re
from collections.abc import Sequence
from typing import ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, Latency, Load
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.record import Record, latency_s

COLUMNS = ("load_kind", "load_value", "ttft_mean_ms", "tpot_mean_ms", "isl", "osl")
UNIFORM = re.compile(r"uniform\[0\.8")


@READERS.register("serving-table")
class ServingTable:
    """Table of measured serving runs."""

    title: ClassVar[str] = "table of serving runs (this project's data/measured layout)"
    rank: ClassVar[int] = 10
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """The table's columns."""
        head = (document.text or "")[:4000].split("\n", 1)[0].strip().split(",")
        return set(COLUMNS) <= set(head)

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One point a row; rows of other loads than concurrency, rate and offline are left out."""
        rows = csv.DictReader(io.StringIO(document.text or ""))
        points = []
        for number, row in enumerate(rows):
            record = Record(f"{document.name}: row {number + 2}", row)
            load = _load(record)
            if load is not None:
                points.append(_point(document, record, load, number))
        return points


def _load(record: Record) -> Load | None:
    kind = record.text("load_kind")
    if kind == "offline":
        return Load(kind="offline")
    if kind == "concurrency":
        return Load(kind="closed", concurrency=record.rate("load_value"))
    if kind == "request_rate":
        burst = "burst" in (record.text("load_value") or "")
        rate = None if burst else record.rate("load_value")
        return Load(kind="open", request_rate_per_s=rate) if rate else Load(kind="offline")
    return None


def _point(document: Document, record: Record, load: Load, index: int) -> BenchPoint:
    nominal = record.amount("isl"), record.amount("osl")
    drawn = record.text("len_dist") or ""
    uniform = UNIFORM.match(drawn) is not None
    share = 0.9 if uniform else 1.0
    tpot = _latency(record, "tpot")
    spec = record.text("spec_decode")
    point = BenchPoint(
        format="serving-table",
        source=record.text("id") or document.name,
        sha256=document.sha256,
        index=index,
        load=load,
        ttft=_latency(record, "ttft"),
        tpot=tpot,
        itl=_latency(record, "itl"),
        tpot_definition="after_first_token" if tpot else "absent",
        input_tokens=record.amount("isl_actual") or _times(nominal[0], share),
        output_tokens=record.amount("osl_actual") or _times(nominal[1], share),
        length_range=0.8 if uniform else 1.0 if drawn == "fixed" else None,
        request_throughput_per_s=record.amount("req_per_s"),
        output_tokens_per_s=record.amount("output_tok_s"),
        completed=record.count("num_prompts"),
        model=record.text("model"),
        engine=record.text("engine"),
        engine_version=record.text("engine_version"),
        gpu=record.text("gpu"),
        gpus=record.count("num_gpus"),
        tp=record.count("tp"),
        pp=record.count("pp"),
        ep=record.count("ep"),
        dp=record.count("dp"),
        weights=record.text("weight_precision"),
        kv=record.text("kv_precision"),
        disaggregated=(record.text("deploy") or "agg").startswith("disagg"),
    )
    return point.warned(f"speculative decoding: {spec}") if spec not in (None, "none") else point


def _times(value: float | None, share: float) -> float | None:
    return None if value is None else value * share


def _latency(record: Record, name: str) -> Latency | None:
    levels = {
        level: value
        for level, key in ((50.0, "p50"), (95.0, "p95"), (99.0, "p99"))
        if (value := record.amount(f"{name}_{key}_ms")) is not None
    }
    return latency_s(1e-3, mean=record.amount(f"{name}_mean_ms", f"{name}_unspec_ms"), percentiles=levels)
