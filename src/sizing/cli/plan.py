"""Which GPUs, how many, configured how, at what cost, for this model, traffic and latency targets."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from sizing import units
from sizing.assumptions import default
from sizing.cli.arguments import Asked, PlanOptions, positive_rate, prices, readable
from sizing.cli.output import emit

Text = str | None


def _option(help_text: str, *names: str) -> Any:
    return typer.Option(*names, help=help_text, show_default=False)


def command(
    context: typer.Context,
    model: Annotated[
        Text, _option("Catalogue name, Hugging Face id, folder with config.json, or a config.json.", "--model", "-m")
    ] = None,
    gpu: Annotated[list[str] | None, _option("GPU; repeat for several.", "--gpu", "-g")] = None,
    rps: Annotated[Text, _option("Requests a second: 20, 20/s, 1200/min.")] = None,
    input: Annotated[Text, _option("Mean input tokens: 2000, 4k (4000), 4K (4096).")] = None,
    output: Annotated[Text, _option("Mean output tokens.")] = None,
    trace: Annotated[Text, _option("Traffic trace, - for standard input; rate and lengths are read from it.")] = None,
    shape: Annotated[Text, _option("Shipped request shape, in place of lengths: chat, rag, agents, ...")] = None,
    cv: Annotated[Text, _option("CV of the gaps between arrivals: 1 Poisson, above it bursts.")] = None,
    slo_tpot: Annotated[Text, _option("Time per output token: 20ms.")] = None,
    slo_ttft: Annotated[Text, _option("Time to first token: 1s.")] = None,
    percentile: Annotated[
        Text, _option("Share of requests that must meet the targets, in percent; mean if left out.")
    ] = None,
    ttft_percentile: Annotated[Text, _option("The same for TTFT alone.")] = None,
    tpot_percentile: Annotated[Text, _option("The same for TPOT alone.")] = None,
    spares: Annotated[Text, _option("Spare replicas.")] = None,
    utilization: Annotated[Text, _option("Share of capacity planned for: 0.85 or 85%.")] = None,
    memory_utilization: Annotated[Text, _option("Share of GPU memory the engine may use.")] = None,
    weights: Annotated[
        Text, _option("Weight format: bf16, fp8, int4, nvfp4, ...; the checkpoint's own if left out.")
    ] = None,
    kv: Annotated[Text, _option("KV cache format: auto, bf16, fp8.")] = None,
    tp: Annotated[Text, _option("Tensor parallel GPUs; 1 to 8 are tried if left out.")] = None,
    pp: Annotated[Text, _option("Pipeline stages.")] = None,
    dp: Annotated[Text, _option("Data-parallel ranks of attention inside a replica; experts are shared.")] = None,
    ep: Annotated[Text, _option("Expert parallel ranks, at most --tp times --dp.")] = None,
    price: Annotated[list[str] | None, _option("USD per GPU and hour, or GPU=USD; repeat for several.")] = None,
    calibration: Annotated[Text, _option("Efficiency constants: a name, or a file made by `calibrate`.")] = None,
    method: Annotated[Text, _option("additive or time-share.")] = None,
    engine: Annotated[Text, _option("vllm, sglang or trtllm.")] = None,
    catalog: Annotated[Text, _option("TOML file with GPUs, models and prices of your own.")] = None,
    config: Annotated[Path | None, _option("YAML file with any of these options, - for standard input.")] = None,
    format: Annotated[str, typer.Option(help="table, csv, json or md.")] = "table",
    out: Annotated[Path | None, _option("Write the result to this file, whole or not at all.", "--out", "-o")] = None,
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
