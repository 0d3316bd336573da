"""Does it fit, and how many requests: the memory budget of one deployment."""

from typing import Annotated

from sizing.cli._options import Format, OutFile, OwnCatalog, Stages, option


def command(
    model: Annotated[str, option("Catalogue name, Hugging Face id, folder or config.json.", "--model", "-m")],
    gpu: Annotated[str, option("GPU.", "--gpu", "-g")] = "h100-sxm",
    engine: Annotated[str, option("vllm, sglang, trtllm or transformers.")] = "vllm",
    engine_version: Annotated[str | None, option("Version, as the log prints it.")] = None,
    tp: Annotated[str | None, option("Tensor parallel GPUs.")] = None,
    pp: Stages = None,
    dp: Annotated[str | None, option("Data-parallel attention ranks.")] = None,
    ep: Annotated[str | None, option("Expert parallel ranks.")] = None,
    dcp: Annotated[str | None, option("Decode context parallel ranks.")] = None,
    weights: Annotated[str | None, option("Weight format; the checkpoint's own if left out.")] = None,
    kv: Annotated[str | None, option("KV cache format: auto, bf16, fp8.")] = None,
    memory_utilization: Annotated[str | None, option("Share of GPU memory the engine may use.")] = None,
    max_model_len: Annotated[str | None, option("Longest context: 32k.")] = None,
    max_num_seqs: Annotated[str | None, option("Requests in one step at most.")] = None,
    max_num_batched_tokens: Annotated[str | None, option("Tokens in one step at most.")] = None,
    input: Annotated[str | None, option("Input tokens of a request.")] = None,
    output: Annotated[str | None, option("Output tokens of a request.")] = None,
    memory_rule: Annotated[str, option("usable (the engine's rules) or datasheet.")] = "usable",
    catalog: OwnCatalog = None,
    format: Format = "table",
    out: OutFile = None,
) -> None:
    """Print where a GPU's memory goes, line by line, and how many requests fit."""
    from sizing import architecture, deployment, units
    from sizing import catalog as catalogue
    from sizing.cli.output import emit
    from sizing.memory import budget_notes, budget_rows, memory_budget
    from sizing.reports.tabular import render_rows

    def whole(text: str | None, name: str) -> int | None:
        return None if text is None else units.whole(text, name, least=1)

    if catalog is not None:
        catalogue.overlay(catalog)
    chip, note = catalogue.resolve_gpu(gpu)
    ways = {"tp": tp, "pp": pp, "dp": dp, "ep": ep, "cp": dcp}
    chosen = deployment.Deployment(
        model=architecture.read_model(model),
        gpu=catalogue.gpu(chip),
        parallelism=deployment.Parallelism(**{n: whole(t, f"--{n}") or 1 for n, t in ways.items()}),
        formats=deployment.NumberFormats(weights=weights, kv=kv or "auto"),
        settings=deployment.EngineSettings(
            engine=engine,
            version=engine_version,
            memory_utilization=None if memory_utilization is None else units.fraction(memory_utilization),
            max_model_len=whole(max_model_len, "--max-model-len"),
            max_num_seqs=whole(max_num_seqs, "--max-num-seqs"),
            max_num_batched_tokens=whole(max_num_batched_tokens, "--max-num-batched-tokens"),
        ),
    )
    lengths = [t for t in (whole(input, "--input"), whole(output, "--output")) if t]
    budget = memory_budget(chosen, request_tokens=sum(lengths) or None, memory_rule=memory_rule)
    title = f"{chosen.model.name} on {chosen.gpus} x {chosen.gpu.id}, {engine}: memory of one GPU"
    emit(render_rows(budget_rows(budget), format=format, title=title, notes=budget_notes(budget, note)), out)
