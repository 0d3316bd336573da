"""From a row of measured results to what our model is asked: only inputs are read, never what was measured."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sizing.architecture import Model, read_model
from sizing.catalog import Gpu
from sizing.catalog import gpu as catalog_gpu
from sizing.deployment import Deployment, EngineSettings, NumberFormats, Parallelism
from sizing.engines.timing import EngineTiming, engine_timing
from sizing.errors import CatalogError, InputError, SizingError
from sizing.replica.run import ClosedLoop, Lengths, Offline, OpenLoop, RunLoad, Targeted
from sizing.validation.layouts import Notes, Pools, layout_of, number, pools_of, rack_pools, wider_layouts
from sizing.validation.model_names import find_model
from sizing.validation.stated import stated

INPUTS = (
    "id", "engine", "engine_version", "model", "gpu", "num_gpus", "tp", "pp", "ep", "dp", "weight_precision",
    "kv_precision", "isl", "osl", "load_kind", "load_value", "num_prompts", "prefix_caching", "spec_decode",
    "notes", "deploy", "len_dist", "isl_actual", "osl_actual", "batch_size", "date_or_version",
)  # fmt: skip
"""Columns that a prediction may depend on."""

LABELS = ("id", "quality", "model_family", "engine", "gpu", "model", "weight_precision", "load_kind", "source_url")
"""Columns that errors are grouped by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row as a question.

    Attributes
    ----------
    deployment, timing
        One replica and its engine's record.
    replicas
        Copies that share the load. [1]
    lengths, load
        Of the requests; of the whole deployment.
    pools
        Of a disaggregated deployment.
    drafts
        Tokens drafted a step by speculative decoding. [token]
    guessed_lengths
        Whether a length was neither stated nor known for the data set.
    made_up_weights
        Whether weights were not a model's own, so that a router sends every token to the same experts.
    kv_bytes
        Room for the KV cache on each GPU where the row states it; None for what the engine's rules leave. [byte]
    choices
        Other layouts and their copies, of which the one that carries most is taken.
    assumptions
        What the row left open.
    """

    id: str
    deployment: Deployment
    timing: EngineTiming
    lengths: Lengths
    load: RunLoad
    replicas: float = 1.0
    pools: Pools | None = None
    drafts: float = 0.0
    guessed_lengths: bool = False
    made_up_weights: bool = False
    kv_bytes: float | None = None
    choices: tuple[tuple[Parallelism, float], ...] = ()
    assumptions: tuple[str, ...] = ()


# -- formats ----------------------------------------------------------------------------------------------

WEIGHTS = (
    ("bitsandbytes", "nf4"), ("mxfp8", "mxfp8"), ("w4a16", "int4"), ("w8a16", "int8_w8a16"), ("w8a8", "int8"),
    ("gptq (int8)", "int8_w8a16"), ("gptq marlin (int8)", "int8_w8a16"), ("int4", "int4"), ("awq", "int4"),
    ("gptq", "int4"), ("int8", "int8"), ("nvfp4", "fp4"), ("mxfp4", "fp4"), ("fp4", "fp4"), ("fp8", "fp8"),
    ("fp16", "bf16"), ("bf16", "bf16"), ("fp32", "fp32"),
)  # fmt: skip


NEAREST_GPU = {"MI250": "mi250x"}
"""Accelerators that rows name and the catalogue lacks, by the one that is nearest."""


def _gpu(name: str, notes: Notes) -> Gpu:
    try:
        return catalog_gpu(name)
    except CatalogError:
        if name.strip() not in NEAREST_GPU:
            raise
        near = NEAREST_GPU[name.strip()]
        notes.texts.append(f"{name} taken as {near}")
        return catalog_gpu(near)


def _weights(row: Mapping[str, str], model: Model, gpu: Gpu, notes: Notes) -> str | None:
    """Weight format asked for; None for the checkpoint's own."""
    text = (row.get("weight_precision") or "").lower()
    if not text.strip() and (row.get("len_dist") or "").startswith("mlperf"):
        # entries of Mixtral's data set that name a format name FP8, on Blackwell too
        formats = ("fp8",) if "gsm8k" in row["len_dist"] else ("fp4", "fp8")
        text = next((name for name in formats if name in gpu.peak_flops_per_s), "bf16")
        notes.texts.append(f"{text}: the narrowest tensor type of the GPU that MLPerf entries of the data set use")
    if "checkpoint" in text or not text.strip():
        text = (row.get("model") or "").lower()
    asked = next((found for part, found in WEIGHTS if part in text), None)
    own = model.checkpoint.name
    if asked is None:
        return None
    if asked == "fp8" and own.startswith(("fp8", "mxfp4")):  # a 4-bit checkpoint: the words are of its activations
        return None
    if asked == "bf16":
        return None if "default" in (row.get("weight_precision") or "") or own == "bf16" else "bf16"
    if asked == "fp4":
        if any(own.startswith(x) for x in ("mxfp4", "nvfp4")):
            return None
        return "mxfp4_a4" if gpu.vendor == "AMD" else "nvfp4"
    return asked


def _published(model: Model, weights: str | None) -> tuple[Model, str | None]:
    """A published checkpoint in the format asked for, where the catalogue knows how it is quantised.

    The vendor's own NVFP4 checkpoint of a mixture of experts leaves attention in 16 bit; some publishers' own
    FP8 checkpoints have a scale for each block. A model that the catalogue does not know is taken with every
    matrix in the format asked for.
    """
    if weights == "fp8":
        name = f"{model.name}-FP8"
    elif weights == "nvfp4" and model.is_moe:
        name = f"nvidia/{model.name.rsplit('/', 1)[-1]}-NVFP4"
    else:
        return model, weights
    try:
        found = read_model(name)
    except SizingError:
        return model, weights
    alike = found.hidden_size == model.hidden_size and found.num_layers == model.num_layers
    known = found.checkpoint.name == "nvfp4" or found.checkpoint.method != "by name"
    return (found, None) if alike and known and found.checkpoint.name.startswith(weights) else (model, weights)


def _kv(row: Mapping[str, str], timing: EngineTiming, weights: str | None, model: Model, gpu: Gpu, notes: Notes) -> str:
    text = (row.get("kv_precision") or stated(row).kv or "").lower()
    if "fp8" in text:
        return "fp8"
    if "bf16" in text or "fp16" in text:
        return "bf16"
    narrow = (weights or model.checkpoint.name) not in ("bf16", "fp16", "fp32")
    recipe = timing.name.startswith(("trtllm", "nim", "atom"))
    if narrow and (recipe or (timing.name == "vllm" and gpu.architecture.startswith("Blackwell"))):
        notes.texts.append("KV cache in FP8, as this engine's quantised recipes for the GPU set it")
        return "fp8"
    return "auto"


# -- lengths and load -------------------------------------------------------------------------------------

DATASETS = (
    ("mlperf-openorca+gsm8k", 427.0, 145.0, 1.0), ("mlperf-openorca", 222.0, 293.0, 1.0),
    ("mlperf-cnn_dailymail", 871.0, 82.0, 0.5), ("mlperf-longdata", 9429.0, 685.0, 0.7),
    ("mlperf-reasoning", 804.0, 4043.0, 0.8),
)  # fmt: skip
"""Mean input and output tokens and variation; source: MLPerf inference reference outputs (openshift-psap
performance dashboard); llama2-70b's output as its logs have it (tokens/s over samples/s)."""

GUESSES = (
    ("sharegpt", 220.0, 200.0, 1.0), ("lm-arena", 120.0, 600.0, 1.0), ("gpqa", 250.0, 2000.0, 0.7),
    ("sourcegraph", 2500.0, 60.0, 0.8), ("longctx", 28650.0, 256.0, 0.1), ("mlperf-gptoss", 1100.0, 1300.0, 1.0),
    ("chatbot-short", 30.0, 128.0, 0.5),
)  # fmt: skip
"""Lengths assumed for data sets whose rows state none; scored apart."""

VARIATION = (("uniform(0", 0.577), ("sharegpt", 1.0), ("arena", 1.0), ("gpqa", 0.7), ("random", 0.1), ("mlperf", 1.0))


def _lengths(row: Mapping[str, str], notes: Notes) -> Lengths:
    kind = (row.get("len_dist") or "").lower()
    new, out = number(row, "isl_actual"), number(row, "osl_actual")
    stated = (number(row, "isl"), number(row, "osl"))
    if new is None and out is None and None not in stated and "uniform" in kind and "0.8" in kind:
        return Lengths.uniform(float(stated[0] or 1), float(stated[1] or 1))
    if new is None and out is None and None not in stated and "uniform(0" in kind:
        return Lengths.uniform(float(stated[0] or 1), float(stated[1] or 1), low=0.0)
    new, out = new or stated[0], out or stated[1]
    variation = next((cv for part, cv in VARIATION if part in kind), 0.0)
    if new is None or out is None:
        new, out, variation = _dataset(kind, new, out, notes)
    return Lengths(input_tokens=max(new, 1.0), output_tokens=max(out, 1.0), input_cv=variation, output_cv=variation)


def _dataset(kind: str, new: float | None, out: float | None, notes: Notes) -> tuple[float, float, float]:
    for part, mean_in, mean_out, cv in DATASETS:
        if part in kind:
            notes.texts.append(f"mean lengths of {part}")
            return new or mean_in, out or mean_out, cv
    for part, mean_in, mean_out, cv in GUESSES:
        if part in kind:
            notes.guessed = True
            notes.texts.append(f"lengths of {part} guessed")
            return new or mean_in, out or mean_out, cv
    raise InputError("input or output tokens are not stated, and the data set's are not known")


def _load(row: Mapping[str, str], notes: Notes) -> RunLoad:
    kind, value, prompts = row.get("load_kind") or "", number(row, "load_value"), number(row, "num_prompts")
    text = (row.get("load_value") or "").lower()
    if kind == "concurrency":
        if not value:
            raise InputError("concurrency is not stated")
        return ClosedLoop(users=value, requests=prompts)
    if kind == "offline":
        return ClosedLoop(users=value, requests=prompts) if value else Offline(requests=prompts)
    if kind == "request_rate":
        if "inf" in text or "burst" in text:
            return OpenLoop(request_rate_per_s=float("inf"), requests=prompts or 1000.0)
        if value:
            return OpenLoop(request_rate_per_s=value, requests=prompts, sustained=prompts is None)
        return _largest(row, notes)
    raise InputError(f"load {kind or 'of no kind'} is not a closed loop, a request rate or an offline run")


TARGETS = {
    "mlperf-openorca": ((2.0, 0.2), (0.45, 0.04)), "mlperf-openorca+gsm8k": ((2.0, 0.2), None),
    "mlperf-longdata": ((6.0, 0.175), (4.5, 0.08)), "mlperf-cnn_dailymail": ((2.0, 0.1), (0.5, 0.03)),
    "mlperf-reasoning": ((2.0, 0.08), (1.5, 0.015)), "mlperf-gptoss": ((3.0, 0.08), (2.0, 0.015)),
}  # fmt: skip
"""99th percentiles of TTFT and TPOT that MLPerf Inference 4.1 to 6.0 allow in the server and in the interactive
scenario of a benchmark; source: mlcommons/inference, ``loadgen/mlperf.conf`` and, for gpt-oss-120b, the submission
checker's ``LLM_LATENCY_LIMITS``. [s]"""


def _largest(row: Mapping[str, str], notes: Notes) -> RunLoad:
    """A rate that is the result: the largest within the scenario's targets, or the largest of all."""
    kind = (row.get("len_dist") or "").lower()
    known = max((name for name in TARGETS if kind.startswith(name)), key=len, default=None)
    targets = TARGETS[known]["interactive" in row["notes"]] if known else None
    if targets is None:
        notes.texts.append("rate not stated: the largest, saturated")
        return Offline(requests=number(row, "num_prompts"))
    notes.texts.append(f"the largest rate within {targets[0]:g} s to the first token and {targets[1]:g} s a token")
    return Targeted(ttft_s=targets[0], tpot_s=targets[1])


def _drafts(row: Mapping[str, str], notes: Notes) -> float:
    text = (row.get("spec_decode") or "").strip().lower()
    if text in ("", "none", "nan"):
        return 0.0
    digits = re.search(r"(?:mtp|steps=|k=|dspark \(|eagle )(\d+)", text)
    drafts = float(digits[1]) if digits else 3.0
    notes.texts.append(f"speculative decoding: {drafts:.0f} drafts, acceptance assumed")
    return drafts


def read_case(row: Mapping[str, str], configs: Path | None = None) -> Case:
    """A row as a question to the model.

    Parameters
    ----------
    row
        Cells by column; only :data:`INPUTS` are looked at.
    configs
        Folder of config files tried before the catalogue.

    Raises
    ------
    SizingError
        What keeps the row from being answered.
    """
    row = {name: row.get(name) or "" for name in INPUTS}
    notes = Notes()
    if not row["model"].strip() or row["model"] == "nan":
        raise InputError("the model is not stated")
    if not row["gpu"].strip():
        raise InputError("the GPU is not stated")
    model, gpu = find_model(row["model"], str(configs or "")), _gpu(row["gpu"], notes)
    timing = _engine(row, gpu, notes)
    weights = _weights(row, model, gpu, notes)
    kv = _kv(row, timing, weights, model, gpu, notes)
    model, weights = _published(model if timing.windows else model.without_windows(), weights)
    lengths = _lengths(row, notes)
    load = _load(row, notes)
    pools = pools_of(row, notes) or rack_pools(
        row, model, (lengths.input_tokens, lengths.output_tokens), getattr(load, "users", 1e9), notes
    )
    layout, replicas = (pools.decode, 1.0) if pools else layout_of(row, model, gpu, weights, notes)
    most = isinstance(load, Offline | Targeted) and not pools
    choices = wider_layouts(row, layout, replicas, gpu) if most else ()
    said = stated(row)
    settings = EngineSettings(
        engine=timing.memory, version=_memory_version(row, timing), max_num_seqs=said.max_num_seqs,
        max_num_batched_tokens=said.max_num_batched_tokens,
        memory_utilization=None if said.kv_bytes else said.memory_utilization,
    )  # fmt: skip
    deployment = Deployment(model=model, gpu=gpu, parallelism=layout, formats=NumberFormats(weights=weights, kv=kv),
                            settings=settings)  # fmt: skip
    return Case(id=row["id"], deployment=deployment, timing=timing, lengths=lengths, load=load, replicas=replicas,
                pools=pools, drafts=_drafts(row, notes), guessed_lengths=notes.guessed,
                made_up_weights=bool(re.search(r"fake.weights?", row["notes"])), kv_bytes=said.kv_bytes,
                choices=choices, assumptions=tuple(notes.texts))  # fmt: skip


def _engine(row: Mapping[str, str], gpu: Gpu, notes: Notes) -> EngineTiming:
    """The engine's record; MLPerf entries on NVIDIA GPUs that name none run TensorRT-LLM, as those that do."""
    if not row["engine"].strip() and row["len_dist"].startswith("mlperf") and gpu.vendor == "NVIDIA":
        notes.texts.append("TensorRT-LLM: MLPerf entries on NVIDIA GPUs that name an engine name it")
        return engine_timing("tensorrt-llm")
    return engine_timing(row["engine"], _version(row))


def _version(row: Mapping[str, str]) -> str:
    """Version as stated, or the date of the run."""
    text = row["engine_version"].strip()
    date = row["date_or_version"].strip()
    if stated(row).legacy and "V0" not in text:
        text = f"{text} (V0 engine)"
    return f"{text} {date}" if re.search(r"\d+\.\d+|\bV[01]\b", text) else date


def _memory_version(row: Mapping[str, str], timing: EngineTiming) -> str | None:
    text = row["engine_version"].strip()
    return text if timing.name.startswith(("vllm", "sglang", "trtllm-session")) and re.match(r"v?\d", text) else None


def shared_load(load: RunLoad, replicas: float) -> RunLoad:
    """The part of a load that one of several replicas gets.

    Parameters
    ----------
    load
        Of the whole deployment.
    replicas
        That share it. [1]
    """
    if replicas <= 1.0 or isinstance(load, Targeted):
        return load
    requests = load.requests / replicas if load.requests else None
    if isinstance(load, ClosedLoop):
        return ClosedLoop(users=load.users / replicas, requests=requests)
    if isinstance(load, OpenLoop):
        return replace(load, request_rate_per_s=load.request_rate_per_s / replicas, requests=requests)
    return Offline(requests=requests)


__all__ = ["INPUTS", "LABELS", "Case", "CatalogError", "Pools", "SizingError", "find_model", "read_case", "shared_load"]
