"""The batching curve of a model on a GPU."""

from typing import Annotated

import typer

from sizing.cli._options import Constants, Format, OutFile


def command(
    model: Annotated[
        str, typer.Option("--model", "-m", help="Catalogue name, folder or config.json.")
    ] = "Qwen/Qwen3-8B",
    gpu: Annotated[str, typer.Option("--gpu", "-g", help="GPU.")] = "h100",
    users: Annotated[str, typer.Option(help="Largest number of users.")] = "128",
    context: Annotated[str, typer.Option(help="Tokens in the cache of each user: 512, 2k.")] = "512",
    tp: Annotated[int, typer.Option(help="GPUs of a tensor-parallel replica.")] = 1,
    weights: Annotated[str | None, typer.Option(help="Weight format; the checkpoint's own if left out.")] = None,
    kv: Annotated[str, typer.Option(help="Format of the KV cache.")] = "auto",
    engine: Annotated[str, typer.Option(help="vllm, sglang, trtllm, transformers.")] = "vllm",
    price: Annotated[str | None, typer.Option(help="USD per GPU and hour; the catalogue's if left out.")] = None,
    calibration: Constants = "measured",
    format: Format = "table",
    out: OutFile = None,
) -> None:
    """Users, TPOT, tokens/s and USD per million tokens, and what binds where."""
    from sizing import units
    from sizing.architecture import read_model
    from sizing.calibration import calibration as load_calibration
    from sizing.catalog import gpu as find_gpu
    from sizing.cli.output import emit
    from sizing.deployment import Deployment, EngineSettings, NumberFormats, Parallelism
    from sizing.engines.timing import engine_timing
    from sizing.errors import InputError
    from sizing.memory import memory_budget
    from sizing.replica.batching_curve import batching_curve, doublings, plot
    from sizing.reports.tabular import render_rows
    from sizing.steptime import nominal_and_draws, step_model, with_engine

    most = round(units.count(users))
    if not 1 <= most <= 100_000:
        raise InputError(f"--users: {users!r} is not allowed; give a whole number from 1 to 100000")
    timing = engine_timing(engine)
    deployment = Deployment(
        model=read_model(model), gpu=find_gpu(gpu), parallelism=Parallelism(tp=tp),
        formats=NumberFormats(weights=weights, kv=kv), settings=EngineSettings(engine=timing.memory),
    )  # fmt: skip
    known = with_engine(load_calibration(calibration, deployment.gpu, timing.kernels), timing)
    steps = step_model(deployment, nominal_and_draws(known, 64))
    hourly = None if price is None else units.usd_per_hour(price)
    points = batching_curve(steps, units.count(context), doublings(most), memory_budget(deployment), hourly)
    layout = f"{deployment.model.name} on {deployment.gpus} x {deployment.gpu.name}, {context} tokens of context"
    text = render_rows([p.to_record() for p in points], format=format, title=layout)
    emit(text + (plot(points) if format == "table" else ""), out)
