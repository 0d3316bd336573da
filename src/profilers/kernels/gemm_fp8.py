"""Matrix product in FP8 (E4M3) with scales; the input is quantised beforehand.

A served model quantises the input as it goes: add ``elementwise.fp8_quantise`` at the same size.
"""

from collections.abc import Callable, Iterator

import torch

from profilers.bench import Bench
from profilers.gemms import gemm_cases, gemm_work, sizes, weight_copies
from profilers.kernel import Case, Unsupported, Work, kernel
from profilers.plan import Plan
from profilers.tensors import error, product, random, to_fp8, to_fp8_rows


def _cases(name: str, *, seldom: bool = False) -> Callable[[Plan], Iterator[Case]]:
    return lambda plan: gemm_cases(name, plan, model_shapes=False, multiple=16, seldom=seldom)


def _need_fp8(bench: Bench) -> None:
    if bench.cuda and bench.capability < (8, 9):
        raise Unsupported(f"FP8 tensor cores need compute capability 8.9; this chip has {bench.capability}")


def _work(case: Case, bench: Bench, quantise: Callable[..., tuple[torch.Tensor, torch.Tensor]], name: str) -> Work:
    m, n, k = sizes(case)
    x, x_scale = quantise(random((m, k), bench.device))
    weight, w_scale = quantise(random((n, k), bench.device))
    by_row = w_scale.ndim == 2
    weights = weight_copies(bench, weight, 1.0 * n * k)
    scale = w_scale.t() if by_row else w_scale

    def multiply(w: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(
            x, w.t(), scale_a=x_scale, scale_b=scale, out_dtype=torch.bfloat16, use_fast_accum=bench.cuda
        )

    def check() -> float:
        rows = min(m, 256)
        scaled = x[:rows].float() * (x_scale[:rows] if by_row else x_scale)
        return error(multiply(weights[-1])[:rows], product(scaled, weights[-1].float() * w_scale))

    return gemm_work(
        case,
        [lambda w=w: multiply(w) for w in weights],
        check,
        weight_bytes=1.0,
        input_bytes=1.0,
        implementation=name,
        tolerance=0.02,
    )


@kernel("gemm.fp8", cases=_cases("gemm.fp8"))
def gemm_fp8(case: Case, bench: Bench) -> Work:
    """One scale for the input and one for the weights."""
    _need_fp8(bench)
    return _work(case, bench, to_fp8, "scaled_mm per tensor")


@kernel(
    "gemm.fp8_row",
    cases=lambda plan: (c for c in _cases("gemm.fp8_row", seldom=True)(plan) if c.shape["n"] in (4096, 64, 128)),
)
def gemm_fp8_row(case: Case, bench: Bench) -> Work:
    """A scale a token and an output channel."""
    _need_fp8(bench)
    return _work(case, bench, to_fp8_rows, "scaled_mm per row")
