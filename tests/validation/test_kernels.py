"""Kernel tables against predictions: reading, rules, and the errors that the shipped table must keep."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sizing.catalog import gpu
from sizing.errors import InputError, UnknownFile
from sizing.validation.kernel_rules import without_defects
from sizing.validation.kernel_tables import COLUMNS, KernelTable, csv_rows, read_kernel_tables
from sizing.validation.kernel_times import skewed_load
from sizing.validation.kernels import (
    Compared,
    compare,
    error_rows,
    exclusion_notes,
    goal_rows,
    kernel_tables,
    prediction_rows,
)

# The aims of issue 4 (median, 90th percentile); where there is none, or the fit is well below, round numbers above it.
REACHED = {
    "GEMM BF16": (5.0, 20.0),
    "GEMM FP8, NVFP4": (6.0, 20.0),
    "decode attention": (8.0, 25.0),
    "prefill attention": (8.0, 25.0),
    "MLA core": (8.25, 25.0),  # 8.1 on the part that ships, 7.8 on the whole of the tables
    "MLA block": (8.0, 25.0),
    "MoE experts": (12.0, 40.0),
    "all-reduce": (8.0, 40.0),
    "all-to-all": (10.0, 30.0),
}


@pytest.fixture(scope="module")
def shipped() -> list[KernelTable]:
    return kernel_tables(None)


@pytest.fixture(scope="module")
def found(shipped: list[KernelTable]) -> list[Compared]:
    return compare(shipped)


def test_the_shipped_table_names_a_source_in_every_row(shipped: list[KernelTable]) -> None:
    assert sum(len(t) for t in shipped) > 9000
    assert all("aiconfigurator" in t.source for t in shipped)
    assert {t.gpu for t in shipped} == {"a100-80-sxm", "h100-sxm", "h200-sxm", "b200-hgx", "l40s"}


@pytest.mark.parametrize("group", REACHED)
def test_errors_on_the_shipped_table_stay_where_they_are(found: list[Compared], group: str) -> None:
    row = next(r for r in goal_rows(found) if r["group"] == group)
    median, tail = REACHED[group]
    assert row["median_%"] <= median
    assert row["p90_%"] <= tail


def test_predictions_do_not_look_at_the_measured_column(shipped: list[KernelTable], found: list[Compared]) -> None:
    rng = np.random.default_rng(0)
    few = [t for t in shipped if t.gpu == "h100-sxm" and not t.operation.startswith("gemm.fp8_block")]
    other = compare([replace(t, time_s=rng.permutation(t.time_s)) for t in few])
    for item in other:
        same = next(x for x in found if (x.table.gpu, x.table.engine, x.table.operation)
                    == (item.table.gpu, item.table.engine, item.table.operation))  # fmt: skip
        if item.table.excluded == same.table.excluded == {}:
            assert np.array_equal(item.predicted_s, same.predicted_s)


def test_the_error_table_names_rules_and_what_was_left_out(found: list[Compared]) -> None:
    notes = exclusion_notes(found)
    assert any("eager-fp8-block" in n and "57-288 us" in n for n in notes)
    assert any("eager-all-reduce" in n for n in notes)
    row = next(r for r in error_rows(found) if (r["gpu"], r["engine"], r["operation"])
               == ("h100-sxm", "vllm", "gemm.fp8_block"))  # fmt: skip
    assert row["rows"] == 0
    assert row["left_out"] > 0
    assert row["median_%"] is None


def test_rows_of_the_prediction_file_bracket_the_prediction(found: list[Compared]) -> None:
    rows = prediction_rows([x for x in found if x.table.operation == "all_reduce"])
    assert all(float(r["predicted_s_low"]) < float(r["predicted_s"]) < float(r["predicted_s_high"]) for r in rows)


def table(operation: str, engine: str, time_s: list[float], kernel: str = "k", **sizes: list[float]) -> KernelTable:
    return KernelTable(
        gpu="h100-sxm", engine=engine, operation=operation, kernel=np.full(len(time_s), kernel),
        sizes={n: np.array(v, dtype=float) for n, v in sizes.items()}, time_s=np.array(time_s), excluded={},
    )  # fmt: skip


def test_a_row_above_the_peak_is_left_out_by_name() -> None:
    h100 = gpu("h100-sxm")
    # 2 x 8192^3 / 989.4e12 FLOP/s = 1.1113 ms
    made = table("gemm.bf16", "vllm", [1.0e-3, 1.5e-3, 0.0], m=[8192] * 3, n=[8192] * 3, k=[8192] * 3)
    kept = without_defects(made, h100)
    assert kept.time_s.tolist() == [1.5e-3]
    assert kept.excluded == {"not-a-time": 1, "above-peak": 1}


def test_large_decode_rows_of_a_table_that_beats_the_bandwidth_are_not_believed() -> None:
    # 64 x 32768 x 8 x 256 x 2 B = 8.59 GB take 2.56 ms at 3.35e12 B/s
    sizes = {"batch": [64, 64, 1], "length": [32768, 32768, 128], "heads": [32] * 3, "kv_heads": [8] * 3,
             "kv_bytes": [2] * 3}  # fmt: skip
    kept = without_defects(table("attention_decode", "trtllm", [1.0e-3, 3.0e-3, 1e-5], **sizes), gpu("h100-sxm"))
    assert kept.time_s.tolist() == [1e-5]
    assert kept.excluded == {"suspect-decode": 2}


@pytest.mark.parametrize(("groups", "local", "tokens"), [(8, 16, 4096), (32, 8, 16384), (4, 2, 1024)])
def test_the_busiest_rank_of_a_power_law_is_that_of_drawn_loads(groups: int, local: int, tokens: int) -> None:
    # loads drawn log-uniform from 1 to 0.8 of the tokens, the largest sum of a rank over the mean rank, 4,000 times
    most = 0.8 * tokens
    loads = most ** np.random.default_rng(7).random((4000, groups, local))
    ranks = loads.sum(axis=2)
    drawn = float(np.mean(ranks.max(axis=1) / ranks.mean(axis=1)))
    closed = float(skewed_load(np.array(tokens), np.array(groups), np.array(local)))
    assert closed == pytest.approx(drawn, rel=0.12)


def test_one_rank_alone_carries_no_more_than_everything() -> None:
    tokens = np.array([1.0, 64.0, 32768.0])
    assert np.all(skewed_load(tokens, np.array(1.0), np.array(128.0)) == 1.0)
    assert np.all(skewed_load(tokens, np.array(2.0), np.array(1.0)) <= 2.0)


def test_the_faster_of_two_kernels_is_kept() -> None:
    made = table("gemm.nvfp4", "trtllm", [2e-5, 3e-5], m=[8, 8], n=[4096, 4096], k=[4096, 4096])
    two = replace(made, kernel=np.array(["cutlass", "min_latency"]))
    assert without_defects(two, gpu("b200-hgx")).time_s.tolist() == [2e-5]


def test_csv_rows_read_back(tmp_path: Path, shipped: list[KernelTable]) -> None:
    import csv

    path = tmp_path / "kernels.csv"
    some = [t for t in shipped if t.gpu == "l40s"]
    with path.open("w", newline="") as out:
        writer = csv.DictWriter(out, COLUMNS)
        writer.writeheader()
        writer.writerows(csv_rows(some))
    again = read_kernel_tables(tmp_path)
    assert [(t.engine, t.operation, len(t)) for t in again] == [(t.engine, t.operation, len(t)) for t in some]
    assert np.array_equal(again[0].time_s, some[0].time_s)


def test_parquet_files_are_read_by_their_names(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    frame = {"kernel_source": ["a", "a"], "gemm_dtype": ["bfloat16", "fp8"], "m": [1, 2], "n": [64, 64], "k": [32, 32],
             "latency_ms": [0.003, 0.004]}  # fmt: skip
    parquet.write_table(pyarrow.table(frame), tmp_path / "h100_sxm_gemm_vllm.parquet")
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    tables = read_kernel_tables(tmp_path)
    assert [(t.gpu, t.engine, t.operation) for t in tables] == [
        ("h100-sxm", "vllm", "gemm.bf16"), ("h100-sxm", "vllm", "gemm.fp8"),
    ]  # fmt: skip
    assert tables[1].time_s.tolist() == [4e-6]
    assert "vLLM 0.24.0" in tables[0].source


BAD = [
    ("gpu,engine,operation\nh100-sxm,vllm,gemm.bf16\n", "no column time_s"),
    ("gpu,engine,operation,m,time_s\nh100-sxm,vllm,gemm.bf16,four,1e-6\n", "kernels.csv:2: m: 'four' is not a number"),
    ("gpu,engine,operation,m,time_s\nh100-sxm,vllm,gemm.bf16,4,-1e-6\n", "time_s: '-1e-6' is negative"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_bad_table_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_kernel_tables(path)


WRONG = [
    ("attention,4,1e-6", "no operation 'attention'"),
    ("gemm.fp7,4,1e-6", "no format 'fp7'.*nearest: fp8"),
    ("attention_decode,4,1e-6", "attention_decode: no column 'batch'"),
    ("all_reduce,4,1e-6", "all_reduce: no column 'gpus'"),
]


@pytest.mark.parametrize(("row", "message"), WRONG)
def test_an_operation_that_is_not_known_or_lacks_a_size_is_refused(tmp_path: Path, row: str, message: str) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text(f"gpu,engine,operation,m,time_s\nh100-sxm,vllm,{row}\n")
    with pytest.raises(InputError, match=message):
        compare(read_kernel_tables(path))


def test_a_folder_without_tables_or_no_folder_says_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected SYSTEM_FAMILY_ENGINE"):
        read_kernel_tables(tmp_path)
    with pytest.raises(UnknownFile, match="no folder or file"):
        read_kernel_tables(tmp_path / "nowhere")
    (tmp_path / "h100_sxm_gemm_vllm.parquet").write_bytes(b"not parquet")
    with pytest.raises(InputError, match="not a Parquet file"):
        read_kernel_tables(tmp_path)


@pytest.mark.slow
def test_the_whole_of_the_public_tables_keeps_the_aims(shared: Path) -> None:
    rows = {r["group"]: r for r in goal_rows(compare(read_kernel_tables(shared / "kernels")))}
    for group, (median, tail) in REACHED.items():
        assert rows[group]["median_%"] <= median, group
        assert rows[group]["p90_%"] <= tail, group
