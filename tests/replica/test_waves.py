"""Waves of equal requests: against events counted one by one, and against measured runs of NIM."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from sizing.architecture import read_model
from sizing.catalog import gpu
from sizing.deployment import Deployment, EngineSettings, NumberFormats, Parallelism
from sizing.engines.timing import engine_timing
from sizing.replica.loads import Lengths
from sizing.replica.run import ClosedLoop, Room, predict_run
from sizing.replica.waves import ARRIVAL_S, groups_of, wave
from sizing.steptime import step_model
from sizing.validation.serving import calibrated

MIXED = replace(engine_timing("nim").scheduling(8192), token_budget=32768.0)


@dataclass(frozen=True)
class Own:
    start_scale: float = 1.0
    first_token_s: float = 0.0
    first_token_steps: float = 0.0


@dataclass(frozen=True)
class Linear:
    """Steps of a fixed time and a time per prompt token; decode steps are short beside them."""

    fixed_s: float = 4e-3
    token_s: float = 1e-5
    decode_s: float = 1e-4
    engine: Own = Own()

    def step_s(self, batch, context, new=0.0, pairs=0.0, prompts=None):
        return np.where(np.asarray(new) > 0, self.fixed_s + self.token_s * np.asarray(new), self.decode_s)


def first_tokens_s(steps: Linear, users: int, prompt: int, budget: int) -> float:
    """Mean time to first token of one wave into an idle engine: each step takes what has come, up to the budget."""
    come, left, clock, found = [i * ARRIVAL_S for i in range(users)], users, 0.0, []
    while left:
        here = [x for x in come[users - left :] if x <= clock + 1e-12][: max(budget // prompt, 1)]
        if not here:
            clock = come[users - left]
            continue
        clock += float(steps.step_s(0, 0, prompt * len(here)))
        found += [clock - x for x in here]
        left -= len(here)
    return float(np.mean(found))


@pytest.mark.parametrize(("users", "prompt"), [(1, 2000), (2, 2000), (5, 2000), (10, 2000), (16, 2000), (3, 7000)])
def test_a_wave_that_fits_two_steps_is_as_counted_event_by_event(users, prompt):
    seen = wave(Linear(), users, Lengths(input_tokens=prompt, output_tokens=400), MIXED)
    assert float(seen.start_s[0]) == pytest.approx(first_tokens_s(Linear(), users, prompt, 32768), rel=0.07)


@pytest.mark.parametrize("users", [10, 25, 100])
def test_short_prompts_come_one_by_one_and_hardly_wait(users):
    quick = Linear(fixed_s=6e-3, token_s=2e-6)
    seen = wave(quick, users, Lengths(input_tokens=200, output_tokens=400), MIXED)
    counted = first_tokens_s(quick, users, 200, 32768)
    assert float(seen.start_s[0]) == pytest.approx(counted, rel=0.15)
    together = float(quick.step_s(0, 0, 200 * users))
    assert counted < 12e-3 < together + 6e-3 if users == 100 else counted < together + 6e-3


def test_throughput_is_littles_law_and_answers_wait_for_the_prompts_of_others():
    lengths = Lengths(input_tokens=7000, output_tokens=1000)
    small, large = (wave(Linear(), users, lengths, MIXED) for users in (4, 40))
    for seen, users in ((small, 4), (large, 40)):
        each = seen.start_s + 999.0 * seen.tpot_s
        assert float((seen.rate_per_s * each)[0]) == pytest.approx(users)
    # of four, three go in one step: only the first answer is held up by them
    three = float(Linear().step_s(0, 0, 21000))
    assert float(small.tpot_s[0]) == pytest.approx(1e-4 + three / 4 / 999, rel=0.01)
    # of forty, each is held up by all but its own group of four or five
    alone = float(Linear().step_s(0, 0, 7000))
    assert 33 * 0.07 < (float(large.tpot_s[0]) - 1e-4) * 999 < 40 * alone


NIM = "NVIDIA DLI NIM course data (ids nimcsv-...), Meta-Llama-3 on H100 and A100, TTFT over that of one user"
MEASURED = (
    # model, gpu, tp, ISL, OSL, users, TTFT over TTFT of one user
    ("70B", "a100-80-sxm", 4, 2000, 200, 2, 1.52), ("70B", "a100-80-sxm", 4, 2000, 200, 10, 8.15),
    ("70B", "a100-80-sxm", 4, 2000, 200, 25, 16.45), ("70B", "h100-sxm", 8, 7000, 1000, 5, 3.98),
    ("70B", "h100-sxm", 8, 7000, 1000, 25, 7.59), ("8B", "h100-sxm", 1, 2000, 2000, 10, 8.24),
    ("8B", "h100-sxm", 1, 7000, 1000, 25, 7.72), ("8B", "h100-sxm", 2, 200, 200, 25, 3.91),
)  # fmt: skip


@pytest.mark.parametrize(("size", "chip", "tp", "isl", "osl", "users", "ratio"), MEASURED, ids=lambda x: str(x))
def test_prompts_wait_for_each_other_as_measured(size, chip, tp, isl, osl, users, ratio):
    timing = engine_timing("nim")
    where = Deployment(
        model=read_model(f"meta-llama/Meta-Llama-3-{size}"), gpu=gpu(chip), parallelism=Parallelism(tp=tp),
        formats=NumberFormats(weights="bf16", kv="bf16"), settings=EngineSettings(engine="nim"),
    )  # fmt: skip
    steps = step_model(where, calibrated(chip, timing))
    lengths, room = Lengths(input_tokens=isl, output_tokens=osl), Room(kv_requests=1e6)
    one, many = (
        predict_run(steps, room, ClosedLoop(users=u), lengths, timing.scheduling(8192)).ttft_s.value for u in (1, users)
    )
    assert many / one == pytest.approx(ratio, rel=0.25), NIM


@pytest.mark.parametrize("users", [7, 60, 300, 5000])
@pytest.mark.parametrize(("fixed_s", "token_s"), [(1e-3, 1e-7), (6e-3, 2e-6), (2e-2, 1e-5), (5e-2, 2e-4)])
def test_every_request_of_a_wave_is_in_one_of_its_groups(users, fixed_s, token_s):
    most = 32768 / 500
    sizes, copies = groups_of(users, most, fixed_s + 500 * token_s, 500 * token_s)
    assert float(sizes @ copies) == pytest.approx(users)
    assert sizes.max() <= most + 1e-9
    assert len(sizes) <= 40
