"""Small result files of each tool's schema, with numbers of our own.

One imaginary run stands in all of them: 16 requests in flight, 512 input and 128 output tokens, TTFT 60 ms,
TPOT 10 ms, so end-to-end 60 + 127 x 10 = 1,330 ms; 12 requests/s, 1,536 output tokens/s.
"""

import io
import json

import numpy as np

TTFT_S, TPOT_S, E2E_S = 0.060, 0.010, 1.330
ISL, OSL, CONCURRENCY, COMPLETED = 512, 128, 16, 160
RATE_PER_S = 12.0


def _statistics(name: str, mean: float) -> dict[str, float]:
    return {
        f"mean_{name}": mean,
        f"median_{name}": mean,
        f"std_{name}": mean / 10,
        f"p90_{name}": mean * 1.2,
        f"p99_{name}": mean * 1.5,
    }


def vllm_serve(**changes: object) -> dict[str, object]:
    found: dict[str, object] = {
        "date": "20260101-000000",
        "backend": "vllm",
        "model_id": "example/model-8b",
        "tokenizer_id": "example/model-8b",
        "num_prompts": COMPLETED,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": CONCURRENCY,
        "duration": COMPLETED / RATE_PER_S,
        "completed": COMPLETED,
        "failed": 0,
        "total_input_tokens": ISL * COMPLETED,
        "total_output_tokens": OSL * COMPLETED,
        "request_throughput": RATE_PER_S,
        "output_throughput": RATE_PER_S * OSL,
        "total_token_throughput": RATE_PER_S * (OSL + ISL),
        **_statistics("ttft_ms", TTFT_S * 1e3),
        **_statistics("tpot_ms", TPOT_S * 1e3),
        **_statistics("itl_ms", TPOT_S * 1e3),
        **_statistics("e2el_ms", E2E_S * 1e3),
    }
    found.update(changes)
    return {key: value for key, value in found.items() if value is not ...}


def sglang(**changes: object) -> dict[str, object]:
    found: dict[str, object] = {
        "backend": "sglang",
        "dataset_name": "random",
        "request_rate": float("inf"),
        "max_concurrency": CONCURRENCY,
        "random_input_len": ISL,
        "random_output_len": OSL,
        "random_range_ratio": 1.0,
        "server_info": {"model_path": "example/model-8b", "tp_size": 2, "version": "0.5.23"},
        "duration": COMPLETED / RATE_PER_S,
        "completed": COMPLETED,
        "total_input_tokens": ISL * COMPLETED,
        "total_output_tokens": OSL * COMPLETED,
        "total_output_tokens_retokenized": OSL * COMPLETED,
        "request_throughput": RATE_PER_S,
        "input_throughput": RATE_PER_S * ISL,
        "output_throughput": RATE_PER_S * OSL,
        "total_throughput": RATE_PER_S * (ISL + OSL),
        **_statistics("e2e_latency_ms", E2E_S * 1e3),
        **_statistics("ttft_ms", TTFT_S * 1e3),
        **_statistics("tpot_ms", TPOT_S * 1e3),
        "concurrency": RATE_PER_S * E2E_S,
    }
    found.update(changes)
    return found


def _guidellm_metric(mean: float) -> dict[str, object]:
    kept = {
        "mean": mean,
        "median": mean,
        "std_dev": 0.0,
        "percentiles": {"p50": mean, "p99": mean * 1.5, "p999": mean * 2},
    }
    return {"successful": kept, "errored": {"mean": 0.0}, "total": kept}


def guidellm(schema: int = 2) -> dict[str, object]:
    metrics = {
        "request_totals": {"successful": COMPLETED, "errored": 0, "incomplete": 0, "total": COMPLETED},
        "requests_per_second": _guidellm_metric(RATE_PER_S),
        "request_latency": _guidellm_metric(E2E_S),
        "prompt_token_count": _guidellm_metric(ISL),
        "output_token_count": _guidellm_metric(OSL),
        "time_to_first_token_ms": _guidellm_metric(TTFT_S * 1e3),
        "time_per_output_token_ms": _guidellm_metric(E2E_S * 1e3 / OSL),
        "inter_token_latency_ms": _guidellm_metric(TPOT_S * 1e3),
        "output_tokens_per_second": _guidellm_metric(RATE_PER_S * OSL),
    }
    strategy = {"type_": "concurrent", "streams": CONCURRENCY, "max_concurrency": CONCURRENCY}
    if schema == 2:
        bench = {
            "config": {"strategy": strategy, "backend": {"model": "example/model-8b"}},
            "metrics": metrics,
        }
        return {
            "metadata": {"version": 2, "guidellm_version": "0.8.1"},
            "benchmarks": [{**bench, "duration": 13.3}],
        }
    bench = {"args": {"strategy": strategy}, "metrics": metrics, "duration": 13.3}
    return {
        "metadata": {"version": 1, "guidellm_version": "0.6.0"},
        "args": {"model": "example/model-8b"},
        "benchmarks": [bench],
    }


def aiperf(**changes: object) -> dict[str, object]:
    def metric(unit: str, mean: float) -> dict[str, object]:
        return {"unit": unit, "avg": mean, "p50": mean, "p99": mean * 1.5, "std": mean / 10}

    found: dict[str, object] = {
        "schema_version": "1.4",
        "aiperf_version": "0.13.0",
        "request_throughput": {"unit": "requests/sec", "avg": RATE_PER_S},
        "request_latency": metric("ms", E2E_S * 1e3),
        "request_count": {"unit": "requests", "avg": float(COMPLETED)},
        "time_to_first_token": metric("ms", TTFT_S * 1e3),
        "inter_token_latency": metric("ms", TPOT_S * 1e3),
        "inter_chunk_latency": metric("ms", TPOT_S * 1e3),
        "output_token_throughput": {"unit": "tokens/sec", "avg": RATE_PER_S * OSL},
        "output_sequence_length": metric("tokens", OSL),
        "input_sequence_length": metric("tokens", ISL),
        "benchmark_duration": {"unit": "sec", "avg": COMPLETED / RATE_PER_S},
        "input_config": {
            "models": {"items": [{"name": "example/model-8b"}]},
            "phases": [{"name": "profiling", "kind": "profiling", "type": "concurrency", "concurrency": CONCURRENCY}],
        },
    }
    found.update(changes)
    return {key: value for key, value in found.items() if value is not ...}


def genai_perf() -> dict[str, object]:
    config = {"model": ["example/model-8b"], "concurrency": CONCURRENCY}
    return aiperf(schema_version=..., aiperf_version=..., inter_chunk_latency=..., input_config=config)


def inference_perf(tpot_factor: float = 1.0, **load: object) -> dict[str, object]:
    def metric(mean: float) -> dict[str, float]:
        return {"mean": mean, "median": mean, "p99": mean * 1.5, "p99.9": mean * 2}

    return {
        "load_summary": {
            "count": COMPLETED,
            "schedule_delay": {"mean": 0.0001, "p99": 0.002},
            "requested_rate": RATE_PER_S,
            "achieved_rate": RATE_PER_S,
            **load,
        },
        "successes": {
            "count": COMPLETED,
            "latency": {
                "request_latency": metric(E2E_S),
                "time_to_first_token": metric(TTFT_S),
                "time_per_output_token": metric(TPOT_S * tpot_factor),
                "inter_token_latency": metric(TPOT_S * tpot_factor),
            },
            "throughput": {"requests_per_sec": RATE_PER_S, "output_tokens_per_sec": RATE_PER_S * OSL},
            "prompt_len": metric(ISL),
            "output_len": metric(OSL),
        },
        "failures": {"count": 0, "request_latency": None, "prompt_len": None},
    }


def llmperf() -> dict[str, object]:
    return {
        "version": "2023-08-31",
        "model": "example/model-8b",
        "num_concurrent_requests": CONCURRENCY,
        "results_inter_token_latency_s_quantiles_p50": E2E_S / OSL,
        "results_inter_token_latency_s_mean": E2E_S / OSL,
        "results_ttft_s_quantiles_p50": TTFT_S,
        "results_ttft_s_mean": TTFT_S,
        "results_end_to_end_latency_s_mean": E2E_S,
        "results_number_input_tokens_mean": str(ISL),
        "results_number_output_tokens_mean": float(OSL),
        "results_number_errors": 0,
        "results_mean_output_throughput_token_per_s": RATE_PER_S * OSL,
        "results_num_completed_requests": COMPLETED,
        "results_num_completed_requests_per_min": RATE_PER_S * 60,
    }


def mlperf(verdict: str = "VALID") -> str:
    return f"""================================================
MLPerf Results Summary
================================================
SUT name : PySUT
Scenario : Server
Mode     : PerformanceOnly
Completed samples per second    : {RATE_PER_S:.2f}
Completed tokens per second: {RATE_PER_S * OSL:.2f}
Result is : {verdict}

================================================
Additional Stats
================================================
Scheduled samples per second : {RATE_PER_S:.2f}
Mean latency (ns)                : {int(E2E_S * 1e9)}
50.00 percentile latency (ns)   : {int(E2E_S * 1e9)}

Completed tokens per second                 : {RATE_PER_S * OSL:.2f}
Mean First Token latency (ns)               : {int(TTFT_S * 1e9)}
99.00 percentile first token latency (ns)   : {int(TTFT_S * 1.5e9)}

Mean Time per Output Token (ns)                : {int(TPOT_S * 1e9)}
99.00 percentile time to output token (ns)   : {int(TPOT_S * 1.5e9)}

================================================
Test Parameters Used
================================================
samples_per_query : 1
target_qps : 12
"""


def inferencex(**changes: object) -> dict[str, object]:
    found: dict[str, object] = {
        "hw": "h200",
        "conc": CONCURRENCY,
        "model": "example/model-8b",
        "framework": "vllm",
        "precision": "fp8",
        "spec_decoding": "none",
        "disagg": False,
        "isl": ISL,
        "osl": OSL,
        "tp": 4,
        "pp": 1,
        "ep": 1,
        "dp_attention": "false",
        "tput_per_gpu": RATE_PER_S * (ISL + OSL) / 4,
        "output_tput_per_gpu": RATE_PER_S * OSL / 4,
        "input_tput_per_gpu": RATE_PER_S * ISL / 4,
        **_statistics("ttft", TTFT_S),
        **_statistics("tpot", TPOT_S),
        **_statistics("e2el", E2E_S),
    }
    found.update(changes)
    return found


def llmd(version: str = "0.2.1") -> dict[str, object]:
    def metric(mean: float, units: str) -> dict[str, object]:
        return {"units": units, "mean": mean, "p50": mean, "p99": mean * 1.5, "p99p9": mean * 2}

    latency = {
        "time_to_first_token": metric(TTFT_S * 1e3, "ms"),
        "time_per_output_token": metric(TPOT_S, "s/token"),
        "request_latency": metric(E2E_S, "s"),
    }
    if version == "0.1":
        return {
            "version": "0.1",
            "scenario": {
                "host": {
                    "type": ["replica"],
                    "accelerator": [{"model": "H200", "count": 4, "parallelism": {"tp": 4, "pp": 1, "ep": 1, "dp": 1}}],
                },
                "platform": {"engine": [{"name": "vllm", "version": "0.9.0"}]},
                "model": {"name": "example/model-8b"},
                "load": {"args": {"concurrency": CONCURRENCY}},
            },
            "metrics": {
                "time": {"duration": 13.3},
                "requests": {
                    "total": COMPLETED,
                    "failures": 0,
                    "input_length": metric(ISL, "count"),
                    "output_length": metric(OSL, "count"),
                },
                "latency": latency,
                "throughput": {"requests_per_sec": RATE_PER_S, "output_tokens_per_sec": RATE_PER_S * OSL},
            },
        }
    engine = {
        "kind": "inference_engine",
        "tool": "vllm",
        "tool_version": "0.32.0",
        "role": "aggregate",
        "replicas": 1,
        "model": {"name": "example/model-8b"},
        "accelerator": {"model": "H200", "count": 4, "parallelism": {"tp": 4, "pp": 1, "ep": 1, "dp": 1}},
    }
    return {
        "version": version,
        "run": {"uid": "0", "time": {"duration": "PT13.3S"}},
        "scenario": {
            "stack": [{"metadata": {"label": "vllm-0"}, "standardized": engine}],
            "load": {"standardized": {"concurrency": CONCURRENCY, "stage": 0}},
        },
        "results": {
            "request_performance": {
                "aggregate": {
                    "latency": latency,
                    "requests": {
                        "total": COMPLETED,
                        "failures": 0,
                        "input_length": metric(ISL, "count"),
                        "output_length": metric(OSL, "count"),
                    },
                    "throughput": {
                        "request_rate": {"units": "queries/s", "mean": RATE_PER_S},
                        "output_token_rate": {"units": "tokens/s", "mean": RATE_PER_S * OSL},
                    },
                }
            }
        },
    }


def dynamo_decode() -> dict[str, list[float]]:
    """Batches of 1 and 64 at context 1,000 in a cache of 100,000 tokens."""
    return {
        "x_kv_usage": [0.01, 0.64],
        "y_context_length": [1000.0, 1000.0],
        "z_itl": [8.0, 12.0],
        "z_thpt_per_gpu": [125.0, 5333.0],
        "max_kv_tokens": [100000],
    }


def npz(arrays: dict[str, list[float]]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **{name: np.asarray(values) for name, values in arrays.items()})
    return buffer.getvalue()


VLLM_BLOCK = f"""============ Serving Benchmark Result ============
Successful requests:                     {COMPLETED}
Failed requests:                         0
Maximum request concurrency:             {CONCURRENCY}
Benchmark duration (s):                  13.33
Total input tokens:                      {ISL * COMPLETED}
Total generated tokens:                  {OSL * COMPLETED}
Request throughput (req/s):              12.00
Output token throughput (tok/s):         1,536.00
Total token throughput (tok/s):          7680.00
---------------Time to First Token----------------
Mean TTFT (ms):                          60.00
Median TTFT (ms):                        58.00
P99 TTFT (ms):                           90.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          10.00
Median TPOT (ms):                        10.00
P99 TPOT (ms):                           15.00
---------------Inter-token Latency----------------
Mean ITL (ms):                           10.00
P99 ITL (ms):                            30.00
==================================================
"""
SGLANG_BLOCK = f"""============ Serving Benchmark Result ============
Backend:                                 sglang
Traffic request rate:                    inf
Max reqeuest concurrency:                {CONCURRENCY}
Successful requests:                     {COMPLETED}
Benchmark duration (s):                  13.33
Total input tokens:                      {ISL * COMPLETED}
Total generated tokens:                  {OSL * COMPLETED}
Request throughput (req/s):              12.00
Output token throughput (tok/s):         1536.00
Concurrency:                             15.96
----------------End-to-End Latency----------------
Mean E2E Latency (ms):                   1330.00
Median E2E Latency (ms):                 1330.00
---------------Time to First Token----------------
Mean TTFT (ms):                          60.00
P99 TTFT (ms):                           90.00
---------------Inter-Token Latency----------------
Mean ITL (ms):                           10.00
==================================================
"""


def text(value: object) -> str:
    return json.dumps(value)
