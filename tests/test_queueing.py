"""Closed forms against published and exactly computed values; the digits are those of the fleet formulas."""

import numpy as np
import pytest

from sizing import queueing as q
from sizing.errors import InputError

ERLANG_C = [  # servers, offered load, P(wait): exact fractions or the recursion in double precision, as printed
    (1, 0.5, "0.5"), (2, 1, "0.333333"), (4, 3, "0.509434"), (5, 4, "0.554113"), (10, 8, "0.409180"),
    (20, 18, "0.550769"), (50, 45, "0.363864"), (100, 90, "0.216940"), (160, 140, "0.063613"),
    (200, 190, "0.365264"), (500, 480, "0.266513"),
]  # fmt: skip


@pytest.mark.parametrize(("servers", "load", "printed"), [c for c in ERLANG_C if c[0] < 50])
def test_erlang_c_at_few_servers(servers: int, load: float, printed: str) -> None:
    digits = len(printed.split(".")[1])
    assert float(q.erlang_c(servers, load)) == pytest.approx(float(printed), abs=0.5 * 10.0**-digits)


@pytest.mark.parametrize(("servers", "load"), [(c[0], c[1]) for c in ERLANG_C])
def test_erlang_b_agrees_with_its_recursion(servers: int, load: float) -> None:
    blocked = 1.0
    for k in range(1, servers + 1):
        blocked = load * blocked / (k + load * blocked)
    assert float(q.erlang_b(servers, load)) == pytest.approx(blocked, rel=1e-9)


def test_m_m_10_waits() -> None:
    # c = 10, a = 8, mu = 1: mean 0.204590, p99 1.855785 (six digits)
    assert float(q.wait_s(10, 8, 1.0)) == pytest.approx(0.204590, abs=5e-7)
    assert float(q.wait_quantile_s(0.99, 10, 8, 1.0)) == pytest.approx(1.855785, abs=5e-7)


def test_m_d_10_by_allen_cunneen() -> None:
    assert float(q.allen_cunneen_s(10, 8, 1.0, 1.0, 0.0)) == pytest.approx(0.1023, abs=5e-5)


@pytest.mark.parametrize(
    ("servers", "load", "cv", "hayward", "simulated"),
    [(10, 8, 2.0, 0.7455, 0.751), (20, 16, 3.0, 0.7455, 0.725), (160, 140, 2.0, 0.0269, 0.0238)],
)
def test_hayward_where_allen_cunneen_fails(
    servers: int, load: float, cv: float, hayward: float, simulated: float
) -> None:
    got = float(q.hayward_s(servers, load, 1.0, cv))
    assert got == pytest.approx(hayward, abs=5e-5)
    assert abs(got / simulated - 1) < 0.15
    assert float(q.allen_cunneen_s(servers, load, 1.0, cv, 1.0)) < 0.75 * simulated


def test_single_server_forms() -> None:
    assert float(q.kingman_s(0.8, 1.0, 2.0, 0.5)) == pytest.approx(8.5, rel=1e-12)  # c_a^2 = 4, c_s^2 = 1/4
    assert float(q.pollaczek_khinchine_s(0.8, 1.0, 0.0)) == pytest.approx(2.0, rel=1e-12)  # M/D/1
    assert float(q.processor_sharing_s(0.8, 1.0)) == pytest.approx(5.0, rel=1e-12)
    # a random split over four M/M/1 queues waits 4.0 where one M/M/4 waits 0.7455 at rho 0.8
    assert float(q.wait_s(1, 0.8, 1.0)) == pytest.approx(4.0, rel=1e-12)
    assert float(q.wait_s(4, 3.2, 1.0)) == pytest.approx(0.7455, abs=5e-5)


def test_in_flight_quantiles() -> None:
    assert float(q.in_flight_quantile(0.99, 160)) == 190  # Poisson(160)
    assert float(q.in_flight_quantile(0.99, 160, 2.0)) == pytest.approx(206.5, abs=0.05)  # z = 2.5


def test_batch_service_is_stable_below_its_full_batch() -> None:
    assert q.batch_service_rate_per_s([1, 10], 1.0, 0.1) == pytest.approx([1 / 1.1, 5.0], rel=1e-12)


def test_an_overloaded_queue_waits_for_ever() -> None:
    assert float(q.wait_s(2, 3, 1.0)) == np.inf
    assert float(q.kingman_s(1.0, 1.0, 1.0, 1.0)) == np.inf
    assert float(q.erlang_c(2, 3)) == 1.0


def test_arrays_and_scalars_agree() -> None:
    servers = np.array([2.0, 10.0, 160.0])
    loads = np.array([1.0, 8.0, 140.0])
    assert q.erlang_c(servers, loads) == pytest.approx(
        [float(q.erlang_c(c, a)) for c, a in zip(servers, loads, strict=True)], rel=1e-12
    )


def test_nonsense_is_refused() -> None:
    with pytest.raises(InputError, match="servers"):
        q.erlang_c(-1, 2)
