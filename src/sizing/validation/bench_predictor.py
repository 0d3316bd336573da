"""From a measured point to the deployment it ran on, and the prediction of what it should have shown."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sizing.architecture import Model, read_model
from sizing.benchmarks.point import BenchPoint
from sizing.calibration import Calibration
from sizing.catalog import gpu, resolve_gpu
from sizing.deployment import Deployment, EngineSettings, NumberFormats, Parallelism
from sizing.errors import InputError
from sizing.formats import weight_format
from sizing.validation.bench import Prediction, Predictor

if TYPE_CHECKING:
    from sizing.replica.run import Lengths, RunLoad
    from sizing.steptime import StepModel

OWN_FORMAT = ("native checkpoint", "checkpoint", "auto", "default", "none")
FOUR_BIT = {"fp4": "nvfp4", "awq-int4": "int4", "w4a16": "int4"}


def deployment_of(point: BenchPoint, *, settings: EngineSettings | None = None) -> Deployment:
    """Deployment that a point ran on; what the point does not say must have been filled in.

    Parameters
    ----------
    point
        With at least a model and a GPU; the engine defaults to vLLM, the layout to what ``gpus`` leaves.
    settings
        Engine settings; None takes the engine's defaults.
    """
    if point.model is None:
        raise InputError(f"{point.source}: the file does not say the model; give --model")
    if point.gpu is None:
        raise InputError(f"{point.source}: the file does not say the GPU; give --gpu")
    model = known_model(point.model)
    chosen = settings or EngineSettings(engine=engine_of(point), version=_version(point))
    return Deployment(
        model=model,
        gpu=gpu(resolve_gpu(point.gpu)[0]),
        parallelism=layout_of(point),
        formats=NumberFormats(weights=weights_of(point.weights, model), kv=point.kv or "auto"),
        settings=chosen,
    )


@lru_cache(maxsize=64)
def known_model(name: str) -> Model:
    """Model by name, remarks in brackets left out."""
    return read_model(re.sub(r"\s*\(.*?\)", "", name).strip())


def engine_of(point: BenchPoint) -> str:
    """Engine whose memory rules a point follows; vLLM when it names none."""
    from sizing.engines.timing import engine_timing

    return engine_timing(point.engine or "vllm").memory


def _version(point: BenchPoint) -> str | None:
    found = re.search(r"\d+\.\d+(?:\.\d+)?", point.engine_version or "")
    return found[0] if found else None


def layout_of(point: BenchPoint) -> Parallelism:
    """Layout of one replica: what the file says, TP over all GPUs of a replica where it does not."""
    replicas = point.replicas or 1
    pp, dp = point.pp or 1, point.dp or 1
    tp = point.tp or max((point.gpus or 1) // (replicas * pp * dp), 1)
    return Parallelism(tp=tp, pp=pp, dp=dp, ep=min(point.ep or 1, tp * dp))


def weights_of(text: str | None, model: Model) -> str | None:
    """Weight format as a benchmark names it; None is the checkpoint's own.

    Parameters
    ----------
    text
        ``fp8``, ``fp4``, ``bf16``, ``fp8 (native checkpoint)``, ...
    model
        A model whose checkpoint is quantised already keeps that format when the width is the same.
    """
    said = re.sub(r"\s*\(.*?\)", "", text or "").strip().lower()
    if not said or said in OWN_FORMAT:
        return None
    wanted = weight_format(FOUR_BIT.get(said, said))
    own = weight_format(model.checkpoint.name)
    return None if own.element_bits == wanted.element_bits else wanted.name


def lengths_of(point: BenchPoint) -> "Lengths":
    """Mean lengths of a point and their spread when they were drawn uniformly."""
    from sizing.replica.run import Lengths

    if point.input_tokens is None or point.output_tokens is None:
        raise InputError(f"{point.source}: the file does not say the lengths of requests; give --input and --output")
    low = 1.0 if point.length_range is None else point.length_range
    cv = (1.0 - low) / 12.0**0.5 / ((1.0 + low) / 2.0)
    tokens = max(point.input_tokens, 1.0), max(point.output_tokens, 1.0)
    return Lengths(input_tokens=tokens[0], output_tokens=tokens[1], input_cv=cv, output_cv=cv)


def load_of(point: BenchPoint) -> "RunLoad":
    """Load on one replica."""
    from sizing.replica.run import ClosedLoop, Offline, OpenLoop

    replicas, load = float(point.replicas or 1), point.load
    requests = point.completed / replicas if point.completed else None
    if load.kind == "closed" and load.concurrency:
        return ClosedLoop(users=load.concurrency / replicas, requests=requests)
    if load.kind == "open" and load.request_rate_per_s:
        return OpenLoop(request_rate_per_s=load.request_rate_per_s / replicas, requests=requests)
    return Offline(requests=requests)


def serving_predictor(deployment: Deployment, engine: str | None = None) -> Predictor:
    """Predictor of points of one deployment: the same path from load to latency as a plan takes.

    Parameters
    ----------
    deployment
        One replica; memory is budgeted once, step times once a calibration.
    engine
        Name whose way of forming steps is meant; None takes the deployment's engine.
    """
    from sizing.engines.timing import engine_timing
    from sizing.memory import memory_budget
    from sizing.replica.run import Room, kv_requests, predict_run
    from sizing.steptime import step_model

    memory = memory_budget(deployment)
    settings = deployment.settings
    budget = settings.max_num_batched_tokens or memory.defaults.max_num_batched_tokens
    rules = engine_timing(engine or settings.engine).scheduling(float(budget))
    most = float(settings.max_num_seqs or memory.defaults.max_num_seqs)

    base: dict[bool, StepModel] = {}

    def predict(points: Sequence[BenchPoint], calibration: Calibration) -> Sequence[Prediction]:
        if calibration.ideal not in base:
            base[calibration.ideal] = step_model(deployment, calibration)
        steps = replace(base[calibration.ideal], calibration=calibration)
        found = []
        for point in points:
            if point.load.kind in ("static", "prefill"):
                found.append(_static(steps, point))
                continue
            lengths = lengths_of(point)
            room = Room(kv_requests=kv_requests(memory, lengths, rules), max_num_seqs=most)
            run = predict_run(steps, room, load_of(point), lengths, rules)
            replicas = float(point.replicas or 1)
            ttft, tpot = run.ttft_s.value, run.tpot_s.value
            found.append(
                Prediction(
                    ttft_s=ttft,
                    tpot_s=tpot,
                    e2e_s=ttft + tpot * (lengths.output_tokens - 1.0),
                    output_tokens_per_s=run.output_tokens_per_s.value * replicas,
                    request_throughput_per_s=run.request_rate_per_s.value * replicas,
                    starved=run.kv_short,
                )
            )
        return found

    return predict


def _static(steps: "StepModel", point: BenchPoint) -> Prediction:
    """A profiler's point: one prompt, or a fixed batch that decodes."""
    if point.load.kind == "prefill":
        return Prediction(ttft_s=float(steps.prefill_s(point.input_tokens or 1.0) + steps.engine.first_token_s))
    batch, output = float(point.load.concurrency or 1.0), point.output_tokens
    context = point.context_tokens
    if context is None and point.input_tokens is not None and output is not None:
        context = point.input_tokens + output / 2.0
    if context is None:
        raise InputError(f"{point.source}: the file does not say the lengths; give --input and --output")
    step_s = float(steps.decode_s(batch, context))
    if point.input_tokens is None or output is None:
        return Prediction(tpot_s=step_s)
    prefill_s = float(steps.prefill_s(point.input_tokens, 0.0, batch))
    return Prediction(tpot_s=step_s, ttft_s=prefill_s, e2e_s=prefill_s + step_s * (output - 1.0))


def shipped_calibration(
    deployment: Deployment, engine: str | None = None, name: str | Path = "measured"
) -> Calibration:
    """Constants of a deployment's GPU with its engine's own time worked in.

    Parameters
    ----------
    deployment
        Whose GPU and engine.
    engine
        Engine as the benchmark names it; None takes the deployment's.
    name
        Calibration by name or file.
    """
    from sizing.calibration import calibration
    from sizing.engines.timing import engine_timing
    from sizing.steptime import with_engine

    timing = engine_timing(engine or deployment.settings.engine)
    found = calibration(name, deployment.gpu, timing.kernels)
    return found if found.evidence["engine"].basis == "fitted end to end" else with_engine(found, timing)
