"""A memory budget against an engine's start-up log of one's own."""

from pathlib import Path
from typing import Annotated

import typer

from sizing.cli._bench import (
    Budget,
    Dp,
    Ep,
    GpuName,
    Kv,
    Longest,
    Model,
    Sequences,
    Tp,
    Utilization,
    Version,
    Weights,
)
from sizing.cli._options import Format, OutFile, Stages, option


def command(
    file: Annotated[Path, typer.Argument(help="Start-up log of vLLM, SGLang or TensorRT-LLM.", show_default=False)],
    engine: Annotated[str | None, option("vllm, sglang or trtllm, when the content does not tell.")] = None,
    model: Model = None,
    gpu: GpuName = None,
    engine_version: Version = None,
    tp: Tp = None,
    pp: Stages = None,
    ep: Ep = None,
    dp: Dp = None,
    weights: Weights = None,
    kv: Kv = None,
    memory_utilization: Utilization = None,
    max_model_len: Longest = None,
    max_num_seqs: Sequences = None,
    max_num_batched_tokens: Budget = None,
    format: Format = "table",
    out: OutFile = None,
) -> None:
    """Hold the memory budget against a start-up log, line by line."""
    from sizing import units
    from sizing.benchmarks.startup_log import read_startup_log
    from sizing.cli.output import emit
    from sizing.reports.tabular import render_rows
    from sizing.validation.log import compare_log

    whole = {
        "tp": tp, "pp": pp, "ep": ep, "dp": dp, "max_model_len": max_model_len, "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
    }  # fmt: skip
    facts: dict[str, str | int | float | None] = {
        name: None if text is None else units.whole(text, f"--{name.replace('_', '-')}", least=1)
        for name, text in whole.items()
    }
    facts |= {"model": model, "gpu": gpu, "version": engine_version, "weight_format": weights, "kv_format": kv}
    if memory_utilization is not None:
        facts["utilization"] = units.fraction(memory_utilization)
    log = read_startup_log(file, engine)
    found = compare_log(log, facts)
    deployment = found.budget.deployment
    title = f"{deployment.model.name} on {deployment.gpus} x {deployment.gpu.id}, {log.engine} {log.version or ''}"
    emit(render_rows(found.rows(), format=format, title=f"{title.strip()}: memory of one GPU", notes=found.notes), out)
