"""llm-d benchmark report 0.1, 0.2 and 0.2.1 (YAML or JSON): the one schema that carries the hardware too."""

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, Load, TpotDefinition, load_of
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.record import Record
from sizing.errors import InputError


@READERS.register("llmd")
class LlmdReport:
    """llm-d benchmark report."""

    title: ClassVar[str] = "llm-d benchmark report (0.1, 0.2, 0.2.1)"
    rank: ClassVar[int] = 10
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """``scenario`` with ``results`` or ``metrics``."""
        found = document.mapping
        return "scenario" in found and ("results" in found or "metrics" in found) and "version" in found

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One point."""
        report = Record(document.name, document.mapping)
        version = str(document.mapping["version"])
        if version.startswith("0.1"):
            return [_point_v01(document, report, version)]
        if version.startswith("0.2"):
            return [_point_v02(document, report, version)]
        raise InputError(f"{document.name}: version is {version!r}; read are 0.1, 0.2 and 0.2.1")


def _point_v02(document: Document, report: Record, version: str) -> BenchPoint:
    measured = report.part("results", "request_performance", "aggregate")
    requests, rates = measured.part("requests"), measured.part("throughput")
    load = report.part("scenario", "load", "standardized")
    return BenchPoint(
        format="llmd",
        format_version=version,
        source=document.name,
        sha256=document.sha256,
        index=load.count("stage") or 0,
        load=_load(load),
        input_tokens=requests.part("input_length").amount("mean") or load.part("input_seq_len").amount("value"),
        output_tokens=requests.part("output_length").amount("mean") or load.part("output_seq_len").amount("value"),
        request_throughput_per_s=rates.part("request_rate").amount("mean"),
        output_tokens_per_s=rates.part("output_token_rate").amount("mean"),
        input_tokens_per_s=rates.part("input_token_rate").amount("mean"),
        completed=_completed(requests),
        failed=requests.count("failures"),
        duration_s=_iso_seconds(report.part("run", "time").text("duration")),
        **_latencies(measured.part("latency")),
        **_stack(report),
    )


def _point_v01(document: Document, report: Record, version: str) -> BenchPoint:
    metrics, scenario = report.part("metrics"), report.part("scenario")
    requests, rates = metrics.part("requests"), metrics.part("throughput")
    arguments = scenario.part("load", "args")
    return BenchPoint(
        format="llmd",
        format_version=version,
        source=document.name,
        sha256=document.sha256,
        load=load_of(arguments.rate("concurrency", "max_concurrency"), arguments.rate("qps_values", "request_rate")),
        input_tokens=requests.part("input_length").amount("mean"),
        output_tokens=requests.part("output_length").amount("mean"),
        request_throughput_per_s=rates.amount("requests_per_sec"),
        output_tokens_per_s=rates.amount("output_tokens_per_sec"),
        input_tokens_per_s=rates.amount("input_tokens_per_sec"),
        completed=_completed(requests),
        failed=requests.count("failures"),
        duration_s=metrics.part("time").amount("duration"),
        model=scenario.part("model").text("name"),
        weights=scenario.part("model").text("quantization"),
        **_latencies(metrics.part("latency")),
        **_host(scenario),
    )


def _latencies(latency: Record) -> dict[str, Any]:
    parts = {
        "ttft": latency.part("time_to_first_token"),
        "tpot": latency.part("time_per_output_token"),
        "itl": latency.part("inter_token_latency"),
        "e2e": latency.part("request_latency"),
    }
    found: dict[str, Any] = {name: part.latency() for name, part in parts.items()}
    definition: TpotDefinition = "after_first_token" if found["tpot"] else "absent"
    return {**found, "tpot_definition": definition}


def _load(load: Record) -> Load:
    rate = load.rate("rate_qps")
    return load_of(load.rate("concurrency"), rate)


def _completed(requests: Record) -> int | None:
    total = requests.count("total")
    return None if total is None else total - (requests.count("failures") or 0) - (requests.count("incomplete") or 0)


def _stack(report: Record) -> dict[str, Any]:
    """Deployment from the inference engines of the stack: the decode side stands for both when split."""
    engines = [
        Record(part.where, part.values.get("standardized", {}))
        for part in report.part("scenario").items("stack")
        if (part.values.get("standardized") or {}).get("kind") == "inference_engine"
    ]
    if not engines:
        return {}
    roles = {engine.text("role") for engine in engines}
    chosen = next((e for e in engines if e.text("role") in ("decode", "aggregate", "replica")), engines[0])
    accelerator = chosen.part("accelerator")
    layout = accelerator.part("parallelism")
    counts = [(e.part("accelerator").count("count") or 1) * (e.count("replicas") or 1) for e in engines]
    return {
        "model": chosen.part("model").text("name"),
        "engine": chosen.text("tool"),
        "engine_version": chosen.text("tool_version"),
        "gpu": accelerator.text("model"),
        "gpus": sum(counts),
        "replicas": chosen.count("replicas"),
        "disaggregated": {"prefill", "decode"} <= roles,
        **{axis: layout.count(axis) for axis in ("tp", "pp", "ep", "dp")},
    }


def _host(scenario: Record) -> dict[str, Any]:
    """Version 0.1: parallel lists of accelerators, roles and engines."""
    accelerators = scenario.part("host").items("accelerator")
    if not accelerators:
        return {}
    held = scenario.part("host").values.get("type")
    roles = held if isinstance(held, list) else [held] * len(accelerators)
    place = next((n for n, role in enumerate(roles) if role in ("replica", "decode")), 0)
    chosen = accelerators[min(place, len(accelerators) - 1)]
    engines = scenario.part("platform").items("engine")
    engine = engines[place] if place < len(engines) else None
    return {
        "gpu": chosen.text("model"),
        "gpus": sum(a.count("count") or 1 for a in accelerators),
        "disaggregated": "prefill" in roles and "decode" in roles,
        "engine": engine.text("name") if engine else None,
        "engine_version": engine.text("version") if engine else None,
        **{axis: chosen.part("parallelism").count(axis) for axis in ("tp", "pp", "ep", "dp")},
    }


def _iso_seconds(text: str | None) -> float | None:
    """Seconds of an ISO 8601 duration such as ``PT49.97S`` or ``PT1H2M3S``."""
    found = re.fullmatch(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?", text or "")
    if not found or not any(found.groups()):
        return None
    hours, minutes, seconds = (float(part or 0.0) for part in found.groups())
    return hours * 3600.0 + minutes * 60.0 + seconds
