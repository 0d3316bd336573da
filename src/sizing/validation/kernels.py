"""Predicted kernel times against measured tables: the error table by GPU, engine and operation."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizing.calibration import ANY, calibration
from sizing.catalog import gpu as find_gpu
from sizing.catalog.files import data_file
from sizing.validation.kernel_rules import RULES, without_defects
from sizing.validation.kernel_tables import KernelTable, read_kernel_tables
from sizing.validation.kernel_times import predicted_s

Floats = NDArray[np.float64]
Progress = Callable[[Sequence[Any], int, str], Iterable[Any]]

SHIPPED = "measured/kernels.csv"
"""The project's own table: a part of the public ones, five significant digits."""

GOALS: tuple[tuple[str, tuple[str, ...], float, float | None], ...] = (
    ("GEMM BF16", ("gemm.bf16",), 5.0, 20.0),
    ("GEMM FP8, NVFP4", ("gemm.fp8", "gemm.fp8_block", "gemm.nvfp4"), 8.0, 30.0),
    ("decode attention", ("attention_decode",), 8.0, 25.0),
    ("prefill attention", ("attention_prefill",), 8.0, 25.0),
    ("MLA core", ("mla_decode", "mla_prefill"), 8.0, 25.0),
    ("MLA block", ("mla_decode_module", "mla_prefill_module"), 8.0, 25.0),
    ("MoE experts", ("moe",), 12.0, None),
    ("all-reduce", ("all_reduce", "nccl.all_reduce"), 10.0, None),
    ("all-to-all", ("deepep", "deepep_low"), 10.0, None),
)
"""Groups of operations, with the median and 90th percentile aimed at. [%]"""
APART = ("l40s",)
"""GPUs reported apart: their L2 holds much of what these tables repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One table, measured and predicted.

    Attributes
    ----------
    table
        Rows without defects; ``excluded`` says what was left out.
    predicted_s
        Predicted time of each row [s].
    basis
        Of the constants.
    residual
        Log-sigma that the calibration states for single calls. [1]
    """

    table: KernelTable
    predicted_s: Floats
    basis: str
    residual: float

    @property
    def ratio(self) -> Floats:
        """Predicted over measured. [1]"""
        return np.asarray(self.predicted_s / self.table.time_s)


def kernel_tables(folder: Path | None) -> list[KernelTable]:
    """Tables of a folder or file; the shipped one if none is named.

    Parameters
    ----------
    folder
        Folder of tables, or one CSV file.
    """
    return read_kernel_tables(data_file(SHIPPED) if folder is None else folder)


def compare(
    tables: Sequence[KernelTable],
    name: str | Path = "measured",
    progress: Progress = lambda items, total, text: items,
) -> list[Compared]:
    """Predict every row of some tables, rows with known defects left out.

    Parameters
    ----------
    tables
        As read.
    name
        Calibration by name or file.
    progress
        Wrapper of a list for a progress bar.
    """
    found = []
    for table in progress(tables, len(tables), "predicting"):
        gpu = find_gpu(table.gpu)
        kept = without_defects(table, gpu)
        cal = calibration(name, gpu, "vllm" if table.engine == ANY else table.engine)
        key = table.operation.replace("_module", "")
        evidence = cal.evidence.get(key) or cal.evidence.get(key.partition(".")[0])
        seconds = predicted_s(kept, gpu, cal) if len(kept) else np.zeros(0)
        found.append(
            Compared(
                table=kept,
                predicted_s=seconds,
                basis=evidence.basis if evidence else "assumed",
                residual=evidence.residual if evidence else float("nan"),
            )
        )
    return found


def _errors(ratio: Floats) -> dict[str, object]:
    off = 100.0 * np.abs(ratio - 1.0)
    return {
        "median_%": round(float(np.median(off)), 1),
        "p90_%": round(float(np.percentile(off, 90)), 1),
        "bias_%": round(100.0 * float(np.median(ratio) - 1.0), 1),
    }


def error_rows(found: Sequence[Compared]) -> list[dict[str, object]]:
    """One row a GPU, engine and operation: errors in percent, and the share inside the stated spread.

    Parameters
    ----------
    found
        What :func:`compare` gave.
    """
    rows: list[dict[str, object]] = []
    for item in found:
        left_out = sum((item.table.excluded or {}).values())
        row: dict[str, object] = {
            "gpu": item.table.gpu,
            "engine": item.table.engine,
            "operation": item.table.operation,
            "rows": len(item.table),
            "left_out": left_out,
            "median_%": None,
            "p90_%": None,
            "bias_%": None,
            "in_80%_interval_%": None,
            "constants": item.basis,
        }
        if len(item.table):
            row.update(_errors(item.ratio))
            inside = np.abs(np.log(item.ratio)) <= 1.2816 * item.residual
            row["in_80%_interval_%"] = round(100.0 * float(np.mean(inside)))
        rows.append(row)
    return rows


def goal_rows(found: Sequence[Compared]) -> list[dict[str, object]]:
    """One row a group of operations: all rows of all GPUs together, beside what is aimed at.

    Parameters
    ----------
    found
        What :func:`compare` gave.
    """
    rows: list[dict[str, object]] = []
    for title, operations, median, tail in GOALS:
        for apart in (False, True):
            kept = [
                item
                for item in found
                if len(item.table)
                and (item.table.gpu in APART) == apart
                and (item.table.operation in operations or item.table.operation.partition(".")[0] in operations)
            ]
            if kept:
                ratio = np.concatenate([item.ratio for item in kept])
                name = f"{title}, {', '.join(APART)} apart" if apart else title
                aim = f"{median:g}" if tail is None else f"{median:g} / {tail:g}"
                rows.append({"group": name, "rows": len(ratio), **_errors(ratio), "aim median / p90_%": aim})
    return rows


def exclusion_notes(found: Sequence[Compared]) -> list[str]:
    """Rules that left rows out, with their bounds, and how many.

    Parameters
    ----------
    found
        What :func:`compare` gave.
    """
    notes = []
    for rule in RULES:
        counts = {
            f"{item.table.gpu} {item.table.engine} {item.table.operation}": (item.table.excluded or {}).get(
                rule.name, 0
            )
            for item in found
        }
        total = sum(counts.values())
        if total:
            most = [name for name, count in counts.items() if count]
            where = ", ".join(most[:4]) + (f" and {len(most) - 4} more" if len(most) > 4 else "")
            notes.append(f"left out by rule {rule.name} ({rule.why}): {total} rows of {where}")
    return notes


def prediction_rows(found: Sequence[Compared]) -> list[dict[str, object]]:
    """One row a measurement: sizes, measured and predicted time, and the 80 % interval of a single call.

    Parameters
    ----------
    found
        What :func:`compare` gave.
    """
    from sizing.validation.kernel_tables import csv_rows

    rows: list[dict[str, object]] = []
    for item in found:
        wide = np.exp(1.2816 * item.residual)
        for row, seconds in zip(csv_rows([item.table]), item.predicted_s, strict=True):
            rows.append(
                {
                    **row,
                    "predicted_s": f"{seconds:.5g}",
                    "predicted_s_low": f"{seconds / wide:.5g}",
                    "predicted_s_high": f"{seconds * wide:.5g}",
                }
            )
    return rows
