"""The console block ``Serving Benchmark Result`` of vLLM and SGLang, as people paste it.

Quote marks, log prefixes and code fences around it are ignored; a command line above it gives the model,
the load and the layout when it names them.
"""

import re
from collections.abc import Sequence
from typing import ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, Latency, load_of
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.readers.vllm_serve import mean_length
from sizing.benchmarks.record import Record, latency_s, percentile_of

TITLE = re.compile(r"=+\s*Serving Benchmark Result\s*=+")
LINE = re.compile(r"([A-Z][A-Za-z0-9 .()/-]*?(?:\([^)]*\))?)\s*:\s+(\S[^\n]*?)\s*$")
OPTION = r"--{}[ =]+['\"]?([^\s'\"\\]+)"
NAMES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": r"E2E[LA]?(?: Latency)?"}


@READERS.register("pasted")
class PastedBlock:
    """Text with one or more console blocks."""

    title: ClassVar[str] = "pasted 'Serving Benchmark Result' block (vLLM, SGLang)"
    rank: ClassVar[int] = 30
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """The block's title line."""
        return bool(TITLE.search(document.text or ""))

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One point a block."""
        text = document.text or ""
        starts = [found.start() for found in TITLE.finditer(text)]
        points = []
        for index, start in enumerate(starts):
            end = starts[index + 1] if index + 1 < len(starts) else len(text)
            before = text[starts[index - 1] if index else 0 : start]
            points.append(_point(document, text[start:end], before, index))
        return points


def _point(document: Document, block: str, before: str, index: int) -> BenchPoint:
    values = _lines(block)
    record = Record(f"{document.name}: block {index + 1}", values)
    completed = record.count("successful requests")
    latencies = {name: _latency(record, pattern) for name, pattern in NAMES.items()}
    point = BenchPoint(
        format="pasted",
        source=document.name,
        sha256=document.sha256,
        index=index,
        load=load_of(
            record.rate("maximum request concurrency", "max request concurrency", "max reqeuest concurrency")
            or _option_number(before, "max-concurrency"),
            record.rate("request rate configured (rps)", "traffic request rate")
            or _option_number(before, "request-rate"),
        ),
        ttft=latencies["ttft"],
        tpot=latencies["tpot"],
        itl=latencies["itl"],
        e2e=latencies["e2e"],
        tpot_definition="after_first_token" if latencies["tpot"] else "absent",
        input_tokens=mean_length(record.amount("total input tokens"), completed),
        output_tokens=mean_length(record.amount("total generated tokens"), completed),
        request_throughput_per_s=record.amount("request throughput (req/s)"),
        output_tokens_per_s=record.amount("output token throughput (tok/s)"),
        completed=completed,
        failed=record.count("failed requests"),
        duration_s=record.amount("benchmark duration (s)"),
        model=_option(before, "model") or _option(before, "model-path"),
        engine=record.text("backend") or ("sglang" if "traffic request rate" in values else "vllm"),
        tp=_option_count(before, "tensor-parallel-size") or _option_count(before, "tp"),
    )
    if point.load.kind == "offline":
        point = point.warned("the block names neither a rate nor a concurrency: taken as all requests at once")
    return point


def _lines(block: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in block.splitlines():
        match = LINE.search(line.strip().strip("|>").strip())
        if match:
            found.setdefault(" ".join(match[1].split()).lower(), match[2].replace(",", ""))
    return found


def _latency(record: Record, pattern: str) -> Latency | None:
    percentiles: dict[float, float] = {}
    mean = std = None
    for key in record.values:
        match = re.fullmatch(rf"(mean|median|std|p[\d.]+) (?:{pattern}) \(ms\)", key, re.IGNORECASE)
        value = record.amount(key) if match else None
        if match is None or value is None:
            continue
        level = percentile_of(match[1].lower())
        if match[1].lower() == "mean":
            mean = value
        elif match[1].lower() == "std":
            std = value
        elif level is not None:
            percentiles[level] = value
    return latency_s(1e-3, mean=mean, std=std, percentiles=percentiles)


def _option(text: str, name: str) -> str | None:
    found = re.findall(OPTION.format(re.escape(name)), text)
    return found[-1] if found else None


def _option_number(text: str, name: str) -> float | None:
    value = _option(text, name)
    return float(value) if value and re.fullmatch(r"\d+(\.\d+)?", value) and float(value) > 0.0 else None


def _option_count(text: str, name: str) -> int | None:
    value = _option(text, name)
    return int(value) if value and value.isdigit() else None
