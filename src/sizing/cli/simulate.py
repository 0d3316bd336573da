"""Simulate a fleet, iteration by iteration."""

from pathlib import Path
from typing import Annotated, Any

import typer

Text = str | None


def command(
    model: Annotated[str, typer.Option("--model", "-m", help="Catalogue name, folder or file.")] = "Qwen/Qwen3-8B",
    gpu: Annotated[str, typer.Option("--gpu", "-g", help="GPU.")] = "h100",
    rps: Annotated[str, typer.Option(help="Requests a second.")] = "20",
    input: Annotated[str, typer.Option(help="Mean input tokens.")] = "2000",
    output: Annotated[str, typer.Option(help="Mean output tokens.")] = "400",
    cv: Annotated[float, typer.Option(help="CV of the gaps between arrivals: 1 Poisson, above it Gamma.")] = 1.0,
    trace: Annotated[Path | None, typer.Option(help="Traffic trace; replayed as it is.")] = None,
    replicas: Annotated[int, typer.Option(help="Replicas that take requests.")] = 4,
    prefill_replicas: Annotated[int, typer.Option(help="Separate prefill replicas; 0: none.")] = 0,
    router: Annotated[
        str, typer.Option(help="random, round-robin, least-loaded, prefix-aware, sticky.")
    ] = "least-loaded",
    tp: Annotated[int, typer.Option(help="GPUs of a tensor-parallel replica.")] = 1,
    weights: Annotated[Text, typer.Option(help="Weight format; the checkpoint's own if left out.")] = None,
    kv: Annotated[str, typer.Option(help="Format of the KV cache.")] = "auto",
    engine: Annotated[str, typer.Option(help="vllm, sglang, trtllm.")] = "vllm",
    calibration: Annotated[str, typer.Option(help="measured, rule-of-thumb, or a TOML file.")] = "measured",
    batching: Annotated[str, typer.Option(help="continuous or static.")] = "continuous",
    kv_reservation: Annotated[str, typer.Option(help="paged, or longest: room for the longest request.")] = "paged",
    slo_ttft: Annotated[str, typer.Option(help="Time to first token.")] = "1s",
    slo_tpot: Annotated[str, typer.Option(help="Time per output token.")] = "20ms",
    percentile: Annotated[
        float | None, typer.Option(help="Share of requests that must meet the targets, in percent; mean if left out.")
    ] = None,
    goodput: Annotated[
        Text, typer.Option(help="Search the largest rate at which this share is within the targets: 99%.")
    ] = None,
    requests: Annotated[int | None, typer.Option(help="Requests of one replication.")] = None,
    duration: Annotated[Text, typer.Option(help="Length of one replication: 10min.")] = None,
    replications: Annotated[int | None, typer.Option(help="Independent runs.")] = None,
    warm_up: Annotated[float, typer.Option(help="Share of the time left out at the begin.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the first replication.")] = 0,
    format: Annotated[str, typer.Option(help="table, csv, json or md.")] = "table",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file.")] = None,
) -> None:
    """Replay traffic on replicas and report latency percentiles and goodput."""
    from sizing import units
    from sizing.cli.output import emit
    from sizing.reports.tabular import render_rows
    from sizing.simulator import simulate, sustainable_rate
    from sizing.workload import Slo

    replica = _replica(model, gpu, tp, weights, kv, engine, calibration, batching, kv_reservation)
    traffic: Any = _workload(rps, input, output, cv)
    if trace is not None:
        from sizing.workload import read_trace

        traffic = read_trace(trace).requests
    how: dict[str, Any] = {
        "replicas": replicas, "router": router, "requests": requests, "seed": seed, "warm_up": warm_up,
        "replications": replications, "prefill": _prefill(replica, prefill_replicas, router),
        "duration_s": None if duration is None else units.duration_s(duration),
    }  # fmt: skip
    slo = Slo(ttft_s=units.duration_s(slo_ttft), tpot_s=units.duration_s(slo_tpot), percentile=percentile)
    title = f"{replicas} x {model} on {replica.gpus} x {gpu}, {router}"
    if goodput is not None:
        if trace is not None:
            from sizing.errors import InputError

            raise InputError("--goodput: a rate is searched for a workload, not for a trace; leave out --trace")
        found = sustainable_rate(traffic, replica, slo, share=units.fraction(goodput), **how)
        rows: list[dict[str, object]] = [
            {"requests_per_s": rate, "goodput": share, "holds": rate <= found.request_rate_per_s}
            for rate, share in found.tried
        ]
        notes = [f"largest rate that holds: {found.request_rate_per_s:.3g} requests/s", slo.describe()]
        emit(render_rows(rows, format=format, title=title, notes=notes), out)
        return
    with _progress() as report:
        result = simulate(traffic, replica, slo=slo, progress=report, **how)
    emit(render_rows(result.to_records(), format=format, title=title, notes=result.notes), out)


def _replica(
    model: str, gpu: str, tp: int, weights: str | None, kv: str, engine: str, calibration: str, batching: str,
    kv_reservation: str,
) -> Any:  # fmt: skip
    from sizing.architecture import read_model
    from sizing.catalog import gpu as find_gpu
    from sizing.deployment import Deployment, EngineSettings, NumberFormats, Parallelism
    from sizing.simulator import replica_model

    deployment = Deployment(
        model=read_model(model), gpu=find_gpu(gpu), parallelism=Parallelism(tp=tp),
        formats=NumberFormats(weights=weights, kv=kv), settings=EngineSettings(engine=engine),
    )  # fmt: skip
    return replica_model(deployment, calibration=calibration, batching=batching, kv_reservation=kv_reservation)


def _workload(rps: str, input_tokens: str, output_tokens: str, cv: float) -> Any:
    from sizing.cli.arguments import positive_count, positive_rate
    from sizing.workload import Gamma, Poisson, Workload

    return Workload(
        request_rate_per_s=positive_rate(rps, "--rps"), input_tokens=positive_count(input_tokens, "--input"),
        output_tokens=positive_count(output_tokens, "--output"), arrivals=Poisson() if cv == 1 else Gamma(cv=cv),
    )  # fmt: skip


def _prefill(replica: Any, replicas: int, router: str) -> Any:
    if replicas == 0:
        return None
    from sizing.simulator import FleetPlan, PrefillPool

    return PrefillPool(model=replica, fleet=FleetPlan(replicas=replicas, router=router))


def _progress() -> Any:
    """A bar on stderr when it is a terminal, told the share that is done."""
    import contextlib
    import sys

    if not sys.stderr.isatty():
        return contextlib.nullcontext()
    from rich.console import Console
    from rich.progress import Progress

    @contextlib.contextmanager
    def bar() -> Any:
        with Progress(console=Console(stderr=True), transient=True) as shown:
            task = shown.add_task("simulating", total=1.0)
            yield lambda share: shown.update(task, completed=share)

    return bar()
