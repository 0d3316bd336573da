"""Start-up logs of engines: where they say the GPU's memory went, line by line."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from sizing.benchmarks.document import Document, open_document
from sizing.errors import InputError
from sizing.registry import Registry

GIB = float(2**30)
UNITS = {"gib": GIB, "gb": GIB, "mib": float(2**20), "mb": float(2**20)}
ENGINE_FACTS: tuple[str, ...] = (
    "model", "version", "tp", "pp", "dp", "ep", "utilization", "max_model_len", "max_num_batched_tokens",
    "max_num_seqs", "weight_format", "kv_format",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupLog:
    """What one engine's start-up log states; None is "not stated". Bytes are per GPU.

    Parameters
    ----------
    engine, version, source, sha256
        Whose log, and which file.
    model, gpu, tp, pp, dp, ep, weight_format, kv_format
        The deployment.
    utilization
        Share of memory the engine was allowed, in its own sense [1].
    max_model_len, max_num_batched_tokens, max_num_seqs, block_size
        Limits in force [tokens, tokens, sequences, tokens].
    total_bytes, free_before_bytes
        Memory of the GPU, and free of it before loading [bytes].
    weights_bytes, activation_bytes, non_torch_bytes, cuda_graph_bytes, kv_bytes
        Lines of the budget [bytes].
    kv_tokens, max_concurrency
        KV capacity as printed [tokens], and requests of ``max_model_len`` that fit [1].
    warnings
        What to know before comparing.
    """

    engine: str
    source: str
    sha256: str
    version: str | None = None
    model: str | None = None
    gpu: str | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    weight_format: str | None = None
    kv_format: str | None = None
    utilization: float | None = None
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    block_size: int | None = None
    total_bytes: float | None = None
    free_before_bytes: float | None = None
    weights_bytes: float | None = None
    activation_bytes: float | None = None
    non_torch_bytes: float | None = None
    cuda_graph_bytes: float | None = None
    kv_bytes: float | None = None
    kv_tokens: float | None = None
    max_concurrency: float | None = None
    warnings: tuple[str, ...] = field(default=())

    @property
    def kv_bytes_per_token(self) -> float | None:
        """Bytes of KV per token and GPU that the printed numbers imply [bytes]."""
        return self.kv_bytes / self.kv_tokens if self.kv_bytes and self.kv_tokens else None


class LogReader(Protocol):
    """Reader of one engine's start-up log."""

    title: ClassVar[str]

    def recognises(self, text: str) -> bool:
        """Whether the text is of this engine."""
        ...

    def read(self, document: Document, text: str) -> StartupLog:
        """What the log states."""
        ...


LOG_READERS: Registry[type[LogReader]] = Registry("start-up log", "sizing.benchmarks.startup")


def read_startup_log(path: str | Path, engine: str | None = None) -> StartupLog:
    """Read an engine's start-up log.

    Parameters
    ----------
    path
        Text file; other lines around the start-up are ignored.
    engine
        ``vllm``, ``sglang`` or ``trtllm`` when the content alone does not tell.
    """
    document = open_document(path)
    text = document.text
    if text is None:
        raise InputError(f"{document.name}: not a text file; give the engine's log")
    names = (engine,) if engine else LOG_READERS.names()
    for name in names:
        reader = LOG_READERS.get(name)()
        if engine or reader.recognises(text):
            log = reader.read(document, text)
            if log.kv_bytes is None and log.kv_tokens is None and log.weights_bytes is None:
                raise InputError(
                    f"{document.name}: no line about memory in it; a {reader.title} states the weights' size "
                    "and the KV cache's"
                )
            return log
    raise InputError(f"{document.name}: not a start-up log of {', '.join(names)}; name it with --engine")


def first(text: str, *patterns: str) -> re.Match[str] | None:
    """First match of the first pattern that matches at all."""
    for pattern in patterns:
        found = re.search(pattern, text)
        if found:
            return found
    return None


def word(text: str, *patterns: str) -> str | None:
    """First group of the first match, unless it says that nothing was set."""
    found = first(text, *patterns)
    value = found[1].strip("'\" ") if found else None
    return None if value in (None, "", "None", "null") else value


def number(text: str, *patterns: str) -> float | None:
    """First group as a number; thousands separators are read."""
    found = first(text, *patterns)
    return float(found[1].replace(",", "")) if found else None


def whole(text: str, *patterns: str) -> int | None:
    """First group as a whole number."""
    value = number(text, *patterns)
    return None if value is None else int(value)


def sizes_bytes(text: str, pattern: str) -> list[float]:
    """Every match's (number, unit) groups in bytes; engines print GiB, at times labelled GB [bytes]."""
    return [float(n.replace(",", "")) * UNITS[unit.lower()] for n, unit in re.findall(pattern, text)]


def size_bytes(text: str, *patterns: str, choose: Literal["max", "min", "last"] = "max") -> float | None:
    """Size by the first pattern that matches; of several ranks the largest, smallest or last [bytes]."""
    for pattern in patterns:
        found: Sequence[float] = sizes_bytes(text, pattern)
        if found:
            return {"max": max(found), "min": min(found), "last": found[-1]}[choose]
    return None
