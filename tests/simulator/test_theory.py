"""The simulator against queueing theory: within three standard errors over 25 seeded replications.

A request of ``n`` output tokens takes ``n`` steps of a millisecond when one sequence runs at a time, so it is a
server; with a cost proportional to the batch it is processor sharing.
"""

import numpy as np
import pytest

from sizing import queueing
from sizing.simulator.estimates import check_laws
from sizing.simulator.playback import replay
from sizing.simulator.records import PS, Records
from sizing.simulator.spec import FleetPlan, Scheduler
from sizing.steptable import StepTable
from sizing.workload.requests import Requests

MS = 1e-3
SERVER = StepTable.affine(step_s=MS)
SHARED = StepTable.affine(sequence_s=MS)
REPLICATIONS = 25


def scheduler(running: int) -> Scheduler:
    return Scheduler(kv_tokens=1 << 34, max_num_seqs=running, max_num_batched_tokens=running + 64)


def poisson(seed: int, count: int, rate_per_s: float, tokens: np.ndarray) -> Requests:
    rng = np.random.default_rng([seed, 1])
    arrival = np.cumsum(rng.exponential(1 / rate_per_s, count))
    return Requests(arrival_s=arrival, input_tokens=np.ones(count, dtype=np.int64), output_tokens=tokens)


def geometric(seed: int, count: int, mean: float) -> np.ndarray:
    return np.random.default_rng([seed, 2]).geometric(1 / mean, count).astype(np.int64)


def warm(records: Records, values: np.ndarray) -> float:
    return float(values[len(values) // 10 :].mean())


def assert_within_three_errors(found: list[float], expected: float) -> None:
    array = np.array(found)
    error = array.std(ddof=1) / np.sqrt(len(array))
    assert abs(array.mean() - expected) < 3 * error, f"{array.mean():.6g} +- {error:.2g}, theory {expected:.6g}"
    assert error < 0.1 * expected


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_m_m_1(load: float) -> None:
    mean = 50.0
    found = [
        warm(r, r.queue_s)
        for r in (
            replay(poisson(k, 8000, load / (mean * MS), geometric(k, 8000, mean)), SERVER, scheduler(1))
            for k in range(REPLICATIONS)
        )
    ]
    # A geometric number of steps: squared CV 1 - 1 / mean.
    assert_within_three_errors(found, queueing.pollaczek_khinchine_wait_s(load, mean * MS, 1 - 1 / mean))


def test_m_d_1() -> None:
    tokens = np.full(6000, 50)
    found = [
        warm(r, r.queue_s)
        for r in (replay(poisson(k, 6000, 0.8 / 0.050, tokens), SERVER, scheduler(1)) for k in range(REPLICATIONS))
    ]
    assert_within_three_errors(found, queueing.pollaczek_khinchine_wait_s(0.8, 0.050, 0.0))


def test_m_m_c() -> None:
    mean, servers, load = 1000.0, 4, 3.2
    found = [
        warm(r, r.queue_s)
        for r in (
            replay(poisson(k, 6000, load / (mean * MS), geometric(k, 6000, mean)), SERVER, scheduler(servers))
            for k in range(REPLICATIONS)
        )
    ]
    # Admission waits for the end of a step: half a step more, for those that find someone in service.
    assert_within_three_errors(found, queueing.mmc_wait_s(servers, load, mean * MS) + 0.5 * MS)


@pytest.mark.parametrize("law", ["geometric", "fixed"])
def test_processor_sharing_whatever_the_law(law: str) -> None:
    mean, load, count = 200.0, 0.5, 4000
    found = []
    for k in range(REPLICATIONS):
        tokens = geometric(k, count, mean) if law == "geometric" else np.full(count, 200)
        # The first token comes with the prefill, which costs nothing here: tokens - 1 of work.
        rate = load / ((mean - 1) * MS)
        r = replay(poisson(k, count, rate, tokens), SHARED, scheduler(512))
        found.append(warm(r, r.latency_s))
    assert_within_three_errors(found, queueing.processor_sharing_s(load, (mean - 1) * MS))


def test_erlang_loss() -> None:
    """Erlang's loss formula is the occupancy of unlimited servers, cut off at ``c``."""
    mean, load, servers = 200.0, 6.0, 8
    found = []
    for k in range(REPLICATIONS):
        r = replay(poisson(k, 6000, load / (mean * MS), geometric(k, 6000, mean)), SERVER, scheduler(256))
        times = np.concatenate([r.arrival_ps, r.finish_ps]) * PS
        order = np.argsort(times, kind="stable")
        number = np.cumsum(np.concatenate([np.ones(len(r)), -np.ones(len(r))])[order])[:-1]
        lasting = np.diff(times[order])
        span = slice(len(lasting) // 10, -len(lasting) // 10)
        number, lasting = number[span], lasting[span]
        found.append(float(lasting[number == servers].sum() / lasting[number <= servers].sum()))
    assert_within_three_errors(found, queueing.erlang_b(servers, load * (1 + 0.5 / mean)))


@pytest.mark.parametrize("router", ["random", "round-robin", "least-loaded", "prefix-aware"])
def test_littles_law_holds_exactly_on_every_run(router: str) -> None:
    rng = np.random.default_rng(5)
    count = 3000
    requests = Requests(
        arrival_s=np.cumsum(rng.exponential(0.004, count)), input_tokens=rng.integers(1, 300, count),
        output_tokens=rng.integers(1, 200, count),
    )  # fmt: skip
    engine = Scheduler(kv_tokens=2000, max_num_seqs=16, max_num_batched_tokens=64)
    records = replay(requests, StepTable.affine(step_s=MS, token_s=1e-5), engine, FleetPlan(replicas=3, router=router))
    assert records.preempted.sum() > 100
    check_laws(records, 2000 // 16, everywhere_up=True)
    assert records.present_request_s.sum() == pytest.approx(records.latency_s.sum(), rel=1e-9)
