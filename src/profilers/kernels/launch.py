"""What it costs to launch a kernel: from Python one by one, and replayed in a CUDA graph."""

import time
from collections.abc import Iterator

import torch

from profilers.bench import Bench
from profilers.kernel import Case, Reading, kernel
from profilers.plan import Plan
from profilers.timing import capture

COUNT = 500
"""Kernels a sample. [1]"""


def _cases(name: str, plan: Plan) -> Iterator[Case]:
    if plan.toy or plan.grid or plan.scenarios:
        yield Case(kernel=name, shape={"kernels": 20 if plan.toy else COUNT}, priority=0)


@kernel("launch.eager", cases=lambda plan: _cases("launch.eager", plan))
def eager(case: Case, bench: Bench) -> Reading:
    """Smallest kernel, launched from Python; the host's time, for the GPU waits for it."""
    count, x = int(case.shape["kernels"]), torch.zeros(1, device=bench.device)

    def sample() -> float:
        bench.synchronize()
        begun = time.perf_counter()
        for _ in range(count):
            x.add_(1.0)
        bench.synchronize()
        return (time.perf_counter() - begun) / count

    return _reading(sample, x, count, bench, "python")


@kernel("launch.graph", cases=lambda plan: _cases("launch.graph", plan))
def graph(case: Case, bench: Bench) -> Reading:
    """The same kernels replayed from a CUDA graph; on a CPU a plain loop (dry run)."""
    count, x = int(case.shape["kernels"]), torch.zeros(1, device=bench.device)

    def launch() -> None:
        for _ in range(count):
            x.add_(1.0)

    replay = capture(launch, lambda: x.add_(0.0)) if bench.cuda else launch
    x.zero_()

    def sample() -> float:
        bench.synchronize()
        begun = time.perf_counter()
        replay()
        bench.synchronize()
        return (time.perf_counter() - begun) / count

    return _reading(sample, x, count, bench, "cuda graph" if bench.cuda else "loop")


def _reading(sample, x: torch.Tensor, count: int, bench: Bench, name: str) -> Reading:  # noqa: ANN001
    sample()
    x.zero_()
    samples = [sample() for _ in range(bench.limits.min_samples * 2)]
    return Reading(
        samples={"time_s": samples},
        implementation=name,
        error=abs(float(x) - count * len(samples)),
        tolerance=0.0,
        facts={"kernels": count},
    )
