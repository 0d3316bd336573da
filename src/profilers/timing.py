"""How long a call takes: CUDA events around graph replays, host clock on a CPU; every sample is kept.

Short kernels are captured in a CUDA graph that calls them many times in turn on different memory, as a
serving engine replays a step. Several replays are queued at once, so that the GPU never waits for the host;
the first of a burst, which does, is thrown away.
"""

import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from profilers.bench import Bench, Limits
from profilers.kernel import Work

MAX_CALLS_PER_SAMPLE = 2048
"""Most kernel calls in one graph. [1]"""

SLOW_S = 0.005
"""Calls longer than this are not repeated to warm up, and none of their samples is dropped. [s]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Samples of one call's time.

    Attributes
    ----------
    samples_s
        Mean time of a call in each sample. [s]
    calls_per_sample
        Calls that a sample averages over. [1]
    mode
        ``graph``, ``stream`` (launched one by one) or ``host`` (CPU clock).
    note
        Why a graph was not used, if it was tried.
    energy_j, energy_window_s
        Energy of a call and the window it was read over; None where not measured. [J], [s]
    """

    samples_s: tuple[float, ...]
    calls_per_sample: int
    mode: str
    note: str = ""
    energy_j: float | None = None
    energy_window_s: float | None = None


def settled(samples: Sequence[float], limits: Limits) -> bool:
    """Whether the median is known well enough.

    The standard error of a median is 1.2533 sigma / sqrt(n); sigma is estimated as 1.4826 times the median
    absolute deviation, which a few outliers don't move.
    """
    if len(samples) < limits.min_samples:
        return False
    if len(samples) >= limits.max_samples:
        return True
    middle = statistics.median(samples)
    deviation = statistics.median(abs(s - middle) for s in samples)
    error = 1.2533 * 1.4826 * deviation / math.sqrt(len(samples))
    return error <= limits.target_spread * middle


def time_work(work: Work, bench: Bench, *, energy: bool = False) -> Timing:
    """Time a case's calls on the bench.

    Parameters
    ----------
    work
        What to call.
    bench
        Device and limits.
    energy
        Also read joules per call.
    """
    if not bench.cuda:
        return _time_host(work.calls, bench)
    single_s = _warm_up(work.calls, bench)
    turns = turns_of(single_s, len(work.calls), bench.limits)
    calls = turns * len(work.calls)
    run, mode, note = _captured(work, turns)
    samples = _burst_samples(run, calls, max(single_s, 1e-6) * calls, bench.limits)
    joules, window_s = _energy(run, calls, statistics.median(samples) * calls, bench) if energy else (None, None)
    return Timing(
        samples_s=tuple(samples),
        calls_per_sample=calls,
        mode=mode,
        note=note,
        energy_j=joules,
        energy_window_s=window_s,
    )


def turns_of(single_s: float, calls: int, limits: Limits) -> int:
    """How often a sample goes through all calls.

    Parameters
    ----------
    single_s
        Time of one call. [s]
    calls
        Calls on different memory. [1]
    limits
        Least duration of a sample.
    """
    wanted = math.ceil(limits.sample_s / max(single_s * calls, 1e-9))
    return max(1, min(wanted, MAX_CALLS_PER_SAMPLE // max(calls, 1)))


def _warm_up(calls: Sequence[Callable[[], Any]], bench: Bench) -> float:
    """Call until libraries are loaded, tuned and the clocks have risen; gives a first idea of the time. [s]"""
    calls[0]()
    bench.synchronize()
    begun = time.perf_counter()
    calls[-1]()
    bench.synchronize()
    once_s = time.perf_counter() - begun
    if once_s > SLOW_S:
        return once_s
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    _run_ahead()
    start.record()
    count = 0
    begun = time.perf_counter()
    while count < 3 or (count < 20 and time.perf_counter() - begun < 0.01):
        calls[count % len(calls)]()
        count += 1
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) / 1e3 / count


def _run_ahead() -> None:
    """Keep the GPU busy for about a millisecond, so that launches queue up behind."""
    sleep = getattr(torch.cuda, "_sleep", None)
    if sleep is not None:
        sleep(1_000_000)


def _captured(work: Work, turns: int) -> tuple[Callable[[], Any], str, str]:
    """One sample's work as a function: a graph replay, or plain launches where it can't be captured."""

    def launch() -> None:
        for _ in range(turns):
            for call in work.calls:
                call()

    if not work.graph:
        return launch, "stream", ""
    try:
        return capture(launch, work.calls[0]), "graph", ""
    except RuntimeError as error:
        torch.cuda.synchronize()
        return launch, "stream", f"no CUDA graph: {first_line(error)}"


def capture(launch: Callable[[], Any], warm: Callable[[], Any]) -> Callable[[], Any]:
    """Record what ``launch`` does in a CUDA graph and give its replay.

    Parameters
    ----------
    launch
        Work to record; it must not wait for the device.
    warm
        Called a few times beforehand on the recording stream, so that libraries have set up their workspace.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            warm()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay


def burst_of(expected_s: float) -> tuple[int, int]:
    """Samples that are queued at once, and how many of the first to drop because the GPU may have waited.

    Parameters
    ----------
    expected_s
        Time of a sample. [s]
    """
    return max(2, min(11, 1 + int(0.02 / expected_s))), 1 if expected_s < SLOW_S else 0


def _burst_samples(run: Callable[[], Any], calls: int, expected_s: float, limits: Limits) -> list[float]:
    """Samples of a call's time, taken in bursts until the median is settled. [s]"""
    samples: list[float] = []
    burst, idle = burst_of(expected_s)
    begun = time.perf_counter()
    while True:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(burst + 1)]
        _run_ahead()
        events[0].record()
        for event in events[1:]:
            run()
            event.record()
        events[-1].synchronize()
        gaps = [a.elapsed_time(b) / 1e3 / calls for a, b in itertools.pairwise(events)]
        samples += gaps[idle:]
        if settled(samples, limits) or _late(begun, len(samples), limits):
            return samples


def _late(begun_s: float, samples: int, limits: Limits) -> bool:
    spent_s = time.perf_counter() - begun_s
    enough = samples >= limits.min_samples
    return (enough and spent_s > limits.max_time_s) or spent_s > 10 * limits.max_time_s


def _energy(run: Callable[[], Any], calls: int, sample_s: float, bench: Bench) -> tuple[float | None, float | None]:
    """Joules of a call, over a window long enough for the sensor; None where NVML has no energy counter."""
    if bench.watch.energy_j() is None:
        return None, None
    repeats = max(2, math.ceil(bench.limits.energy_s / max(sample_s, 1e-6)))
    run()
    bench.synchronize()
    before, begun = bench.watch.energy_j(), time.perf_counter()
    for _ in range(repeats):
        run()
    bench.synchronize()
    window_s = time.perf_counter() - begun
    after = bench.watch.energy_j()
    if before is None or after is None or window_s < 0.5 * bench.limits.energy_s:
        return None, None
    return (after - before) / (repeats * calls), window_s


def _time_host(calls: Sequence[Callable[[], Any]], bench: Bench) -> Timing:
    """Samples from the host's clock, for the dry run."""
    calls[0]()
    begun = time.perf_counter()
    calls[0]()
    turns = turns_of(time.perf_counter() - begun, len(calls), bench.limits)
    samples: list[float] = []
    begun = time.perf_counter()
    while not (settled(samples, bench.limits) or _late(begun, len(samples), bench.limits)):
        start = time.perf_counter()
        for _ in range(turns):
            for call in calls:
                call()
        samples.append((time.perf_counter() - start) / (turns * len(calls)))
    return Timing(samples_s=tuple(samples), calls_per_sample=turns * len(calls), mode="host")


def time_step(step: Callable[[], Any], bench: Bench, *, graph: bool, energy: bool = False) -> Timing:
    """Time one long call, such as a whole decoder's step: a sample a call.

    Parameters
    ----------
    step
        The call.
    bench
        Device and limits.
    graph
        Replay it from a CUDA graph.
    energy
        Also read joules per call.
    """
    work = Work(
        calls=[step], check=lambda: 0.0, tolerance=0.0, flops=0.0, moved_bytes=0.0, implementation="", graph=graph
    )
    return time_work(work, bench, energy=energy)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, cut to a length that a table can hold."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__
