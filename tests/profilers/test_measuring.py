"""Timing, sensors, quantised formats, and the rules of the house."""

import ast
import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from profilers import tensors
from profilers.bench import Limits, open_bench
from profilers.kernel import Work
from profilers.summary import kernel_sum, shape_key
from profilers.timing import settled, time_work
from profilers.watch import Watch, throttle_names

LIMITS = Limits(target_spread=0.01, min_samples=5, max_samples=50)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([1.0] * 4, False),  # too few
        ([1.0] * 5, True),
        # deviations from 1.0: 0, .01, .01, .02, .02: median .01; 1.2533 x 1.4826 x .01 / sqrt(5) = 0.0083
        ([1.0, 0.99, 1.01, 0.98, 1.02], True),
        # twice as wide: 0.0166 > 0.01
        ([1.0, 0.98, 1.02, 0.96, 1.04], False),
        # one outlier in five moves nothing
        ([1.0, 1.0, 1.0, 1.0, 9.0], True),
        ([1.0, 2.0] * 25, True),  # the most samples there may be
    ],
)
def test_sampling_stops_when_the_median_is_known(samples, expected):
    assert settled(samples, LIMITS) is expected


def test_host_timing_calls_every_copy_in_turn():
    called = []
    work = Work(
        calls=[lambda: called.append("a"), lambda: called.append("b")],
        check=lambda: 0.0, tolerance=0.0, flops=0.0, moved_bytes=0.0, implementation="",
    )  # fmt: skip
    timing = time_work(work, open_bench("cpu", toy=True))
    assert timing.mode == "host"
    assert len(timing.samples_s) >= 3
    timed = called[2:]
    assert timed == ["a", "b"] * (len(timed) // 2)
    assert len(timed) == timing.calls_per_sample * len(timing.samples_s)


class FakeNvml:
    """Answers as nvml.h says: 0 is success, 3 is not supported."""

    def __init__(self, energy=True):
        self.energy = energy

    def nvmlInit_v2(self):  # noqa: N802
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, address, handle):  # noqa: N802
        return 0 if address == b"00000000:1b:00.0" else 6

    def nvmlDeviceGetPowerUsage(self, handle, out):  # noqa: N802
        return self._fill(out, 412_500)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle, out):  # noqa: N802
        return self._fill(out, 0x1 | 0x4 | 0x40)

    def nvmlDeviceGetClockInfo(self, handle, kind, out):  # noqa: N802
        return self._fill(out, {1: 1755, 2: 2619}[kind.value])

    def nvmlDeviceGetTemperature(self, handle, kind, out):  # noqa: N802
        assert kind.value == 0
        return self._fill(out, 61)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle, out):  # noqa: N802
        return self._fill(out, 7_000_123) if self.energy else 3

    def _fill(self, out, value):
        out._obj.value = value
        return 0


def test_sensors_are_read_in_their_units():
    watch = Watch("00000000:1b:00.0", FakeNvml())
    seen = watch.look()
    assert (seen.power_w, seen.temperature_c, seen.sm_clock_mhz, seen.memory_clock_mhz) == (412.5, 61, 1755, 2619)
    assert seen.throttle == ("sw_power_cap", "hw_thermal_slowdown")
    assert watch.energy_j() == 7000.123
    assert watch.limits()["power_limit_w"] is None  # this library lacks the call


def test_missing_sensors_leave_readings_empty():
    assert Watch(None).look().as_record()["power_w"] is None
    assert Watch("00000000:99:00.0", FakeNvml()).works is False
    assert Watch("00000000:1b:00.0", FakeNvml(energy=False)).energy_j() is None


def test_idle_and_application_clocks_are_no_throttling():
    assert throttle_names(0x1 | 0x2) == ()


def test_fp4_codes_stand_for_the_values_they_say():
    """E2M1 magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6 (OCP Microscaling Formats v1.0, table 5)."""
    x = torch.tensor([[0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0, 0.0]])
    packed, scale, value = tensors.to_fp4(x)
    assert scale.float().item() == 1.0
    assert torch.equal(value, x)
    assert packed.flatten().tolist()[:4] == [0x10, 0x32, 0x54, 0x76]


def test_scales_are_swizzled_as_the_tensor_cores_read_them():
    """Row r, column c of a 128 x 4 tile lies at byte (r % 32) * 16 + (r // 32) * 4 + c (cuBLAS, 1D block scaling)."""
    scale = torch.arange(256, dtype=torch.int32).repeat(2).to(torch.uint8).view(128, 4).view(tensors.FP8)
    flat = tensors.swizzled(scale).view(torch.uint8)
    for row, column in ((0, 0), (1, 0), (31, 3), (32, 0), (97, 2), (127, 3)):
        assert flat[(row % 32) * 16 + (row // 32) * 4 + column] == scale.view(torch.uint8)[row, column]


@pytest.mark.parametrize("quantise", [tensors.to_fp8, tensors.to_fp8_rows])
def test_fp8_is_within_half_a_step(quantise):
    """E4M3 has 3 mantissa bits: relative error at most 2^-4 of a normal number."""
    torch.manual_seed(1)
    x = torch.randn(8, 64)
    coded, scale = quantise(x)
    normal = (x / scale).abs() >= 2**-6
    assert ((coded.float() * scale - x).abs() <= x.abs() * 2**-4 + 1e-9)[normal].all()


def test_int4_is_within_half_a_step_of_its_group():
    torch.manual_seed(1)
    x = torch.randn(4, 256)
    codes, scales, value = tensors.to_int4(x, 128)
    assert codes.min() >= 0
    assert codes.max() <= 15
    step = scales[:, :, 0].t().float().repeat_interleave(128, 1)
    assert ((value - x).abs() <= 0.52 * step).all()


def test_sum_of_kernels_counts_each_and_names_what_is_missing():
    step = {
        "facts": {
            "operations": [
                {"family": "gemm.bf16", "shape": {"m": 1, "n": 2, "k": 3}, "count": 4},
                {"family": "moe.bf16", "shape": {"tokens": 1}, "count": 2},
            ]
        }
    }
    times = {("gemm.bf16", shape_key({"k": 3, "n": 2, "m": 1})): 0.5}
    assert kernel_sum(step, times) == (2.0, ["moe.bf16"])


def test_profilers_never_import_sizing():
    folder = Path(__file__).resolve().parents[2] / "src" / "profilers"
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
            assert not any(n.partition(".")[0] == "sizing" for n in names), path


@pytest.mark.parametrize(("ci", "outcome"), [("true", "failed"), ("", "skipped")])
def test_skipped_profiler_test_fails_in_ci_only(ci, outcome, monkeypatch):
    spec = importlib.util.spec_from_file_location("profilers_conftest", Path(__file__).with_name("conftest.py"))
    conftest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conftest)
    monkeypatch.setenv("CI", ci)
    item, report = SimpleNamespace(nodeid="tests/profilers/x.py::y"), SimpleNamespace(skipped=True, outcome="skipped")
    hook = conftest.pytest_runtest_makereport(item, None)
    next(hook)
    with pytest.raises(StopIteration):
        hook.send(report)
    assert report.outcome == outcome
