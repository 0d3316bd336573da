"""Matrix product with 4-bit weights and 16-bit inputs (weight-only), by the kernel that torch carries."""

from collections.abc import Iterator

import torch

from profilers.bench import Bench
from profilers.gemms import gemm_cases, gemm_work, sizes, weight_copies
from profilers.kernel import Case, Unsupported, Work, kernel
from profilers.plan import Plan
from profilers.tensors import error, product, random, to_int4

GROUP = 128
MOST_ROWS = 256
"""This kernel is made for decoding; beyond, engines unpack to 16 bits first. [token]"""


def _cases(plan: Plan) -> Iterator[Case]:
    for case in gemm_cases("gemm.int4_weight", plan, model_shapes=False, multiple=GROUP):
        if plan.toy:
            yield Case(kernel=case.kernel, shape={**case.shape, "n": 64, "k": 128}, priority=0)
        elif int(case.shape["m"]) <= MOST_ROWS:
            yield case


@kernel("gemm.int4_weight", cases=_cases)
def gemm_int4(case: Case, bench: Bench) -> Work:
    """Groups of 128 with scale and zero point."""
    if bench.cuda and bench.capability < (8, 0):
        raise Unsupported(f"the INT4 kernel needs compute capability 8.0; this chip has {bench.capability}")
    m, n, k = sizes(case)
    x = random((m, k), bench.device)
    codes, scales, value = to_int4(random((n, k), bench.device), GROUP)
    packed = _packed(codes, bench)
    bytes_each = 0.5 + 4.0 / GROUP
    weights = weight_copies(bench, packed, bytes_each * n * k)

    def multiply(w: torch.Tensor) -> torch.Tensor:
        if bench.cuda:
            return torch._weight_int4pack_mm(x, w, GROUP, scales)
        return torch._weight_int4pack_mm_for_cpu(x, w, GROUP, scales)

    return gemm_work(
        case,
        [lambda w=w: multiply(w) for w in weights],
        lambda: error(multiply(weights[-1]), product(x, value)),
        weight_bytes=bytes_each,
        input_bytes=2.0,
        implementation="int4pack_mm",
        tolerance=0.02,
    )


def _packed(codes: torch.Tensor, bench: Bench) -> torch.Tensor:
    if not bench.cuda:
        return torch._convert_weight_to_int4pack_for_cpu(codes, 1)
    pairs = ((codes[:, ::2] << 4) | codes[:, 1::2]).to(torch.uint8)
    return torch._convert_weight_to_int4pack(pairs, 8)
