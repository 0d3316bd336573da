"""A made-up GPU: times by the roofline with known constants, in a real measurement file."""

import zlib
from pathlib import Path

import numpy as np

from profilers.measurements import MeasurementFile
from profilers.operations import Step, step_operations
from profilers.plan import STEPS, make_plan, plan_cases
from profilers.shapes import read_shape
from sizing.calibration import calibration
from sizing.catalog import gpu
from sizing.fitting.profile_kernels import columns, family, predict, quantising_s

CHIP = "h100-sxm"
TRUTH = {
    "elementwise": {"fixed_s": 2.6e-6, "memory_fraction": 0.68},
    "gemm.bf16": {"fixed_s": 4.1e-6, "memory_fraction": 0.74, "compute_fraction": 0.66},
    "gemm.fp8": {"fixed_s": 6.0e-6, "memory_fraction": 0.70, "compute_fraction": 0.58},
    "gemm.fp8_block": {"fixed_s": 7.5e-6, "memory_fraction": 0.61, "compute_fraction": 0.52},
    "attention_decode": {"fixed_s": 1.6e-5, "memory_fraction": 0.77},
    "attention_prefill": {"compute_fraction": 0.47},
    "moe.bf16": {"fixed_s": 3.8e-5, "memory_fraction": 0.63, "compute_fraction": 0.41},
}
"""Constants of the made-up GPU, off the shipped ones by 10 to 60 %."""


def true_calibration():
    cal = calibration("measured", gpu(CHIP), "vllm")
    for name, values in TRUTH.items():
        cal = cal.with_constants(name, **values)
    return cal


def true_time_s(kernel, shape, cal):
    chip, name = gpu(CHIP), family(kernel, shape)
    at = columns(name, [kernel], [shape])
    seconds = predict(name, at, chip, cal)
    if name.startswith("gemm."):
        seconds = seconds - quantising_s(name, at, chip, cal)
    return float(np.reshape(seconds, -1)[0])


def record(key, kernel, shape, time_s, *, noise=0.01, scatter=0.005, throttle=(), facts=None, flops=0.0, moved=0.0):
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    middle = time_s * np.exp(noise * rng.standard_normal())
    samples = middle * np.exp(scatter * rng.standard_normal(21))
    return {
        "key": key,
        "kernel": kernel,
        "shape": dict(shape),
        "outcome": "measured",
        "reason": "",
        "error": 0.0,
        "tolerance": 0.01,
        "implementation": "made up",
        "samples": {"time_s": [float(s) for s in samples]},
        "calls_per_sample": 1,
        "mode": "graph",
        "note": "",
        "flops": flops,
        "moved_bytes": moved,
        "cold": True,
        "facts": facts or {},
        "sensors": {"sm_clock_mhz": [1980, 1980], "power_w": 500.0, "temperature_c": 55, "throttle": list(throttle)},
        "took_s": 0.1,
    }


def results(**changes):
    """What the default suite would have measured on the made-up GPU."""
    cal = true_calibration()
    out = []
    for case in plan_cases(make_plan("default", ["Qwen/Qwen3-8B"])):
        name = family(case.kernel, case.shape)
        if name in TRUTH:
            slower = 1.3 if case.kernel.endswith((".flex", ".varlen", ".fp8_row")) else 1.0
            time_s = slower * true_time_s(case.kernel, case.shape, cal)
            out.append(record(case.key, case.kernel, case.shape, time_s, **changes))
    return out + [whole_step(step, cal) for step in STEPS]


def whole_step(step: Step, cal):
    shape = read_shape("Qwen/Qwen3-8B")
    operations = [o.as_record() for o in step_operations(shape, step)]
    total = sum(o["count"] * true_time_s(o["family"], o["shape"], cal) for o in operations)
    sizes = {"model": shape.name, "tp": 1, "mode": "graph" if step.decodes else "eager", **step.as_shape()}
    facts = {"layers": 36, "layers_of_model": 36, "operations": operations}
    return record(f"decoder.step {sizes}", "decoder.step", sizes, total, facts=facts)


def write_profile(path: Path, found, *, device="NVIDIA H100 80GB HBM3", kind="cuda", toy=False):
    environment = {
        "device": {"type": kind, "name": device, "count": 1},
        "driver": "580.1",
        "libraries": {"torch": "2.13.0"},
        "cuda": "13.0",
        "toy": toy,
    }
    file = MeasurementFile(path, {"created": "2026-11-29T18:00:00+00:00", "environment": environment, "plan": {}})
    for result in found:
        file.add(result)
    return file.seal(1.0, [])
