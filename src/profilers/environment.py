"""Where a measurement was made: chip, driver, libraries. No host name, user name, address or serial number."""

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import torch

from profilers.bench import Bench

LIBRARIES = (
    "torch",
    "triton",
    "flash-attn",
    "flash-attn-3",
    "flashinfer-python",
    "vllm",
    "nvidia-cublas",
    "nvidia-cublas-cu12",
    "nvidia-cudnn-cu13",
    "numpy",
)

MUST_AGREE = ("device", "driver", "libraries", "cuda", "toy")
"""What two sessions must share for one to carry on with the other's file."""


def read_environment(bench: Bench) -> dict[str, Any]:
    """Everything that a later reader needs to compare two files.

    Parameters
    ----------
    bench
        The device that is measured.
    """
    limits = bench.watch.limits()
    return {
        "device": _device(bench),
        "driver": limits.pop("driver"),
        **limits,
        "nvml": bench.watch.works,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if bench.cuda else None,
        "libraries": _libraries(),
        "toy": bench.toy,
        "python": platform.python_version(),
        "system": platform.system(),
        "processor": _processor(),
        "cpu_cores": os.cpu_count(),
    }


def _device(bench: Bench) -> dict[str, Any]:
    if not bench.cuda:
        return {"type": bench.device.type, "name": _processor(), "count": 1}
    properties = torch.cuda.get_device_properties(bench.device)
    return {
        "type": "cuda",
        "name": properties.name,
        "capability": list(bench.capability),
        "memory_bytes": properties.total_memory,
        "sm_count": properties.multi_processor_count,
        "l2_bytes": bench.cache_bytes,
        "count": torch.cuda.device_count(),
    }


def _libraries() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    """Name of the CPU."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
