"""From a measured point to the deployment it ran on, and the prediction of what it should have shown."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from sizing.benchmarks.point import BenchPoint
from sizing.calibration import Calibration
from sizing.deployment import Deployment, EngineSettings
from sizing.errors import InputError, SizingError
from sizing.validation.bench import Prediction, Predictor
from sizing.validation.served_limits import served_limits

if TYPE_CHECKING:
    from sizing.engines.timing import EngineTiming, Scheduling
    from sizing.replica.run import Lengths, RunLoad
    from sizing.steptime import StepModel
    from sizing.validation.cases import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a point ran on.

    Parameters
    ----------
    deployment, timing
        One replica and its engine's record.
    replicas
        Copies that shared the load [1].
    drafts
        Tokens drafted a step by speculative decoding [token].
    assumptions
        What the file left open.
    """

    deployment: Deployment
    timing: "EngineTiming"
    replicas: float = 1.0
    drafts: float = 0.0
    assumptions: tuple[str, ...] = ()


def ran_on(point: BenchPoint, settings: EngineSettings | None = None) -> Ran:
    """Deployment that a point ran on; what the file does not say must have been filled in.

    Parameters
    ----------
    point
        With at least a model, a GPU and the lengths of requests.
    settings
        Engine settings other than the engine's defaults; its engine and version are the point's.
    """
    if point.model is None:
        raise InputError(f"{point.source}: the file does not say the model; give --model")
    if point.gpu is None:
        raise InputError(f"{point.source}: the file does not say the GPU; give --gpu")
    if point.disaggregated:
        raise InputError(f"{point.source}: prefill and decode run apart; only colocated serving can be compared")
    case = _case(tuple(sorted(_cells(point).items())))
    deployment = case.deployment
    if settings is not None:
        own = deployment.settings
        deployment = replace(deployment, settings=replace(settings, engine=own.engine, version=own.version))
    return Ran(
        deployment=deployment,
        timing=case.timing,
        replicas=float(point.replicas or case.replicas),
        drafts=case.drafts,
        assumptions=case.assumptions,
    )


@lru_cache(maxsize=2048)
def _case(cells: tuple[tuple[str, str], ...]) -> "Case":
    from sizing.validation.cases import read_case

    return read_case(dict(cells))


def _cells(point: BenchPoint) -> dict[str, str]:
    """The point in the words of a row of measured runs, load and lengths left to the point itself."""
    speculative = next((w.partition(": ")[2] for w in point.warnings if w.startswith("speculative")), "none")
    found = {
        "id": point.source,
        "engine": point.engine or "vLLM",
        "engine_version": point.engine_version,
        "model": point.model,
        "gpu": point.gpu,
        "num_gpus": point.gpus,
        **{axis: getattr(point, axis) for axis in ("tp", "pp", "dp", "ep")},
        "weight_precision": point.weights,
        "kv_precision": point.kv,
        "isl_actual": 1.0,
        "osl_actual": 1.0,
        "load_kind": "offline",
        "spec_decode": speculative,
    }
    return {name: str(value) for name, value in found.items() if value is not None}


def lengths_of(point: BenchPoint) -> "Lengths":
    """Mean lengths of a point, and their spread when they were drawn uniformly."""
    from sizing.replica.run import Lengths

    if point.input_tokens is None or point.output_tokens is None:
        raise InputError(f"{point.source}: the file does not say the lengths of requests; give --input and --output")
    low = 1.0 if point.length_range is None else point.length_range
    cv = (1.0 - low) / 12.0**0.5 / ((1.0 + low) / 2.0)
    tokens = max(point.input_tokens, 1.0), max(point.output_tokens, 1.0)
    return Lengths(input_tokens=tokens[0], output_tokens=tokens[1], input_cv=cv, output_cv=cv)


def load_of(point: BenchPoint, replicas: float = 1.0) -> "RunLoad":
    """Load on one of the replicas that share it.

    Parameters
    ----------
    point
        The measured point.
    replicas
        Copies that share the load [1].
    """
    from sizing.replica.run import ClosedLoop, Offline, OpenLoop

    load = point.load
    requests = point.completed / replicas if point.completed else None
    if load.kind == "closed" and load.concurrency:
        return ClosedLoop(users=load.concurrency / replicas, requests=requests)
    if load.kind == "open" and load.request_rate_per_s:
        return OpenLoop(request_rate_per_s=load.request_rate_per_s / replicas, requests=requests)
    return Offline(requests=requests)


def serving_predictor(ran: Ran) -> Predictor:
    """Predictor of points of one deployment: the same path from load to latency as a plan takes.

    Parameters
    ----------
    ran
        Memory is budgeted once, step times once a calibration.
    """
    from sizing.memory import memory_budget
    from sizing.steptime import step_model

    memory = memory_budget(ran.deployment)
    limit, budget = served_limits(memory)
    rules = ran.timing.scheduling(budget, ran.drafts, schedulers=memory.schedulers)
    base: dict[bool, StepModel] = {}

    def predict(points: Sequence[BenchPoint], calibration: Calibration) -> Sequence[Prediction]:
        if calibration.ideal not in base:
            base[calibration.ideal] = step_model(ran.deployment, calibration)
        steps = replace(base[calibration.ideal], calibration=calibration)
        return [_predicted(point, steps, memory, rules, limit, ran) for point in points]

    return predict


def _predicted(
    point: BenchPoint, steps: "StepModel", memory: object, rules: "Scheduling", limit: float, ran: Ran
) -> Prediction:
    """One point; a limit on sequences that nobody stated does not hold against the users asked for."""
    from sizing.replica.run import ClosedLoop, Room, kv_requests, predict_run

    if point.load.kind in ("static", "prefill"):
        return _static(steps, point)
    lengths, load = lengths_of(point), load_of(point, ran.replicas)
    if isinstance(load, ClosedLoop) and ran.deployment.settings.max_num_seqs is None:
        limit = max(limit, load.users)
    room = Room(kv_requests=max(kv_requests(memory, lengths, rules), 1.0), max_num_seqs=limit)
    run = predict_run(steps, room, load, lengths, rules)
    ttft, tpot = run.ttft_s.value, run.tpot_s.value
    return Prediction(
        ttft_s=ttft,
        tpot_s=tpot,
        e2e_s=ttft + tpot * (lengths.output_tokens - 1.0),
        output_tokens_per_s=run.output_tokens_per_s.value * ran.replicas,
        request_throughput_per_s=run.request_rate_per_s.value * ran.replicas,
        starved=run.kv_short or run.limited_by == "overload",
    )


def _static(steps: "StepModel", point: BenchPoint) -> Prediction:
    """A profiler's point: one prompt, or a fixed batch that decodes."""
    if point.load.kind == "prefill":
        return Prediction(ttft_s=float(steps.prefill_s(point.input_tokens or 1.0) + steps.engine.first_token_s))
    batch, output = float(point.load.concurrency or 1.0), point.output_tokens
    context = point.context_tokens
    if context is None and point.input_tokens is not None and output is not None:
        context = point.input_tokens + output / 2.0
    if context is None:
        raise InputError(f"{point.source}: the file does not say the lengths of requests; give --input and --output")
    step_s = float(steps.decode_s(batch, context))
    if point.input_tokens is None or output is None:
        return Prediction(tpot_s=step_s)
    prefill_s = float(steps.prefill_s(point.input_tokens, 0.0, batch))
    return Prediction(tpot_s=step_s, ttft_s=prefill_s, e2e_s=prefill_s + step_s * (output - 1.0))


def joint_predictor(points: Sequence[BenchPoint], settings: EngineSettings | None = None) -> tuple[Predictor, Ran]:
    """Predictor of points of several deployments on one GPU and engine, and the first of them.

    Parameters
    ----------
    points
        The measured points.
    settings
        Engine settings other than the defaults.
    """
    rans = [ran_on(point, settings) for point in points]
    gpus = sorted({ran.deployment.gpu.id for ran in rans})
    engines = sorted({ran.timing.name for ran in rans})
    for what, names, option in (("GPUs", gpus, "--gpu"), ("engines", engines, "--engine")):
        if len(names) > 1:
            raise InputError(
                f"the points are of several {what} ({', '.join(names)}): constants belong to one; give {option} "
                "or a file for each"
            )
    predictors: dict[tuple[object, ...], Predictor] = {}

    def of(point: BenchPoint) -> Predictor:
        ran = ran_on(point, settings)
        found = ran.deployment
        key = (found.model.name, found.parallelism, found.formats, found.settings, ran.replicas, ran.drafts)
        if key not in predictors:
            predictors[key] = serving_predictor(ran)
        return predictors[key]

    def predict(several: Sequence[BenchPoint], calibration: Calibration) -> Sequence[Prediction]:
        return [of(point)([point], calibration)[0] for point in several]

    return predict, rans[0]


def predicted(
    points: Sequence[BenchPoint], settings: EngineSettings | None = None, name: str | Path = "measured"
) -> tuple[tuple[BenchPoint, ...], tuple[Prediction, ...], tuple[str, ...]]:
    """Predictions of points of any deployments: the points that have one, theirs, and why others have none.

    Parameters
    ----------
    points
        The measured points.
    settings
        Engine settings other than the defaults.
    name
        Calibration by name or file.
    """
    known: dict[tuple[object, ...], tuple[Predictor, Calibration]] = {}
    kept, found, reasons = [], [], dict[str, int]()
    for point in points:
        try:
            ran = ran_on(point, settings)
            one = ran.deployment
            key = (one.model.name, one.gpu.id, one.parallelism, one.formats, one.settings, ran.timing.name)
            if key not in known:
                known[key] = serving_predictor(ran), shipped_calibration(ran, name)
            predictor, constants = known[key]
            (prediction,) = predictor([point], constants)
        except SizingError as error:
            reasons[str(error)] = reasons.get(str(error), 0) + 1
            continue
        kept.append(point)
        found.append(prediction)
    if not kept and reasons:
        raise InputError(next(iter(reasons)))
    return tuple(kept), tuple(found), tuple(f"{text} ({count})" for text, count in reasons.items())


def shipped_calibration(ran: Ran, name: str | Path = "measured") -> Calibration:
    """Constants of a deployment's GPU with its engine's own time worked in.

    Parameters
    ----------
    ran
        Whose GPU and engine.
    name
        Calibration by name or file; one fitted to a run keeps its own engine times.
    """
    from sizing.calibration import calibration
    from sizing.steptime import with_engine

    found = calibration(name, ran.deployment.gpu, ran.timing.name)
    fitted = "engine" in found.evidence and found.evidence["engine"].basis == "fitted end to end"
    return found if fitted else with_engine(found, ran.timing)
