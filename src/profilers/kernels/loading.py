"""Weights from disk into the device's memory: cold, with the page cache dropped, and warm."""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from profilers.bench import Bench
from profilers.kernel import Case, Reading, kernel
from profilers.plan import Plan

CHUNK_BYTES = 16 << 20


def _cases(name: str, plan: Plan) -> Iterator[Case]:
    if plan.toy:
        yield Case(kernel=name, shape={"bytes": 1 << 16}, priority=1)
    elif plan.grid or plan.scenarios:
        yield Case(kernel=name, shape={"bytes": 256 << 20}, priority=1)


@kernel("loading.disk", cases=lambda plan: _cases("loading.disk", plan))
def from_disk(case: Case, bench: Bench) -> Reading:
    """Read a file of random bytes through a pinned buffer, as a plain loader does."""
    size = int(case.shape["bytes"])
    with tempfile.NamedTemporaryFile(dir=bench.disk, prefix="profile-inference.", suffix=".bin") as file:
        content = os.urandom(min(size, CHUNK_BYTES))
        for start in range(0, size, len(content)):
            file.write(content[: size - start])
        file.flush()
        os.fsync(file.fileno())
        device = torch.empty(size, dtype=torch.uint8, device=bench.device)
        cold = []
        for _ in range(2 if bench.toy else 3):
            dropped = _drop_cache(file.fileno(), size)
            cold.append(_load(Path(file.name), device, bench))
        warm = [_load(Path(file.name), device, bench) for _ in range(2 if bench.toy else 3)]
        wrong = device[: len(content)].cpu().numpy().tobytes() != content
    return Reading(
        samples={"time_s": cold, "warm_time_s": warm},
        implementation="pinned buffer",
        error=float(wrong),
        tolerance=0.0,
        moved_bytes=float(size),
        facts={"page_cache_dropped": dropped},
    )


def _drop_cache(handle: int, size: int) -> bool:
    """Ask the system to forget the file's pages; False where it can't."""
    if not hasattr(os, "posix_fadvise"):
        return False
    os.posix_fadvise(handle, 0, size, os.POSIX_FADV_DONTNEED)
    return True


def _load(path: Path, device: torch.Tensor, bench: Bench) -> float:
    """Seconds to bring the file's content to the device."""
    buffer = torch.empty(min(device.numel(), CHUNK_BYTES), dtype=torch.uint8, pin_memory=bench.cuda)
    view = memoryview(buffer.numpy())
    bench.synchronize()
    begun, done = time.perf_counter(), 0
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(view):
            device[done : done + count].copy_(buffer[:count])
            done += count
    bench.synchronize()
    return time.perf_counter() - begun
