"""The GPU that an estimate is for, and what is assumed of it and of its host.

Peaks and sizes are those of ``data/gpus.toml`` (a test holds them together). Everything else is an assumption, chosen
on the dear side; each says what it rests on.
"""

from dataclasses import dataclass

import torch

from profilers.bench import Bench


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A GPU by its data sheet.

    Attributes
    ----------
    name
        As ``data/gpus.toml`` has it.
    memory_bytes
        What a process sees. [B]
    memory_bytes_per_s, pcie_bytes_per_s
        Bandwidth of HBM, and to the host in one direction. [B/s]
    fp32_flops_per_s, bf16_flops_per_s, fp8_flops_per_s
        Dense peaks. [FLOP/s]
    cache_bytes
        L2. [B]
    """

    name: str
    memory_bytes: float
    memory_bytes_per_s: float
    pcie_bytes_per_s: float
    fp32_flops_per_s: float
    bf16_flops_per_s: float
    fp8_flops_per_s: float
    cache_bytes: int

    def call_s(self, flops: float, moved_bytes: float, *, kernels: float = 1.0, fp8: bool = False) -> float:
        """A call by the roofline at the assumed shares of the peaks. [s]

        Parameters
        ----------
        flops, moved_bytes
            Of the call. [FLOP], [B]
        kernels
            That it launches. [1]
        fp8
            On the FP8 tensor cores.
        """
        peak = self.fp8_flops_per_s if fp8 else self.bf16_flops_per_s
        rate, bandwidth = COMPUTE_SHARE * peak, MEMORY_SHARE * self.memory_bytes_per_s
        return kernels * KERNEL_S + max(flops / rate, moved_bytes / bandwidth)

    def plain_s(self, flops: float, moved_bytes: float) -> float:
        """FP32 work, such as a check, by the same roofline. [s]"""
        rate, bandwidth = COMPUTE_SHARE * self.fp32_flops_per_s, MEMORY_SHARE * self.memory_bytes_per_s
        return flops / rate + moved_bytes / bandwidth


_HOPPER = {"fp32_flops_per_s": 6.69e13, "bf16_flops_per_s": 9.894e14, "fp8_flops_per_s": 1.9789e15,
           "pcie_bytes_per_s": 6.4e10, "cache_bytes": 52428800}  # fmt: skip
MACHINES = {
    "h100-sxm": Machine(name="h100-sxm", memory_bytes=85029615042, memory_bytes_per_s=3.35e12, **_HOPPER),
    "h200-sxm": Machine(name="h200-sxm", memory_bytes=150119844413, memory_bytes_per_s=4.8e12, **_HOPPER),
}
"""GPUs that an estimate can be made for."""

COMPUTE_SHARE, MEMORY_SHARE = 0.55, 0.70
"""Achieved of the peaks: somewhat below the shares fitted on published kernels (``data/calibration/``). [1]"""
KERNEL_S = 4e-6
"""Fixed time of a kernel on the device, as fitted on published kernels. [s]"""
LAUNCH_S = 8e-6
"""An operation launched from Python. Assumed. [s]"""
START_S = 15.0
"""Until the first case: Python, torch's import (1.2 s of CPU time here, more from a cold disk), the driver's context,
cuBLAS and cuDNN; a second of raising clocks is in it. Assumed. [s]"""
CASE_S = 0.015
"""Around a case: sensors' thread and its looks at NVML, seed, a line in the file that is on the disk. Assumed. [s]"""
FIRST_S = 0.03
"""A case's first call: libraries choose and load the kernel of a new shape. Assumed. [s]"""
CUDNN_S = 0.2
"""cuDNN's plan for a new shape of attention. Assumed. [s]"""
RANDOM_PER_S = 5e10
"""Normal numbers drawn on the GPU; assumed, about a fifth of what writing them would take alone. [element/s]"""
MAPPING_S_PER_BYTE = 2e-12
"""Memory that the driver has to map and to free again. Assumed, 2 ms a GB. [s/B]"""
COLLECT_S = 0.05
"""Python's search for garbage; 0.10 to 0.16 s of CPU time here, were torch's own objects not set aside beforehand.
Assumed, for what the compiler adds later. [s]"""
HOST_BYTES_PER_S = 2e9
"""One thread of the host that copies, compares or pins; also to pageable memory. Assumed. [B/s]"""
HOST_RANDOM_BYTES_PER_S = 1e8
"""Random bytes drawn by the host, as measured for ``copies.py``. [B/s]"""
DISK_BYTES_PER_S = 5e8
"""A disk that is not the fastest, written and read cold. Assumed. [B/s]"""
SCATTER = 0.01
"""Standard deviation of samples: sampling goes on until the target spread is met. Assumed. [1]"""
COMPILER_S = 10.0
"""The compiler's first use: its imports (0.9 s of CPU time here), workers, Triton. Assumed. [s]"""
COMPILE_S = 3.0
"""A small graph: 3.1 s for a small model on an H100 (pytorch/pytorch issue 172547). [s]"""
RECOMPILE_S = 0.8
"""The same again from the compiler's own cache: 0.8 s there. [s]"""
COMPILE_LAYER_S = 6.0
"""A decoder's layer, or attention from a template; tracing it takes 0.4 to 0.9 s here. Assumed. [s]"""
TRACE_S = 2.0
"""torch's profiler around one token. Assumed. [s]"""
COLLECTIVE_S = 30.0
"""A group of processes that start, join and measure. Assumed. [s]"""


class PaperBench(Bench):
    """A bench that answers as the GPU of an estimate would, all its memory free.

    Parameters
    ----------
    machine
        Which.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__(device=torch.device("cpu"))
        self.machine = machine

    cuda = True
    capability = (9, 0)

    @property
    def cache_bytes(self) -> int:
        """L2 of the GPU. [B]"""
        return self.machine.cache_bytes

    @property
    def free_bytes(self) -> int:
        """All memory less a gigabyte for the driver and the libraries. [B]"""
        return int(self.machine.memory_bytes - 1e9)
