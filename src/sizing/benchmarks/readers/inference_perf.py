"""inference-perf lifecycle reports: ``stage_N_lifecycle_metrics.json``, ``summary_...`` and the like.

Times are in seconds. Builds of 2025 divide by about twice the output tokens, so that their
``time_per_output_token`` is half the real one: it is recognised by its ratio to the one from the means.
"""

import re
from collections.abc import Sequence
from typing import ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, Load, TpotDefinition, load_of
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.record import Record

HALVED_RATIO = (1.6, 2.4)  # 42 published stages recompute to 1.84-2.13 times the reported value
SAME_RATIO = (0.85, 1.15)


@READERS.register("inference-perf")
class InferencePerf:
    """Lifecycle metrics of a stage or of a whole run."""

    title: ClassVar[str] = "inference-perf lifecycle metrics"
    rank: ClassVar[int] = 10
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """``load_summary`` beside ``successes``."""
        found = document.mapping
        return isinstance(found.get("successes"), dict) and "load_summary" in found

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One point a stage; a whole-run summary and Prometheus averages are refused."""
        report = Record(document.name, document.mapping)
        successes, load = report.part("successes"), report.part("load_summary")
        if not successes.has("latency"):
            return [_prometheus(document, successes)]
        latency, rates = successes.part("latency"), successes.part("throughput")
        delay = load.part("schedule_delay")
        point = BenchPoint(
            format="inference-perf",
            source=document.name,
            sha256=document.sha256,
            index=_stage(document.name),
            load=_load(load),
            ttft=latency.part("time_to_first_token").latency(1.0),
            tpot=latency.part("time_per_output_token").latency(1.0),
            itl=latency.part("inter_token_latency").latency(1.0),
            e2e=latency.part("request_latency").latency(1.0),
            tpot_definition=_definition(successes),
            input_tokens=successes.part("prompt_len").amount("mean"),
            output_tokens=successes.part("output_len").amount("mean"),
            schedule_delay_p99_s=delay.number("p99"),
            request_throughput_per_s=rates.amount("requests_per_sec"),
            output_tokens_per_s=rates.amount("output_tokens_per_sec"),
            input_tokens_per_s=rates.amount("input_tokens_per_sec"),
            completed=successes.count("count"),
            failed=report.part("failures").count("count"),
            duration_s=load.amount("send_duration"),
        )
        if point.load.kind == "offline" and not load.has("requested_rate"):
            return [point.refused("the summary of a whole run mixes its stages: read the stage files")]
        return [point]


def _load(load: Record) -> Load:
    concurrency = load.rate("concurrency", "concurrency_level")
    rate = None if concurrency is not None else load.rate("requested_rate")
    return load_of(concurrency, rate, achieved_rate_per_s=load.amount("achieved_rate"))


def _definition(successes: Record) -> TpotDefinition:
    """What this build's TPOT means, from its ratio to (end-to-end - TTFT) / (output tokens - 1)."""
    latency = successes.part("latency")
    given = latency.part("time_per_output_token").amount("mean")
    e2e = latency.part("request_latency").amount("mean")
    ttft = latency.part("time_to_first_token").amount("mean")
    tokens = successes.part("output_len").amount("mean")
    if not given:
        return "absent"
    if e2e is None or ttft is None or tokens is None or tokens < 2.0:
        return "per_gap"
    ratio = (e2e - ttft) / (tokens - 1.0) / given
    if HALVED_RATIO[0] < ratio < HALVED_RATIO[1]:
        return "halved"
    return "after_first_token" if SAME_RATIO[0] < ratio < SAME_RATIO[1] else "per_gap"


def _prometheus(document: Document, successes: Record) -> BenchPoint:
    """Averages that the server exported over the whole run; kept, but never scored."""
    point = BenchPoint(
        format="inference-perf",
        source=document.name,
        sha256=document.sha256,
        index=_stage(document.name),
        load=Load(kind="offline"),
        ttft=successes.part("time_to_first_token").latency(1.0),
        e2e=successes.part("request_latency").latency(1.0),
        request_throughput_per_s=successes.amount("rate"),
        completed=successes.count("count"),
    )
    return point.refused("server-side Prometheus averages do not belong to one stage: read the lifecycle file")


def _stage(name: str) -> int:
    found = re.search(r"stage_?(\d+)", name)
    return int(found[1]) if found else 0
