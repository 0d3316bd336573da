"""How fast the library and the command start, as ratios to ``import numpy, pydantic`` in the same run.

pytest tests/bench -m benchmark
"""

import itertools
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import sizing

pytestmark = pytest.mark.benchmark
#: As installed: modules compiled once, not at each start.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
BASE = (sys.executable, "-c", "import numpy, pydantic")
COMMAND = (sys.executable, "-m", "sizing", "--rps", "20", "--slo-tpot", "20ms")


def wall_s(words: tuple[str, ...]) -> float:
    begun = time.perf_counter()
    subprocess.run(words, check=True, capture_output=True, env=ENVIRONMENT)
    return time.perf_counter() - begun


def paired_ratio(words: tuple[str, ...], rounds: int = 15) -> float:
    """Median over rounds of the time of ``words`` over that of the base, taken in turns."""
    wall_s(words)
    wall_s(BASE)
    pairs = [(wall_s(words), wall_s(BASE)) for _ in range(rounds)]
    return sorted(w / b for w, b in pairs)[rounds // 2]


SIMULATE = (sys.executable, "-m", "sizing", "simulate", "--requests", "10000", "--replications", "1")


def used_s(words: tuple[str, ...], **environment: str) -> float:
    """Processor time of a process."""
    before = os.times()
    subprocess.run(words, check=True, capture_output=True, env={**ENVIRONMENT, **environment})
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_simulate_from_the_shell(tmp_path) -> None:
    """10,000 requests: compiled for the first time, and from then on."""
    first = min(used_s(SIMULATE, SIZING_CACHE_DIR=str(tmp_path / str(k))) for k in range(3))
    later = min(used_s(SIMULATE, SIZING_CACHE_DIR=str(tmp_path / "0")) for _ in range(5))
    base = min(used_s(BASE) for _ in range(5))
    print(f"simulate: {first:.2f} s the first time, {later:.2f} s later, import numpy, pydantic {base:.2f} s")
    assert first < 12.0
    assert later < 1.5
    assert later < 6.0 * base


@pytest.mark.parametrize(
    ("name", "words", "most"),
    [
        ("import sizing", (sys.executable, "-c", "import sizing"), 2.0),
        ("a plan from the shell", COMMAND, 4.0),
    ],
)
def test_start(name: str, words: tuple[str, ...], most: float, benchmark) -> None:
    ratio = paired_ratio(words)
    benchmark.extra_info["ratio to import numpy, pydantic"] = ratio
    benchmark.pedantic(wall_s, args=(words,), rounds=5)
    print(f"{name}: {ratio:.2f} x import numpy, pydantic")
    assert ratio <= most


def test_plan_over_every_gpu(benchmark) -> None:
    names = sizing.gpus()
    rates = itertools.cycle(np.linspace(10.0, 30.0, 97))

    def ask() -> sizing.Plan:
        return sizing.plan(
            gpus=names,
            workload=sizing.Workload(request_rate_per_s=next(rates), input_tokens=2_000, output_tokens=400),
        )

    for _ in range(97):  # warm: every layout that some rate needs is prepared
        ask()
    answer = benchmark(ask)
    assert len(answer.evaluations) + len(answer.rejected) == len(names)
    print(f"plan over {len(names)} GPUs: {benchmark.stats['median'] * 1e3:.1f} ms")
    assert benchmark.stats["median"] < 0.020
