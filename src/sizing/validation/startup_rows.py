"""Rows of engine start-up logs: which columns say what was asked for, and the deployment they describe."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sizing.architecture import Model, read_model
from sizing.catalog import Gpu, gpu, resolve_gpu
from sizing.catalog.models import models
from sizing.catalog.names import essential, format_in_name, without_format
from sizing.deployment import Deployment, EngineSettings, NumberFormats, Parallelism
from sizing.errors import SizingError
from sizing.formats import weight_format

#: Columns that a prediction may read; every other column is a measurement or a remark.
INPUTS = (
    "id", "engine", "engine_version", "model", "gpu", "tp", "pp", "dp", "ep", "weight_precision_or_quant",
    "kv_dtype", "gpu_memory_utilization", "max_model_len", "max_num_batched_tokens", "block_size",
)  # fmt: skip
ENGINES = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm", "trtllm": "trtllm", "trt-llm": "trtllm"}
#: Version taken for a vLLM log that states none: the middle of those whose logs are public (2023-12 to 2026-05).
UNSTATED_VERSION = "0.9"
NOTHING = frozenset({"", "nan", "none", "auto", "null", "n/a"})
#: What logs call formats: pattern, and the format's name or that of the pattern's group.
NAMED = (
    (r"gguf\W*(q\d\w*)", ""), (r"nvfp4|modelopt_fp4", "nvfp4"), (r"mxfp4", "mxfp4"), (r"w4a16|int4|awq", "int4"),
    (r"gptq.*int8|w8a16", "int8_w8a16"), (r"gptq", "int4"), (r"bitsandbytes|bnb", "nf4"), (r"w8a8|int8", "int8"),
    (r"fp8", "fp8_channel"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a row asks for, checked.

    Attributes
    ----------
    deployment
        None when the model, or the GPU, is not known.
    gpu_known
        Whether the row's own GPU is meant; otherwise a stand-in that only bytes of weights and tokens
        can be read from.
    reason
        Why the row, or a part of it, has no answer.
    """

    id: str
    engine: str
    architecture: str = ""
    gpu_id: str = ""
    deployment: Deployment | None = None
    gpu_known: bool = True
    reason: str = ""


def asked(row: Mapping[str, str], configs: Path | None = None) -> Asked:
    """Deployment that a row describes; ``reason`` says what is missing.

    Parameters
    ----------
    row
        Columns by name; only :data:`INPUTS` are read.
    configs
        Folder of ``owner--name.json`` files, tried before the catalogue.
    """
    said = {name: str(row.get(name) or "").strip() for name in INPUTS}
    identity, engine = said["id"], ENGINES.get(said["engine"].lower(), said["engine"].lower())
    if engine not in ENGINES.values():
        return Asked(id=identity, engine=said["engine"], reason=f"engine {said['engine']!r} is not known")
    try:
        model = find_model(said["model"], configs)
    except SizingError as error:
        return Asked(id=identity, engine=engine, reason=f"model: {error}")
    chip, note = _gpu(said["gpu"])
    try:
        deployment = _deployment(said, model, chip or gpu("h100-sxm"), engine)
    except SizingError as error:
        return Asked(id=identity, engine=engine, architecture=family(model), reason=str(error))
    return Asked(
        id=identity, engine=engine, architecture=family(model), gpu_id=chip.id if chip else "",
        deployment=deployment, gpu_known=chip is not None, reason=note,
    )  # fmt: skip


@lru_cache(maxsize=512)
def find_model(name: str, configs: Path | None = None) -> Model:
    """Model of a row: ``owner--name.json`` in a folder, else a name of the catalogue.

    In the folder, a file of that very name is taken first; after the names the catalogue knows as they
    stand, one that differs only in number format, date or tuning variant.
    """
    name = re.sub(r"\s*\(.*?\)|-?\*", "", name).strip() or name  # remarks behind the name
    files = _files(configs)
    wanted = name.replace("/", "--").lower()
    if wanted in files:
        return read_model(files[wanted])
    if name in models():
        return read_model(name)
    near = [stem for stem in files if essential(without_format(_named(stem))) == essential(without_format(name))]
    if near:
        best = min(near, key=lambda stem: (format_in_name(_named(stem)) is not None, len(stem), stem))
        return read_model(files[best])
    return read_model(name)


def _named(stem: str) -> str:
    return stem.replace("--", "/", 1)


@lru_cache(maxsize=8)
def _files(configs: Path | None) -> dict[str, Path]:
    return {} if configs is None else {file.stem.lower(): file for file in sorted(configs.glob("*.json"))}


def family(model: Model) -> str:
    """Kind of attention that decides the cache: the rarest kind in the model."""
    kinds = {layer.mixer.kind for layer in model.layers}
    for kind in ("compressed", "sparse", "mla", "linear", "chunked", "sliding"):
        if kind in kinds:
            return kind
    return "attention, MoE" if model.is_moe else "attention"


def _gpu(text: str) -> tuple[Gpu | None, str]:
    """Accelerator of a row, remarks in brackets and behind a semicolon left out."""
    plain = re.sub(r"\(.*?\)", " ", text).split(";")[0]
    plain = re.sub(r"\b(per author|class)\b", " ", plain).strip() or text.strip()
    if plain.lower() in NOTHING:
        return None, "GPU not stated: no KV room"
    for candidate in (plain, text.strip()):
        try:
            return gpu(resolve_gpu(candidate)[0]), ""
        except SizingError as error:
            note = f"{error}: no KV room"
    return None, note


def _deployment(said: Mapping[str, str], model: Model, chip: Gpu, engine: str) -> Deployment:
    tp, pp, dp, ep = (_whole(said[name]) or 1 for name in ("tp", "pp", "dp", "ep"))
    if engine == "sglang" and dp > 1:  # dp counts attention ranks inside tp
        tp, dp = max(1, tp // dp), dp
    version = said["engine_version"]
    if engine == "vllm" and not re.search(r"\d", version):
        version = UNSTATED_VERSION
    return Deployment(
        model=model,
        gpu=chip,
        parallelism=Parallelism(tp=tp, pp=pp, dp=dp, ep=min(ep, tp * dp)),
        formats=NumberFormats(
            weights=weights_of(said["weight_precision_or_quant"], said["model"], model),
            kv="auto" if said["kv_dtype"].lower() in NOTHING else said["kv_dtype"],
        ),
        settings=EngineSettings(
            engine=engine,
            version=version,
            memory_utilization=_share(said["gpu_memory_utilization"]),
            max_num_batched_tokens=_whole(said["max_num_batched_tokens"]),
            max_model_len=_whole(said["max_model_len"]),
            block_size=_whole(said["block_size"]),
        ),
    )


def weights_of(text: str, name: str, model: Model) -> str | None:
    """Weight format a row asks for; None: the checkpoint's own, which a config that is quantised states.

    Parameters
    ----------
    text
        ``bfloat16``, ``fp8``, ``compressed-tensors``, ``awq_marlin int4``, ``gguf Q4_K_M``, ``nan``.
    name
        Model name, whose ending says what ``compressed-tensors`` or ``modelopt`` leave open.
    """
    said = text.lower()
    if "float32" in said or said == "fp32":
        return "fp32"
    if weight_format(model.checkpoint.name).element_bits < 16:
        return None
    for pattern, format_name in NAMED:
        if found := re.search(pattern, said):
            return format_name or found[1]
    if model.model_type == "gpt_oss":
        return "mxfp4"  # the released checkpoints are MXFP4, whatever an abridged config leaves out
    return format_in_name(name)


def _whole(text: str) -> int | None:
    number = _number(text)
    return None if number is None or number < 1 else int(number)


def _share(text: str) -> float | None:
    number = _number(text)
    return None if number is None or not 0 < number <= 1 else number


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number == number and abs(number) < 1e12 else None
