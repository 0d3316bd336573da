"""Dynamo profiler sweeps: ``raw_data.npz`` or ``*_raw_data.json`` of the prefill or the decode engine.

Decode: the batch is x_kv_usage x max_kv_tokens / y_context_length (usage is counted at input + half the
output); ``z_itl`` and ``prefill_ttft`` are milliseconds. Model, GPU and layout are in the folder's name only.
"""

import io
import zipfile
from collections.abc import Sequence
from typing import Any, ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.point import BenchPoint, Latency, Load
from sizing.benchmarks.reader import READERS
from sizing.benchmarks.record import LARGEST
from sizing.errors import InputError

DECODE = ("x_kv_usage", "y_context_length", "z_itl", "max_kv_tokens")
PREFILL = ("prefill_isl", "prefill_ttft")


@READERS.register("dynamo-profiler")
class DynamoProfiler:
    """Interpolation data of Dynamo's pre-deployment profiler."""

    title: ClassVar[str] = "Dynamo profiler raw_data.npz / json"
    rank: ClassVar[int] = 10
    hint_only: ClassVar[bool] = False

    def recognises(self, document: Document) -> bool:
        """The arrays of either sweep."""
        names = set(document.mapping) or set(_archive_names(document))
        return set(DECODE) <= names or set(PREFILL) <= names

    def read(self, document: Document) -> Sequence[BenchPoint]:
        """One static point a sample."""
        arrays = document.mapping or _archive(document)
        if set(DECODE) <= set(arrays):
            return _decode(document, *(_vector(document, arrays, key) for key in DECODE))
        return _prefill(document, *(_vector(document, arrays, key) for key in PREFILL))


def _archive_names(document: Document) -> list[str]:
    if document.raw[:4] != b"PK\x03\x04":
        return []
    try:
        with zipfile.ZipFile(io.BytesIO(document.raw)) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
    except zipfile.BadZipFile:
        return []


def _archive(document: Document) -> dict[str, Any]:
    import numpy as np

    try:
        with np.load(io.BytesIO(document.raw), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{document.name}: broken npz archive ({error})") from None


def _vector(document: Document, arrays: dict[str, Any], key: str) -> Any:
    import numpy as np

    try:
        vector = np.asarray(arrays[key], dtype=float).reshape(-1)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{document.name}: {key} is not a list of numbers") from None
    if vector.size == 0 or not np.all((vector >= 0.0) & (vector <= LARGEST)):
        raise InputError(f"{document.name}: {key} must be numbers from 0 to {LARGEST:g}, at least one")
    return vector


def _decode(document: Document, usage: Any, context: Any, itl_ms: Any, capacity: Any) -> list[BenchPoint]:
    if not usage.size == context.size == itl_ms.size:
        raise InputError(f"{document.name}: {', '.join(DECODE[:3])} differ in length")
    if not context.all():
        raise InputError(f"{document.name}: y_context_length is 0, expected tokens > 0")
    batch = usage * float(capacity[0]) / context
    return [
        BenchPoint(
            format="dynamo-profiler",
            source=document.name,
            sha256=document.sha256,
            index=n,
            load=Load(kind="static", concurrency=float(max(1.0, round(batch[n], 2)))),
            tpot=Latency(mean_s=float(itl_ms[n]) * 1e-3),
            tpot_definition="server_reported",
            context_tokens=float(context[n]),
            kv_tokens=float(capacity[0]),
        )
        for n in range(usage.size)
    ]


def _prefill(document: Document, tokens: Any, ttft_ms: Any) -> list[BenchPoint]:
    if tokens.size != ttft_ms.size:
        raise InputError(f"{document.name}: {' and '.join(PREFILL)} differ in length")
    return [
        BenchPoint(
            format="dynamo-profiler",
            source=document.name,
            sha256=document.sha256,
            index=n,
            load=Load(kind="prefill", concurrency=1.0),
            ttft=Latency(mean_s=float(ttft_ms[n]) * 1e-3),
            input_tokens=float(tokens[n]),
        )
        for n in range(tokens.size)
    ]
