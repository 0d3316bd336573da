"""Models by the names that benchmarks give them."""

import re
from functools import lru_cache
from pathlib import Path

from sizing.architecture import Model, read_model

NOISE = {
    "instruct", "chat", "it", "hf", "base", "meta", "fp8", "fp4", "nvfp4", "mxfp4", "mxfp8", "bf16", "awq", "gptq",
    "dynamic", "quantized", "w4a16", "w8a16", "w8a8", "int4", "int8", "kv", "text", "only", "static", "block",
    "0528", "2507", "2512", "2506", "thinking", "v0", "v1", "v2", "1", "3", "pt", "exp", "preview", "dyn", "pre",
    "finetuned", "nvidia", "coder", "math",
}  # fmt: skip
"""Parts of names that don't change shapes; tried away one by one from the end."""

SAME_SHAPES = {
    "llama33-70b": "llama31-70b", "deepseekv3/r1": "deepseekv3", "deepseekr1": "deepseekv3", "r1": "deepseekv3",
    "deepseekv31": "deepseekv3", "deepseek": "deepseekv3", "qwq32b": "qwen25-32b", "qwen2-72b": "qwen25-72b",
    "qwen2-7b": "qwen25-7b", "minimaxm27": "minimaxm25", "minimaxm2": "minimaxm25", "glm47": "glm46",
    "glm46": "glm45", "kimik26": "kimik25", "kimik27": "kimik25", "kimik2": "kimik25", "llama3-70b": "llama31-70b",
    "llama3-8b": "llama31-8b",
    "llama31-8b": "llama3-8b", "llama31-70b": "llama3-70b", "kimik25": "kimik2", "qwen3vl-8b": "qwen3-8b",
    "mistral-7b": "mistral-7bv01", "mixtral-8x7b": "mixtral-8x7bv01", "deepseekv32": "deepseekv3",
    "minimaxm25": "minimaxm2", "deepseekv3": "deepseekr1", "qwen3-next": "qwen3-next-80b-a3b",
    "qwen3-coder-next": "qwen3-next-80b-a3b",
    "llamav2-7b": "llama2-7b", "llamav2-13b": "llama2-13b", "llamav2-70b": "llama2-70b", "llama-7b": "llama2-7b",
    "llama-13b": "llama2-13b", "llama70b": "llama2-70b", "llamav3-8b": "llama3-8b", "llamav3-70b": "llama3-70b",
}  # fmt: skip
"""Models whose layers have the same shapes as another's: what to read when a name is not in the catalogue."""


def words(name: str) -> list[str]:
    """A model's name without owner as lower-case words of letters and digits."""
    tail = name if name.lower().endswith("v3/r1") else name.rsplit("/", 1)[-1]
    text = re.sub(r"(?<=[a-z]\d)_(?=\d)", ".", tail.lower())
    text = re.sub(r"\.(?=[a-z])", " ", text)
    return [w for w in re.split(r"[^a-z0-9.]+", text) if w]


def shape_key(name: str, drop: int = 0) -> str:
    """Words joined, ``drop`` of the noise words left out from the end."""
    kept = words(name)
    if kept and kept[0] in ("meta", "nvidia"):
        kept = kept[1:]
    for _ in range(drop):
        index = next((i for i in range(len(kept) - 1, 0, -1) if kept[i] in NOISE), None)
        if index is None:
            break
        kept.pop(index)
    return "".join(kept).replace(".", "").replace("-", "")


@lru_cache(maxsize=4)
def _index(configs: str) -> dict[str, str]:
    """Keys of every known model -> the catalogue's name, or the file of the folder."""
    from sizing.catalog import models as catalogue

    found: dict[str, str] = {}
    names = [(name, name) for name in catalogue.models()]
    if configs:
        files = sorted(Path(configs).rglob("*.json"))
        names = [(f.stem.replace("--", "/"), str(f)) for f in files] + names
    for drop in range(6):
        for name, where in names:
            found.setdefault(shape_key(name, drop), where)
    return found


@lru_cache(maxsize=1024)
def find_model(name: str, configs: str = "") -> Model:
    """A model by the name that a benchmark gives it.

    Parameters
    ----------
    name
        In any spelling; number formats, dates and tuning in the name are looked through.
    configs
        Folder of ``owner--name.json`` files that are tried before the catalogue; empty for none.
    """
    index = _index(configs)
    same = {k.replace("-", "").replace(".", ""): v.replace("-", "").replace(".", "") for k, v in SAME_SHAPES.items()}
    keys = list(dict.fromkeys(shape_key(name, drop) for drop in range(7)))
    for _ in range(3):
        for key in keys:
            if key in index:
                return read_model(index[key])
        keys = [same[key] for key in keys if key in same]
    return read_model(name)
