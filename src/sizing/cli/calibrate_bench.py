"""Constants from a load test of one's own."""

from typing import Annotated

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
    constants: Annotated[str | None, bench.option("Constants to free, separated by commas; all if left out.")] = None,
    format: bench.Format = "table",
    out: bench.Out = None,
) -> None:
    """Fit the engine's constants to a load test and write them for --calibration."""
    from sizing.cli.output import emit
    from sizing.fitting.report import calibration_report
    from sizing.reports.tabular import render_rows

    facts = {
        "model": model, "gpu": gpu, "engine": engine, "engine_version": engine_version, "tp": tp, "pp": pp, "ep": ep,
        "dp": dp, "replicas": replicas, "weights": weights, "kv": kv, "input_tokens": input, "output_tokens": output,
        "concurrency": concurrency,
    }  # fmt: skip
    points = bench.read_points(file, kind, facts)
    settings = bench.settings_of(memory_utilization, max_num_seqs, max_num_batched_tokens)
    names = [name.strip() for name in constants.split(",")] if constants else None
    report, text = calibration_report(points, settings, calibration, names)
    notes = [*report.notes, *bench.remarks(points)]
    if out is not None:
        emit(text, out)
        notes.append(f"written: {out}; give it to any command as --calibration {out}")
    else:
        notes.append("not kept: give --out FILE to write a calibration for --calibration")
    emit(render_rows(report.rows, format=format, title=report.title, notes=notes))
