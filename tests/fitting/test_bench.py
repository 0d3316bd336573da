"""Constants fitted to a load test: recovery of known ones, honesty about what cannot be told."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import sizing
from sizing.benchmarks.point import BenchPoint, Latency, Load
from sizing.benchmarks.reading import read_benchmark
from sizing.calibration import Calibration, calibration
from sizing.catalog import gpu
from sizing.engines.timing import engine_timing
from sizing.errors import InputError
from sizing.fitting.bench import explain, fit_bench
from sizing.fitting.bench_file import bench_text
from sizing.fitting.discrepancy import discrepancy
from sizing.fitting.held_out import BEYOND, Group, LeftOut, by_engine, grouped, held_out, left_out, split
from sizing.fitting.report import held_out_report, left_out_notes
from sizing.steptime import with_engine
from sizing.validation.bench import Prediction

WEIGHT_BYTES, KV_BYTES, BANDWIDTH = 16e9, 147456.0, 3.35e12
FLOPS_PER_TOKEN, FLOPS = 16e9, 0.6e15


def engine(points: Sequence[BenchPoint], constants: Calibration) -> list[Prediction]:
    """An imaginary engine with the same constants: weights and KV read once a step, prompts computed."""
    own = constants.engine_time
    found = []
    for point in points:
        batch = float(point.load.concurrency or 1)
        context = float(point.input_tokens or 0) + float(point.output_tokens or 0) / 2
        memory = (WEIGHT_BYTES + batch * context * KV_BYTES) / BANDWIDTH * own.memory_scale
        step = own.step_s + own.sequence_s * batch + memory
        prefill = own.prefill_step_s + own.compute_scale * float(point.input_tokens or 0) * FLOPS_PER_TOKEN / FLOPS
        share = batch * prefill / (float(point.output_tokens or 1) * step)
        late = own.first_token_s + own.first_token_steps * step
        found.append(Prediction(tpot_s=step * (1 + share), ttft_s=own.start_scale * (prefill + step) + late))
    return found


def measured(
    truth: Calibration, concurrencies: Sequence[float], noise: float = 0.0, isl: float = 1000.0
) -> list[BenchPoint]:
    rng = np.random.default_rng(7)
    blank = [
        BenchPoint(
            format="test", source="made.json", sha256="0" * 64, load=Load(kind="closed", concurrency=c), index=n,
            input_tokens=isl, output_tokens=200.0, model="example/model-8b", gpu="h100-sxm", tp=1, engine="vllm",
        )
        for n, c in enumerate(concurrencies)
    ]  # fmt: skip
    return [
        dataclasses.replace(
            point,
            tpot=Latency(mean_s=shown.tpot_s * np.exp(noise * rng.standard_normal())),
            ttft=Latency(mean_s=shown.ttft_s * np.exp(noise * rng.standard_normal())),
            tpot_definition="after_first_token",
        )
        for point, shown in zip(blank, engine(blank, truth), strict=True)
    ]


@pytest.fixture
def shipped() -> Calibration:
    return calibration("rule-of-thumb", gpu("h100"), "vllm")


def test_known_constants_come_back_within_their_spread(shipped: Calibration) -> None:
    truth = shipped.with_constants(
        "engine",
        step_s=2e-3,
        sequence_s=5e-5,
        prefill_step_s=4e-3,
        first_token_s=0.03,
        memory_scale=1.1,
        compute_scale=1.2,
    )
    fit = fit_bench(measured(truth, [1, 2, 4, 8, 16, 32, 64, 128]), engine, shipped)
    assert fit.error_after < 0.01 < fit.error_before
    for constant in fit.constants:
        true = getattr(truth.engine_time, constant.name)
        assert abs(constant.after - true) <= 2.0 * constant.spread, constant
        if constant.identified:
            assert constant.spread < constant.prior_spread
    assert {"step_s", "first_token_s"} <= {c.name for c in fit.constants if c.identified}


def test_what_a_single_point_cannot_tell_is_said(shipped: Calibration) -> None:
    truth = shipped.with_constants("engine", step_s=2e-3, sequence_s=5e-5)
    fit = fit_bench(measured(truth, [1]), engine, shipped)
    assert "sequence_s" in fit.unidentified  # one sequence: 50 us against the step's 2 ms
    assert "memory_scale" in fit.unidentified
    assert fit.error_after < fit.error_before
    untouched = next(c for c in fit.constants if c.name == "sequence_s")
    assert untouched.spread == pytest.approx(untouched.prior_spread, rel=0.05)


def test_a_perfect_prediction_is_left_alone(shipped: Calibration) -> None:
    fit = fit_bench(measured(shipped, [1, 8, 64]), engine, shipped)
    for constant in fit.constants:
        assert constant.after == pytest.approx(constant.before, abs=0.2 * constant.prior_spread)


def test_one_wild_point_does_not_carry_the_fit(shipped: Calibration) -> None:
    truth = shipped.with_constants("engine", step_s=2e-3)
    points = measured(truth, [1, 2, 4, 8, 16, 32])
    spoilt = dataclasses.replace(points[3], tpot=Latency(mean_s=10 * float(points[3].tpot_s or 0)))
    fit = fit_bench([*points[:3], spoilt, *points[4:]], engine, shipped)
    assert fit.calibration.engine_time.step_s == pytest.approx(2e-3, rel=0.35)


def test_evidence_names_the_file_and_the_day(shipped: Calibration) -> None:
    fit = fit_bench(measured(shipped, [1, 8, 64]), engine, shipped)
    evidence = fit.calibration.evidence["engine"]
    assert evidence.basis == "fitted end to end"
    assert "3 points of made.json (sha256 000000000000)" in evidence.fitted_on
    assert len(evidence.date) == 10
    assert fit.calibration.families["elementwise"] == shipped.families["elementwise"]


def test_refused_points_and_unknown_constants(shipped: Calibration) -> None:
    points = [point.refused("the client is the bottleneck") for point in measured(shipped, [1, 8])]
    with pytest.raises(InputError, match="the client is the bottleneck"):
        fit_bench(points, engine, shipped)
    with pytest.raises(InputError, match="no 'speed'; allowed are step_s"):
        fit_bench(measured(shipped, [1]), engine, shipped, constants=["speed"])


def test_the_constant_that_is_off_explains_best(shipped: Calibration) -> None:
    truth = shipped.with_constants("engine", sequence_s=2e-4)
    found = explain(measured(truth, [1, 4, 16, 64, 128]), engine, shipped)
    assert found[0].constant.name == "sequence_s"
    assert found[0].constant.after == pytest.approx(2e-4, rel=0.1)
    assert found[0].error_after < 0.05 < found[0].error_before
    used = {"step_s", "sequence_s", "prefill_step_s", "first_token_s", "first_token_steps", "start_scale",
            "memory_scale", "compute_scale"}  # fmt: skip
    assert {one.constant.name for one in found} == used  # what this engine's times do not depend on is left out


def test_groups_are_one_deployment_at_several_loads(shipped: Calibration) -> None:
    points = [*measured(shipped, [1, 8, 64]), *measured(shipped, [1, 8], isl=4000.0), *measured(shipped, [2], isl=9.0)]
    groups = grouped(points, least=2)
    assert [len(group.points) for group in groups] == [3, 2]
    assert "model-8b" in groups[0].name
    many = grouped(measured(shipped, [1, 2, 4, 8, 16, 32]), least=4)[0]
    fitted, rest = split(many, fitted=3)
    assert [p.load.concurrency for p in fitted] == [1, 8, 32]
    assert [p.load.concurrency for p in rest] == [2, 4, 16]


def test_held_out_points_are_predicted_better(shipped: Calibration) -> None:
    truth = shipped.with_constants("engine", step_s=2e-3, sequence_s=8e-5, prefill_step_s=6e-3, first_token_s=0.05)
    group = Group(name="made", points=tuple(measured(truth, [1, 2, 4, 8, 16, 32, 64], noise=0.01)))
    (result,) = held_out([group], lambda _: (engine, shipped), fitted=3)
    assert result.held_out == 4
    for metric in ("tpot_s", "ttft_s"):
        assert np.median(result.fitted_constants[metric]) < 0.5 * np.median(result.shipped[metric])
    rows = by_engine([result])
    assert [(row["engine"], row["metric"]) for row in rows] == [
        ("vllm", "tpot_s"), ("vllm", "ttft_s"), ("all", "tpot_s"), ("all", "ttft_s"),
    ]  # fmt: skip
    assert rows[0]["points"] == 4


def test_the_remainder_is_met_where_measured_and_fades_far_away(shipped: Calibration) -> None:
    points = measured(shipped, [4, 8, 16])
    slower = [dataclasses.replace(p, ttft=Latency(mean_s=1.3 * float(p.ttft_s or 0))) for p in points]
    left = discrepancy(slower, engine, shipped)
    near, far = measured(shipped, [8])[0], measured(shipped, [4096])[0]
    shown = left.corrected([near, far], engine([near, far], shipped))
    assert shown[0].ttft_s == pytest.approx(1.3 * float(near.ttft_s or 0), rel=0.02)
    assert shown[1].ttft_s == pytest.approx(float(far.ttft_s or 0), rel=0.01)
    assert shown[0].tpot_s == pytest.approx(float(near.tpot_s or 0), rel=1e-3)


def test_a_late_first_token_is_told_from_slow_steps(shipped: Calibration) -> None:
    """TTFT alone is late, by decode steps: the time per token must not be asked to explain it."""
    truth = shipped.with_constants("engine", first_token_steps=10.0)
    fit = fit_bench(measured(truth, [1, 2, 4, 8, 16, 32, 64, 128]), engine, shipped)
    own, spread = fit.calibration.engine_time, {c.name: c.spread for c in fit.constants}
    assert own.first_token_steps == pytest.approx(10.0, abs=2.0 * spread["first_token_steps"])
    assert own.step_s < 1e-4
    assert own.memory_scale == pytest.approx(1.0, abs=0.05)


def test_lowest_concurrencies_fitted_and_the_others_extrapolated_to(shipped: Calibration) -> None:
    truth = shipped.with_constants("engine", step_s=2e-3, sequence_s=8e-5, first_token_steps=6.0)
    group = Group(name="made", points=tuple(measured(truth, [1, 4, 16, 64, 256])))
    inside, outside = split(group, 3, lowest=True)
    assert [p.load.concurrency for p in (*inside, *outside)] == [1, 4, 16, 64, 256]
    (result,) = held_out([group], lambda _: (engine, shipped), fitted=3, lowest=True)
    for metric in ("tpot_s", "ttft_s"):
        assert len(result.fitted_constants[metric]) == 2
        assert max(result.fitted_constants[metric]) < 0.5 * min(result.shipped[metric])


def test_every_load_is_left_out_once(shipped: Calibration) -> None:
    truth = shipped.with_constants("engine", step_s=2e-3, first_token_s=0.05)
    points = measured(truth, [1, 2, 4, 8, 16, 32, 64], noise=0.01)
    checked = left_out(points, engine, shipped)
    assert checked is not None
    assert {metric: len(errors) for metric, errors in checked.fitted.items()} == {"tpot_s": 7, "ttft_s": 7}
    assert np.median(checked.fitted["tpot_s"]) < 0.1 * np.median(checked.shipped["tpot_s"])
    # One run cannot say how it goes on at loads it did not have, however well its own points agree.
    assert checked.residuals() == {"tpot": BEYOND["tpot_s"], "ttft": BEYOND["ttft_s"]}
    assert left_out(points[:2], engine, shipped) is None


def test_a_run_that_no_constant_explains_keeps_a_wide_interval(shipped: Calibration) -> None:
    points = measured(shipped, [1, 2, 4, 8, 16, 32, 64])
    wild = [
        dataclasses.replace(p, ttft=Latency(mean_s=float(p.ttft_s or 0) * (3.0 if n % 2 else 1 / 3)))
        for n, p in enumerate(points)
    ]
    checked = left_out(wild, engine, shipped)
    assert checked is not None
    assert checked.residuals()["ttft"] > 2.0 * BEYOND["ttft_s"]


def test_a_fit_that_does_worse_where_it_was_not_fitted_says_so() -> None:
    notes = left_out_notes(LeftOut(shipped={"ttft_s": (0.1, 0.1)}, fitted={"ttft_s": (0.3, 0.3)}))
    assert notes[0].startswith("ttft of loads left out is predicted worse than with the shipped constants")
    assert notes[1] == (
        "every load left out of a fit once: ttft median error 10.0% shipped, 30.0% fitted; log-sigma for plans 0.39"
    )  # 1.4826 ln 1.3
    assert "not checked" in left_out_notes(None)[0]


def test_a_plan_takes_the_interval_of_the_users_run(shipped: Calibration, tmp_path: Path) -> None:
    first = calibration("measured", gpu("h100"), "vllm")
    fit = fit_bench(measured(shipped, [1, 8, 64]), engine, with_engine(first, engine_timing("vllm")))
    files = {}
    for name, ttft in (("narrow", 0.3), ("wide", 0.9)):
        files[name] = tmp_path / f"{name}.toml"
        files[name].write_text(bench_text(fit, "h100-sxm", "vllm", residuals={"tpot": 0.2, "ttft": ttft}))
        assert calibration(files[name], gpu("h100"), "vllm").evidence["engine"].residuals["ttft"] == ttft
    wide = {}
    for name, path in files.items():
        answer = sizing.plan("Qwen/Qwen3-8B", gpus=("h100",), calibration=str(path))
        span = answer.require().interval
        wide[name] = np.log(span.ttft_high_s / span.ttft_low_s)
    assert wide["wide"] > 2.0 * wide["narrow"]


@pytest.mark.slow
def test_public_runs_held_out(shared: Path) -> None:
    """The figure: held-out concurrencies at half the error of the shipped constants, on public runs."""
    points = read_benchmark(shared / "measured" / "serving_dev.csv")
    report = held_out_report(points, None, "measured", 3, 20, lambda items, *_: items)
    whole = {row["metric"]: row for row in report.rows if row["engine"] == "all"}
    assert whole["tpot_s"]["points"] > 30
    assert whole["tpot_s"]["fitted_over_shipped"] < 0.5
    assert whole["tpot_s"]["with_remainder_over_shipped"] < 0.5
    assert whole["ttft_s"]["fitted_over_shipped"] < 0.5
    assert whole["ttft_s"]["with_remainder_over_shipped"] < 0.5
