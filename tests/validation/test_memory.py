"""Predictions of start-up logs: nothing measured is read, every row is answered or named."""

import csv
import json

import pytest

from sizing.errors import InputError, UnknownFile
from sizing.validation.memory import COLUMNS, MEASURED, predict_row, read_rows, validate_memory
from sizing.validation.startup_rows import INPUTS, weights_of

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
ROW = {
    "id": "X1", "engine": "vLLM", "engine_version": "v0.19.0", "model": "lab/small-8b", "gpu": "H100-80GB-HBM3",
    "tp": "1.0", "pp": "1.0", "dp": "", "ep": "", "weight_precision_or_quant": "bfloat16", "kv_dtype": "auto",
    "gpu_memory_utilization": "0.95", "max_model_len": "8192.0", "max_num_batched_tokens": "8192.0",
    "block_size": "",
}  # fmt: skip


@pytest.fixture
def configs(tmp_path):
    (tmp_path / "lab--small-8b.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return tmp_path


def rows_of(prediction):
    return json.dumps([p.cells() for p in prediction.predictions])


def test_measured_columns_are_never_read(configs):
    rows = [ROW, *read_rows(None)]
    measured = [c for c in rows[1] if c not in INPUTS]
    assert set(MEASURED.values()) <= set(measured)
    shuffled = [
        {c: v for c, v in row.items() if c in INPUTS} | {c: rows[-i].get(c, "7") for c in measured}
        for i, row in enumerate(rows, start=1)
    ]
    blanked = [{c: v if c in INPUTS else "" for c, v in row.items()} for row in rows]
    expected = rows_of(validate_memory(rows, configs))
    assert rows_of(validate_memory(blanked, configs)) == expected
    assert rows_of(validate_memory(shuffled, configs)) == expected


def test_a_row_is_predicted_in_full(configs):
    prediction = predict_row(ROW, configs)
    assert prediction.reason == ""
    assert tuple(prediction.cells()) == COLUMNS
    values = prediction.values
    # 8.03e9 parameters in 16 bit and the rotary table of 131,072 positions, 14.99 GiB;
    # 131,072 bytes a token is 2 x 32 layers x 8 heads x 128 x 2 bytes
    assert values["weights_gib"] == pytest.approx(14.99, abs=0.005)
    assert values["bytes_per_token"] == pytest.approx(131_072, rel=1e-3)
    assert values["kv_cache_gib"] == pytest.approx(58.1, rel=0.01)
    assert values["max_concurrency"] == pytest.approx(values["kv_tokens"] / 8192, rel=1e-3)


def test_fp8_cache_doubles_the_tokens(configs):
    plain, narrow = (predict_row(ROW | {"kv_dtype": kv}, configs).values for kv in ("auto", "fp8"))
    assert narrow["kv_tokens"] == pytest.approx(2 * plain["kv_tokens"], rel=1e-3)
    assert narrow["kv_cache_gib"] == plain["kv_cache_gib"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": "nobody/knows"}, "nobody/knows"),
        ({"engine": "lmdeploy"}, "lmdeploy"),
        ({"gpu": ""}, "GPU not stated"),
        ({"gpu": "H900"}, "H900"),
        ({"tp": "1000"}, "tp"),
        ({"gpu": "T4"}, "no KV room"),
    ],
)
def test_what_cannot_be_answered_is_named(configs, change, named):
    prediction = predict_row(ROW | change, configs)
    assert named in prediction.reason
    assert not prediction.values["kv_cache_gib"]


def test_bytes_a_token_do_not_need_a_gpu(configs):
    assert predict_row(ROW | {"gpu": ""}, configs).values["bytes_per_token"] == pytest.approx(131_072, rel=1e-3)


def test_errors_are_relative_and_tabled(configs):
    row = ROW | dict.fromkeys(MEASURED.values(), "") | {"kv_cache_gib_per_gpu": "58.11", "max_concurrency_x": "58.11"}
    result = validate_memory([row, ROW], configs)
    assert abs(result.errors[0, "kv_cache_gib"]) < 0.01
    assert (1, "kv_cache_gib") not in result.errors
    table = {(r["by"], r["value"], r["part"]): r for r in result.table()}
    assert table["all", "", "kv_cache_gib"]["rows"] == 1
    assert table["gpu", "h100-sxm", "kv_cache_gib"]["median"] < 1.0
    assert table["engine", "vllm", "max_concurrency"]["rows"] == 1


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("bfloat16", "m", None), ("auto", "m", None), ("nan", "m", None), ("", "m", None), ("float32", "m", "fp32"),
        ("fp8", "m", "fp8_channel"), ("compressed-tensors", "m-quantized.w8a8", "int8"),
        ("awq_marlin int4", "m", "int4"),
        ("compressed-tensors", "m-fp8-dynamic", "fp8_channel"), ("gptq_marlin (w4a16)", "m", "int4"),
        ("gptq int8", "m", "int8_w8a16"), ("gguf Q4_K_M", "m", "q4_k_m"), ("bitsandbytes 4bit", "m", "nf4"),
        ("modelopt_fp4", "m", "nvfp4"), ("modelopt", "m-FP8", "fp8"), ("mxfp4 (Marlin)", "m", "mxfp4"),
    ],
)  # fmt: skip
def test_formats_as_logs_name_them(configs, text, name, expected):
    from sizing.validation.startup_rows import find_model

    assert weights_of(text, name, find_model("lab/small-8b", configs)) == expected


def test_a_missing_or_wrong_file_is_refused(tmp_path):
    with pytest.raises(UnknownFile, match="nowhere"):
        read_rows(tmp_path / "nowhere.csv")
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(InputError, match="lacks column id"):
        read_rows(wrong)
    wrong.write_bytes(b"\xff\xfe\x00\x00binary")
    with pytest.raises(InputError, match="wrong"):
        read_rows(wrong)


def test_the_curated_set_has_sources_and_no_withdrawn_rows():
    rows = read_rows(None)
    assert len(rows) > 50
    for row in rows:
        assert row["source_url"], row["id"]
        assert not row["id"].startswith(("AK", "P")), row["id"]


def test_the_verb_writes_the_per_row_file_and_prints_the_table(configs, tmp_path, capsys):
    from sizing.cli import run

    log = tmp_path / "log.csv"
    with log.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, ROW)
        writer.writeheader()
        writer.writerow(ROW)
        writer.writerow(ROW | {"id": "X2", "model": "nobody/knows"})
    out = tmp_path / "rows.csv"
    code = run(["validate", "memory", str(log), "--configs", str(configs), "--out", str(out), "--format", "json"])
    printed = capsys.readouterr().out
    assert code == 0
    assert "X2" in printed
    with out.open(encoding="utf-8", newline="") as handle:
        written = list(csv.DictReader(handle))
    assert tuple(written[0]) == COLUMNS
    assert [row["id"] for row in written] == ["X1", "X2"]
    assert float(written[0]["kv_cache_gib"]) > 50
    assert "nobody/knows" in written[1]["reason"]


# -- the reference logs, where they are at hand ---------------------------------------------------------


def test_bytes_a_token_agree_with_the_engines(shared):
    with (shared / "measured" / "kv_derived_dev.csv").open(encoding="utf-8") as handle:
        derived = {row["id"]: row for row in csv.DictReader(handle)}
    asked_of = {i for i, r in derived.items() if r["formula_bytes"] and r["basis"] == "kv_tokens"}
    rows = [row for row in read_rows(shared / "measured" / "kv_logs_dev.csv") if row["id"] in asked_of]
    assert len(rows) == 133
    result = validate_memory(rows, shared / "catalog" / "configs")
    errors = [
        p.values["bytes_per_token"] / float(derived[p.id]["bytes_per_token_per_gpu"]) - 1
        for p in result.predictions
        if p.values["bytes_per_token"]
    ]
    assert len(errors) >= 0.95 * len(rows)
    assert sum(abs(e) < 0.01 for e in errors) >= 0.95 * len(rows)
    assert max(map(abs, errors)) < 0.05


def test_kv_room_and_concurrency_agree_with_the_engines(shared):
    rows = [
        row for row in read_rows(shared / "measured" / "kv_logs_dev.csv")
        if row["kv_cache_gib_per_gpu"] and row["gpu"] and row["tp"] and row["gpu_memory_utilization"]
    ]  # fmt: skip
    assert len(rows) == 132
    result = validate_memory(rows, shared / "catalog" / "configs")
    for part, median, most in (("kv_cache_gib", 0.015, 0.06), ("max_concurrency", 0.03, 0.10)):
        asked_of = [i for i, row in enumerate(rows) if part == "kv_cache_gib" or row["max_concurrency_x"]]
        errors = sorted(abs(result.errors.get((i, part), 9.0)) for i in asked_of)
        assert errors[len(errors) // 2] < median
        assert sum(e < most for e in errors) >= 0.9 * len(errors)
