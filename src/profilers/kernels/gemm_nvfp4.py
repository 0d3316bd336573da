"""Matrix product in NVFP4 (4 bits, a scale every 16), where the chip has it; the input is quantised beforehand."""

from collections.abc import Iterator

import torch

from profilers.bench import Bench
from profilers.gemms import gemm_cases, gemm_work, sizes, weight_copies
from profilers.kernel import Case, Unsupported, Work, kernel
from profilers.plan import Plan
from profilers.tensors import error, product, random, swizzled, to_fp4


def _cases(plan: Plan) -> Iterator[Case]:
    return gemm_cases("gemm.nvfp4", plan, model_shapes=False, multiple=64)


@kernel("gemm.nvfp4", cases=_cases)
def gemm_nvfp4(case: Case, bench: Bench) -> Work:
    """By ``torch._scaled_mm``; on a CPU the codes are unpacked first (dry run)."""
    if bench.cuda and (bench.capability[0] < 10 or not hasattr(torch, "float4_e2m1fn_x2")):
        raise Unsupported(f"NVFP4 needs compute capability 10 and torch 2.8; this chip has {bench.capability}")
    m, n, k = sizes(case)
    x, x_scale, x_value = to_fp4(random((m, k), bench.device))
    weight, w_scale, w_value = to_fp4(random((n, k), bench.device))
    weights = weight_copies(bench, weight, 0.5625 * n * k)
    blocked_x, blocked_w = swizzled(x_scale), swizzled(w_scale)

    def multiply(w: torch.Tensor) -> torch.Tensor:
        if not bench.cuda:
            return (x_value @ unpacked(w, w_scale).t()).to(torch.bfloat16)
        four = torch.float4_e2m1fn_x2
        return torch._scaled_mm(
            x.view(four), w.view(four).t(), scale_a=blocked_x, scale_b=blocked_w, out_dtype=torch.bfloat16
        )

    def check() -> float:
        rows = min(m, 256)
        return error(multiply(weights[-1])[:rows], product(x_value[:rows], w_value))

    return gemm_work(
        case,
        [lambda w=w: multiply(w) for w in weights],
        check,
        weight_bytes=0.5625,
        input_bytes=0.5625,
        implementation="scaled_mm" if bench.cuda else "dequantised",
        tolerance=0.02,
    )


def unpacked(codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Values of packed NVFP4 codes."""
    from profilers.tensors import FP4_VALUES

    table = torch.tensor(FP4_VALUES, device=codes.device)
    table = torch.cat([table, -table])
    value = torch.stack([table[(codes & 15).long()], table[(codes >> 4).long()]], dim=2).view(codes.shape[0], -1)
    return value * scale.float().repeat_interleave(16, dim=1)
