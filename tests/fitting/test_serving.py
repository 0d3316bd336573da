"""An engine's own time from serving runs: constants come back, and what is left out has no say in its errors."""

import csv
import json
import tomllib
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from sizing.cli import run
from sizing.engines.timing import engine_timing, engine_timings
from sizing.errors import InputError
from sizing.fitting.left_out import GROUPS, left_out, left_out_errors
from sizing.fitting.robust import SCALE
from sizing.fitting.serving import PRIORS, SCALES, Fitter, fit_engine, fitted_names, observations, record_of
from sizing.steptime import step_model
from sizing.validation.cases import read_case
from sizing.validation.serving import calibrated, predict_case, predict_row, predict_with

CELLS = (
    ("Qwen/Qwen3-8B", "H100-SXM-80GB", 1), ("meta-llama/Llama-3.1-70B-Instruct", "H100-SXM-80GB", 4),
    ("Qwen/Qwen3-30B-A3B", "H200-SXM-141GB", 1), ("meta-llama/Llama-3.1-8B-Instruct", "A100-SXM-80GB", 1),
)  # fmt: skip
LOADS = ((2, 1024, 256), (32, 512, 512), (128, 256, 128), (16, 4096, 64))
"""Users, input and output tokens."""
TRUTH = {
    "step_s": 4.1e-4, "sequence_s": 8e-6, "prefill_step_s": 3e-3, "first_token_s": 5e-2, "first_token_steps": 2.0,
    "memory_scale": 1.04, "compute_scale": 0.93, "link_scale": 1.1, "fixed_scale": 0.9, "moe_scale": 1.0,
}  # fmt: skip
NAMES = fitted_names(engine_timing("vllm"))
NOISE = 0.02


def row(number: int, model: str, gpu: str, tp: int, users: int, new: int, out: int) -> dict[str, str]:
    return {
        "id": f"made-{number}", "engine": "vLLM", "engine_version": "0.11.0", "model": model, "gpu": gpu,
        "num_gpus": str(tp), "tp": str(tp), "weight_precision": "bf16", "isl": str(new), "osl": str(out),
        "load_kind": "concurrency", "load_value": str(users), "num_prompts": str(20 * users), "len_dist": "fixed",
        "quality": "A",
    }  # fmt: skip


@pytest.fixture(scope="module")
def truth():
    return replace(engine_timing("vllm"), values=TRUTH)


@pytest.fixture(scope="module")
def rows(truth):
    """What runs of an engine with known constants would have shown, two per cent of noise on each figure."""
    rng = np.random.default_rng(11)
    asked = [row(10 * i + j, *cell, *load) for i, cell in enumerate(CELLS) for j, load in enumerate(LOADS)]
    found = []
    for each in asked:
        case = replace(read_case(each), timing=truth)
        seen = predict_with(case, lambda d: step_model(d, calibrated(d.gpu.id, truth)))
        tpot, ttft = np.exp(NOISE * rng.standard_normal(2)) * (seen.tpot_s.value, seen.ttft_s.value)
        found.append({**each, "tpot_mean_ms": str(1e3 * tpot), "ttft_mean_ms": str(1e3 * ttft)})
    return found


@pytest.fixture(scope="module")
def seen(rows):
    return observations(rows, "vllm")


@pytest.fixture(scope="module")
def fit(seen):
    return fit_engine(seen, engine_timing("vllm"))


# -- predictions -----------------------------------------------------------------------------------------


def test_the_fit_predicts_as_the_planner_does(seen):
    shipped = engine_timing("vllm")
    fitter = Fitter(seen)
    fitter.predict(replace(shipped, values={**shipped.values, "memory_scale": 1.3, "step_s": 1e-2}))
    for found, each in zip(fitter.predict(shipped), seen, strict=True):
        plain = predict_case(each.case, draws=0)
        assert found.tpot_s.value == pytest.approx(plain.tpot_s.value, rel=1e-9)
        assert found.ttft_s.value == pytest.approx(plain.ttft_s.value, rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_each_constant_is_seen_by_a_fitter_that_has_predicted_before(seen, truth, name):
    fitter = Fitter(seen)
    before = fitter.logs(truth)
    moved = replace(truth, values={**TRUTH, name: TRUTH[name] * 1.2})
    after = fitter.logs(moved)
    assert np.array_equal(after, Fitter(seen).logs(moved), equal_nan=True)
    touched = np.abs(after - before)[:, :2].max(axis=1) > 1e-5
    groups = {"link_scale": [c[2] > 1 for c in CELLS], "moe_scale": ["A3B" in c[0] for c in CELLS]}
    assert np.array_equal(touched, np.repeat(groups.get(name, [True] * len(CELLS)), len(LOADS)))


def test_log_predictions_are_linear_in_the_constants(seen, truth):
    linear = Fitter(seen).linear(truth, NAMES)
    place = np.array([(TRUTH[n] - PRIORS[n].value) / PRIORS[n].spread for n in NAMES])
    other = place + np.array([0.5, -0.4] * 5)
    values = {n: PRIORS[n].value + PRIORS[n].spread * z for n, z in zip(NAMES, other, strict=True)}
    measured = np.array([o.logs for o in seen])
    expected = Fitter(seen).logs(replace(truth, values=values)) - measured
    assert np.nanmax(np.abs(linear.at(other - place) - expected)[:, 0]) < 0.02
    assert np.nanmax(np.abs(linear.at(np.zeros(10)) - (Fitter(seen).logs(truth) - measured))) < 1e-12


def test_rates_are_those_of_all_copies_and_queues_for_room_are_nobodys_fault(rows):
    copies = {**rows[0], "num_gpus": "4", "tpot_mean_ms": "", "ttft_mean_ms": "", "output_tok_s": "2000"}
    crowded = {**rows[4], "load_value": "4000", "isl": "8192"}
    found = observations([copies, crowded], "vllm")
    logs = Fitter(found).logs(engine_timing("vllm"))
    assert np.exp(logs[0, 2]) == pytest.approx(predict_row(copies, draws=0).values["output_tok_s"].value)
    whole = predict_row(crowded, draws=0)
    assert whole.kv_short
    assert np.isnan(logs[1, 1])
    assert np.exp(logs[1, 0]) == pytest.approx(whole.values["tpot_ms"].value / 1e3)


# -- the fit ---------------------------------------------------------------------------------------------


def test_known_constants_come_back_within_their_spread(fit):
    values, spreads = fit.timing.values, fit.timing.spreads
    off = {n: abs(values[n] - TRUTH[n]) / (spreads[n] * values[n]) for n in NAMES}
    assert max(off.values()) < 2.0, off
    assert all(spreads[n] * values[n] < 1.01 * PRIORS[n].spread or spreads[n] == 0.02 for n in NAMES)
    assert fit.errors["tpot"][1] < 1.5 * 100 * NOISE
    assert fit.errors["tpot"][1] < fit.errors["tpot"][0]
    assert (fit.rows, fit.cells, fit.timing.basis) == (16, 4, "fitted end to end")


def test_rows_tell_constants_that_are_far_from_the_priors_middles(seen, monkeypatch):
    wide = {n: replace(p, spread=8.0 * p.spread) for n, p in PRIORS.items()}
    monkeypatch.setattr("sizing.fitting.serving.PRIORS", wide)
    found = fit_engine(seen, engine_timing("vllm"), rounds=4).timing
    off = {n: abs(found.values[n] - TRUTH[n]) / (found.spreads[n] * found.values[n]) for n in NAMES}
    assert max(off.values()) < 2.0, off
    for name in ("memory_scale", "compute_scale", "link_scale", "moe_scale"):
        prior = PRIORS[name].value
        assert abs(found.values[name] - TRUTH[name]) < 0.5 * abs(prior - TRUTH[name]), name


def test_rows_that_are_absurd_do_not_move_the_constants(rows, fit):
    broken = [dict(r) for r in rows]
    for i in (0, 7, 13):
        broken[i]["tpot_mean_ms"] = str(30.0 * float(rows[i]["tpot_mean_ms"]))
    found = fit_engine(observations(broken, "vllm"), engine_timing("vllm")).timing
    for name, value in fit.timing.values.items():
        assert abs(found.values[name] - value) < PRIORS[name].spread, name


def test_constants_that_are_not_fitted_are_the_records(seen, truth):
    found = fit_engine(seen, truth, names=("step_s", "memory_scale"), rounds=1).timing
    assert {n: v for n, v in found.values.items() if n not in ("step_s", "memory_scale")} == {
        n: v for n, v in TRUTH.items() if n not in ("step_s", "memory_scale")
    }
    assert found.values["step_s"] not in (TRUTH["step_s"], PRIORS["step_s"].value)


def test_no_constant_falls_below_its_bound(rows, monkeypatch):
    # First tokens sooner than prefill alone allows ask for less than no time of the engine's own.
    wide = {**PRIORS, "first_token_s": replace(PRIORS["first_token_s"], spread=0.4)}
    monkeypatch.setattr("sizing.fitting.serving.PRIORS", wide)
    soon = [{**r, "ttft_mean_ms": str(0.6 * float(r["ttft_mean_ms"]))} for r in rows]
    found = fit_engine(observations(soon, "vllm"), engine_timing("vllm"), names=("first_token_s", "step_s")).timing
    assert found.values["first_token_s"] == 0.0
    assert found.values["step_s"] > 0.0


def test_the_table_that_is_written_holds_the_fit(fit):
    table = tomllib.loads(fit.toml())["vllm"]
    assert table["source"] == "16 runs of 4 cells of GPU, model and weight format"
    for name, value in fit.timing.values.items():
        assert table[name] == pytest.approx([value, fit.timing.spreads[name]], rel=1e-3, abs=5e-3)


# -- what is left out ------------------------------------------------------------------------------------


def test_errors_of_a_cell_are_those_of_a_fit_without_it(seen, fit):
    errors = left_out_errors(seen, fit.timing, "cell")
    cell = seen[4].cell
    inside = [o for o in seen if o.cell == cell]
    without = fit_engine([o for o in seen if o.cell != cell], engine_timing("vllm"))
    expected = Fitter(inside).logs(without.timing) - np.array([o.logs for o in inside])
    part = errors[[o.cell == cell for o in seen]]
    assert part[:, 0] == pytest.approx(expected[:, 0], abs=0.01)
    assert part[:, 1] == pytest.approx(expected[:, 1], abs=0.03)


def test_errors_of_a_group_are_those_of_a_general_minimiser_without_it(seen, fit):
    names = ("step_s", "memory_scale", "compute_scale")
    errors = left_out_errors(seen, fit.timing, "gpu", names)
    linear = Fitter(seen).linear(fit.timing, names)
    place = np.array([(fit.timing.values[n] - PRIORS[n].value) / PRIORS[n].spread for n in names])
    out = np.array([o.cell[0] == "a100-80-sxm" for o in seen])
    assert out.sum() == len(LOADS)
    pull = np.array([1.0, 0.1, 0.0]) / np.sqrt(len(LOADS))  # each cell has as many rows

    def objective(z):
        left = linear.errors[~out] + linear.slopes[~out] @ (z - place)
        loss = np.where(np.isnan(left), 0.0, np.log1p((left / SCALE) ** 2) / 2.0)
        weight = np.where(np.isnan(left), np.nan, pull)
        return float((np.nan_to_num(weight) * loss).sum() / np.nanmean(weight) + z @ z / 2.0)

    z = minimize(objective, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-12}).x
    expected = linear.errors[out] + linear.slopes[out] @ (z - place)
    assert np.allclose(errors[out], expected, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("by", GROUPS)
def test_what_was_measured_of_a_group_has_no_say_in_its_predictions(rows, seen, fit, by):
    group = np.array([GROUPS[by](o) for o in seen])
    out = group == group[0]
    assert not out.all()
    shifted = [
        {**r, "tpot_mean_ms": str(1.3 * float(r["tpot_mean_ms"]))} if o else r for r, o in zip(rows, out, strict=True)
    ]
    names = ("step_s", "memory_scale", "fixed_scale")
    before = left_out_errors(seen, fit.timing, by, names)
    after = left_out_errors(observations(shifted, "vllm"), fit.timing, by, names)
    assert after[out, 0] == pytest.approx(before[out, 0] - np.log(1.3), abs=1e-9)
    assert np.abs(after[~out, 0] - before[~out, 0]).max() > 1e-4


def test_a_group_that_is_not_known_is_refused(seen, fit):
    with pytest.raises(InputError, match="'nonsense' is not allowed; choose model, cell, gpu"):
        left_out_errors(seen, fit.timing, "nonsense")


def test_table_of_what_is_left_out(seen, fit):
    errors = left_out_errors(seen, fit.timing, "gpu")
    table = {(r["group"], r["metric"]): r for r in left_out(seen, fit.timing, "gpu")}
    assert {g for g, _ in table} == {"all", "dense models", "h100-sxm", "h200-sxm", "a100-80-sxm"}
    assert {m for _, m in table} == {"tpot", "ttft"}  # no row states a rate alone
    assert [table[g, "tpot"]["rows"] for g in ("all", "dense models", "h200-sxm")] == [16, 12, 4]
    over = np.exp(errors[:, 0]) - 1.0
    assert table["all", "tpot"]["median"] == round(100 * float(np.median(np.abs(over))), 1)
    models = {r["group"] for r in left_out(seen, fit.timing, "model")} - {"all", "dense models"}
    assert models == {read_case(row(0, *cell, 1, 8, 8)).deployment.model.name for cell in CELLS}
    assert table["all", "tpot"]["bias"] == round(100 * float(np.median(over)), 1)


# -- which rows ------------------------------------------------------------------------------------------


def test_only_plain_runs_of_the_engine_are_looked_at(rows):
    kept = rows[0]
    others = [
        {**kept, "quality": "C"}, {**kept, "engine": "SGLang"}, {**kept, "engine_version": "0.6.3"},
        {**kept, "spec_decode": "eagle 3"}, {**kept, "deploy": "disagg"}, {**kept, "model": ""},
        {**kept, "isl": "", "osl": "", "len_dist": "sharegpt"},
        {**kept, "load_kind": "request_rate", "load_value": "2"}, {**kept, "tpot_mean_ms": "", "ttft_mean_ms": ""},
    ]  # fmt: skip
    found = observations([*others, kept], "vllm")
    assert [o.case.id for o in found] == [kept["id"]]
    assert found[0].cell == ("h100-sxm", "Qwen/Qwen3-8B", "bf16")
    with pytest.raises(InputError, match="no row of engine 'vllm' can be fitted on"):
        observations(others, "vllm")


def test_a_rate_counts_where_it_is_all_there_is(rows):
    closed = {**rows[0], "output_tok_s": "500"}
    alone = {**closed, "tpot_mean_ms": "", "ttft_mean_ms": ""}
    offline = {**closed, "load_kind": "offline", "load_value": ""}
    found = observations([closed, alone, offline], "vllm")
    assert [o.rate for o in found] == [None, 500.0, 500.0]
    assert found[0].tpot_s == pytest.approx(float(rows[0]["tpot_mean_ms"]) / 1e3)
    assert (found[2].tpot_s, found[2].ttft_s) == (None, None)


def test_a_share_of_the_rows_is_drawn_evenly_from_the_cells(rows):
    many = [{**rows[0], "id": f"many-{i}"} for i in range(60)]
    few = observations([*many, *rows], "vllm", most=12)
    assert len(few) == 12
    assert [o.case.id for o in few] == [o.case.id for o in observations([*many, *rows], "vllm", most=12)]
    assert sum(o.case.id.startswith("many") for o in few) <= 8
    assert len({o.cell for o in few}) >= 3


def test_priors_are_ten_constants_of_the_engine_above_their_bounds():
    assert {len(fitted_names(timing)) for timing in engine_timings().values()} == {10}
    beside = {name for name, timing in engine_timings().items() if "host_step_s" in fitted_names(timing)}
    assert beside == {name for name, timing in engine_timings().items() if timing.overlaps}
    assert all(0.0 <= p.low < p.value and p.spread > 0.0 for p in PRIORS.values())
    assert set(SCALES) < set(PRIORS)


# -- the command -----------------------------------------------------------------------------------------


def outcome(capsys, *words):
    code = run(["calibrate", "serving", *words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_the_curated_runs_are_fitted_without_a_file(capsys, tmp_path):
    code, out, err = outcome(capsys, "--engine", "trtllm-v1", "--rows", "8", "--out", str(tmp_path / "e.toml"))
    assert (code, err) == (0, "")
    assert out.startswith("trtllm-v1: 8 rows of ")
    assert all(name in out for name in fitted_names(engine_timing("trtllm-v1")))
    assert "median error" in out
    assert "host_step_s" in tomllib.loads((tmp_path / "e.toml").read_text())["trtllm-v1"]


@pytest.fixture(scope="module")
def file(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "runs.csv"
    with path.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows[2::4])
    return str(path)


def test_json_is_one_document_with_and_without_what_is_left_out(capsys, file):
    asked = (file, "--format", "json")
    plain = json.loads(outcome(capsys, *asked)[1])
    both = json.loads(outcome(capsys, *asked, "--leave-out", "model")[1])
    assert list(plain) == ["title", "rows", "notes"]
    assert {n: both[n] for n in plain} == plain
    assert [r["constant"] for r in both["rows"]] == list(NAMES)
    assert both["left_out"]["title"] == "vllm, each model left out of the fit"
    assert {"group", "metric", "rows", "median"} <= set(both["left_out"]["rows"][0])


def test_csv_holds_one_table(capsys, file):
    asked = (file, "--format", "csv")
    assert outcome(capsys, *asked)[1].startswith("constant,before,after,spread")
    lines = outcome(capsys, *asked, "--leave-out", "gpu")[1].splitlines()
    assert lines[0] == "group,metric,rows,median,mean,p90,bias"
    assert all(line.count(",") == 6 for line in lines)


@pytest.mark.parametrize(
    ("words", "expected", "told"),
    [
        (("--leave-out", "nonsense"), 2, "'nonsense' is not allowed; choose model, cell, gpu"),
        (("--engine", "nonsense"), 2, "'nonsense' is not allowed; choose vllm, vllm-v0, sglang"),
        (("--format", "xml"), 2, "'xml' is not allowed; choose table, csv, json, md"),
        (("--rows", "0"), 2, "--rows"),
        (("no-such-file.csv",), 4, "no-such-file.csv"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_fitted(capsys, monkeypatch, words, expected, told):
    monkeypatch.setattr("sizing.fitting.serving.fit_engine", lambda *a: pytest.fail("fitted all the same"))
    code, out, err = outcome(capsys, *words)
    assert (code, out) == (expected, "")
    assert told in err
    assert err.count("\n") == 1


def test_a_record_is_found_by_name_and_alias():
    assert record_of("trtllm-v1").name == "trtllm-v1"
    assert record_of("TensorRT-LLM").name == "trtllm"
    assert record_of("generic").name == "generic"
