"""Collectives between the GPUs of a replica, by NCCL (gloo between processes on a CPU)."""

import datetime
import itertools
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from profilers.bench import Bench
from profilers.kernel import Case, Reading, Unsupported, kernel
from profilers.plan import Plan

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "point_to_point")
SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20)
"""Message of one rank: from a decode step to a long prefill. [B]"""

TIMEOUT_S = 120


def _cases(plan: Plan) -> Iterator[Case]:
    if plan.ranks < 2 or not (plan.grid or plan.toy):
        return
    ranks = [plan.ranks] if plan.toy else [r for r in (2, 4, 8) if r <= plan.ranks]
    for count in ranks:
        yield Case(kernel="collective.torch", shape={"ranks": count}, priority=0)


@kernel("collective.torch", cases=_cases)
def collective(case: Case, bench: Bench) -> Reading:
    """Every operation and size over one group of processes; samples are named ``operation.bytes.time_s``."""
    ranks = int(case.shape["ranks"])
    if bench.cuda and torch.cuda.device_count() < ranks:
        raise Unsupported(f"needs {ranks} GPUs; {torch.cuda.device_count()} visible")
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = (ranks, port, bench.cuda, bench.toy, queue)
    workers = [context.Process(target=_worker, args=(rank, *arguments), daemon=True) for rank in range(ranks)]
    for worker in workers:
        worker.start()
    try:
        kind, content = queue.get(timeout=2 * TIMEOUT_S)
    except Exception:
        raise RuntimeError(f"no answer from {ranks} ranks within {2 * TIMEOUT_S} s") from None
    finally:
        for worker in workers:
            worker.join(timeout=20)
            if worker.is_alive():
                worker.kill()
    if kind == "error":
        raise RuntimeError(content)
    return Reading(
        samples=content["samples"],
        implementation="nccl" if bench.cuda else "gloo",
        error=content["error"],
        tolerance=0.01,
        facts={"message": "bytes that each rank holds before the operation"},
    )


def _worker(rank: int, ranks: int, port: int, cuda: bool, toy: bool, queue: Any) -> None:
    """One rank: join, measure, and let the first rank answer."""
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        device = torch.device("cuda", rank) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(device)
        else:
            torch.set_num_threads(1)
        dist.init_process_group(
            "nccl" if cuda else "gloo", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=TIMEOUT_S)
        )
        answer = _measure(rank, ranks, device, toy)
        dist.barrier()
        dist.destroy_process_group()
        if rank == 0:
            queue.put(("samples", answer))
    except Exception as error:  # the parent has to hear of anything
        queue.put(("error", f"rank {rank}: {type(error).__name__}: {str(error)[:300]}"))


def _measure(rank: int, ranks: int, device: torch.device, toy: bool) -> dict[str, Any]:
    import torch.distributed as dist

    samples: dict[str, list[float]] = {}
    worst = 0.0
    for name, size in itertools.product(OPERATIONS, (4096,) if toy else SIZES):
        try:
            call, check = operation(name, size, rank, ranks, device)
            call()
        except (RuntimeError, NotImplementedError):
            continue  # a backend without this operation
        worst = max(worst, check())
        dist.barrier()
        samples[f"{name}.{size}.time_s"] = _samples(call, device, 3 if toy else 20, 1 if toy else 10)
    return {"samples": samples, "error": worst}


def _samples(call: Callable[[], Any], device: torch.device, count: int, inner: int) -> list[float]:
    """Mean seconds of a call in each sample; every rank runs the same number."""
    import torch.distributed as dist

    out = []
    for _ in range(count):
        dist.barrier()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        begun = time.perf_counter()
        for _ in range(inner):
            call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        out.append((time.perf_counter() - begun) / inner)
    return out


def operation(
    name: str, size: int, rank: int, ranks: int, device: torch.device
) -> tuple[Callable[[], Any], Callable[[], float]]:
    """A collective on a message of ``size`` bytes a rank, and the error of its result.

    Parameters
    ----------
    name
        One of :data:`OPERATIONS`.
    size
        What each rank holds before it. [B]
    rank, ranks
        This process, and how many there are.
    device
        Where.
    """
    import torch.distributed as dist

    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    count = size // kind.itemsize // ranks * ranks
    source = torch.ones(count, device=device, dtype=kind) * (rank + 1)
    work, small = source.clone(), torch.zeros(count // ranks, device=device, dtype=kind)
    whole = torch.zeros(count * ranks if name == "all_gather" else 1, device=device, dtype=kind)
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    total = ranks * (ranks + 1) / 2

    def all_reduce() -> torch.Tensor:
        dist.all_reduce(work)
        return work

    def all_gather() -> torch.Tensor:
        gather(whole, source)
        return whole[-1:]

    def reduce_scatter() -> torch.Tensor:
        scatter(small, source)
        return small

    def all_to_all() -> torch.Tensor:
        dist.all_to_all_single(work, source)
        return work[-1:]

    def point_to_point() -> torch.Tensor:
        if rank == 0:
            dist.send(source, 1)
        elif rank == 1:
            dist.recv(work, 0)
            return work[-1:]
        return torch.ones(1)

    expected = {"all_reduce": total, "reduce_scatter": total, "all_gather": ranks, "all_to_all": ranks}
    run = {f.__name__: f for f in (all_reduce, all_gather, reduce_scatter, all_to_all, point_to_point)}[name]

    def check() -> float:
        work.copy_(source)
        return float((run().float().mean() - expected.get(name, 1.0)).abs())

    return run, check
