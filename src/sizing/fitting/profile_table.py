"""A profile beside published tables of the same chip: kernels measured at the very same shapes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sizing.fitting.profile_file import Case
from sizing.validation.kernel_tables import KernelTable, read_kernel_tables

OPERATIONS = ("gemm.bf16", "attention_decode", "attention_prefill")
"""What a table and a profile hold alike: products in 16 bits, attention on a 16-bit cache."""
HEAD_DIM = 128
"""Width of a head in the tables, which do not say it. [element]"""
Key = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMatch:
    """One operation at the shapes that a table and a profile share.

    Attributes
    ----------
    operation, source
        Which, and where the table is from.
    shapes
        How many. [1]
    ratio
        Profiled time over the table's: 10th percentile, median, 90th. [1]
    difference
        Median of the size of the ratio less one. [1]
    """

    operation: str
    source: str
    shapes: int
    ratio: tuple[float, float, float]
    difference: float


def table_matches(
    cases: Sequence[Case], gpu_id: str, path: Path | None = None, engine: str = "vllm"
) -> tuple[TableMatch, ...]:
    """Profiled kernels against a table's rows of the same chip and shape; the fastest implementation of each.

    Parameters
    ----------
    cases
        Of the profile.
    gpu_id
        In the catalogue.
    path
        The table; None takes the shipped one.
    engine
        Whose kernels' rows.
    """
    from sizing.catalog.files import data_file

    profiled: dict[Key, float] = {}
    for case in cases:
        for key in _key(case.kernel, case.shape):
            profiled[key] = min(profiled.get(key, np.inf), case.time_s)
    found = []
    for table in read_kernel_tables(path or data_file("measured/kernels.csv")):
        if (table.gpu, table.engine) == (gpu_id, engine) and table.operation in OPERATIONS:
            ratios = [profiled[key] / time_s for key, time_s in _rows(table) if key in profiled]
            if ratios:
                off = np.array(ratios)
                low, middle, high = (float(q) for q in np.percentile(off, [10, 50, 90]))
                found.append(
                    TableMatch(
                        operation=table.operation,
                        source=table.source,
                        shapes=len(ratios),
                        ratio=(low, middle, high),
                        difference=float(np.median(np.abs(off - 1.0))),
                    )
                )
    return tuple(found)


def _rows(table: KernelTable) -> Iterator[tuple[Key, float]]:
    names = ("m", "n", "k") if table.operation.startswith("gemm") else ("batch", "length", "heads", "kv_heads")
    wide = table.sizes.get("kv_bytes", np.full(len(table), np.nan))
    for i in range(len(table)):
        if np.isnan(wide[i]) or wide[i] == 2.0:
            yield (table.operation, tuple(int(table.sizes[name][i]) for name in names)), float(table.time_s[i])


def _key(kernel: str, shape: Mapping[str, Any]) -> list[Key]:
    """Where a case stands in a table; nowhere for other operations, head widths and prompts behind a history."""
    if kernel == "gemm.bf16":
        return [(kernel, (int(shape["m"]), int(shape["n"]), int(shape["k"])))]
    operation = kernel.partition(".")[0]
    if operation not in OPERATIONS or int(shape["head_dim"]) != HEAD_DIM or int(shape.get("history", 0)):
        return []
    length = shape["context"] if operation == "attention_decode" else shape["tokens"]
    return [(operation, tuple(int(x) for x in (shape["batch"], length, shape["heads"], shape["kv_heads"])))]
