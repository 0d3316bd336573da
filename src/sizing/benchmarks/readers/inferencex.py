"""InferenceX results: aggregated ``agg_*.json`` and the flat experimental files; seconds in both.

Lengths are drawn uniformly from 0.8 to 1 of the nominal ones; rates are per GPU; ``dp_attention`` is text;
``*_intvty`` is 1 / TPOT and its spread means nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, load_of
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.readers.vllm_serve import mean_length
from sizing.benchmarks.record import Record, flat_latency
from sizing.errors import InputError

LENGTH_RANGE = 0.8
MEAN_SHARE = (1.0 + LENGTH_RANGE) / 2.0


@READERS.register("inferencex")
class Inferencex:
    """Aggregated result of one configuration (or a list of them)."""

    title: ClassVar[str] = "InferenceX agg_*.json"
    rank: ClassVar[int] = 5
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """Rates per GPU beside ``hw`` or ``framework``."""
        first = document.mappings[0] if document.mappings else {}
        return "tput_per_gpu" in first and ("hw" in first or "framework" in first)

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One point a mapping."""
        return [_point(document, values, n) for n, values in enumerate(document.mappings)]


@READERS.register("inferencex-experimental")
class InferencexExperimental:
    """Flat result of the experimental runs: vLLM's keys without their unit, in seconds."""

    title: ClassVar[str] = "InferenceX experimental result"
    rank: ClassVar[int] = 15
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """``median_ttft`` without a unit beside a request throughput."""
        found = document.mapping
        return "median_ttft" in found and "request_throughput" in found and "total_output_tokens" in found

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One point."""
        record = Record(document.name, document.mapping)
        completed = record.count("completed")
        point = BenchPoint(
            format="inferencex-experimental",
            source=document.name,
            sha256=document.sha256,
            load=load_of(record.rate("max_concurrency"), record.rate("request_rate")),
            input_tokens=mean_length(record.amount("total_input_tokens"), completed),
            output_tokens=mean_length(record.amount("total_output_tokens"), completed),
            request_throughput_per_s=record.amount("request_throughput"),
            output_tokens_per_s=record.amount("output_throughput"),
            input_tokens_per_s=record.amount("input_throughput"),
            completed=completed,
            duration_s=record.amount("duration"),
            model=record.text("model_id"),
            **_latencies(record),
        )
        return [point]


def _latencies(record: Record) -> dict[str, Any]:
    tpot = flat_latency(record, "tpot", 1.0)
    return {
        "ttft": flat_latency(record, "ttft", 1.0),
        "tpot": tpot,
        "itl": flat_latency(record, "itl", 1.0),
        "e2e": flat_latency(record, "e2el", 1.0),
        "tpot_definition": "after_first_token" if tpot else "absent",
    }


def _point(document: Document, values: Mapping[str, Any], index: int) -> BenchPoint:
    record = Record(f"{document.name}: result {index}", values)
    scenario = record.text("scenario_type")
    if scenario and "agentic" in scenario:
        raise InputError(f"{record.where}: scenario_type is {scenario!r}; only runs with isl and osl are read")
    isl, osl = record.amount("isl"), record.amount("osl")
    gpus, output_gpus = _gpus(record)
    output_rate, input_rate = record.amount("output_tput_per_gpu"), record.amount("input_tput_per_gpu")
    point = BenchPoint(
        format="inferencex",
        source=document.name,
        sha256=document.sha256,
        index=index,
        load=load_of(record.rate("conc"), None),
        input_tokens=None if isl is None else isl * MEAN_SHARE,
        output_tokens=None if osl is None else osl * MEAN_SHARE,
        length_range=LENGTH_RANGE,
        output_tokens_per_s=output_rate * output_gpus if output_rate is not None and output_gpus else None,
        input_tokens_per_s=input_rate * gpus if input_rate is not None and gpus and gpus == output_gpus else None,
        model=record.text("model"),
        engine=record.text("framework"),
        engine_version=record.text("image"),
        gpu=record.text("hw"),
        gpus=gpus,
        tp=record.count("tp", "decode_tp"),
        pp=record.count("pp"),
        ep=record.count("ep", "decode_ep"),
        weights=record.text("precision"),
        disaggregated=values.get("disagg") in (True, "true"),
        **_latencies(record),
    )
    notes = [f"lengths are uniform from {LENGTH_RANGE:g} to 1 of nominal: their means are used"]
    if (record.text("spec_decoding") or "none") != "none":
        notes.append(f"speculative decoding: {record.text('spec_decoding')}")
    return point.warned(*notes)


def _gpus(record: Record) -> tuple[int | None, int | None]:
    """All GPUs, and those that output rates are divided by (the decode side of a split deployment)."""
    prefill = record.count("num_prefill_gpu", "prefill_gpus")
    decode = record.count("num_decode_gpu", "decode_gpus")
    if record.values.get("disagg") in (True, "true") and decode:
        return (prefill or 0) + decode, decode
    tp, pp = record.count("tp"), record.count("pp") or 1
    return (tp * pp, tp * pp) if tp else (None, None)
