"""Tables of measured kernels: a folder of Parquet files, or the project's own CSV, to one record each.

A record holds one operation of one GPU and engine's kernel: sizes as columns, the measured time, and rows left
out by named rules. The Parquet files are AIConfigurator's (Apache-2.0), one ``<system>_<family>_<engine>.parquet``
each; reading them needs the extra ``[parquet]``. The CSV has :data:`COLUMNS`.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizing.errors import InputError, UnknownFile

Floats = NDArray[np.float64]

COLUMNS = (
    "gpu", "engine", "operation", "kernel", "m", "n", "k", "batch", "length", "heads", "kv_heads", "kv_bytes",
    "experts", "top_k", "local_experts", "balanced", "gpus", "bytes", "time_s", "source",
)  # fmt: skip
"""Columns of the CSV file; a size that an operation has not is empty. Units: [token], [element], [B], [s]."""

SIZES = COLUMNS[4:-2]
SYSTEMS = {
    "a100_sxm": "a100-80-sxm",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200-hgx",
    "l40s": "l40s",
}
"""AIConfigurator's systems and their ids in the catalogue."""
FORMATS = {
    "bfloat16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "nvfp4",
    "int8_wo": "int8_weight",
    "int4_wo": "int4_weight",
    "sq": "int8",
    "w4a16_mxfp4": "int4_weight",
}
"""Their number formats and ours; others are not read."""
SOURCE = "aiconfigurator-core 0.12.0"
"""https://github.com/ai-dynamo/aiconfigurator, Apache-2.0; tables under ``systems/data``."""
VERSIONS = {"vllm": "vLLM 0.24.0", "trtllm": "TensorRT-LLM 1.3.0rc20", "any": "NCCL, DeepEP"}
OLDER = {("a100-80-sxm", "vllm"): "vLLM 0.14.0", ("a100-80-sxm", "trtllm"): "TensorRT-LLM 1.0.0"}
"""Engine versions of the tables, and of those that are older."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTable:
    """Measurements of one operation on one GPU with one engine's kernels.

    Attributes
    ----------
    gpu
        Id in the catalogue.
    engine
        ``vllm``, ``trtllm`` or ``any`` (a communication library's).
    operation
        Family of the calibration such as ``gemm.fp8``; ``mla_decode_module.bf16`` and the like for whole blocks.
    kernel
        What the collector says ran.
    sizes
        Columns of :data:`COLUMNS`, each with one value a row.
    time_s
        Measured [s].
    source
        Where from.
    excluded
        Rows left out, by rule.
    """

    gpu: str
    engine: str
    operation: str
    kernel: NDArray[np.str_]
    sizes: Mapping[str, Floats]
    time_s: Floats
    source: str = SOURCE
    excluded: Mapping[str, int] | None = None

    def __len__(self) -> int:
        return len(self.time_s)

    def where(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> "KernelTable":
        """The same table with some of its rows.

        Parameters
        ----------
        rows
            Mask or positions.
        """
        return replace(
            self, kernel=self.kernel[rows], sizes={n: v[rows] for n, v in self.sizes.items()}, time_s=self.time_s[rows]
        )


def read_kernel_tables(folder: Path) -> list[KernelTable]:
    """Every table in a folder, or in one CSV file, rows in the order of the files.

    Parameters
    ----------
    folder
        Folder of ``.parquet`` and ``.csv`` files, or one CSV file.

    Raises
    ------
    UnknownFile
        Nothing there.
    InputError
        Parquet without the extra, columns that are missing.
    """
    path = Path(folder)
    if path.is_file():
        return _read_csv(path)
    if not path.is_dir():
        raise UnknownFile(f"kernel tables: no folder or file {str(path)!r}")
    tables: list[KernelTable] = []
    for file in sorted(path.glob("*.parquet")):
        tables += _read_parquet(file)
    for file in sorted(path.glob("*.csv")):
        if _is_ours(file):
            tables += _read_csv(file)
    if not tables:
        raise InputError(
            f"kernel tables: {str(path)!r} has none; expected SYSTEM_FAMILY_ENGINE.parquet or a CSV file with columns "
            f"{', '.join(COLUMNS)}"
        )
    return tables


# -- the project's own CSV ---------------------------------------------------------------------------------------


def _is_ours(file: Path) -> bool:
    with file.open(newline="", encoding="utf-8", errors="replace") as lines:
        return {"gpu", "engine", "operation", "time_s"} <= set(next(csv.reader(lines), []))


def _read_csv(file: Path) -> list[KernelTable]:
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise InputError(f"{file}: can't be read as CSV: {problem}") from None
    missing = [name for name in ("gpu", "engine", "operation", "time_s") if not rows or name not in rows[0]]
    if missing:
        raise InputError(f"{file}: no column {', '.join(missing)}; expected {', '.join(COLUMNS)}")
    groups: dict[tuple[str, str, str], list[tuple[int, Mapping[str, str]]]] = {}
    for number, row in enumerate(rows, start=2):
        groups.setdefault((row["gpu"], row["engine"], row["operation"]), []).append((number, row))
    return [_from_csv(key, group, file) for key, group in groups.items()]


def _from_csv(key: tuple[str, str, str], group: Sequence[tuple[int, Mapping[str, str]]], file: Path) -> KernelTable:
    def column(name: str) -> Floats:
        return np.array([_cell(row.get(name), f"{file}:{number}: {name}") for number, row in group])

    sizes = {name: column(name) for name in SIZES}
    return KernelTable(
        gpu=key[0], engine=key[1], operation=key[2], kernel=np.array([row.get("kernel") or "" for _, row in group]),
        sizes={n: v for n, v in sizes.items() if not np.all(np.isnan(v))}, time_s=column("time_s"),
        source=group[0][1].get("source") or str(file.name), excluded={},
    )  # fmt: skip


def _cell(text: str | None, where: str) -> float:
    if text is None or not text.strip():
        return float("nan")
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{where}: {text!r} is not a number") from None
    if value < 0:
        raise InputError(f"{where}: {text!r} is negative")
    return value


def csv_rows(tables: Sequence[KernelTable]) -> list[dict[str, object]]:
    """Rows of the CSV file, five significant digits.

    Parameters
    ----------
    tables
        What to write.
    """
    rows: list[dict[str, object]] = []
    for table in tables:
        for i in range(len(table)):
            row: dict[str, object] = dict.fromkeys(COLUMNS, "")
            row.update(gpu=table.gpu, engine=table.engine, operation=table.operation, kernel=str(table.kernel[i]))
            row.update({name: f"{values[i]:.12g}" for name, values in table.sizes.items() if not np.isnan(values[i])})
            row.update(time_s=f"{table.time_s[i]:.5g}", source=table.source)
            rows.append(row)
    return rows


# -- AIConfigurator's Parquet ------------------------------------------------------------------------------------

Frame = Mapping[str, NDArray[Any]]


def _read_parquet(file: Path) -> list[KernelTable]:
    system = next((name for name in SYSTEMS if file.name.startswith(f"{name}_")), None)
    family, _, engine = file.stem.removeprefix(f"{system}_").rpartition("_")
    if system is None or family not in _READERS:
        return []
    try:
        import pyarrow.parquet
    except ImportError:
        raise InputError(f"{file.name}: Parquet needs the extra: pip install 'sizing[parquet]'") from None
    try:
        table = pyarrow.parquet.read_table(file)
    except (OSError, ValueError) as problem:
        raise InputError(f"{file}: not a Parquet file: {problem}") from None
    frame = {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}
    try:
        return _READERS[family](frame, SYSTEMS[system], engine)
    except KeyError as column:
        raise InputError(f"{file}: no column {column}") from None


def _made(
    frame: Frame,
    gpu: str,
    engine: str,
    operation: str,
    rows: NDArray[np.bool_],
    sizes: Mapping[str, object],
    unit: float,
) -> list[KernelTable]:
    if not np.any(rows):
        return []
    time = np.asarray(frame["latency_us" if "latency_us" in frame else "latency_ms"], dtype=float)
    columns = {
        name: np.broadcast_to(np.asarray(value, dtype=float), rows.shape)[rows].copy() for name, value in sizes.items()
    }
    kernel = frame.get("kernel_source", frame.get("op_name"))
    return [
        KernelTable(
            gpu=gpu, engine=engine, operation=operation, kernel=np.asarray(kernel)[rows].astype(str), sizes=columns,
            time_s=time[rows] * unit, excluded={},
            source=f"{SOURCE}: {OLDER.get((gpu, engine), VERSIONS.get(engine, engine))}",
        )
    ]  # fmt: skip


def _numbers(frame: Frame, *names: str) -> list[Floats]:
    return [np.asarray(frame[name], dtype=float) for name in names]


def _narrow(frame: Frame) -> Floats:
    return np.where(np.asarray(frame["kv_cache_dtype"]) == "fp8", 1.0, 2.0)


def _read_gemm(frame: Frame, gpu: str, engine: str) -> list[KernelTable]:
    m, n, k = _numbers(frame, "m", "n", "k")
    sizes = {"m": m, "n": n, "k": k}
    return [
        table
        for dtype in np.unique(frame["gemm_dtype"])
        if dtype in FORMATS
        for table in _made(frame, gpu, engine, f"gemm.{FORMATS[dtype]}", frame["gemm_dtype"] == dtype, sizes, 1e-3)
    ]


def _read_decode(frame: Frame, gpu: str, engine: str) -> list[KernelTable]:
    batch, length, heads, kv_heads = _numbers(frame, "batch_size", "kv_len", "num_heads", "num_key_value_heads")
    sizes = {"batch": batch, "length": length, "heads": heads, "kv_heads": kv_heads, "kv_bytes": _narrow(frame)}
    return _made(frame, gpu, engine, "attention_decode", np.ones(len(batch), dtype=bool), sizes, 1e-3)


def _read_prefill(frame: Frame, gpu: str, engine: str) -> list[KernelTable]:
    batch, length, heads, kv_heads = _numbers(frame, "batch_size", "isl", "num_heads", "num_key_value_heads")
    sizes = {"batch": batch, "length": length, "heads": heads, "kv_heads": kv_heads, "kv_bytes": _narrow(frame)}
    return _made(frame, gpu, engine, "attention_prefill", np.ones(len(batch), dtype=bool), sizes, 1e-3)


def _read_latent(phase: str) -> Callable[[Frame, str, str], list[KernelTable]]:
    def read(frame: Frame, gpu: str, engine: str) -> list[KernelTable]:
        length = "kv_len" if phase == "decode" else "isl"
        batch, tokens, heads = _numbers(frame, "batch_size", length, "num_heads")
        sizes = {"batch": batch, "length": tokens, "heads": heads, "kv_bytes": _narrow(frame)}
        if "gemm_type" not in frame:
            return _made(frame, gpu, engine, f"mla_{phase}", np.ones(len(batch), dtype=bool), sizes, 1e-3)
        return [
            table
            for dtype in np.unique(frame["gemm_type"])
            for table in _made(
                frame, gpu, engine, f"mla_{phase}_module.{FORMATS[dtype]}", frame["gemm_type"] == dtype, sizes, 1e-3
            )
        ]

    return read


def _read_batched(frame: Frame, gpu: str, engine: str) -> list[KernelTable]:
    tokens, heads = _numbers(frame, "num_tokens", "num_heads")
    before = np.asarray(frame["op_name"]) == "mla_gen_pre"
    sizes = {"m": tokens, "heads": heads, "n": np.where(before, 512.0, 128.0), "k": np.where(before, 128.0, 512.0)}
    return _made(frame, gpu, engine, "batched_gemm.bf16", frame["bmm_dtype"] == "bfloat16", sizes, 1e-3)


def _read_moe(frame: Frame, gpu: str, engine: str) -> list[KernelTable]:
    tokens, hidden, inter, top_k, experts, tp, ep = _numbers(
        frame, "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"
    )
    balanced = (np.asarray(frame["distribution"]) == "balanced").astype(float)
    sizes = {"m": tokens, "n": hidden, "k": inter / tp, "experts": experts, "top_k": top_k,
             "local_experts": experts / ep, "balanced": balanced}  # fmt: skip
    return [
        table
        for dtype in np.unique(frame["moe_dtype"])
        if dtype in FORMATS
        for table in _made(frame, gpu, engine, f"moe.{FORMATS[dtype]}", frame["moe_dtype"] == dtype, sizes, 1e-3)
    ]


def _read_all_reduce(frame: Frame, gpu: str, engine: str) -> list[KernelTable]:
    gpus, elements = _numbers(frame, "num_gpus", "message_size")
    newest = np.asarray(frame["db_version"]) == max(np.unique(frame["db_version"]), key=_version)
    return _made(frame, gpu, engine, "all_reduce", newest, {"gpus": gpus, "bytes": 2.0 * elements}, 1e-3)


NCCL_OPERATIONS = {"nccl.gather": ("all_gather", "reduce_scatter"), "nccl.all_reduce": ("all_reduce",)}
"""What NCCL's collectives count as."""


def _read_nccl(frame: Frame, gpu: str, engine: str) -> list[KernelTable]:
    gpus, elements = _numbers(frame, "num_gpus", "message_size")
    newest = np.asarray(frame["db_version"]) == max(np.unique(frame["db_version"]), key=_version)
    size = np.where(np.asarray(frame["nccl_dtype"]) == "half", 2.0, 1.0) * elements
    named = {**frame, "kernel_source": frame["op_name"]}
    return [
        table
        for operation, names in NCCL_OPERATIONS.items()
        for table in _made(named, gpu, "any", operation, newest & np.isin(frame["op_name"], names),
                           {"gpus": gpus, "bytes": size}, 1e-3)
    ]  # fmt: skip


def _read_expert_exchange(frame: Frame, gpu: str, engine: str) -> list[KernelTable]:
    tokens, hidden, top_k, gpus = _numbers(frame, "num_tokens", "hidden_size", "topk", "ep_size")
    sizes = {"m": tokens, "n": hidden, "top_k": top_k, "gpus": gpus}
    tables = []
    for phase in ("dispatch", "combine"):
        for backend, family in (("deepep_ht", "deepep"), ("deepep_ll", "deepep_low")):
            rows = (np.asarray(frame["comm_backend"]) == backend) & (np.asarray(frame["phase"]) == phase)
            tables += _made(frame, gpu, "any", f"{family}.{phase}", rows, sizes, 1e-6)
    return tables


def _version(text: str) -> tuple[int, ...]:
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in str(text).split("."))


_READERS: dict[str, Callable[[Frame, str, str], list[KernelTable]]] = {
    "gemm": _read_gemm,
    "generation_attention": _read_decode,
    "context_attention": _read_prefill,
    "generation_mla": _read_latent("decode"),
    "context_mla": _read_latent("prefill"),
    "mla_generation_module": _read_latent("decode"),
    "mla_context_module": _read_latent("prefill"),
    "mla_bmm": _read_batched,
    "moe": _read_moe,
    "allreduce": _read_all_reduce,
    "collectives": _read_nccl,
    "moe_a2a": _read_expert_exchange,
}
