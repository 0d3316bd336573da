"""The GPU's way of timing, on a stand-in for torch.cuda with a clock of its own.

The stand-in keeps two clocks as a GPU does: the host's, which moves when a call is launched, and the device's,
which moves when it runs; an event carries the device's time.
"""

import contextlib
import types

import pytest
import torch

from profilers import timing
from profilers.bench import Bench, Limits
from profilers.estimates import session as estimates
from profilers.estimates.effort import Effort
from profilers.kernel import Case, Work
from profilers.watch import Watch

CALL_S, LAUNCH_S, GRAPH_LAUNCH_S = 3e-6, 8e-6, 10e-6


class Machine:
    """Host and device with their clocks. [s]"""

    def __init__(self):
        self.host = self.device = 0.0
        self.capturing = None
        self.captured = 0

    def launch(self, work_s, launch_s=LAUNCH_S):
        if self.capturing is not None:
            self.capturing.append(work_s)
            self.captured += 1
            return
        self.host += launch_s
        self.device = max(self.device, self.host) + work_s

    def synchronize(self, *_):
        assert self.capturing is None, "waiting for the device while capturing"
        self.host = max(self.host, self.device)

    def event(self, enable_timing=False):
        machine = self

        class Event:
            def record(self):
                machine.device = max(machine.device, machine.host)
                self.at = machine.device

            def synchronize(self):
                machine.synchronize()

            def elapsed_time(self, later):
                return (later.at - self.at) * 1e3

        return Event()

    def graph(self):
        machine = self

        class Graph:
            def replay(self):
                machine.launch(sum(self.nodes) + 1e-6, GRAPH_LAUNCH_S)

        return Graph()

    @contextlib.contextmanager
    def capture(self, graph):
        self.capturing = graph.nodes = []
        try:
            yield
        finally:
            self.capturing = None


class FakeBench(Bench):
    """A bench whose device says that it is a GPU."""

    cuda = True
    cache_bytes = 50 << 20


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    stream = types.SimpleNamespace(wait_stream=lambda other: None)
    for name, value in {
        "Event": made.event,
        "CUDAGraph": made.graph,
        "graph": made.capture,
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": lambda s: contextlib.nullcontext(),
        "synchronize": made.synchronize,
        "_sleep": lambda cycles: made.launch(cycles / 1.8e9, 1e-6),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    clock = types.SimpleNamespace(perf_counter=lambda: made.host)
    monkeypatch.setattr(timing, "time", clock)
    return made


def _bench(**limits):
    return FakeBench(device=torch.device("cpu"), limits=Limits(**limits), watch=Watch(None))


def _work(machine, call_s=CALL_S, copies=4, graph=True):
    calls = [lambda: machine.launch(call_s)] * copies
    return Work(
        calls=calls, check=lambda: 0.0, tolerance=0.0, flops=0.0, moved_bytes=0.0, implementation="", graph=graph
    )


def test_graph_replay_gives_the_kernel_and_not_its_launch(machine):
    found = timing.time_work(_work(machine), _bench())
    assert found.mode == "graph"
    assert found.calls_per_sample % 4 == 0
    assert found.samples_s == pytest.approx([CALL_S] * len(found.samples_s), rel=0.02)  # 1 us a graph of > 100 calls
    assert len(found.samples_s) >= Limits().min_samples
    assert machine.captured == found.calls_per_sample


def test_launched_one_by_one_a_short_kernel_costs_its_launch(machine):
    found = timing.time_work(_work(machine, graph=False), _bench())
    assert found.mode == "stream"
    assert max(found.samples_s) == pytest.approx(LAUNCH_S, rel=0.05)


def test_launched_one_by_one_a_long_kernel_costs_itself(machine):
    found = timing.time_work(_work(machine, call_s=2e-3, graph=False), _bench())
    assert found.samples_s == pytest.approx([2e-3] * len(found.samples_s), rel=0.01)


def test_work_that_cannot_be_captured_is_launched_and_says_why(machine, monkeypatch):
    @contextlib.contextmanager
    def refuses(graph):
        yield
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "graph", refuses)
    found = timing.time_work(_work(machine, call_s=1e-4), _bench())
    assert found.mode == "stream"
    assert "not permitted when stream is capturing" in found.note
    assert found.samples_s == pytest.approx([1e-4] * len(found.samples_s), rel=0.01)


def test_slow_call_is_not_repeated_for_long(machine):
    found = timing.time_work(_work(machine, call_s=0.5, copies=1, graph=False), _bench())
    assert 1 <= len(found.samples_s) <= 6
    assert machine.device < 6.0
    assert found.samples_s == pytest.approx([0.5] * len(found.samples_s), rel=0.01)


def test_energy_is_what_the_counter_rose_by_over_the_calls(machine):
    class Meter:
        def energy_j(self):
            return 300.0 * max(machine.host, machine.device)  # 300 W all the time

    bench = _bench(energy_s=0.2)
    bench.watch = Meter()
    found = timing.time_work(_work(machine), bench, energy=True)
    assert found.energy_j == pytest.approx(300.0 * CALL_S, rel=0.05)
    assert found.energy_window_s >= 0.1


def test_energy_is_left_out_where_the_chip_has_no_counter(machine):
    found = timing.time_work(_work(machine), _bench(), energy=True)
    assert found.energy_j is None


def test_copies_outgrow_the_cache_or_the_memory_share(monkeypatch):
    bench = _bench()
    monkeypatch.setattr(FakeBench, "free_bytes", 80 << 30)
    assert bench.copies(32 << 20) == 3 * 50 // 32 + 1
    assert bench.copies(1 << 10) == 96
    assert bench.copies(1 << 30) == 1
    assert bench.copies(200 << 20) == 2  # four times the cache: some of it would still be there
    monkeypatch.setattr(FakeBench, "free_bytes", 100 << 20)
    assert bench.copies(32 << 20) == 1


@pytest.mark.parametrize("call_s", [3e-6, 2e-5, 4e-4, 3e-3, 2e-2, 0.3])
def test_estimate_of_warming_up_and_sampling_is_what_the_stand_in_takes(call_s, machine, monkeypatch):
    """With no scatter and no libraries to load, for the stand-in has neither."""
    monkeypatch.setattr(estimates, "SCATTER", 0.0)
    monkeypatch.setattr(estimates, "FIRST_S", 0.0)
    timing.time_work(_work(machine, call_s=call_s), _bench())
    effort = Effort(call_s=call_s, calls=4)
    told = sum(estimates._timed(Case(kernel="gemm.bf16", shape={}), effort, Limits()).values())
    assert told == pytest.approx(max(machine.host, machine.device), rel=0.35, abs=0.005)
