"""Which GPUs, how many, configured how, at what cost, for this model, traffic and latency targets."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from sizing import units
from sizing.assumptions import default
from sizing.cli._options import (
    AttentionRanks,
    Cv,
    ExpertRanks,
    Format,
    Output,
    OwnCatalog,
    Percentile,
    Rps,
    Shape,
    Stages,
    Text,
    TpotPercentile,
    TtftPercentile,
    option,
)
from sizing.cli.arguments import Asked, PlanOptions, positive_rate, prices, readable
from sizing.cli.output import emit


def command(
    context: typer.Context,
    model: Annotated[
        Text, option("Catalogue name, Hugging Face id, folder with config.json, or a config.json.", "--model", "-m")
    ] = None,
    gpu: Annotated[list[str] | None, option("GPU; repeat for several.", "--gpu", "-g")] = None,
    rps: Rps = None,
    input: Annotated[Text, option("Mean input tokens: 2000, 4k (4000), 4K (4096).")] = None,
    output: Output = None,
    trace: Annotated[Text, option("Traffic trace, - for standard input; rate and lengths are read from it.")] = None,
    shape: Shape = None,
    cv: Cv = None,
    slo_tpot: Annotated[Text, option("Time per output token: 20ms.")] = None,
    slo_ttft: Annotated[Text, option("Time to first token: 1s.")] = None,
    percentile: Percentile = None,
    ttft_percentile: TtftPercentile = None,
    tpot_percentile: TpotPercentile = None,
    spares: Annotated[Text, option("Spare replicas.")] = None,
    utilization: Annotated[Text, option("Share of capacity planned for: 0.85 or 85%.")] = None,
    memory_utilization: Annotated[Text, option("Share of GPU memory the engine may use.")] = None,
    weights: Annotated[
        Text, option("Weight format: bf16, fp8, int4, nvfp4, ...; the checkpoint's own if left out.")
    ] = None,
    kv: Annotated[Text, option("KV cache format: auto, bf16, fp8.")] = None,
    tp: Annotated[Text, option("Tensor parallel GPUs; 1 to 8 are tried if left out.")] = None,
    pp: Stages = None,
    dp: AttentionRanks = None,
    ep: ExpertRanks = None,
    price: Annotated[list[str] | None, option("USD per GPU and hour, or GPU=USD; repeat for several.")] = None,
    calibration: Annotated[Text, option("Efficiency constants: a name, or a file made by `calibrate`.")] = None,
    method: Annotated[Text, option("additive or time-share.")] = None,
    engine: Annotated[Text, option("vllm, sglang or trtllm.")] = None,
    catalog: OwnCatalog = None,
    config: Annotated[Path | None, option("YAML file with any of these options, - for standard input.")] = None,
    format: Format = "table",
    out: Annotated[Path | None, option("Write the result to this file, whole or not at all.", "--out", "-o")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the arithmetic for the first GPU, step by step.")
    ] = False,
    verify: Annotated[
        bool | None,
        typer.Option(
            "--verify/--no-verify",
            help="Replay the cheapest candidate in the simulator, with one replica less and more; or never simulate. "
            "If left out, simulation counts replicas where the closed form of a percentile is out of its depth.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the verdict.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Plan a fleet from traffic and latency targets."""
    if context.invoked_subcommand is not None:
        return
    if version:
        from sizing import __version__

        emit(f"size-inference {__version__}\n")
        return
    options = PlanOptions(
        model=model, gpu=gpu, rps=rps, input=input, output=output, trace=trace, shape=shape, cv=cv, slo_tpot=slo_tpot,
        slo_ttft=slo_ttft, percentile=percentile, ttft_percentile=ttft_percentile, tpot_percentile=tpot_percentile,
        spares=spares, utilization=utilization, memory_utilization=memory_utilization,
        weights=weights, kv=kv, tp=tp, pp=pp, dp=dp, ep=ep, price=price, calibration=calibration, method=method,
        engine=engine, catalog=catalog,
    )  # fmt: skip
    raise typer.Exit(_run(options.with_file(config) if config else options, format, out, explain, quiet, verify))


def _run(options: PlanOptions, format: str, out: Path | None, explain: bool, quiet: bool, verify: bool | None) -> int:
    """Plan, print, and give the exit code: 0 a plan, 3 infeasible."""
    from sizing.planner import plan
    from sizing.reports import REPORTS
    from sizing.reports.table import verdict

    render = REPORTS.get(format)
    if options.catalog:
        from sizing.catalog import overlay

        overlay(Path(options.catalog))
    arguments, notes = plan_arguments(options)
    answer = plan(**arguments, verify=verify, progress=_simulating if sys.stderr.isatty() else None)
    answer = replace(answer, notes=(*notes, *answer.notes))
    if explain:
        from sizing.reports.explain import explain as explained

        text = explained(answer)
    else:
        text = verdict(answer) + "\n" if quiet else render(answer)
    emit(text, out)
    if answer.best is None and not quiet and format != "table":
        print(verdict(answer), file=sys.stderr)  # noqa: T201
    return 0 if answer.best is not None else 3


def _simulating(gpu: str, replicas: int) -> None:
    """Say what is simulated, on one line of standard error that the next one takes."""
    print(f"\r\033[Ksimulating {replicas:,} replicas of {gpu} ...\r", end="", file=sys.stderr, flush=True)  # noqa: T201


def plan_arguments(options: PlanOptions) -> tuple[dict[str, Any], list[str]]:
    """Arguments of :func:`sizing.plan`, and notes, from raw options."""
    from sizing.deployment import EngineSettings, NumberFormats
    from sizing.fleet import Targets

    asked = Asked(options)
    workload = _traffic(asked)
    slo = asked.slo()
    targets = Targets(
        utilization=asked.number("utilization", units.fraction), spares=int(asked.number("spares", _spares))
    )
    share = asked.number("memory_utilization", units.fraction)
    if options.engine is None:
        asked.assumed.append(default("engine"))
    arguments = {
        "model": options.model,
        "workload": workload,
        "slo": slo,
        "gpus": options.gpu or None,
        "parallelism": options.layout(),
        "formats": NumberFormats(weights=options.weights, kv=options.kv or "auto"),
        "settings": EngineSettings(engine=options.engine or "vllm", memory_utilization=share),
        "targets": targets,
        "prices": prices(options.price),
        "calibration": options.calibration,
        "method": options.method,
        "assumed": tuple(asked.assumed),
    }
    return arguments, asked.notes


def _traffic(asked: Asked) -> Any:
    """Workload from a trace and the options; an option given beside a trace wins."""
    options = asked.options
    if options.trace is None or options.shape is not None:
        return asked.workload()
    from sizing.cli.output import progress
    from sizing.workload.given import traffic_from

    rate = positive_rate(options.rps, "--rps") if options.rps else None
    with readable(options.trace) as path:
        seen, _, notes = traffic_from(path, request_rate_per_s=rate, rate="peak-minute", progress=progress)
    asked.notes.extend(notes)
    return asked.in_bursts(asked.with_lengths(seen))


def _spares(text: str, what: str) -> int:
    return units.whole(text, what, 0, 10**6)
