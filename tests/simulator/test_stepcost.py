"""Costs of the kernels against the table that they are packed from."""

import dataclasses

import numpy as np
import pytest
from tests.simulator.cases import tables

from sizing.architecture import read_model
from sizing.calibration import calibration
from sizing.catalog import gpu
from sizing.deployment import Deployment, EngineSettings
from sizing.simulator import replay, replica_model
from sizing.simulator.compiler import entry
from sizing.simulator.layout import Floats, Ints
from sizing.simulator.packing import pack
from sizing.simulator.spec import FleetPlan, Scheduler
from sizing.simulator.stepcost import delivery_ps, step_ps
from sizing.steptable import StepTable, delivery_share
from sizing.steptime import step_model
from sizing.workload.requests import Requests

ONE = Requests(arrival_s=np.zeros(1), input_tokens=np.array([9]), output_tokens=np.array([4]))


def bent() -> StepTable:
    """The bent table of the random cases, with no attention where no sequence has any."""
    found = next(t for t in (tables(np.random.default_rng(seed)) for seed in range(99)) if t.sequence_s)
    kept = np.array([0.0, 1.0, 1.0, 1.0])[:, None]
    return dataclasses.replace(
        found,
        decode_attention_s=found.decode_attention_s * kept,
        prefill_attention_s=found.prefill_attention_s * kept[:3],
    )


@entry
def cost(s: Ints, f: Floats, out: Ints, n: int, context: int, tokens: int, attention: int, sequences: int) -> None:
    """A step's time, and the delivery of a first token beside it."""
    out[0] = step_ps(s, f, n, context, tokens, attention, sequences)
    out[1] = delivery_ps(s, f, n, context)


def costs_ps(steps: StepTable, scheduler: Scheduler, *step: int) -> list[int]:
    p = pack(ONE, steps, scheduler, FleetPlan(), seed=0, horizon_s=None)
    out = np.zeros(2, np.int64)
    cost(p.s, p.f, out, *step)
    return out.tolist()


def compositions(rng: np.random.Generator, batch: int, context: int, budget: int) -> list[tuple[int, ...]]:
    """Steps that decode, that prefill and that do both."""
    found = []
    for kind in range(60):
        n = 0 if kind % 3 == 1 else int(rng.integers(1, batch + 1))
        tokens = 0 if kind % 3 == 0 else int(rng.integers(1, budget - n + 1))
        sequences = int(rng.integers(1, min(tokens, 4) + 1)) if tokens else 0
        start = int(rng.integers(0, 20))
        found.append(
            (n, n * int(rng.integers(1, context)), tokens, tokens * start + tokens * (tokens + 1) // 2, sequences)
        )
    return found


@pytest.mark.parametrize("host", [0.0, 7e-4, 2e-2])
def test_a_step_costs_what_the_table_says_to_the_picosecond(host: float) -> None:
    steps = dataclasses.replace(bent(), host_step_s=host, host_sequence_s=host / 20)
    scheduler = Scheduler(kv_tokens=4000, max_num_seqs=12, max_num_batched_tokens=60, max_model_len=200)
    for step in compositions(np.random.default_rng(3), 12, 60, 60):
        n, context, tokens, attention, sequences = step
        by_table = float(steps.time_s(n, context, tokens, attention, sequences)) * 1e12
        assert costs_ps(steps, scheduler, *step)[0] == pytest.approx(by_table, abs=2.0), step
        alone = float(steps.time_s(n, context)) * 1e12 if n else 0.0
        if n:
            waited = steps.first_token_steps * delivery_share(n) * alone
            assert costs_ps(steps, scheduler, *step)[1] == pytest.approx(waited, abs=4.0)


@pytest.mark.parametrize("engine", ["vllm", "trtllm", "sglang"])
def test_an_engines_steps_cost_what_its_table_says(engine: str) -> None:
    deployment = Deployment(
        model=read_model("Qwen/Qwen3-8B"), gpu=gpu("h100-sxm"),
        settings=EngineSettings(engine=engine, max_num_seqs=64, max_num_batched_tokens=4096),
    )  # fmt: skip
    model = replica_model(deployment, steps=step_model(deployment, calibration("measured", deployment.gpu, engine)))
    scheduler = dataclasses.replace(model.scheduler, max_model_len=8192)
    assert bool(model.steps.host_step_s) == (engine != "vllm")
    for n, context, tokens in ((1, 700, 0), (64, 64 * 3000, 0), (20, 20 * 1000, 2048), (0, 0, 4096)):
        attention = tokens * (tokens + 1) // 2
        by_table = float(model.steps.time_s(n, context, tokens, attention, 1 if tokens else 0)) * 1e12
        found = costs_ps(model.steps, scheduler, n, context, tokens, attention, 1 if tokens else 0)[0]
        assert found == pytest.approx(by_table, rel=1e-6)


def test_steps_of_a_replay_are_joined_with_the_host_by_hand() -> None:
    steps = dataclasses.replace(
        StepTable.affine(step_s=1e-3, token_s=2e-5, prefill_step_s=5e-3), host_step_s=2e-3, host_sequence_s=1e-3
    )
    r = replay(ONE, steps, Scheduler(kv_tokens=1000))
    # nine prompt tokens: 1.18 ms of kernels beside 2 of the host, then 5; a token: 1.02 beside 3
    assert r.ttft_s[0] == pytest.approx((1.18e-3**4 + 2e-3**4) ** 0.25 + 5e-3, abs=2e-12)
    assert r.tpot_s[0] == pytest.approx((1.02e-3**4 + 3e-3**4) ** 0.25, abs=2e-12)
