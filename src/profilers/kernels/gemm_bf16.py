"""Matrix product in BF16, as every linear layer of an unquantised model runs it."""

import torch
from torch.nn.functional import linear

from profilers.bench import Bench
from profilers.gemms import gemm_cases, gemm_work, sizes, weight_copies
from profilers.kernel import Case, Work, kernel
from profilers.tensors import error, product, random


@kernel("gemm.bf16", cases=lambda plan: gemm_cases("gemm.bf16", plan, model_shapes=True))
def gemm_bf16(case: Case, bench: Bench) -> Work:
    """``y = x W.T`` by the vendor's library."""
    m, n, k = sizes(case)
    x = random((m, k), bench.device)
    weights = weight_copies(bench, random((n, k), bench.device), 2.0 * n * k)

    def check() -> float:
        rows = min(m, 256)
        return error(linear(x, weights[-1])[:rows], product(x[:rows], weights[-1]))

    return gemm_work(
        case,
        [lambda w=w: linear(x, w) for w in weights],
        check,
        weight_bytes=2.0,
        input_bytes=2.0,
        implementation="cublas" if bench.cuda else f"torch {torch.__version__.split('+')[0]} cpu",
        tolerance=0.01,
    )
