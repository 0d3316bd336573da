"""Speed of the step model that plans use."""

import time

import numpy as np
import pytest

from sizing.architecture import read_model
from sizing.calibration import calibration
from sizing.catalog import gpu
from sizing.deployment import Deployment
from sizing.replica.run import ClosedLoop, Lengths, Room, predict_run
from sizing.steptime import step_model

pytestmark = pytest.mark.benchmark


def model():
    device = gpu("h100")
    return step_model(Deployment(model=read_model("Qwen/Qwen3-8B"), gpu=device), calibration("measured", device))


def test_a_million_decode_steps_under_a_second():
    steps = model()
    rng = np.random.default_rng(0)
    batch, context = rng.integers(1, 512, 1_000_000), rng.integers(1, 32_768, 1_000_000)
    steps.decode_s(1, 1)
    began = time.perf_counter()
    found = steps.decode_s(batch, context)
    took = time.perf_counter() - began
    print(f"a million decode steps: {took:.2f} s")
    assert found.shape == (1_000_000,)
    assert took < 1.0


def test_a_thousand_runs_under_five_seconds():
    steps, lengths = model(), Lengths.uniform(1024, 1024)
    from sizing.engines.timing import engine_timing

    how = engine_timing("vllm").scheduling(8192)
    began = time.perf_counter()
    for users in range(1, 1001):
        predict_run(steps, Room(kv_requests=400), ClosedLoop(users=users), lengths, how)
    assert time.perf_counter() - began < 5.0
