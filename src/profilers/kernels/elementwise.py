"""Kernels that only move data, fused by the compiler on a GPU as engines fuse them by hand."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.nn.functional import rms_norm, silu

from profilers.bench import Bench
from profilers.kernel import Case, Work, kernel
from profilers.plan import Plan
from profilers.tensors import FP8, error, random

GRID = ((4, 4096), (128, 4096), (2048, 4096), (8192, 4096), (16384, 12288))
"""Tokens and width; one token is compiled apart, so it is measured where a model has it. [token], [element]"""

Operation = Callable[..., Any]


def _cases(name: str, plan: Plan) -> Iterator[Case]:
    if plan.toy:
        yield Case(kernel=name, shape={"tokens": 5, "width": 64}, priority=0)
    elif plan.grid:
        for tokens, width in GRID:
            yield Case(kernel=name, shape={"tokens": tokens, "width": width}, priority=0)
    for shape in plan.shapes(name):
        yield Case(kernel=name, shape=shape, priority=1)


def _fused(operation: Operation, example: Sequence[torch.Tensor], bench: Bench) -> tuple[Operation, str]:
    """The operation as one kernel where the compiler works, else as torch runs it."""
    if not bench.cuda:
        return operation, "eager"
    try:
        compiled = torch.compile(operation, dynamic=True)
        compiled(*example)
    except Exception as reason:  # any failure of the compiler leaves the plain way
        return operation, f"eager ({type(reason).__name__} in the compiler)"
    return compiled, "compiled"


def _work(
    case: Case,
    bench: Bench,
    operation: Operation,
    inputs: Sequence[Sequence[torch.Tensor]],
    check: Callable[[Operation], float],
    moved: float,
    tolerance: float = 0.02,
) -> Work:
    """What is timed is checked: ``check`` gets the operation as it runs, compiled or not."""
    run, how = _fused(operation, inputs[0], bench)
    tokens, width = int(case.shape["tokens"]), int(case.shape["width"])
    return Work(
        calls=[lambda i=i: run(*i) for i in inputs],
        check=lambda: check(run),
        tolerance=tolerance,
        flops=0.0,
        moved_bytes=moved * tokens * width,
        implementation=how,
        footprint_bytes=len(inputs) * moved * tokens * width,
    )


def _inputs(case: Case, bench: Bench, tensors: int) -> list[list[torch.Tensor]]:
    """Activations are warm in a served model; rotated only as far as they don't fit the L2 anyway."""
    shape = (int(case.shape["tokens"]), int(case.shape["width"]))
    sets = 2 if 2.0 * tensors * shape[0] * shape[1] > bench.cache_bytes else 1
    return [[random(shape, bench.device) for _ in range(tensors)] for _ in range(sets)]


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Residual sum and its RMS norm."""
    total = x + residual
    return rms_norm(total, (total.shape[-1],), weight, 1e-6), total


@kernel("elementwise.add_rms_norm", cases=lambda plan: _cases("elementwise.add_rms_norm", plan))
def add_rms_norm_work(case: Case, bench: Bench) -> Work:
    """Reads two tensors, writes two."""
    weight = random((int(case.shape["width"]),), bench.device)
    inputs = [[*pair, weight] for pair in _inputs(case, bench, 2)]

    def check(run: Operation) -> float:
        x, residual, _ = inputs[0]
        total = x.float() + residual.float()
        expected = total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-6) * weight.float()
        return error(run(*inputs[0])[0], expected)

    return _work(case, bench, add_rms_norm, inputs, check, 8.0)


def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Gate of a feed-forward layer."""
    return silu(gate) * up


@kernel("elementwise.silu_mul", cases=lambda plan: _cases("elementwise.silu_mul", plan))
def silu_mul_work(case: Case, bench: Bench) -> Work:
    """Reads two tensors, writes one."""
    inputs = _inputs(case, bench, 2)

    def check(run: Operation) -> float:
        gate, up = (t.float() for t in inputs[0])
        return error(run(*inputs[0]), gate / (1.0 + torch.exp(-gate)) * up)

    return _work(case, bench, silu_mul, inputs, check, 6.0)


def rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotary embedding, halves rotated against each other."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


@kernel("elementwise.rope", cases=lambda plan: _cases("elementwise.rope", plan))
def rope_work(case: Case, bench: Bench) -> Work:
    """Reads and writes queries and keys once."""
    tokens, width = int(case.shape["tokens"]), int(case.shape["width"])
    angle = random((tokens, width // 2), bench.device, torch.float32)
    cosine, sine = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)
    inputs = [[x[0], cosine, sine] for x in _inputs(case, bench, 1)]

    def check(run: Operation) -> float:
        x, c, s = (t.float() for t in inputs[0])
        turned = torch.view_as_complex(torch.stack([x[:, : width // 2], x[:, width // 2 :]], 2).contiguous())
        turned = turned * torch.complex(c, s)
        return error(run(*inputs[0]), torch.cat([turned.real, turned.imag], 1))

    return _work(case, bench, rotate, inputs, check, 4.0)


def fp8_quantise(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise each token to E4M3 with its own scale."""
    scale = x.abs().amax(dim=-1, keepdim=True).float().clamp(min=1e-12) / 448.0
    return (x.float() / scale).clamp(-448.0, 448.0).to(FP8), scale


@kernel("elementwise.fp8_quantise", cases=lambda plan: _cases("elementwise.fp8_quantise", plan))
def fp8_quantise_work(case: Case, bench: Bench) -> Work:
    """Reads 16 bits, writes 8."""
    inputs = _inputs(case, bench, 1)

    def check(run: Operation) -> float:
        coded, scale = run(inputs[0][0])
        return error(coded.float() * scale, inputs[0][0])

    return _work(case, bench, fp8_quantise, inputs, check, 3.0, tolerance=0.04)
