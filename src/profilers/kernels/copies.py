"""Copies: within HBM, between host and device both ways, from device to device; and plain reads and writes."""

from collections.abc import Iterator

import torch

from profilers.bench import Bench
from profilers.kernel import Case, Unsupported, Work, kernel
from profilers.plan import Plan
from profilers.tensors import error, random

SIZES = (64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30)
"""Small ones give the fixed cost, large ones the bandwidth. [B]"""
MOST_OVER_A_LINK = 256 << 20
"""Largest to or from the host: some 5 ms over PCIe, and the host takes half a second to make it ready. [B]"""
COMPARED_BY_HOST = 16 << 20
"""Of a copy to or from the host, the bytes at either end that the host compares. [B]"""


def _cases(name: str, plan: Plan) -> Iterator[Case]:
    if plan.toy:
        yield Case(kernel=name, shape={"bytes": 4096}, priority=0)
    elif plan.grid or plan.scenarios:
        for size in SIZES:
            if size > MOST_OVER_A_LINK and not name.startswith("copy.hbm"):
                continue
            yield Case(kernel=name, shape={"bytes": size}, priority=0, energy=name == "copy.hbm" and size == SIZES[-1])


def _random_bytes(size: int, device: torch.device) -> torch.Tensor:
    """Random bytes; more than 16 MB repeat, for a CPU draws only some 0.1 GB a second."""
    block = torch.randint(0, 256, (min(size, 16 << 20),), dtype=torch.uint8, device=device)
    return block.repeat(-(-size // block.numel()))[:size]


def _work(pairs: list[tuple[torch.Tensor, torch.Tensor]], traffic: float, name: str, *, graph: bool = True) -> Work:
    """Copies of each pair's second to its first."""

    def check() -> float:
        target, source = pairs[-1]
        target.copy_(source)
        if target.is_cuda:
            torch.cuda.synchronize(target.device)
        if target.device == source.device:
            return float((target != source).sum())
        ends = (slice(0, COMPARED_BY_HOST), slice(-COMPARED_BY_HOST, None))
        return float(sum((target[part].cpu() != source[part].cpu()).sum() for part in ends))

    return Work(
        calls=[lambda t=t, s=s: t.copy_(s, non_blocking=True) for t, s in pairs],
        check=check,
        tolerance=0.0,
        flops=0.0,
        moved_bytes=traffic,
        implementation=name,
        footprint_bytes=2.0 * sum(s.numel() for _, s in pairs),
        graph=graph,
    )


@kernel("copy.hbm", cases=lambda plan: _cases("copy.hbm", plan))
def hbm(case: Case, bench: Bench) -> Work:
    """Read and write within the device's memory."""
    size = int(case.shape["bytes"])
    copies = bench.copies(2.0 * size)
    pairs = [
        (torch.empty(size, dtype=torch.uint8, device=bench.device), _random_bytes(size, bench.device))
        for _ in range(copies)
    ]
    return _work(pairs, 2.0 * size, "copy_")


@kernel("copy.hbm_read", cases=lambda plan: _cases("copy.hbm_read", plan))
def hbm_read(case: Case, bench: Bench) -> Work:
    """Read alone, as weights and caches are: the sum of 16-bit numbers."""
    count = int(case.shape["bytes"]) // 2
    rows = max(1, count // 4096)
    sources = [random((rows, count // rows), bench.device) for _ in range(bench.copies(2.0 * count))]

    def check() -> float:
        few = sources[-1][:8]
        return error(few.sum(dim=1, dtype=torch.float32), few.double().sum(dim=1))

    return Work(
        calls=[lambda s=s: s.sum(dim=1, dtype=torch.float32) for s in sources],
        check=check,
        tolerance=1e-3,
        flops=0.0,
        moved_bytes=2.0 * count,
        implementation="row sums",
        footprint_bytes=len(sources) * 2.0 * count,
    )


def _host_pair(case: Case, bench: Bench) -> tuple[torch.Tensor, torch.Tensor]:
    size = int(case.shape["bytes"])
    host = _random_bytes(size, torch.device("cpu"))
    return (host.pin_memory() if bench.cuda else host), _random_bytes(size, bench.device)


@kernel("copy.host_to_device", cases=lambda plan: _cases("copy.host_to_device", plan))
def host_to_device(case: Case, bench: Bench) -> Work:
    """From pinned memory, as weights are loaded and a cache comes back."""
    host, device = _host_pair(case, bench)
    return _work([(device, host)], float(host.numel()), "pinned", graph=False)


@kernel("copy.device_to_host", cases=lambda plan: _cases("copy.device_to_host", plan))
def device_to_host(case: Case, bench: Bench) -> Work:
    """To pinned memory, as a cache is put aside."""
    host, device = _host_pair(case, bench)
    return _work([(host, device)], float(host.numel()), "pinned", graph=False)


@kernel("copy.device_to_device", cases=lambda plan: _cases("copy.device_to_device", plan))
def device_to_device(case: Case, bench: Bench) -> Work:
    """To the next GPU, as a prefill pool hands a cache over."""
    other = bench.device
    if bench.cuda:
        if torch.cuda.device_count() < 2:
            raise Unsupported("needs two GPUs; one is visible")
        other = torch.device("cuda", (bench.device.index + 1) % torch.cuda.device_count())
    source = _random_bytes(int(case.shape["bytes"]), bench.device)
    return _work([(torch.empty_like(source, device=other), source)], float(source.numel()), "peer copy", graph=False)
