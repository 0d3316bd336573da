"""What `simulate` is asked, put together: replica, traffic, targets, and the document of the answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

from sizing import units
from sizing.assumptions import Assumption, default
from sizing.cli.arguments import Asked, PlanOptions, positive_rate, readable
from sizing.errors import InputError

if TYPE_CHECKING:
    from sizing.simulator import ReplicaModel
    from sizing.simulator.simulation import SimulationResult
    from sizing.steptime import StepModel
    from sizing.workload import Slo

SCHEMA_VERSION = 1
GPU = Assumption(name="gpu", value="h100-sxm", unit="", basis="assumed", source="a common GPU; give --gpu")
REPLICAS = Assumption(name="replicas", value=4, unit="", basis="assumed", source="an example; give --replicas")


@dataclass(slots=True, kw_only=True)
class Question:
    """One replica, what arrives, and the targets, with what was assumed.

    Attributes
    ----------
    replica, steps, deployment, memory
        As the simulator and as the closed form take it.
    traffic
        A workload, or the requests of a trace.
    described
        Traffic in plain values.
    """

    replica: "ReplicaModel"
    steps: "StepModel"
    deployment: Any
    memory: Any
    traffic: Any
    described: dict[str, object]
    slo: "Slo"
    assumptions: list[Assumption]
    notes: list[str] = field(default_factory=list)

    @property
    def fixes_no_rate(self) -> bool:
        """Whether the requests are those of a trace."""
        from sizing.workload import Workload

        return not isinstance(self.traffic, Workload)


def question(
    options: PlanOptions, engine: dict[str, str | None], chunked_prefill: bool, policies: dict[str, str],
    judged: dict[str, Any],
) -> Question:  # fmt: skip
    """Everything but the fleet, from raw options.

    Parameters
    ----------
    options
        Of the main job; those that only a plan needs are not looked at.
    engine, chunked_prefill, policies
        Settings of the engine that the main job has no option for.
    judged
        Statistic and window of the targets.
    """
    asked = Asked(options)
    traffic, described = _traffic(asked)
    slo = asked.slo(**judged)
    deployment = _deployment(asked, engine, chunked_prefill)
    replica, steps, memory = _replica(deployment, options, policies)
    return Question(
        replica=replica, steps=steps, deployment=deployment, memory=memory, traffic=traffic, described=described,
        slo=slo, assumptions=asked.assumed, notes=asked.notes,
    )  # fmt: skip


def _deployment(asked: Asked, engine: dict[str, str | None], chunked_prefill: bool) -> Any:
    from sizing.architecture import read_model
    from sizing.catalog import gpu, resolve_gpu
    from sizing.deployment import Deployment, EngineSettings, NumberFormats, Parallelism

    options = asked.options
    for name in ("model", "engine"):
        if getattr(options, name) is None:
            asked.assumed.append(default(name))
    if not options.gpu:
        asked.assumed.append(GPU)
    names = options.gpu or [str(GPU.value)]
    if len(names) > 1:
        asked.notes.append(f"simulated on {names[0]}, the first of {', '.join(names)}")
    chip, note = resolve_gpu(names[0])
    asked.notes += [note] if note else []
    share = options.memory_utilization
    limits: dict[str, Any] = {
        name: None if text is None else units.whole(text, f"--{name.replace('_', '-')}", 1)
        for name, text in engine.items()
    }
    return Deployment(
        model=read_model(options.model or str(default("model").value)), gpu=gpu(chip),
        parallelism=options.layout() or Parallelism(),
        formats=NumberFormats(weights=options.weights, kv=options.kv or "auto"),
        settings=EngineSettings(
            engine=options.engine or "vllm",
            chunked_prefill=chunked_prefill,
            memory_utilization=None if share is None else units.fraction(share, "--memory-utilization"),
            **limits,
        ),
    )  # fmt: skip


def _replica(deployment: Any, options: PlanOptions, policies: dict[str, str]) -> tuple[Any, Any, Any]:
    from sizing.calibration import calibration
    from sizing.engines.timing import engine_timing
    from sizing.memory import memory_budget
    from sizing.simulator import replica_model
    from sizing.steptime import step_model, with_engine

    timing, memory = engine_timing(deployment.settings.engine), memory_budget(deployment)
    constants = calibration(options.calibration or "measured", deployment.gpu, timing.kernels)
    steps = step_model(deployment, with_engine(constants, timing))
    return replica_model(deployment, steps=steps, memory=memory, **policies), steps, memory


def _traffic(asked: Asked) -> tuple[Any, dict[str, object]]:
    """A workload or the requests of a trace; and the same in plain values."""
    from sizing.workload import read_trace, read_workload
    from sizing.workload.files import is_workload_file, workload_record

    options = asked.options
    if options.trace is None or options.shape is not None:
        drawn = asked.workload()
        return drawn, {"kind": "workload", **workload_record(drawn)}
    with readable(options.trace) as path:
        if is_workload_file(path):
            filed = read_workload(path)
            filed = filed.at_rate(positive_rate(options.rps, "--rps")) if options.rps else filed
            filed = asked.in_bursts(asked.with_lengths(filed))
            return filed, {"kind": "workload", "file": options.trace, **workload_record(filed)}
        from sizing.cli.output import progress

        trace = read_trace(path, progress=progress)
    for name in ("rps", "input", "output", "cv"):
        if getattr(options, name) is not None and not (name in ("rps", "cv") and not trace.timed):
            raise InputError(f"--{name}: a trace is replayed as it is; leave out --{name}, or give a workload file")
    requests = trace.requests if trace.timed else _by_the_clock(asked, trace)
    asked.notes += trace.notes if trace.timed else []
    return requests, {
        "kind": trace.kind, "file": options.trace, "requests": len(trace), "span_s": requests.span_s,
        "mean_input_tokens": float(trace.input_tokens.mean()), "mean_output_tokens": float(trace.output_tokens.mean()),
        "rows_left_out": dict(trace.skipped),
    }  # fmt: skip


def _by_the_clock(asked: Asked, trace: Any) -> Any:
    """Requests of a trace without arrival times, as they would come at the rate that was given."""
    from dataclasses import replace

    import numpy as np

    from sizing.workload import Workload

    if asked.options.rps is None:
        asked.notes.append("the file has no arrival times: all its requests are there at the start; give --rps")
        return trace.requests
    rate = positive_rate(asked.options.rps, "--rps")
    arrivals = asked.in_bursts(Workload(request_rate_per_s=rate, input_tokens=1, output_tokens=1)).arrivals
    asked.notes.append(f"the file has no arrival times: its requests come in its order, {rate:g} a second (seed 0)")
    return replace(trace.requests, arrival_s=arrivals.sample_s(np.random.default_rng(0), len(trace), rate))


def closed_form(asked: Question, replicas: int, share: float | None) -> dict[str, object]:
    """Largest rate of a fleet by the closed form, each replica with its part of the traffic.

    Parameters
    ----------
    asked
        The question; its traffic is a workload.
    replicas
        Of the fleet.
    share
        Share of requests within the targets: they are then held at that percentile. [1]
    """
    from dataclasses import replace

    from sizing.replica.percentile import rate_within
    from sizing.replica.predicted import predict_replica

    slo = asked.slo if share is None else replace(asked.slo, percentile=min(100 * share, 99.99))
    scheduler = asked.replica.scheduler
    prediction = predict_replica(
        asked.steps, asked.memory, asked.traffic, scheduler.max_num_seqs, scheduler.max_num_batched_tokens
    )
    rate, limit = rate_within(prediction, asked.traffic, slo)
    return {"request_rate_per_s": rate * replicas, "limited_by": limit, "targets": slo.describe()}


def document(
    asked: Question, fleet: dict[str, object], each_run: dict[str, object], /, **answer: object
) -> dict[str, object]:
    """The question, what was assumed, and the answer, as one document with a schema version.

    Parameters
    ----------
    asked
        The question.
    fleet, each_run
        What the command was told of replicas, and of the length and number of runs.
    answer
        Sections that the mode of the command adds.
    """
    deployment, slo = asked.deployment, asked.slo
    return {
        "schema": "sizing.simulation",
        "schema_version": SCHEMA_VERSION,
        "question": {
            "model": deployment.model.name, "gpu": deployment.gpu.id, "gpus_per_replica": deployment.gpus,
            "parallelism": asdict(deployment.parallelism), "engine": deployment.settings.engine,
            "scheduler": asdict(asked.replica.scheduler), **fleet,
            "slo": {"ttft_s": slo.ttft_s, "tpot_s": slo.tpot_s, "ttft_percentile": slo.ttft_at,
                    "tpot_percentile": slo.tpot_at, "in_words": slo.describe()},
            **each_run,
        },
        "assumptions": [asdict(a) for a in asked.assumptions],
        "workload": asked.described,
        **answer,
    }  # fmt: skip


def answer_of(result: "SimulationResult") -> dict[str, object]:
    """Sections of a single simulation."""
    return {
        "summary": result.summary(), "targets": result.verdict, "replicas": result.per_replica(),
        "replications": result.replications, "warm_up_s": result.warm_up_s, "notes": list(result.notes),
    }  # fmt: skip


def row_of(result: "SimulationResult", **first: object) -> dict[str, object]:
    """A simulation in a line of a table."""
    names = ("ttft_mean_s", "ttft_p99_s", "tpot_mean_s", "tpot_p99_s", "goodput", "utilization", "requests_per_s",
             "output_tokens_per_s")  # fmt: skip
    return {**first, **{name: result[name].value for name in names}, "holds": result.attained}


POLICIES = tuple(
    {"batching": batching, "kv_reservation": kept}
    for batching, kept in product(("continuous", "static"), ("paged", "longest"))
)
"""Ways to batch and to keep the cache, today's first."""


@contextmanager
def telling() -> Iterator[Any]:
    """Something to call with the share that is done: a bar on standard error when it is a terminal, else None."""
    import sys

    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("simulating", total=1.0)
        yield lambda share: shown.update(task, completed=share)
