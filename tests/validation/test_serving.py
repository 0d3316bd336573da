"""Rows of serving runs: inputs only, every row answered or named, truth by rule, the error table."""

import csv
import random

import pytest

from sizing.errors import InputError, UnknownFile
from sizing.replica.loads import Estimate
from sizing.replica.run import ClosedLoop, Offline, OpenLoop
from sizing.validation.cases import INPUTS, read_case
from sizing.validation.model_names import find_model, shape_key
from sizing.validation.scores import report, scores, truth
from sizing.validation.serving import RowPrediction, predict_row, read_rows

ROW = {
    "id": "a-1", "engine": "vLLM", "engine_version": "0.11.0", "model": "Qwen/Qwen3-8B", "gpu": "H100-SXM-80GB",
    "num_gpus": "1", "tp": "1", "weight_precision": "bf16", "isl": "1024", "osl": "256", "load_kind": "concurrency",
    "load_value": "16", "len_dist": "fixed", "quality": "A", "ttft_mean_ms": "120", "tpot_mean_ms": "9.5",
    "output_tok_s": "1600",
}  # fmt: skip


def test_a_row_is_predicted_with_bounds():
    found = predict_row(ROW, draws=8)
    assert not found.reason
    for metric in ("ttft_ms", "tpot_ms", "itl_ms", "output_tok_s"):
        value = found.values[metric]
        assert 0 < value.low < value.value < value.high
    assert 6 < found.values["tpot_ms"].value < 14


def test_rows_without_measured_values_are_predicted_all_the_same():
    bare = {k: v for k, v in ROW.items() if k in INPUTS}
    assert predict_row(bare, draws=4).cells() == predict_row(ROW, draws=4).cells()


def test_predictions_do_not_see_what_was_measured():
    rows = read_rows()[::25]
    measured = [c for c in rows[0] if c not in INPUTS and c != "id"]
    assert "ttft_mean_ms" in measured
    assert "output_tok_s" in measured
    shuffled = [dict(r) for r in rows]
    rng = random.Random(3)
    for column in measured:
        values = [r[column] for r in rows]
        rng.shuffle(values)
        for row, value in zip(shuffled, values, strict=True):
            row[column] = value
    blank = [{k: ("" if k in measured else v) for k, v in r.items()} for r in rows]
    ours = [predict_row(r, draws=2).cells() for r in rows]
    assert [predict_row(r, draws=2).cells() for r in shuffled] == ours
    assert [predict_row(r, draws=2).cells() for r in blank] == ours


def test_curated_rows_have_sources_and_are_answered():
    rows = read_rows()
    assert len(rows) > 100
    assert all(r["source_url"].startswith("http") for r in rows)
    assert len({r["engine"] for r in rows}) >= 5
    assert len({r["gpu"] for r in rows}) >= 8
    unanswered = [p for p in (predict_row(r, draws=0) for r in rows[::5]) if p.reason]
    assert len(unanswered) <= 0.02 * len(rows)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": ""}, "the model is not stated"),
        ({"model": "nobody/unheard-of-9b"}, "no model"),
        ({"gpu": "H900"}, "no GPU"),
        ({"isl": ""}, "input or output tokens are not stated"),
        ({"load_value": ""}, "concurrency is not stated"),
        ({"load_kind": "production"}, "load production"),
    ],
)
def test_rows_that_cannot_be_answered_say_why(change, words):
    found = predict_row({**ROW, **change}, draws=0)
    assert words in found.reason
    assert not found.values
    assert found.cells()["tpot_ms"] == ""


def test_guessed_lengths_are_marked():
    row = {**ROW, "isl": "", "osl": "", "len_dist": "sharegpt"}
    assert predict_row(row, draws=0).assumed_lengths


def test_lengths_of_known_data_sets_are_not_guesses():
    row = {
        **ROW,
        "isl": "",
        "osl": "",
        "len_dist": "mlperf-openorca",
        "model": "llama2-70b",
        "tp": "4",
        "num_gpus": "4",
    }
    case = read_case(row)
    assert case.lengths.input_tokens == 222
    assert not case.guessed_lengths


def test_actual_lengths_come_before_nominal_ones():
    case = read_case({**ROW, "isl_actual": "700", "osl_actual": "90"})
    assert (case.lengths.input_tokens, case.lengths.output_tokens) == (700, 90)


def test_uniform_range_is_read():
    assert read_case({**ROW, "len_dist": "uniform[0.8x,1x]"}).lengths.input_tokens == pytest.approx(1024 * 0.9)


def test_loads():
    assert isinstance(read_case(ROW).load, ClosedLoop)
    assert read_case({**ROW, "load_kind": "request_rate", "load_value": "4.5"}).load == OpenLoop(
        request_rate_per_s=4.5, sustained=True
    )
    assert isinstance(read_case({**ROW, "load_kind": "offline", "load_value": "inf"}).load, Offline)


def test_replicas_share_the_load():
    case = read_case({**ROW, "num_gpus": "8"})
    assert case.replicas == 8
    one = predict_row({**ROW, "load_value": "2"}, draws=0).values["output_tok_s"].value
    assert predict_row({**ROW, "num_gpus": "8"}, draws=0).values["output_tok_s"].value == pytest.approx(8 * one)


def test_formats():
    assert read_case({**ROW, "weight_precision": "fp8"}).deployment.formats.weights == "fp8"
    assert read_case({**ROW, "weight_precision": "AWQ Marlin"}).deployment.formats.weights == "int4"
    deepseek = read_case(
        {**ROW, "model": "deepseek-ai/DeepSeek-R1", "weight_precision": "fp8", "tp": "8", "num_gpus": "8"}
    )
    assert deepseek.deployment.formats.weights is None


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", 8.03e9), ("llama2-70b", 68.98e9), ("mixtral-8x7b", 46.7e9),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", 8.03e9), ("llama3_1-405b", 405.9e9),
        ("Qwen/Qwen3-32B-FP8", 32.8e9),
    ],
)  # fmt: skip
def test_models_are_found_by_the_names_benchmarks_use(name, found):
    assert find_model(name).parameters == pytest.approx(found, rel=0.01)


def test_keys_look_through_formats_and_tuning():
    assert shape_key("Qwen/Qwen3-32B-Instruct-FP8", 2) == shape_key("qwen3-32b")


def test_truth_is_the_mean_then_the_unnamed_statistic_then_the_median():
    row = {"ttft_mean_ms": "1", "ttft_unspec_ms": "2", "ttft_p50_ms": "3", "tpot_p50_ms": "4", "itl_mean_ms": "5"}
    assert truth(row, "ttft_ms") == 1
    assert truth({**row, "ttft_mean_ms": ""}, "ttft_ms") == 2
    assert truth(row, "tpot_ms") == 4
    assert truth({"itl_mean_ms": "5"}, "tpot_ms") == 5
    assert truth({"output_tok_s_per_gpu": "10", "num_gpus": "4"}, "output_tok_s") == 40
    assert truth({}, "tpot_ms") is None


def test_table_gives_error_bias_and_coverage():
    values = {"tpot_ms": Estimate(value=11.0, low=9.0, high=13.0)}
    made = [
        RowPrediction(id="a", values=values),
        RowPrediction(id="b", values=values),
        RowPrediction(id="c", reason="why"),
    ]
    rows = [{"id": i, "tpot_mean_ms": m, "engine": "vLLM"} for i, m in (("a", "10"), ("b", "20"), ("c", ""))]
    found = scores(rows, made)
    assert [round(s.ratio, 2) for s in found] == [1.1, 0.55]
    title, table, notes = report(rows, made)
    assert "2 of 3" in title
    assert notes == ["c: why"]
    whole = table[0]
    assert (whole["rows"], whole["median"], whole["coverage"]) == (2, 27.5, 50.0)


def test_a_file_that_is_not_there_or_not_a_table(tmp_path):
    with pytest.raises(UnknownFile):
        read_rows(tmp_path / "none.csv")
    other = tmp_path / "other.csv"
    with other.open("w", newline="") as handle:
        csv.writer(handle).writerows([["x"], ["1"]])
    with pytest.raises(InputError, match="no column 'id'"):
        read_rows(other)
