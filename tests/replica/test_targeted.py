"""The largest rate within targets: what it keeps, how it grows with them, what bounds it."""

import numpy as np
import pytest

from sizing.architecture import read_model
from sizing.calibration import calibration
from sizing.catalog import gpu
from sizing.deployment import Deployment, EngineSettings, Parallelism
from sizing.engines.timing import engine_timing
from sizing.replica.loads import Lengths, OpenLoop, Room, Targeted
from sizing.replica.run import TPOT_TAIL, TTFT_TAIL, predict_run
from sizing.steptime import nominal_and_draws, step_model, with_engine

ROOM = Room(kv_requests=900.0, max_num_seqs=512.0)
LENGTHS = Lengths(input_tokens=1000, output_tokens=250, input_cv=0.6, output_cv=0.8)
REPLICAS = (("Qwen/Qwen3-8B", "h100", "vllm", 1), ("meta-llama/Llama-3.1-70B-Instruct", "h200", "trtllm", 4),
            ("Qwen/Qwen3-30B-A3B", "b200", "sglang", 1))  # fmt: skip
TTFT_S = (0.2, 0.5, 2.0, 6.0)
TPOT_S = (0.015, 0.04, 0.08, 0.2)


@pytest.fixture(scope="module", params=REPLICAS, ids=lambda r: f"{r[0].rsplit('/')[-1]}-{r[2]}")
def replica(request):
    """Step times and scheduling."""
    name, chip, engine, tp = request.param
    timing = engine_timing(engine)
    deployment = Deployment(
        model=read_model(name), gpu=gpu(chip), parallelism=Parallelism(tp=tp),
        settings=EngineSettings(engine=timing.memory),
    )  # fmt: skip
    known = with_engine(calibration("measured", deployment.gpu, timing.kernels), timing)
    return step_model(deployment, known), timing.scheduling(8192)


def run(replica, load, lengths=LENGTHS, room=ROOM):
    return predict_run(replica[0], room, load, lengths, replica[1])


def rate(replica, ttft_s, tpot_s, **how):
    return run(replica, Targeted(ttft_s=ttft_s, tpot_s=tpot_s), **how).request_rate_per_s.value


def saturated(replica):
    """Rate of a replica that far more requests reach than it can answer. [request/s]"""
    return run(replica, OpenLoop(request_rate_per_s=1e6)).request_rate_per_s.value


@pytest.mark.parametrize("ttft_s", TTFT_S)
@pytest.mark.parametrize("tpot_s", TPOT_S)
def test_an_open_loop_at_the_rate_found_keeps_both_targets_and_meets_one(replica, ttft_s, tpot_s):
    found = rate(replica, ttft_s, tpot_s)
    opened = run(replica, OpenLoop(request_rate_per_s=found))
    assert opened.limited_by == "load"
    if found > 1e-4:  # otherwise not even a request alone keeps them
        assert TPOT_TAIL * opened.tpot_s.value <= tpot_s * 1.001
        assert TTFT_TAIL * opened.ttft_s.value <= ttft_s * 1.001
    if found < 0.9 * saturated(replica):  # not held back by what a replica sustains: five per cent more miss one
        more = run(replica, OpenLoop(request_rate_per_s=1.05 * max(found, 1e-3)))
        assert TPOT_TAIL * more.tpot_s.value > tpot_s or TTFT_TAIL * more.ttft_s.value > ttft_s


def test_a_looser_target_never_carries_less(replica):
    rates = np.array([[rate(replica, ttft_s, tpot_s) for tpot_s in TPOT_S] for ttft_s in TTFT_S])
    assert np.all(np.diff(rates, axis=0) >= -1e-9)
    assert np.all(np.diff(rates, axis=1) >= -1e-9)
    assert rates[-1, -1] > rates[0, 0]


def test_no_target_is_so_loose_that_a_replica_runs_full(replica):
    loosest = rate(replica, 1e4, 1e4)
    assert loosest == pytest.approx(0.95 * saturated(replica), rel=1e-9)
    assert loosest == pytest.approx(rate(replica, 1e5, 1e5), rel=1e-12)


def test_targets_below_what_a_request_alone_takes_carry_nothing(replica):
    alone = run(replica, OpenLoop(request_rate_per_s=1e-6))
    for ttft_s, tpot_s in ((TTFT_TAIL * alone.ttft_s.value / 2, 10.0), (100.0, TPOT_TAIL * alone.tpot_s.value / 2)):
        assert rate(replica, ttft_s, tpot_s) < 1e-3


def test_less_room_or_longer_answers_never_carry_more(replica):
    whole = rate(replica, 2.0, 0.2)
    assert rate(replica, 2.0, 0.2, room=Room(kv_requests=20.0)) < whole
    longer = Lengths(input_tokens=1000, output_tokens=500, input_cv=0.6, output_cv=0.8)
    assert rate(replica, 2.0, 0.2, lengths=longer) < whole


def test_what_is_said_of_the_run_is_that_of_the_open_loop(replica):
    found = run(replica, Targeted(ttft_s=2.0, tpot_s=0.05))
    opened = run(replica, OpenLoop(request_rate_per_s=found.request_rate_per_s.value))
    assert found.tpot_s.value == pytest.approx(opened.tpot_s.value, rel=1e-3)
    assert found.ttft_s.value == pytest.approx(opened.ttft_s.value, rel=1e-3)
    assert found.output_tokens_per_s.value == pytest.approx(250 * found.request_rate_per_s.value, rel=1e-12)
    assert (found.limited_by, found.waiting, found.kv_short) == ("load", 0.0, False)


def test_draws_give_bounds_on_the_rate(replica):
    steps, scheduling = replica
    drawn = steps.with_calibration(nominal_and_draws(steps.calibration, 32))
    found = predict_run(drawn, ROOM, Targeted(ttft_s=2.0, tpot_s=0.04), LENGTHS, scheduling).request_rate_per_s
    assert found.value == pytest.approx(rate(replica, 2.0, 0.04), rel=0.01)  # without knots
    assert found.low < found.value < found.high
