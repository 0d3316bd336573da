"""Closed forms against published or independently derived values."""

import numpy as np
import pytest

from sizing import queueing as q

# Erlang C, to the printed digits; exact fractions: C(1, 0.5) = 1/2, C(2, 1) = 1/3, B(2, 1) = 1/5.
# Others: the recursion in exact rational arithmetic, printed to 6 digits.
ERLANG_C = {
    (1, 0.5): 0.5, (2, 1): 0.333333, (4, 3): 0.509434, (5, 4): 0.554113, (10, 8): 0.409180, (20, 18): 0.550769,
    (50, 45): 0.363864, (100, 90): 0.216940, (160, 140): 0.063613, (200, 190): 0.365264, (500, 480): 0.266513,
}  # fmt: skip
ERLANG_B = {(1, 0.5): 0.333333, (2, 1): 0.2, (4, 3): 0.206107, (10, 8): 0.121661, (200, 190): 0.027968}
HALF_A_DIGIT = 0.5e-6


def test_erlang_c_table() -> None:
    for (servers, load), expected in ERLANG_C.items():
        assert q.erlang_c(servers, load) == pytest.approx(expected, abs=HALF_A_DIGIT)


def test_erlang_b_table() -> None:
    for (servers, load), expected in ERLANG_B.items():
        assert q.erlang_b(servers, load) == pytest.approx(expected, abs=HALF_A_DIGIT)


def test_tables_in_one_call() -> None:
    servers, load = np.array(list(ERLANG_C), dtype=float).T
    assert q.erlang_c(servers, load) == pytest.approx(list(ERLANG_C.values()), abs=HALF_A_DIGIT)


def test_fractional_servers_continue_the_integral_between_whole_ones() -> None:
    # 1 / B = integral of a exp(-a t) (1 + t)^c dt, by the trapezoid rule.
    t = np.linspace(0, 60, 600_001)
    for servers, load in [(2.5, 1.0), (4.0, 3.2), (0.4, 2.0)]:
        integral = np.trapezoid(load * np.exp(-load * t) * (1 + t) ** servers, t)
        assert q.erlang_b(servers, load) == pytest.approx(1 / integral, rel=1e-6)


def test_overload_waits_for_ever_and_does_not_fail() -> None:
    assert q.mmc_wait_s(10, 12, 1.0) == np.inf
    assert q.erlang_c(10, 10) == 1.0
    assert q.erlang_b(10, 5000) == pytest.approx(1 - 10 / 5000, abs=1e-5)
    assert q.kingman_wait_s(1.0, 1.0, 1.0, 1.0) == np.inf
    assert q.batch_service_s(3.0, 1.0, 2) == np.inf


def test_wait_in_mmc() -> None:
    # c = 10, load 8, S = 1: mean .204590, 99 % 1.855785 = ln(C / 0.01) / (c mu - lambda).
    assert q.mmc_wait_s(10, 8, 1.0) == pytest.approx(0.204590, abs=HALF_A_DIGIT)
    assert q.mmc_wait_quantile_s(10, 8, 1.0, 0.99) == pytest.approx(1.855785, abs=HALF_A_DIGIT)
    assert q.mmc_wait_quantile_s(10, 1, 1.0, 0.5) == 0.0


def test_allen_cunneen() -> None:
    # M/D/10 and Gamma arrivals of CV 2: half and 2.5 times M/M/10.
    assert q.allen_cunneen_wait_s(10, 8, 1.0, 1.0, 0.0) == pytest.approx(0.102295, abs=HALF_A_DIGIT)
    assert q.allen_cunneen_wait_s(10, 8, 1.0, 4.0, 1.0) == pytest.approx(0.511475, abs=HALF_A_DIGIT)


def test_hayward_holds_where_allen_cunneen_does_not() -> None:
    # Event simulations of Gamma arrivals: .751 (c 10, a 8, CV 2), .725 (20, 16, CV 3), .0238 (160, 140, CV 2).
    assert q.peakedness(4.0) == 2.5
    assert q.hayward_wait_s(10, 8, 1.0, 4.0) == pytest.approx(0.745541, abs=HALF_A_DIGIT)
    assert q.hayward_wait_quantile_s(10, 8, 1.0, 4.0, 0.99) == pytest.approx(5.110476, abs=HALF_A_DIGIT)
    for servers, load, cv, simulated in [(10, 8, 2, 0.751), (20, 16, 3, 0.725), (160, 140, 2, 0.0238)]:
        assert q.hayward_wait_s(servers, load, 1.0, cv**2) == pytest.approx(simulated, rel=0.14)
        assert q.allen_cunneen_wait_s(servers, load, 1.0, cv**2, 1.0) < 0.7 * simulated


def test_single_server() -> None:
    assert q.kingman_wait_s(0.8, 1.0, 4.0, 0.25) == pytest.approx(8.5, rel=1e-12)
    assert q.pollaczek_khinchine_wait_s(0.8, 1.0, 0.0) == pytest.approx(2.0, rel=1e-12)
    assert q.pollaczek_khinchine_wait_s(0.8, 1.0, 1.0) == pytest.approx(q.mmc_wait_s(1, 0.8, 1.0), rel=1e-12)
    assert q.processor_sharing_s(0.8, 1.0) == pytest.approx(5.0, rel=1e-12)


def test_batch_service() -> None:
    # Batches of one: M/M/1, 1 / (mu - lambda). Batches of two at lambda = mu = 1: r = (sqrt(5) - 1) / 2.
    assert q.batch_service_s(0.5, 1.0, 1) == pytest.approx(2.0, rel=1e-9)
    golden = (5**0.5 - 1) / 2
    assert q.batch_service_s(1.0, 1.0, 2) == pytest.approx(golden / (1 - golden), rel=1e-9)


def test_requests_in_flight() -> None:
    # Poisson(160): P(N <= 190) is the first above 99 %; normal law 189.4; peakedness 2.5: 206.5.
    assert q.in_flight_quantile(160, 0.99) == 190
    assert q.in_flight_quantile_peaky(160, 0.99, 1.0) == pytest.approx(189.4, abs=0.05)
    assert q.in_flight_quantile_peaky(160, 0.99, 2.5) == pytest.approx(206.5, abs=0.05)


def test_rate_that_the_kv_cache_keeps_up_with() -> None:
    # 377,000 tokens, 20 ms, 2,000 in, 400 out: 880,200 token-steps a request.
    assert q.kv_stable_rate_per_s(377_000, 0.020, 2000, 400) == pytest.approx(21.4156, abs=0.5e-4)
