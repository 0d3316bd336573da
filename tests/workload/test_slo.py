"""One SLO algebra: statistics told apart, misses counted, windows, wording."""

import math

import numpy as np
import pytest

from sizing.errors import InputError
from sizing.workload.slo import Slo, evaluate, goodput, value_at, within

TTFT = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
TPOT = np.array([0.010, 0.011, 0.012, 0.013, 0.014, 0.015, 0.016, 0.017, 0.018, 0.100])


def test_a_percentile_is_the_value_that_its_share_does_not_exceed() -> None:
    """Order statistic ceil(p n / 100), by hand."""
    assert value_at(TTFT, 90) == 0.9
    assert value_at(TTFT, 91) == 1.0
    assert value_at(TTFT, 50) == 0.5
    assert value_at(TTFT, 1) == 0.1
    assert value_at(TTFT, None) == pytest.approx(0.55)
    assert value_at([3.0], 99) == 3.0
    assert math.isnan(value_at([], 99))


@pytest.mark.parametrize("percentile", [50, 70, 90, 95, 99, 99.9])
@pytest.mark.parametrize("n", [1, 7, 100, 1000, 1001])
def test_the_value_meets_the_target_exactly_when_the_share_does(percentile: float, n: int) -> None:
    values = np.random.Generator(np.random.PCG64(n)).exponential(size=n)
    for target in np.quantile(values, [0.4, 0.89, 0.95, 0.99, 1.0]):
        met = value_at(values, percentile) <= target
        assert met == (np.count_nonzero(values <= target) * 100 >= percentile * n - 1e-9 * n)


def test_mean_and_percentile_and_pooled_gaps_are_different_targets() -> None:
    """Ten requests: one of 1,000 gaps at 5 ms, nine of 10 gaps at 30 ms: mean TPOT 27.5, pooled mean 7.06 ms."""
    tpot = np.array([0.005] + [0.030] * 9)
    gaps, counts = np.array([0.005, 0.030]), np.array([1000, 90])
    ttft = np.full(10, 0.1)
    by_request = evaluate(Slo(tpot_s=0.020), ttft_s=ttft, tpot_s=tpot)
    pooled = evaluate(Slo(tpot_s=0.020, statistic="itl"), ttft_s=ttft, tpot_s=tpot, itl_s=gaps, itl_counts=counts)
    at90 = evaluate(
        Slo(tpot_s=0.020, statistic="itl", percentile=90), ttft_s=ttft, tpot_s=tpot, itl_s=gaps, itl_counts=counts
    )
    assert by_request.tpot_s == pytest.approx(0.0275)
    assert not by_request.attained
    assert pooled.tpot_s == pytest.approx((1000 * 0.005 + 90 * 0.030) / 1090)
    assert pooled.attained
    assert at90.tpot_s == 0.005
    assert at90.tpot_share == pytest.approx(1000 / 1090)


def test_the_mean_holds_where_the_percentile_does_not() -> None:
    mean = evaluate(Slo(ttft_s=1.0, tpot_s=0.025), ttft_s=TTFT, tpot_s=TPOT)
    p95 = evaluate(Slo(ttft_s=1.0, tpot_s=0.025, percentile=95), ttft_s=TTFT, tpot_s=TPOT)
    p90 = evaluate(Slo(ttft_s=1.0, tpot_s=0.025, percentile=90), ttft_s=TTFT, tpot_s=TPOT)
    assert (mean.attained, p95.attained, p90.attained) == (True, False, True)
    assert (p95.tpot_s, p90.tpot_s) == (0.100, 0.018)
    assert mean.goodput == 0.9


def test_each_target_may_have_its_own_percentile() -> None:
    slo = Slo(ttft_s=0.6, tpot_s=0.2, percentile=99, ttft_percentile=50)
    assert (slo.ttft_at, slo.tpot_at) == (50, 99)
    assert evaluate(slo, ttft_s=TTFT, tpot_s=TPOT).attained
    assert not evaluate(Slo(ttft_s=0.6, tpot_s=0.2, percentile=99), ttft_s=TTFT, tpot_s=TPOT).attained


def test_refused_and_unfinished_requests_are_misses() -> None:
    finished = np.ones(10, dtype=bool)
    finished[0] = False
    ttft = TTFT.copy()
    ttft[1] = np.nan  # refused: it never had a first token
    slo = Slo(ttft_s=2.0, tpot_s=1.0, percentile=85)
    result = evaluate(slo, ttft_s=ttft, tpot_s=TPOT, finished=finished)
    assert result.unfinished == 2
    assert result.goodput == 0.8
    assert not result.attained
    assert math.isinf(result.ttft_s)
    assert evaluate(Slo(ttft_s=2.0, tpot_s=1.0, percentile=80), ttft_s=ttft, tpot_s=TPOT, finished=finished).attained
    assert math.isinf(evaluate(Slo(ttft_s=2.0, tpot_s=1.0), ttft_s=ttft, tpot_s=TPOT, finished=finished).ttft_s)


def test_a_request_of_one_token_cannot_miss_a_token_time() -> None:
    tpot = TPOT.copy()
    tpot[9] = np.nan
    slo = Slo(ttft_s=2.0, tpot_s=0.02, percentile=99)
    assert evaluate(slo, ttft_s=TTFT, tpot_s=tpot).attained
    assert goodput(slo, TTFT, tpot) == 1.0
    assert within(slo, TTFT, TPOT).tolist() == [True] * 9 + [False]


def test_the_worst_window_counts() -> None:
    arrival = np.arange(10) * 10.0
    slo = Slo(ttft_s=0.85, tpot_s=1.0, window_s=50.0)
    result = evaluate(slo, ttft_s=TTFT, tpot_s=TPOT, arrival_s=arrival)
    assert result.windows == 2
    assert result.ttft_s == pytest.approx(np.mean([0.6, 0.7, 0.8, 0.9, 1.0]))
    assert result.attained
    whole = evaluate(Slo(ttft_s=0.75, tpot_s=1.0), ttft_s=TTFT, tpot_s=TPOT)
    worst = evaluate(Slo(ttft_s=0.75, tpot_s=1.0, window_s=50.0), ttft_s=TTFT, tpot_s=TPOT, arrival_s=arrival)
    assert (whole.attained, worst.attained) == (True, False)


def test_a_window_too_small_for_its_percentile_joins_the_one_before() -> None:
    """p99 needs 100 requests to be shown: ten windows of ten are one."""
    ttft = np.full(100, 0.1)
    result = evaluate(
        Slo(ttft_s=1, tpot_s=1, percentile=99, window_s=10.0), ttft_s=ttft, tpot_s=ttft, arrival_s=np.arange(100.0)
    )
    assert result.windows == 1


def test_targets_in_words() -> None:
    assert Slo().describe().startswith("mean TTFT at most 1 s, mean TPOT at most 20 ms, over the whole run")
    text = Slo(percentile=99, tpot_percentile=95, statistic="itl", window_s=60).describe()
    assert "p99 TTFT" in text
    assert "p95 gap between tokens (ITL, all requests pooled)" in text
    assert "in every 60 s" in text
    assert "unfinished requests count as misses" in text


def test_what_can_not_be_judged_is_refused() -> None:
    with pytest.raises(InputError, match="itl"):
        evaluate(Slo(statistic="itl"), ttft_s=TTFT, tpot_s=TPOT)
    with pytest.raises(InputError, match="window_s"):
        evaluate(Slo(window_s=10), ttft_s=TTFT, tpot_s=TPOT)
    with pytest.raises(InputError, match="at least one request"):
        evaluate(Slo(), ttft_s=[], tpot_s=[])
    with pytest.raises(InputError, match="tpot_s"):
        evaluate(Slo(), ttft_s=TTFT, tpot_s=TPOT[:3])


@pytest.mark.parametrize(
    "fields",
    [
        {"ttft_s": 0},
        {"tpot_s": math.nan},
        {"tpot_s": math.inf},
        {"percentile": 100},
        {"percentile": 0},
        {"ttft_percentile": -5},
        {"tpot_percentile": 101},
        {"statistic": "itll"},
        {"window_s": 0},
    ],
)
def test_impossible_targets_are_refused_by_name(fields: dict) -> None:
    with pytest.raises(InputError, match=next(iter(fields))):
        Slo(**fields)
