"""Shapes of a table of measured kernels, so that this GPU is measured at the very points that others were."""

import csv
from collections.abc import Iterator
from pathlib import Path

from profilers.kernel import Case, kernels
from profilers.shapes import BadInput

FAMILIES = ("gemm.bf16", "attention_decode", "attention_prefill")
"""Operations that a table and a profile hold alike: 16-bit products, attention on a 16-bit cache."""
HEAD_DIM = 128
"""Width of a head in the tables, which do not say it. [element]"""
NEEDED = ("gpu", "engine", "operation", "m", "n", "k", "batch", "length", "heads", "kv_heads", "kv_bytes")


def table_cases(path: Path, gpu: str, engine: str = "vllm") -> Iterator[Case]:
    """A case for each shape of a GPU in the table and each kernel that does its operation; behind all others.

    Parameters
    ----------
    path
        CSV in the layout of ``data/measured/kernels.csv``.
    gpu, engine
        Whose rows, as the table names them.
    """
    names = kernels()
    for family, shape in _shapes(path, gpu, engine):
        for name, kernel in names.items():
            one = family in (name, kernel.family) and not name.endswith(".flex")  # flex is compiled for every shape
            if one and not (name == "attention_prefill.cudnn" and shape["history"]):
                yield Case(kernel=name, shape=shape, priority=3)


def _shapes(path: Path, gpu: str, engine: str) -> list[tuple[str, dict[str, int | str]]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--table {path}: can't be read ({error})") from None
    missing = [name for name in NEEDED if rows and name not in rows[0]]
    if missing:
        raise BadInput(f"--table {path}: no column {missing[0]!r}; expected the layout of data/measured/kernels.csv")
    found = [(row["operation"], _shape(row)) for row in rows if row["gpu"] == gpu and row["engine"] == engine and
             row["operation"] in FAMILIES and row["kv_bytes"] in ("", "2")]  # fmt: skip
    if not found:
        known = sorted({row["gpu"] for row in rows if row["engine"] == engine})
        raise BadInput(
            f"--chip {gpu}: the table has no 16-bit rows of it by {engine}; it has {', '.join(known) or 'none'}"
        )
    return found


def _shape(row: dict[str, str]) -> dict[str, int | str]:
    if row["operation"].startswith("gemm"):
        return {name: int(float(row[name])) for name in "mnk"}
    batch, length = int(float(row["batch"])), int(float(row["length"]))
    own = {"context": length} if row["operation"] == "attention_decode" else {"tokens": length, "history": 0}
    heads = {name: int(float(row[name])) for name in ("heads", "kv_heads")}
    return {"batch": batch, **own, **heads, "head_dim": HEAD_DIM}
