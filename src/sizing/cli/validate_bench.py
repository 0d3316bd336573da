"""Predictions against a load test of one's own."""

from pathlib import Path
from typing import Annotated

import typer

from sizing.cli import _bench as bench


def command(
    file: bench.Files,
    kind: bench.Kind = None,
    model: bench.Model = None,
    gpu: bench.GpuName = None,
    engine: bench.Engine = None,
    engine_version: bench.Version = None,
    tp: bench.Tp = None,
    pp: bench.Pp = None,
    ep: bench.Ep = None,
    dp: bench.Dp = None,
    replicas: bench.Replicas = None,
    weights: bench.Weights = None,
    kv: bench.Kv = None,
    input: bench.Input = None,
    output: bench.Output = None,
    concurrency: bench.Concurrency = None,
    memory_utilization: bench.Utilization = None,
    max_num_seqs: bench.Sequences = None,
    max_num_batched_tokens: bench.Budget = None,
    calibration: bench.Name = "measured",
    explain: Annotated[bool, typer.Option(help="Say which constant would explain the difference.")] = True,
    held_out: Annotated[bool, typer.Option(help="Fit a few concurrencies of each run, score the others.")] = False,
    lowest: Annotated[bool, typer.Option(help="With --held-out: fit the lowest, score the higher.")] = False,
    fitted: Annotated[str, typer.Option(help="Concurrencies to fit in each run, with --held-out.")] = "3",
    runs: Annotated[str | None, bench.option("Runs to take at most, evenly through the file, with --held-out.")] = None,
    export: Annotated[Path | None, bench.option("Write the points as llm-d benchmark reports 0.2.1.")] = None,
    format: bench.Format = "table",
    out: bench.Out = None,
) -> None:
    """Hold predictions against a load test: ratios by metric, and what explains them."""
    from sizing import units
    from sizing.cli.output import emit, progress
    from sizing.fitting.report import held_out_report, validation_report
    from sizing.reports.tabular import render_rows

    facts = {
        "model": model, "gpu": gpu, "engine": engine, "engine_version": engine_version, "tp": tp, "pp": pp, "ep": ep,
        "dp": dp, "replicas": replicas, "weights": weights, "kv": kv, "input_tokens": input, "output_tokens": output,
        "concurrency": concurrency,
    }  # fmt: skip
    points = bench.read_points(file, kind, facts)
    settings = bench.settings_of(memory_utilization, max_num_seqs, max_num_batched_tokens)
    if export is not None:
        from sizing.benchmarks.export import llmd_text

        emit(llmd_text(points), export)
    if held_out:
        least = units.whole(fitted, "--fitted", least=1)
        most = None if runs is None else units.whole(runs, "--runs", least=1)
        report = held_out_report(points, settings, calibration, least, most, progress, lowest=lowest)
    else:
        report = validation_report(points, settings, calibration, explain, progress)
    notes = [*report.notes, *bench.remarks(() if held_out else points)]
    emit(render_rows(report.rows, format=format, title=report.title, notes=notes), out)
