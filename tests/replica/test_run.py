"""Runs: Little's law, closed against open loops, waves, KV room, overload, error bars."""

from dataclasses import replace

import numpy as np
import pytest

from sizing.architecture import read_model
from sizing.calibration import calibration
from sizing.catalog import gpu
from sizing.deployment import Deployment
from sizing.engines.timing import engine_timing
from sizing.errors import InputError
from sizing.replica.pools import predict_pools
from sizing.replica.run import ClosedLoop, Lengths, Offline, OpenLoop, Room, kv_requests, predict_run
from sizing.steptime import nominal_and_draws, step_model, with_engine

CHAT = Lengths.uniform(1024, 512)
WIDE = Room(kv_requests=1e6)


@pytest.fixture(scope="module")
def steps():
    device = gpu("h100")
    return step_model(Deployment(model=read_model("Qwen/Qwen3-8B"), gpu=device), calibration("measured", device))


@pytest.fixture(scope="module")
def how():
    return engine_timing("vllm").scheduling(8192)


def test_uniform_lengths_have_the_mean_and_spread_of_the_distribution():
    lengths = Lengths.uniform(1000, 500, low=0.8)
    assert lengths.input_tokens == 900
    assert lengths.input_cv == pytest.approx(0.2 / 12**0.5 / 0.9)
    assert not lengths.fixed


def test_lengths_must_be_positive():
    with pytest.raises(InputError, match="output_tokens"):
        Lengths(input_tokens=10, output_tokens=0)


@pytest.mark.parametrize("users", [1, 7, 64, 300])
def test_users_are_the_rate_times_the_time_each_spends(steps, how, users):
    run = predict_run(steps, WIDE, ClosedLoop(users=users, requests=1e9), CHAT, how)
    each = run.ttft_s.value + (CHAT.output_tokens - 1) * run.tpot_s.value
    assert run.request_rate_per_s.value * each == pytest.approx(users, rel=0.03)


def test_one_user_decodes_alone(steps, how):
    run = predict_run(steps, WIDE, ClosedLoop(users=1), CHAT, how)
    assert run.tpot_s.value == pytest.approx(float(steps.decode_s(1, CHAT.mean_context_tokens)), rel=0.02)


def test_more_users_give_more_tokens_at_a_slower_pace(steps, how):
    runs = [predict_run(steps, WIDE, ClosedLoop(users=u), CHAT, how) for u in (1, 8, 64, 256)]
    assert np.all(np.diff([r.tpot_s.value for r in runs]) > 0)
    assert np.all(np.diff([r.output_tokens_per_s.value for r in runs]) > 0)


def test_open_loop_at_a_closed_loops_rate_has_about_its_pace(steps, how):
    closed = predict_run(steps, WIDE, ClosedLoop(users=64, requests=1e9), CHAT, how)
    opened = predict_run(steps, WIDE, OpenLoop(request_rate_per_s=closed.request_rate_per_s.value), CHAT, how)
    assert opened.tpot_s.value == pytest.approx(closed.tpot_s.value, rel=0.06)


def test_overload_queues_for_as_long_as_the_run_lasts(steps, how):
    room = Room(kv_requests=64)
    short, long = (
        predict_run(steps, room, OpenLoop(request_rate_per_s=100, requests=n), CHAT, how) for n in (500, 5000)
    )
    assert short.limited_by == long.limited_by == "overload"
    assert long.ttft_s.value == pytest.approx(10 * short.ttft_s.value, rel=0.1)
    assert long.request_rate_per_s.value < 100


def test_users_beyond_the_kv_room_wait_by_littles_law(steps, how):
    run = predict_run(steps, Room(kv_requests=50), ClosedLoop(users=80, requests=1e9), CHAT, how)
    alone = predict_run(steps, Room(kv_requests=50), ClosedLoop(users=50, requests=1e9), CHAT, how)
    assert run.waiting == 30
    assert run.limited_by == "kv_room"
    assert run.kv_short
    assert run.request_rate_per_s.value == pytest.approx(alone.request_rate_per_s.value, rel=1e-6)
    queue = run.ttft_s.value - alone.ttft_s.value
    assert queue == pytest.approx(30 / run.request_rate_per_s.value, rel=0.02)


def test_limit_of_sequences_is_named(steps, how):
    run = predict_run(steps, Room(kv_requests=500, max_num_seqs=32), ClosedLoop(users=64), CHAT, how)
    assert run.limited_by == "max_num_seqs"
    assert not run.kv_short


def test_model_that_does_not_fit_is_an_answer(steps, how):
    run = predict_run(steps, Room(kv_requests=0), ClosedLoop(users=4), CHAT, how)
    assert run.limited_by == "weights_do_not_fit"
    assert run.output_tokens_per_s.value == 0.0


def test_offline_run_is_the_largest_closed_loop(steps, how):
    offline = predict_run(steps, Room(kv_requests=128), Offline(), CHAT, how)
    closed = predict_run(steps, Room(kv_requests=128), ClosedLoop(users=128, requests=1e9), CHAT, how)
    assert offline.output_tokens_per_s.value == pytest.approx(closed.output_tokens_per_s.value, rel=0.01)


def test_waves_of_an_engine_that_prefills_first(steps):
    # All prompts of a wave, then all decode: cycle = n full steps + (O - 1) decode steps.
    how = engine_timing("sglang").scheduling(8192)
    steps = steps.with_calibration(steps.calibration.with_constants("engine", first_token_steps=0.0))
    fixed = Lengths(input_tokens=2048, output_tokens=129)
    run = predict_run(steps, WIDE, ClosedLoop(users=32), fixed, how)
    full_s = float(steps.prefill_s(2048, 0, 4))
    decode_s = float(steps.decode_s(32, fixed.mean_context_tokens))
    first = float(np.asarray(steps.engine.first_token_s))
    assert run.ttft_s.value == pytest.approx(full_s * 4.5 + first, rel=0.02)
    assert run.tpot_s.value == pytest.approx(decode_s + 3.5 * full_s / 128, rel=0.02)


def test_error_bars_hold_the_value_and_widen_with_the_residual(steps, how):
    known = with_engine(calibration("measured", gpu("h100")), engine_timing("vllm"))
    drawn = step_model(steps.deployment, nominal_and_draws(known, 32))
    narrow = predict_run(drawn, WIDE, ClosedLoop(users=16), CHAT, how)
    wide = predict_run(drawn, WIDE, ClosedLoop(users=16), CHAT, how, spread={"tpot": 0.2})
    assert narrow.tpot_s.low < narrow.tpot_s.value < narrow.tpot_s.high
    assert wide.tpot_s.low < narrow.tpot_s.low
    nominal = predict_run(steps, WIDE, ClosedLoop(users=16), CHAT, how)
    assert narrow.tpot_s.value == pytest.approx(nominal.tpot_s.value, rel=1e-4)


def test_speculation_yields_more_tokens_a_step(steps):
    timing = engine_timing("vllm")
    plain = predict_run(steps, WIDE, ClosedLoop(users=4), CHAT, timing.scheduling(8192))
    drafted = predict_run(steps, WIDE, ClosedLoop(users=4), CHAT, timing.scheduling(8192, drafts=3))
    assert 0.35 < drafted.tpot_s.value / plain.tpot_s.value < 0.75


def test_pools_decode_undisturbed(steps, how):
    together = predict_run(steps, WIDE, ClosedLoop(users=64), CHAT, how)
    apart = predict_pools(steps, steps, (1, 1), ClosedLoop(users=64), CHAT, how)
    assert apart.tpot_s.value < together.tpot_s.value


# -- slots that stay empty -------------------------------------------------------------------------------


@pytest.mark.parametrize("users", [2, 8, 64, 300])
def test_an_idle_slot_makes_a_request_wait_for_the_next_to_end(steps, how, users):
    # One of C users waits at any time, so C - 1 are served, and it waits for one interval between completions.
    idle = predict_run(steps, WIDE, ClosedLoop(users=users, requests=1e9), CHAT, replace(how, idle_slots=1.0))
    fewer = predict_run(steps, WIDE, ClosedLoop(users=users - 1, requests=1e9), CHAT, how)
    assert idle.request_rate_per_s.value == pytest.approx(fewer.request_rate_per_s.value, rel=1e-6)
    assert idle.tpot_s.value == pytest.approx(fewer.tpot_s.value, rel=1e-6)
    interval = 1.0 / fewer.request_rate_per_s.value
    assert idle.ttft_s.value - fewer.ttft_s.value == pytest.approx(interval, rel=1e-4)
    assert (idle.waiting, idle.limited_by, idle.kv_short) == (1.0, "load", False)
    each = idle.ttft_s.value + (CHAT.output_tokens - 1) * idle.tpot_s.value
    assert idle.request_rate_per_s.value * each == pytest.approx(users, rel=0.03)


def test_the_slot_is_idle_in_closed_loops_of_several_users_alone(steps, how):
    room, idle = Room(kv_requests=64), replace(how, idle_slots=1.0)
    for load in (ClosedLoop(users=1), ClosedLoop(users=0.5), OpenLoop(request_rate_per_s=2.0), Offline(requests=500)):
        assert predict_run(steps, room, load, CHAT, idle) == predict_run(steps, room, load, CHAT, how)


def test_kv_room_short_of_the_slots_is_what_limits(steps, how):
    run = predict_run(steps, Room(kv_requests=20), ClosedLoop(users=32), CHAT, replace(how, idle_slots=1.0))
    assert (run.waiting, run.limited_by, run.kv_short) == (12.0, "kv_room", True)
    full = predict_run(steps, Room(kv_requests=31), ClosedLoop(users=32), CHAT, replace(how, idle_slots=1.0))
    assert (full.waiting, full.limited_by, full.kv_short) == (1.0, "load", False)


def test_waves_leave_the_slot_idle_too(steps):
    how, fixed = engine_timing("sglang").scheduling(8192), Lengths(input_tokens=2048, output_tokens=129)
    idle = predict_run(steps, WIDE, ClosedLoop(users=33, requests=1e9), fixed, replace(how, idle_slots=1.0))
    fewer = predict_run(steps, WIDE, ClosedLoop(users=32, requests=1e9), fixed, how)
    assert idle.request_rate_per_s.value == pytest.approx(fewer.request_rate_per_s.value, rel=1e-9)
    assert idle.ttft_s.value - fewer.ttft_s.value == pytest.approx(1.0 / fewer.request_rate_per_s.value, rel=1e-6)
    assert (idle.limited_by, idle.kv_short) == ("load", False)


# -- KV room ---------------------------------------------------------------------------------------------


class Tokens:
    """A budget of so many cached tokens."""

    def max_requests(self, tokens):
        return 1e6 / tokens


def test_engines_that_reserve_hold_the_longest_answer(how):
    # Answers drawn evenly from 400 to 500 tokens: an engine that reserves keeps room for 500, whatever the mean.
    reserving = engine_timing("tensorrt-llm").scheduling(8192)
    assert reserving.reserves_output
    even = Lengths.uniform(1000, 500, low=0.8)
    assert kv_requests(Tokens(), even, reserving) == pytest.approx(1e6 / (900 + 500), rel=1e-12)
    whole = Lengths.uniform(1000, 500, low=0.0)
    assert kv_requests(Tokens(), whole, reserving) == pytest.approx(1e6 / (500 + 500), rel=1e-12)
    fixed = Lengths(input_tokens=1000, output_tokens=500)
    assert kv_requests(Tokens(), fixed, reserving) == pytest.approx(1e6 / 1500, rel=1e-12)


@pytest.mark.parametrize("answers", [(500, 500), (250, 750), (50, 950)])
def test_engines_that_admit_by_the_prompt_hold_what_grows(how, answers):
    # Averaged over the steps of all requests, counted one by one; a full room leaves up to a tenth of the answer free.
    assert not how.reserves_output
    held = np.concatenate([1000 + np.arange(1, o + 1) for o in answers]).mean()
    lengths = Lengths(input_tokens=1000, output_tokens=500, output_cv=float(np.std(answers)) / 500)
    found = 1e6 / kv_requests(Tokens(), lengths, how)
    assert held - 1 <= found <= 1000 + 1.11 * (held - 1000)
