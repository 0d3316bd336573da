"""Closed-form TTFT and TPOT, mean, p95 and p99, beside the simulator's: the table of the percentiles page.

Run: python docs/scripts/percentile_errors.py [--shapes chat,rag] [--cv 1,2,3] [--utilisation 0.3,0.85]
     [--requests 60000] [--replications 8] [--keep FILE] [--held-out | --untouched] [--rows]

Utilisation is the request rate over the rate at which the replica saturates: the KV room, or the most sequences, full.
"""

import argparse
import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

import sizing
from sizing.batching import crossing
from sizing.prepared import prepare
from sizing.replica.percentile import curves_at, out_of_depth
from sizing.workload.arrivals import Gamma
from sizing.workload.shapes import shape

REPLICAS = (("Qwen/Qwen3-8B", 1, "h100-sxm"), ("Qwen/Qwen3-32B", 2, "h100-sxm"), ("Qwen/Qwen3-30B-A3B", 1, "h100-sxm"))
#: Replicas that the closed form was not made with; the bounds of its depth were set with these in view as well.
HELD_OUT = (
    ("meta-llama/Llama-3.1-8B-Instruct", 1, "l40s"), ("meta-llama/Llama-3.1-70B-Instruct", 4, "h200-sxm"),
    ("openai/gpt-oss-120b", 2, "h100-sxm"), ("google/gemma-2-9b-it", 1, "a100-80-sxm"),
    ("Qwen/Qwen3-14B", 1, "h100-sxm"), ("mistralai/Mistral-Small-24B-Instruct-2501", 1, "h200-sxm"),
    ("meta-llama/Llama-3.1-70B-Instruct", 2, "h200-sxm"), ("Qwen/Qwen3-30B-A3B", 2, "h100-sxm"),
)  # fmt: skip
#: Replicas that nothing was set with: the last four were simulated once the bounds stood.
UNTOUCHED = (
    ("meta-llama/Llama-3.1-8B-Instruct", 1, "h100-sxm"), ("Qwen/Qwen3-32B", 1, "h200-sxm"),
    ("openai/gpt-oss-20b", 1, "h100-sxm"), ("Qwen/Qwen2.5-14B-Instruct", 1, "a100-80-sxm"),
    ("Qwen/Qwen2.5-72B-Instruct", 4, "h100-sxm"), ("Qwen/Qwen3-4B", 1, "l40s"),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", 2, "h100-sxm"), ("google/gemma-3-27b-it", 1, "h200-sxm"),
)  # fmt: skip
FIGURES = tuple(f"{metric}_{at}" for metric in ("ttft", "tpot") for at in ("mean", "p95", "p99"))


def context_of(workload):
    """Context that takes every request, the model's own 40,960 tokens at least."""
    return max(int(workload.input_length.most + workload.output_length.most) + 1, 40_960)


def prepared(model, tp, gpu_id, workload):
    """The replica made ready, by measured constants."""
    gpu = sizing.gpu(gpu_id)
    deployment = sizing.Deployment(
        model=sizing.read_model(model), gpu=gpu, parallelism=sizing.Parallelism(tp=tp),
        settings=sizing.EngineSettings(memory_utilization=0.9, max_model_len=context_of(workload)),
    )  # fmt: skip
    return prepare(deployment, workload, sizing.load_calibration("measured", gpu=gpu), True)


def saturated_per_s(prediction):
    """Request rate at which the requests in flight fill the room."""
    return crossing(prediction.nominal[0], prediction.nominal[3], prediction.room.most)


def closed_form(prediction, workload):
    """Each figure at the workload's rate, and why it should not be relied on."""
    found, rate = {}, workload.request_rate_per_s
    for name, percentile in (("mean", None), ("p95", 95.0), ("p99", 99.0)):
        values = curves_at(prediction, workload, sizing.Slo(percentile=percentile))
        for metric, curve in zip(("ttft", "tpot"), values, strict=True):
            found[f"{metric}_{name}"] = float(np.interp(rate, prediction.nominal[0], curve))
    return found, out_of_depth(prediction, workload, rate)


def simulated(ready, workload, requests, replications):
    """Each figure by simulation, with half its 95 % interval."""
    replica = sizing.replica_model(ready.deployment, steps=ready.steps, memory=ready.memory)
    seen = sizing.simulate(workload, replica, requests=requests, replications=replications)
    return {name: (seen[f"{name}_s"].value, seen[f"{name}_s"].half_width) for name in FIGURES}


def rows(arguments):
    """One row a case: what it is, closed form, simulator, its half interval, caution."""
    kept = Path(arguments.keep) if arguments.keep else None
    known = json.loads(kept.read_text()) if kept and kept.exists() else {}
    numbers = [[float(x) for x in text.split(",")] for text in (arguments.cv, arguments.utilisation)]
    replicas = HELD_OUT if arguments.held_out else UNTOUCHED if arguments.untouched else REPLICAS
    for (model, tp, gpu), name in itertools.product(replicas, arguments.shapes.split(",")):
        for cv, utilisation in itertools.product(*numbers):
            workload = replace(shape(name), arrivals=Gamma(cv=cv))
            ready = prepared(model, tp, gpu, workload)
            workload = workload.at_rate(utilisation * saturated_per_s(ready.prediction))
            rate = workload.request_rate_per_s
            runs = f"{arguments.requests} {arguments.replications}"
            key = f"{model} {tp} {gpu} {name} {cv:g} {utilisation:g} {runs} {rate:.3g}"
            if key not in known:
                if ready.memory.kv_tokens < context_of(workload):
                    continue
                known[key] = simulated(ready, workload, arguments.requests, arguments.replications)
                print(key, file=sys.stderr)
                if kept:
                    kept.write_text(json.dumps(known))
            closed, caution = closed_form(ready.prediction, workload)
            yield {"model": model, "shape": name, "cv": cv, "utilisation": utilisation, "closed": closed,
                   "simulated": known[key], "caution": caution}  # fmt: skip


PERCENTILES = tuple(name for name in FIGURES if not name.endswith("mean"))


def off(row, name):
    """Closed form over simulator, less one."""
    return row["closed"][name] / row["simulated"][name][0] - 1.0


def detail(found):
    """One line a case."""
    for row in found:
        cells = [f"{off(row, n):+.0%} of {row['simulated'][n][0] * 1e3:.4g} ms" for n in FIGURES]
        yield " | ".join(
            [row["model"], row["shape"], f"{row['cv']:g}", f"{row['utilisation']:g}", *cells, row["caution"]]
        )


def summary(found):
    """One line a shape and CV: the cases that the closed form claims, its errors on them, and the others."""
    yield "| shape | CV | claimed | TTFT p95 | TTFT p99 | TPOT p95 | TPOT p99 | missed | false alarms |"
    yield "|---|---|---|---|---|---|---|---|---|"
    groups = [*dict.fromkeys((row["shape"], row["cv"]) for row in found), ("all", None)]
    for name, cv in groups:
        rows_of = [r for r in found if name == "all" or (r["shape"], r["cv"]) == (name, cv)]
        claimed = [r for r in rows_of if not r["caution"]]
        worst = [max(abs(off(r, n)) for n in PERCENTILES) for r in rows_of]
        missed = sum(w > 0.1 and not r["caution"] for w, r in zip(worst, rows_of, strict=True))
        alarms = sum(w <= 0.1 and bool(r["caution"]) for w, r in zip(worst, rows_of, strict=True))
        spans = [f"{min(e):+.0%} to {max(e):+.0%}" if (e := [off(r, n) for r in claimed]) else "-" for n in PERCENTILES]
        shown = ", ".join(sorted({f"{r['cv']:g}" for r in rows_of}))
        yield f"| {name} | {shown} | {len(claimed)} of {len(rows_of)} | {' | '.join(spans)} | {missed} | {alarms} |"


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="chat,reasoning,rag,summarisation,code,long-chat")
    parser.add_argument("--cv", default="1,2,3")
    parser.add_argument("--utilisation", default="0.3,0.5,0.7,0.85")
    parser.add_argument("--requests", type=int, default=60_000)
    parser.add_argument("--replications", type=int, default=8)
    parser.add_argument("--keep", help="file that simulated figures are kept in and read back from")
    parser.add_argument("--held-out", action="store_true", help="other replicas: L40S, A100, H100 and H200")
    parser.add_argument("--untouched", action="store_true", help="replicas that nothing was set with")
    parser.add_argument("--rows", action="store_true", help="every case, with the mean too")
    arguments = parser.parse_args()
    found = list(rows(arguments))
    for line in detail(found) if arguments.rows else summary(found):
        print(line)


if __name__ == "__main__":
    main()
