"""Export of points as llm-d benchmark reports 0.2.1, the one schema that carries hardware and layout."""

from collections.abc import Sequence
from typing import Any

from sizing.benchmarks.point import BenchPoint, Latency

SCHEMA_VERSION = "0.2.1"


def llmd_report(point: BenchPoint) -> dict[str, Any]:
    """One point as an llm-d benchmark report 0.2.1, ready for JSON or YAML.

    Parameters
    ----------
    point
        A checked point; its TPOT is exported in this project's sense, whatever the file's was.
    """
    return {
        "version": SCHEMA_VERSION,
        "run": _without_none(
            {
                "uid": f"{point.sha256[:24]}-{point.index}",
                "description": f"converted from {point.format} ({point.source})",
                "keywords": [
                    *(f"warning: {w}" for w in point.warnings),
                    *(f"refused: {r}" for r in point.refusals),
                ],
                "time": _without_none({"duration": None if point.duration_s is None else f"PT{point.duration_s}S"}),
            }
        ),
        "scenario": {"stack": [_component(point)], "load": _load(point)},
        "results": {"request_performance": {"aggregate": _aggregate(point)}},
    }


def llmd_text(points: Sequence[BenchPoint]) -> str:
    """Reports of several points as one YAML stream, a document each."""
    import yaml

    text: str = yaml.safe_dump_all([llmd_report(point) for point in points], sort_keys=False)
    return text


def _component(point: BenchPoint) -> dict[str, Any]:
    layout = {axis: getattr(point, axis) for axis in ("tp", "pp", "ep", "dp")}
    replicas = point.replicas or 1
    return {
        "metadata": {"schema_version": "0.0.1", "label": "engine-0", "cfg_id": point.sha256[:32]},
        "standardized": _without_none(
            {
                "kind": "inference_engine",
                "tool": point.engine or "unknown",
                "tool_version": point.engine_version or "unknown",
                "role": "decode" if point.disaggregated else "aggregate",
                "replicas": replicas,
                "model": {"name": point.model or "unknown"},
                "accelerator": _without_none(
                    {
                        "model": point.gpu or "unknown",
                        "count": _gpus_each(point, replicas),
                        "parallelism": _without_none(layout),
                    }
                ),
            }
        ),
        "native": {"args": {}, "envars": {}},
    }


def _gpus_each(point: BenchPoint, replicas: int) -> int | None:
    if point.gpus is not None:
        return max(point.gpus // replicas, 1)
    return None if point.tp is None else point.tp * (point.pp or 1)


def _load(point: BenchPoint) -> dict[str, Any]:
    distribution = "fixed" if point.length_range == 1.0 else "other"
    lengths = {"input_seq_len": point.input_tokens, "output_seq_len": point.output_tokens}
    return {
        "metadata": {"schema_version": "0.0.1", "cfg_id": point.sha256[:32]},
        "standardized": _without_none(
            {
                "tool": point.format,
                "tool_version": point.format_version or "unknown",
                "source": "unknown",
                "stage": point.index,
                "concurrency": point.load.concurrency,
                "rate_qps": point.load.request_rate_per_s,
                **{k: {"distribution": distribution, "value": v} for k, v in lengths.items() if v is not None},
            }
        ),
        "native": {"args": {}},
    }


def _aggregate(point: BenchPoint) -> dict[str, Any]:
    tpot = point.tpot if point.tpot_s is not None and point.tpot and point.tpot.centre[0] == point.tpot_s else None
    if tpot is None and point.tpot_s is not None:
        tpot = Latency(mean_s=point.tpot_s)
    latencies = {
        "time_to_first_token": _latency(point.ttft, "s"),
        "time_per_output_token": _latency(tpot, "s/token"),
        "inter_token_latency": _latency(point.itl, "s/token"),
        "request_latency": _latency(point.e2e, "s"),
    }
    total = None if point.completed is None else point.completed + (point.failed or 0)
    return {
        "latency": _without_none(latencies),
        "requests": _without_none(
            {
                "total": total,
                "failures": point.failed,
                "input_length": _mean(point.input_tokens, "count"),
                "output_length": _mean(point.output_tokens, "count"),
            }
        ),
        "throughput": _without_none(
            {
                "request_rate": _mean(point.request_throughput_per_s, "queries/s"),
                "output_token_rate": _mean(point.output_tokens_per_s, "tokens/s"),
                "input_token_rate": _mean(point.input_tokens_per_s, "tokens/s"),
            }
        ),
    }


def _latency(latency: Latency | None, units: str) -> dict[str, Any] | None:
    if latency is None:
        return None
    levels = {f"p{level:g}".replace(".", "p"): value for level, value in latency.percentiles_s.items()}
    return {"units": units, **_without_none({"mean": latency.mean_s, "stddev": latency.std_s}), **levels}


def _mean(value: float | None, units: str) -> dict[str, Any] | None:
    return None if value is None else {"units": units, "mean": value}


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
