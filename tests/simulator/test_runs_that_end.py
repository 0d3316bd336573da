"""Runs of so many requests, first to last: bursts in waves, and closed loops whose users run out of requests."""

import numpy as np
import pytest

from sizing.architecture import read_model
from sizing.calibration import calibration
from sizing.catalog import gpu
from sizing.deployment import Deployment, EngineSettings
from sizing.engines.timing import Scheduling, engine_timing
from sizing.replica.loads import ClosedLoop, Lengths, OpenLoop, Room
from sizing.replica.run import Run, _busy_share, predict_run
from sizing.simulator import ReplicaModel, closed_loop, replay, replica_model
from sizing.simulator.records import Records
from sizing.steptime import StepModel, step_model, with_engine
from sizing.workload.requests import Requests

PROMPT, ANSWER = 512, 256
EQUAL = Lengths(input_tokens=PROMPT, output_tokens=ANSWER)
UNEVEN = Lengths.uniform(PROMPT / 0.9, ANSWER / 0.9, low=0.8)
"""The same means, from 0.8 of the longest to the longest."""
Served = tuple[StepModel, ReplicaModel, Scheduling]


def served(engine: str, slots: int) -> Served:
    deployment = Deployment(
        model=read_model("Qwen/Qwen3-8B"), gpu=gpu("h100-sxm"),
        settings=EngineSettings(engine=engine, max_num_seqs=slots, max_num_batched_tokens=8192),
    )  # fmt: skip
    timing = engine_timing(engine)
    steps = step_model(deployment, with_engine(calibration("measured", deployment.gpu, timing.kernels), timing))
    return steps, replica_model(deployment, steps=steps), timing.scheduling(8192)


def burst(what: Served, slots: int, waves: float) -> tuple[Run, Records]:
    """Equal requests, all there at the start: claimed and simulated."""
    count = round(slots * waves)
    load = OpenLoop(request_rate_per_s=float("inf"), requests=count)
    claimed = predict_run(what[0], Room(kv_requests=1e6, max_num_seqs=slots), load, EQUAL, what[2])
    alike = Requests(
        arrival_s=np.zeros(count), input_tokens=np.full(count, PROMPT), output_tokens=np.full(count, ANSWER)
    )
    return claimed, replay(alike, what[1].steps, what[1].scheduler)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("slots", [32, 128])
@pytest.mark.parametrize("waves", [2, 3, 6])
def test_a_burst_of_equal_requests_goes_in_waves(engine: str, slots: int, waves: int) -> None:
    claimed, found = burst(served(engine, slots), slots, waves)
    assert claimed.ttft_s.value == pytest.approx(found.ttft_s.mean(), rel=0.15)
    assert claimed.request_rate_per_s.value == pytest.approx(slots * waves / found.latency_s.max(), rel=0.12)
    assert claimed.limited_by == "max_num_seqs"
    assert claimed.waiting == slots * (waves - 1)


@pytest.mark.parametrize("waves", [2, 3, 6])
def test_each_later_wave_waits_for_the_whole_one_before(waves: int) -> None:
    """The mean of 0, 1, ... k - 1 residences is (k - 1) / 2 of one."""
    what = served("trtllm", 32)
    claimed, _ = burst(what, 32, waves)
    alone, _ = burst(what, 32, 1)
    residence_s = alone.ttft_s.value + (ANSWER - 1) * alone.tpot_s.value
    assert claimed.ttft_s.value == pytest.approx((waves - 1) / 2 * residence_s, rel=0.12)


def test_answers_that_end_anyhow_let_the_next_in_evenly() -> None:
    """With a variation of 1, who waits sees no whole wave: the queue's mean is half of what waits over the rate."""
    steps, _, how = served("vllm", 64)
    lengths = Lengths(input_tokens=PROMPT, output_tokens=ANSWER, output_cv=1.0)
    room = Room(kv_requests=1e6, max_num_seqs=64)
    steady = predict_run(steps, room, ClosedLoop(users=64, requests=None), lengths, how)
    claimed = predict_run(steps, room, OpenLoop(request_rate_per_s=float("inf"), requests=64 * 20), lengths, how)
    assert claimed.ttft_s.value == pytest.approx(0.95 * 64 * 19 / steady.request_rate_per_s.value / 2, rel=0.05)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("users", [8, 32])
@pytest.mark.parametrize("each", [4, 10, 25])
@pytest.mark.parametrize("lengths", [EQUAL, UNEVEN], ids=["equal", "uneven"])
def test_users_without_a_next_request_wait_for_the_last(engine: str, users: int, each: int, lengths: Lengths) -> None:
    """Requests over the time until the last answer, users beginning together."""
    steps, model, how = served(engine, 256)
    count, rates = users * each, []
    for seed in range(1 if lengths.fixed else 4):
        rng = np.random.default_rng(seed)
        low = 1.0 if lengths.fixed else 0.8
        prompts, answers = (np.rint(rng.uniform(low * most, most, count)).astype(np.int64)
                            for most in np.array([PROMPT, ANSWER]) * 2.0 / (1.0 + low))  # fmt: skip
        r = replay(closed_loop(users, prompts, answers), model.steps, model.scheduler)
        rates.append(count / (r.arrival_s + r.latency_s).max())
    claimed = predict_run(steps, Room(kv_requests=1e6), ClosedLoop(users=users, requests=count), lengths, how)
    assert claimed.request_rate_per_s.value == pytest.approx(np.mean(rates), rel=0.04)


def test_the_end_of_a_run_by_hand() -> None:
    # uniform from 0.8 to 1: cv = 0.2 / sqrt(12) / 0.9 = 0.06415; ten each: 1.5 x 0.06415 x sqrt(10) = 0.3043 requests
    assert _busy_share(ClosedLoop(users=16, requests=160), UNEVEN) == pytest.approx(10 / 10.3043, abs=1e-5)
    # fifty each: at most the longest, 1 / 0.9, less the mean of what is left, (1 + cv^2) / 2 = 0.50206
    assert _busy_share(ClosedLoop(users=16, requests=800), UNEVEN) == pytest.approx(50 / 50.60905, abs=1e-5)
    assert _busy_share(ClosedLoop(users=16, requests=160), EQUAL) == 1.0
    assert _busy_share(ClosedLoop(users=16), UNEVEN) == 1.0
    assert _busy_share(ClosedLoop(users=16, requests=3), UNEVEN) == _busy_share(ClosedLoop(users=3, requests=3), UNEVEN)


def test_longer_runs_are_nearer_to_one_that_goes_on_and_more_varied_ones_further() -> None:
    shares = [_busy_share(ClosedLoop(users=8, requests=8 * each), UNEVEN) for each in (1, 3, 10, 100, 10_000)]
    assert np.all(np.diff(shares) > 0)
    assert shares[-1] == pytest.approx(1.0, abs=1e-4)
    varied = [
        _busy_share(
            ClosedLoop(users=8, requests=80), Lengths(input_tokens=PROMPT, output_tokens=ANSWER, output_cv=cv)
        )
        for cv in (0.05, 0.3, 1.0)
    ]  # fmt: skip
    assert np.all(np.diff(varied) < 0)


def lognormal(count: int, cv: float, seed: int) -> Requests:
    rng, sigma = np.random.default_rng(seed), np.sqrt(np.log1p(cv**2))
    drawn = [rng.lognormal(np.log(mean) - sigma**2 / 2.0, sigma, count) for mean in (PROMPT, ANSWER)]
    prompts, answers = (np.maximum(np.rint(x), 2.0).astype(np.int64) for x in drawn)
    return Requests(arrival_s=np.zeros(count), input_tokens=prompts, output_tokens=answers)


@pytest.mark.parametrize("cv", [0.5, 1.0])
@pytest.mark.parametrize(("slots", "waves"), [(32, 2), (32, 10), (128, 1), (128, 4)])
def test_a_burst_of_uneven_requests_ends_with_its_longest_answers(cv: float, slots: int, waves: int) -> None:
    what, count = served("vllm", slots), slots * waves
    runs = [replay(lognormal(count, cv, seed), what[1].steps, what[1].scheduler) for seed in range(6)]
    lengths = Lengths(input_tokens=PROMPT, output_tokens=ANSWER, input_cv=cv, output_cv=cv)
    load = OpenLoop(request_rate_per_s=float("inf"), requests=count)
    claimed = predict_run(what[0], Room(kv_requests=1e6, max_num_seqs=slots), load, lengths, what[2])
    found = np.mean([count / run.latency_s.max() for run in runs])
    assert claimed.request_rate_per_s.value == pytest.approx(found, rel=0.25)


@pytest.mark.parametrize("cv", [0.5, 1.0])
@pytest.mark.parametrize(("users", "each"), [(4, 10), (32, 10), (128, 25)])
def test_users_wait_for_the_longest_of_uneven_answers(cv: float, users: int, each: int) -> None:
    (steps, model, how), count = served("vllm", 256), users * each
    rates = []
    for seed in range(6):
        asked = lognormal(count, cv, seed)
        run = replay(closed_loop(users, asked.input_tokens, asked.output_tokens), model.steps, model.scheduler)
        rates.append(count / (run.arrival_s + run.latency_s).max())
    lengths = Lengths(input_tokens=PROMPT, output_tokens=ANSWER, input_cv=cv, output_cv=cv)
    claimed = predict_run(steps, Room(kv_requests=1e6), ClosedLoop(users=users, requests=count), lengths, how)
    assert claimed.request_rate_per_s.value == pytest.approx(np.mean(rates), rel=0.2)


def test_the_longest_of_some_answers_is_the_lognormals_quantile() -> None:
    # cv 1: sigma^2 = ln 2; of 100: z = 2.3263 (normal tables), exp(0.83255 x 2.3263 - 0.34657) = 4.906
    found = Lengths(input_tokens=1, output_tokens=1, output_cv=1.0)
    assert found.longest_of(100) == pytest.approx(4.906, rel=2e-3)
    assert UNEVEN.longest_of(1e6) == pytest.approx(1 / 0.9)
    assert EQUAL.longest_of(1e6) == 1.0
