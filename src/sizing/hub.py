"""Looking a model up on the Hugging Face hub: its config.json and the index of its weights, nothing else.

Needs the ``[hub]`` extra. Honours ``HF_TOKEN``, ``HF_HUB_OFFLINE`` and the hub's own cache.
"""

import json
import re
from pathlib import Path
from typing import Any

from sizing.errors import UnknownModel

#: Hugging Face ids: owner and name.
_ID = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
#: A file larger than this is not fetched [B].
LARGEST_FILE_BYTES = 64 * 1024**2


def is_hub_id(name: str) -> bool:
    """Whether a name could be one on the hub."""
    return _ID.fullmatch(name) is not None and ".." not in name


def fetch_config(name: str) -> Path:
    """Path of the model's config.json in the hub's cache, its ``hf_quant_config.json`` beside it where it has one.

    Parameters
    ----------
    name
        Hugging Face id, ``owner/name``.

    Raises
    ------
    UnknownModel
        The hub has no such model, refuses it, or can't be reached; the message says what to download.
    """
    config = _fetch(name, "config.json")
    if config is None:
        raise UnknownModel(
            f"the hub has no config.json for {name!r}; check the name, or give a config.json of your own"
        )
    _fetch(name, "hf_quant_config.json")
    return config


def weight_bytes(name: str) -> int | None:
    """Bytes of the model's weights as its safetensors index states them, or None without an index. [B]"""
    index = _fetch(name, "model.safetensors.index.json")
    if index is None or index.stat().st_size > LARGEST_FILE_BYTES:
        return None
    try:
        total = json.loads(index.read_text(encoding="utf-8"))["metadata"]["total_size"]
    except (ValueError, KeyError, TypeError):
        return None
    return int(total) if isinstance(total, int | float) else None


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise UnknownModel(
            "the hub was not asked: `pip install 'sizing[hub]'` lets it be, or download config.json and give its folder"
        ) from error
    return huggingface_hub


def _fetch(name: str, file: str) -> Path | None:
    """One file through the hub's own client, None where the model has no such file."""
    hub = _library()
    try:
        return Path(hub.hf_hub_download(repo_id=name, filename=file))
    except Exception as error:
        kind = type(error).__name__
        if kind in {"EntryNotFoundError", "RemoteEntryNotFoundError"}:
            return None
        if kind == "LocalEntryNotFoundError" and file != "config.json":
            return None
        raise UnknownModel(_explained(name, file, kind, error)) from error


def _explained(name: str, file: str, kind: str, error: Exception) -> str:
    get = f"download https://huggingface.co/{name}/resolve/main/{file} and give its folder"
    if kind == "GatedRepoError":
        return f"{name!r} is gated on the hub: accept its terms and set HF_TOKEN, or {get}"
    if kind == "RepositoryNotFoundError":
        return f"the hub has no model {name!r} (or it is private: set HF_TOKEN)"
    first = str(error).strip().splitlines()[0][:160] if str(error).strip() else kind
    return f"the hub could not be asked for {name!r} ({kind}: {first}); {get}"
