"""Shapes and plumbing that the matrix products share."""

from collections.abc import Callable, Iterator

import torch

from profilers.bench import Bench
from profilers.kernel import Case, Work
from profilers.plan import Plan

ROWS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
"""Tokens of the grid: decode batches and prefill chunks. [token]"""

WIDTHS = ((4096, 4096), (6144, 4096), (24576, 4096), (4096, 12288), (10240, 5120), (5120, 25600))
"""Outputs and inputs of the grid: square, wide, deep; the projections of an 8B and a 32B. [element]"""

TOY_SHAPES = ((1, 64, 128), (33, 128, 64))


def gemm_cases(
    kernel: str, plan: Plan, *, model_shapes: bool, multiple: int = 1, seldom: bool = False
) -> Iterator[Case]:
    """Cases of one weight format: a model's shapes, then the grid.

    Parameters
    ----------
    kernel
        Registered name.
    plan
        What to measure.
    model_shapes
        Also the shapes that the models' steps need.
    multiple
        What outputs and inputs must be divisible by. [element]
    seldom
        A further way to scale a format: sizes between those that identify its constants in the compact suite alone.
    """
    if plan.toy:
        yield from (_case(kernel, *shape, 0) for shape in TOY_SHAPES)
    elif plan.grid:
        for n, k in WIDTHS:
            for m in ROWS:
                coarse = m in (1, 16, 64, 256, 1024, 4096)
                if not coarse and seldom and not plan.fine:
                    continue
                yield _case(kernel, m, n, k, 0 if coarse else 2, energy=m == 4096 and n == 24576)
    if model_shapes:
        for shape in plan.shapes("gemm.bf16"):
            m, n, k = (int(shape[x]) for x in "mnk")
            if n % multiple == 0 and k % multiple == 0:
                yield _case(kernel, m, n, k, 1)


def _case(kernel: str, m: int, n: int, k: int, priority: int, energy: bool = False) -> Case:
    return Case(kernel=kernel, shape={"m": m, "n": n, "k": k}, priority=priority, energy=energy)


def sizes(case: Case) -> tuple[int, int, int]:
    """Tokens, outputs and inputs of a case."""
    return int(case.shape["m"]), int(case.shape["n"]), int(case.shape["k"])


def gemm_work(
    case: Case,
    calls: list[Callable[[], torch.Tensor]],
    check: Callable[[], float],
    *,
    weight_bytes: float,
    input_bytes: float,
    implementation: str,
    tolerance: float,
) -> Work:
    """A case's work with its arithmetic and traffic filled in.

    Parameters
    ----------
    case
        Which shape.
    calls, check, implementation, tolerance
        As in :class:`profilers.kernel.Work`.
    weight_bytes, input_bytes
        Size of a weight with its scales, and of an input element. [B]
    """
    m, n, k = sizes(case)
    return Work(
        calls=calls,
        check=check,
        tolerance=tolerance,
        flops=2.0 * m * n * k,
        moved_bytes=n * k * weight_bytes + m * k * input_bytes + m * n * 2.0,
        implementation=implementation,
        footprint_bytes=len(calls) * n * k * weight_bytes,
    )


def weight_copies(bench: Bench, weight: torch.Tensor, bytes_each: float) -> list[torch.Tensor]:
    """The weight and as many copies of it as keep the L2 cold.

    Parameters
    ----------
    bench
        Where.
    weight
        The weight.
    bytes_each
        Its size with scales. [B]
    """
    return [weight, *(weight.clone() for _ in range(bench.copies(bytes_each) - 1))]
