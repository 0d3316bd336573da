"""Error bars: the residual that makes intervals hold, by hand and on made-up runs."""

from dataclasses import replace

import numpy as np
import pytest

from sizing.engines.timing import WIDER, WIDEST, engine_timing
from sizing.fitting.residuals import LEAST, LEAST_ROWS, Miss, misses, residual, spreads
from sizing.replica.loads import QUANTILE_80
from sizing.validation.cases import read_case
from sizing.validation.serving import predict_case, spreads_of

ROW = {
    "id": "made-1", "engine": "vLLM", "engine_version": "0.11.0", "model": "Qwen/Qwen3-8B", "gpu": "H100-SXM-80GB",
    "num_gpus": "1", "tp": "1", "isl": "1024", "osl": "256", "load_kind": "concurrency", "load_value": "16",
    "quality": "A",
}  # fmt: skip


def miss(error: float, apart: float | None = None, **other: object) -> Miss:
    errors = (error,) if apart is None else (error, apart)
    known = {"engine": "vllm", "gpu": "h100-sxm", "metric": "tpot", "drawn": 0.0, "wider": 1.0}
    return Miss(errors=errors, **{**known, **other})  # type: ignore[arg-type]


def test_the_residual_is_the_smallest_that_holds_the_share() -> None:
    found = [miss(error) for error in np.linspace(0.01, 1.0, 100)]
    # 80 of the 100 errors, each counted twice, lie within 0.80 = 1.2816 s
    assert residual(found, 0.80) == pytest.approx(0.80 / QUANTILE_80, abs=1e-3)
    assert residual(found, 0.50) == pytest.approx(0.50 / QUANTILE_80, abs=1e-3)


def test_errors_under_constants_that_had_not_seen_the_row_count_as_much() -> None:
    found = [miss(0.1, 0.3) for _ in range(50)]
    assert residual(found, 0.50) == pytest.approx(0.1 / QUANTILE_80, abs=1e-3)
    assert residual(found, 0.51) == pytest.approx(0.3 / QUANTILE_80, abs=1e-3)


def test_draws_and_the_residual_add_in_squares_and_the_wider_need_less() -> None:
    # 0.5 = 1.2816 sqrt(0.3^2 + (2 s)^2)
    expected = np.sqrt((0.5 / QUANTILE_80) ** 2 - 0.3**2) / 2.0
    assert residual([miss(-0.5, drawn=0.3, wider=2.0)] * 3) == pytest.approx(expected, abs=1e-3)
    assert residual([miss(0.2, drawn=0.3)] * 3) == LEAST


def test_a_normal_error_comes_back_with_its_width() -> None:
    rng = np.random.default_rng(5)
    drawn, wide = 0.1, rng.choice([1.0, 1.5], 40_000)
    found = [
        miss(e, drawn=drawn, wider=w) for e, w in zip(rng.normal(0, np.hypot(drawn, 0.2 * wide)), wide, strict=True)
    ]
    assert residual(found, 0.80) == pytest.approx(0.2, rel=0.02)


def test_engines_and_gpus_have_their_own_where_they_have_runs_enough() -> None:
    some = [miss(0.1)] * LEAST_ROWS + [miss(0.4, gpu="b200-hgx")] * (LEAST_ROWS - 1)
    other = [miss(0.2, engine="sglang", metric="rate")] * (LEAST_ROWS - 1)
    found = spreads([*some, *other])
    assert set(found) == {"vllm", "sglang"}
    overall, by_gpu = found["vllm"]
    assert set(overall) == {"tpot"}
    assert by_gpu == {"h100-sxm": {"tpot": pytest.approx(0.1 / QUANTILE_80, abs=1e-3)}}
    assert found["sglang"] == ({}, {})


def test_misses_are_logs_of_predicted_over_measured_with_what_the_draws_explain() -> None:
    case = read_case(ROW)
    run = predict_case(case, spread={})
    row = {**ROW, "tpot_mean_ms": str(run.tpot_s.value * 1e3 / 1.2), "ttft_mean_ms": str(run.ttft_s.value * 1e3)}
    found = {m.metric: m for m in misses([row], {"made-1": (0.5, np.nan, np.nan)})}
    assert set(found) == {"tpot", "ttft"}
    assert found["tpot"].errors == pytest.approx((np.log(1.2), 0.5))
    assert found["ttft"].errors == pytest.approx((0.0,), abs=1e-9)
    assert (found["tpot"].engine, found["tpot"].gpu, found["tpot"].wider) == ("vllm", "h100-sxm", 1.0)
    own = case.timing.residual_on("h100-sxm")["tpot"]
    whole = predict_case(case)
    sigma = np.log(whole.tpot_s.high / whole.tpot_s.low) / 2 / QUANTILE_80
    assert np.hypot(found["tpot"].drawn, own) == pytest.approx(sigma, rel=1e-6)


def test_rows_of_unknown_configuration_or_lengths_say_nothing() -> None:
    measured = {**ROW, "tpot_mean_ms": "10"}
    assert misses([{**measured, "quality": "C"}, {**measured, "model": "no/such"}], {}) == []
    assert misses([{**measured, "isl": "", "osl": "", "len_dist": "sharegpt"}], {}) == []


@pytest.mark.parametrize("metric", ["tpot", "ttft", "rate"])
def test_what_is_less_certain_is_wider(metric: str) -> None:
    plain, experts = read_case(ROW), read_case({**ROW, "model": "Qwen/Qwen3-30B-A3B"})
    one = replace(engine_timing("vllm"), residual=dict.fromkeys(("tpot", "ttft", "rate"), 0.1), residual_by_gpu={})
    width = {name: spreads_of(replace(case, timing=one))[metric] for name, case in
             {"plain": plain, "experts": experts, "drafts": replace(plain, drafts=3.0),
              "open": replace(plain, assumptions=("one", "two"))}.items()}  # fmt: skip
    assert width["plain"] == pytest.approx(0.1)
    assert width["experts"] == pytest.approx(0.1 * WIDER["experts"][metric])
    assert width["drafts"] == pytest.approx(0.1 * WIDER["drafts"][metric])
    assert width["open"] == pytest.approx(0.12)


def test_no_residual_is_wider_than_the_widest() -> None:
    """An engine that is far off on a GPU, in an open loop, with drafts: wide, but not without bounds."""
    timing = replace(engine_timing("vllm"), residual={"tpot": 0.4, "ttft": 1.3, "rate": 0.6}, residual_by_gpu={})
    wide = timing.residual_on("h200-sxm", ["open loop", "drafts", "experts"])
    assert wide == WIDEST
    assert timing.residual_on("h200-sxm") == {"tpot": 0.4, "ttft": 1.3, "rate": 0.6}
