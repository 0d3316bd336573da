"""Closed-form means and percentiles against the simulator, and their laws."""

import numpy as np
import pytest

import sizing
from sizing.prepared import prepare
from sizing.replica.percentile import curves_at, out_of_depth
from sizing.workload.arrivals import Gamma
from sizing.workload.lengths import Lognormal

GPU = sizing.gpu("h100-sxm")
CONSTANTS = sizing.load_calibration("measured", gpu=GPU)
DEPLOYMENT = sizing.Deployment(
    model=sizing.read_model("Qwen/Qwen3-8B"), gpu=GPU, settings=sizing.EngineSettings(memory_utilization=0.9)
)


def workload(cv: float, rate: float = 1.0, spread: bool = False) -> sizing.Workload:
    lengths = [Lognormal(mean_tokens=m, cv=1.0, most_tokens=16_000) if spread else float(m) for m in (2_000, 400)]
    return sizing.Workload(
        request_rate_per_s=rate, input_tokens=lengths[0], output_tokens=lengths[1], arrivals=Gamma(cv=cv)
    )


def closed_form_s(asked: sizing.Workload, percentile: float | None, rate: float) -> tuple[float, float]:
    prediction = prepare(DEPLOYMENT, asked, CONSTANTS, True).prediction
    assert prediction is not None
    ttft, tpot = curves_at(prediction, asked, sizing.Slo(percentile=percentile))
    at = prediction.nominal[0]
    return float(np.interp(rate, at, ttft)), float(np.interp(rate, at, tpot))


@pytest.mark.parametrize(("cv", "spread"), [(1.0, False), (1.0, True), (2.0, False), (2.0, True)])
@pytest.mark.parametrize("rate", [3.0, 4.5])
def test_tpot_is_within_a_tenth_of_the_simulator(cv: float, spread: bool, rate: float) -> None:
    asked = workload(cv, rate, spread)
    ready = prepare(DEPLOYMENT, asked, CONSTANTS, True)
    replica = sizing.replica_model(DEPLOYMENT, steps=ready.steps, memory=ready.memory)
    seen = sizing.simulate(asked, replica, requests=5_000, replications=3, slo=sizing.Slo(percentile=95)).estimates
    for percentile, name in ((None, "mean"), (95, "p95"), (99, "p99")):
        simulated = next(v.value for k, v in seen.items() if "tpot" in k and name in k)
        assert closed_form_s(asked, percentile, rate)[1] == pytest.approx(simulated, rel=0.11), name


@pytest.mark.parametrize("rate", [1.0, 3.0, 5.0])
def test_a_higher_percentile_and_burstier_traffic_are_never_faster(rate: float) -> None:
    for cv in (1.0, 2.0):
        means, p95, p99 = (closed_form_s(workload(cv), q, rate) for q in (None, 95, 99))
        assert means[1] <= p95[1] <= p99[1]
        assert p95[0] <= p99[0]
    for q in (None, 95, 99):
        assert closed_form_s(workload(1.0), q, rate)[1] <= closed_form_s(workload(2.0), q, rate)[1]


def test_bursts_that_overflow_the_cache_are_said() -> None:
    asked = workload(3.0)
    prediction = prepare(DEPLOYMENT, asked, CONSTANTS, True).prediction
    assert prediction is not None
    most = float(prediction.nominal[0].max())
    assert out_of_depth(prediction, workload(1.0), 0.2 * most) == ""
    assert "queue" in out_of_depth(prediction, asked, 0.9 * most)
