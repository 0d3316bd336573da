"""Random small cases: forced ties, short memory, shared prefixes, priorities, failures."""

import numpy as np

from sizing.simulator.spec import FleetEvent, FleetPlan, Scheduler
from sizing.steptable import StepTable
from sizing.workload.requests import Requests

MILLISECOND = 1e-3


def tables(rng: np.random.Generator) -> StepTable:
    """A straight table with whole milliseconds (ties), or a bent one."""
    if rng.random() < 0.5:
        return StepTable.affine(step_s=MILLISECOND, token_s=MILLISECOND * int(rng.integers(0, 2)))
    knots = np.array([0.0, 1.0, 3.0, 8.0, 40.0])
    return StepTable(
        tokens=np.array([0.0, 8.0, 64.0]), linear_s=np.array([1e-4, 1.3e-3, 4e-3]),
        decode_batch=np.array([0.0, 1.0, 4.0, 9.0]), decode_context=knots,
        decode_attention_s=np.sort(rng.random((4, 5)), axis=None).reshape(4, 5) * 1e-3,
        prefill_tokens=np.array([0.0, 5.0, 30.0]), prefill_context=knots,
        prefill_attention_s=np.sort(rng.random((3, 5)), axis=None).reshape(3, 5) * 1e-3,
        step_s=3.3e-4, sequence_s=1.7e-5, prefill_step_s=2.1e-4, prefill_sequence_s=1e-5,
        host_step_s=7e-4 * int(rng.integers(0, 2)), host_sequence_s=3e-5,
        first_token_steps=2.7, request_s=1.3e-3, request_token_s=1.1e-5,
    )  # fmt: skip


def tree(rng: np.random.Generator, block: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A prefix tree: parent, start and length of each edge (a leaf has no end)."""
    parent, start, length = [-1, -1], [0, 0], [1000, 1000]
    for _ in range(int(rng.integers(0, 4))):
        k = int(rng.integers(0, len(parent)))
        if length[k] == 1000:
            length[k] = int(rng.integers(1, 5)) * block
        for _ in range(2):
            parent.append(k)
            start.append(start[k] + length[k])
            length.append(1000)
    return np.array(parent), np.array(start), np.array(length)


def events(rng: np.random.Generator, replicas: int, span_s: float) -> list[FleetEvent]:
    """Failures, starts and drains at random."""
    kinds = ["fail", "start", "drain", "start"]
    return [
        FleetEvent(time_s=round(float(rng.uniform(0, span_s)), 3), replica=int(rng.integers(replicas)), kind=kinds[k])
        for k in rng.integers(0, 4, int(rng.integers(0, 7)))
    ]


def case(seed: int, count: int = 60) -> dict[str, object]:
    """Arguments of a replay."""
    rng = np.random.default_rng(seed)
    block = int(rng.choice([1, 2, 4]))
    running = int(rng.integers(1, 9))
    replicas = int(rng.integers(1, 4))
    output, prompt = rng.integers(1, 12, count), rng.integers(1, 40, count)
    kv_tokens = int(rng.integers(56, 200)) // block * block
    gap_s = float(rng.choice([0.0, 2.0, 6.0, 15.0])) * MILLISECOND
    arrival = np.round(np.cumsum(rng.exponential(1.0, count) * gap_s), 3)
    extra: dict[str, np.ndarray] = {}
    if rng.random() < 0.6:
        parent, start, length = tree(rng, block)
        chain = rng.integers(0, len(parent), count)
        shared = np.minimum(start[chain] + rng.integers(0, 40, count), start[chain] + length[chain])
        chain[rng.random(count) < 0.1] = -1
        extra = {"chain": chain, "shared_tokens": np.minimum(shared, prompt + output), "chain_parent": parent,
                 "chain_start_tokens": start}  # fmt: skip
    if rng.random() < 0.4:
        extra["priority"] = rng.integers(0, 3, count)
    if rng.random() < 0.25:
        users = int(rng.integers(1, 12))
        after = np.arange(count) - users
        extra["after"] = np.maximum(after, -1)
        extra["pause_s"] = np.round(rng.random(count) * 0.02, 3)
    span = float(arrival.max()) + 0.05
    fleet = FleetPlan(
        replicas=replicas,
        router=str(rng.choice(["random", "round-robin", "least-loaded", "prefix-aware", "sticky"])),
        events=events(rng, replicas, span) if rng.random() < 0.3 else (),
    )
    scheduler = Scheduler(
        kv_tokens=kv_tokens, max_num_seqs=running, max_num_batched_tokens=running + int(rng.integers(1, 40)),
        block_tokens=block, kv_reservation=str(rng.choice(["paged", "paged", "paged", "longest", "answer"])),
        max_model_len=52, mixed=bool(rng.random() < 0.6), chunked=bool(rng.random() < 0.75),
    )  # fmt: skip
    return {
        "requests": Requests(arrival_s=arrival, input_tokens=prompt, output_tokens=output, **extra),
        "steps": tables(rng), "scheduler": scheduler, "fleet": fleet, "seed": seed,
        "horizon_s": span * 3 if rng.random() < 0.2 or fleet.events else None,
    }  # fmt: skip
