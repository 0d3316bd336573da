"""Speed of the simulator: ``pytest tests/bench/test_simulator.py -m benchmark -s``.

A day at 20 requests/s over 4 replicas, linear cost in the number of requests, and the same replica as a plain
event loop and in SimPy.
"""

import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sizing.simulator import FleetPlan, Scheduler, replay
from sizing.simulator.reference import Fleet
from sizing.steptable import StepTable
from sizing.workload import Gamma, Lognormal, Sessions, SharedPrefix, Workload
from sizing.workload.requests import Requests

pytestmark = pytest.mark.benchmark
STEPS = StepTable.affine(step_s=6e-3, token_s=27e-6, context_token_s=44e-9, attention_s=1e-10)
ENGINE = Scheduler(kv_tokens=480_000)
DAY = 1_728_000


def traffic(count: int) -> Requests:
    """Lognormal lengths of mean 2,000 and 400, Gamma arrivals of CV 2, 20 requests/s."""
    load = Workload(
        request_rate_per_s=20, arrivals=Gamma(cv=2.0),
        input_tokens=Lognormal(mean_tokens=2000, cv=1, most_tokens=16_000),
        output_tokens=Lognormal(mean_tokens=400, cv=1, most_tokens=4_000),
    )  # fmt: skip
    return load.sample(count, 0)


def took_s(requests: Requests, fleet: FleetPlan) -> float:
    began = time.process_time()
    replay(requests, STEPS, ENGINE, fleet)
    return time.process_time() - began


def peak_gigabytes() -> float:
    """Most memory that this process had. [GB]"""
    status = Path("/proc/self/status")
    if status.exists():  # unlike that of getrusage, not inherited from the parent
        return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024 / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform != "darwin" else 1e9)


def simpy_replica(requests: Requests) -> tuple[int, float]:
    """One replica without memory limit, as a SimPy process: a step is a timeout. Steps, and end."""
    import simpy

    environment = simpy.Environment()
    waiting: list[int] = []
    running: dict[int, list[float]] = {}
    arrived = environment.event()
    steps = 0

    def arrivals():
        nonlocal arrived
        for i, time_s in enumerate(requests.arrival_s):
            yield environment.timeout(max(time_s - environment.now, 0.0))
            waiting.append(i)
            if not arrived.triggered:
                arrived.succeed()

    def engine():
        nonlocal arrived, steps
        left = len(requests)
        while left:
            if not waiting and not running:
                arrived = environment.event()
                yield arrived
            budget = ENGINE.max_num_batched_tokens - len(running)
            new = 0.0
            begun = []
            while waiting and (budget >= requests.input_tokens[waiting[0]] or not begun):
                i = waiting.pop(0)
                budget -= requests.input_tokens[i]
                new += float(requests.input_tokens[i])
                begun.append(i)
            context = sum(tokens for tokens, _ in running.values())
            n = len(running)
            yield environment.timeout(6e-3 + 27e-6 * (n + new) + 44e-9 * context)
            steps += 1
            for i in [i for i, state in running.items() if state[1] <= 1]:
                del running[i]
                left -= 1
            for state in running.values():
                state[0] += 1
                state[1] -= 1
            for i in begun:
                running[i] = [float(requests.input_tokens[i]), float(requests.output_tokens[i])]

    environment.process(arrivals())
    environment.run(until=environment.process(engine()))
    return steps, environment.now


@pytest.mark.parametrize("router", ["random", "least-loaded", "prefix-aware"])
def test_a_day_of_traffic(router: str) -> None:
    requests = traffic(DAY)
    replay(traffic(1000), STEPS, ENGINE)
    best = min(took_s(requests, FleetPlan(replicas=4, router=router)) for _ in range(3))
    print(f"\n{router}: a day in {best:.2f} s ({DAY / best:,.0f} requests/s), process {peak_gigabytes():.2f} GB")
    assert best < 8.0  # 2 s is the aim on an idle core; the bench machine may be busy


@pytest.mark.parametrize("reuse", ["500 system prompts", "five turns"])
def test_a_day_with_shared_beginnings(reuse: str) -> None:
    turns = reuse == "five turns"
    load = Workload(
        request_rate_per_s=20, arrivals=Gamma(cv=2.0),
        output_tokens=Lognormal(mean_tokens=400, cv=1, most_tokens=4_000),
        input_tokens=Lognormal(mean_tokens=400 if turns else 2000, cv=1, most_tokens=4_000 if turns else 16_000),
        sessions=Sessions(turns=5) if turns else None,
        prefix=None if turns else SharedPrefix(tokens=1000, groups=500, zipf=1.0),
    )  # fmt: skip
    requests = load.sample(DAY, 0)
    for router in ("random", "least-loaded", "prefix-aware", "sticky"):
        began = time.process_time()
        records = replay(requests, STEPS, ENGINE, FleetPlan(replicas=4, router=router))
        took = time.process_time() - began
        hit = records.hit_tokens.sum() / requests.input_tokens.sum()
        print(f"\n{reuse}, {router}: a day in {took:.2f} s, {hit:.1%} of the prompt tokens hit", end="")
        assert took < 8.0


def run_of(count: int) -> tuple[float, float, float, float]:
    """A process of its own: requests drawn and replayed once, kernels warm and memory fresh at every size.

    Returns seconds of both, and peak memory before and after. [s], [GB]
    """
    replay(traffic(1000), STEPS, ENGINE, FleetPlan(replicas=4))
    requests_s = time.process_time()
    requests = traffic(count)
    requests_s = time.process_time() - requests_s
    drawn = peak_gigabytes()
    run_s = took_s(requests, FleetPlan(replicas=4))
    return requests_s, run_s, drawn, peak_gigabytes()


def test_cost_is_linear_in_requests() -> None:
    replay(traffic(1000), STEPS, ENGINE)
    rates = {}
    for count in (10_000, 100_000, 1_000_000, 10_000_000):
        code = f"from tests.bench.test_simulator import run_of; print(*run_of({count}))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        draw_s, run_s, before, after = (float(x) for x in done.stdout.split())
        rates[count] = count / run_s
        print(
            f"\n{count:>10,} requests: drawn in {draw_s:.3f} s, simulated in {run_s:.3f} s ({rates[count]:,.0f}/s),"
            f" process {before:.2f} GB, then {after:.2f} GB", end="",
        )  # fmt: skip
    assert min(rates.values()) > 0.3 * max(rates.values())


def test_beside_a_plain_event_loop_and_simpy() -> None:
    requests = traffic(400)
    requests = Requests(
        arrival_s=requests.arrival_s * 3, input_tokens=requests.input_tokens, output_tokens=requests.output_tokens
    )
    replay(requests, STEPS, ENGINE)
    ours = min(took_s(requests, FleetPlan()) for _ in range(5))
    began = time.process_time()
    Fleet(requests, STEPS, ENGINE, FleetPlan(), 0).run()
    plain = time.process_time() - began
    began = time.process_time()
    simpy_replica(requests)
    with_simpy = time.process_time() - began
    for name, seconds in {"kernels": ours, "plain Python": plain, "SimPy": with_simpy}.items():
        print(f"\n{name}: {400 / seconds:,.0f} requests/s", end="")
    assert ours < plain / 50
    assert np.isfinite(with_simpy)
