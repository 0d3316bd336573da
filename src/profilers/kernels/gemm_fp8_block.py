"""Matrix product in FP8 with a scale every 1 x 128 inputs and 128 x 128 weights (DeepSeek-V3, section 3.3)."""

from collections.abc import Iterator

import torch

from profilers.bench import Bench
from profilers.gemms import gemm_cases, gemm_work, sizes, weight_copies
from profilers.kernel import Case, Unsupported, Work, kernel
from profilers.plan import Plan
from profilers.tensors import FP8, FP8_MAX, error, product, random

BLOCK = 128


def _cases(plan: Plan) -> Iterator[Case]:
    if plan.toy:
        yield Case(kernel="gemm.fp8_block", shape={"m": 5, "n": 128, "k": 256}, priority=0)
        return
    for case in gemm_cases("gemm.fp8_block", plan, model_shapes=False, multiple=BLOCK, seldom=True):
        if case.shape["n"] in (4096, 24576):
            yield case


def quantise(x: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Quantise in blocks of ``rows`` x 128: E4M3 values, FP32 scales, dequantised values."""
    m, k = x.shape
    blocks = x.float().view(m // rows, rows, k // BLOCK, BLOCK)
    scale = blocks.abs().amax(dim=(1, 3), keepdim=True).clamp(min=1e-12) / FP8_MAX
    coded = (blocks / scale).clamp(-FP8_MAX, FP8_MAX).to(FP8)
    value = (coded.float() * scale).view(m, k)
    return coded.view(m, k), scale.view(m // rows, k // BLOCK), value


@kernel("gemm.fp8_block", cases=_cases)
def gemm_fp8_block(case: Case, bench: Bench) -> Work:
    """By ``torch.nn.functional.scaled_mm``; on a CPU the scales are applied first (dry run)."""
    m, n, k = sizes(case)
    x, x_scale, x_value = quantise(random((m, k), bench.device), 1)
    weight, w_scale, w_value = quantise(random((n, k), bench.device), BLOCK)
    weights = weight_copies(bench, weight, 1.0 * n * k)
    if bench.cuda:
        multiply = _scaled_mm(bench, x, x_scale, w_scale)
    else:
        ones = w_scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)

        def multiply(w: torch.Tensor) -> torch.Tensor:
            return (x_value @ (w.float() * ones).t()).to(torch.bfloat16)

    def check() -> float:
        rows = min(m, 256)
        return error(multiply(weights[-1])[:rows], product(x_value[:rows], w_value))

    return gemm_work(
        case,
        [lambda w=w: multiply(w) for w in weights],
        check,
        weight_bytes=1.0 + 4.0 / BLOCK**2,
        input_bytes=1.0,
        implementation="scaled_mm blockwise" if bench.cuda else "dequantised",
        tolerance=0.02,
    )


def _scaled_mm(bench: Bench, x: torch.Tensor, x_scale: torch.Tensor, w_scale: torch.Tensor):  # noqa: ANN202 - a closure
    functional = torch.nn.functional
    recipes = getattr(functional, "ScalingType", None)
    if recipes is None or not hasattr(functional, "scaled_mm"):
        raise Unsupported(f"block-scaled FP8 needs torch.nn.functional.scaled_mm; torch {torch.__version__} has none")
    if bench.capability[0] != 9:
        raise Unsupported("torch's block-scaled FP8 product is for compute capability 9 (Hopper)")
    by_column = torch.empty_strided(x_scale.shape, (1, x_scale.shape[0]), device=x.device).copy_(x_scale)

    def multiply(w: torch.Tensor) -> torch.Tensor:
        return functional.scaled_mm(
            x, w.t(), by_column, recipes.BlockWise1x128, w_scale.t(), recipes.BlockWise128x128,
            output_dtype=torch.bfloat16,
        )  # fmt: skip

    return multiply
