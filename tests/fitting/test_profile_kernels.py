"""Which family a profiled kernel belongs to, and what the roofline says of it."""

import pytest

from sizing import collectives
from sizing.calibration import calibration
from sizing.catalog import gpu
from sizing.fitting.profile_kernels import columns, family, predict


@pytest.mark.parametrize(
    ("kernel", "shape", "belongs"),
    [
        ("gemm.fp8_row", {}, "gemm.fp8"), ("moe.bf16_vllm", {}, "moe.bf16"), ("gemm.no_such", {}, None),
        ("attention_decode", {}, "attention_decode"), ("elementwise.rope", {}, "elementwise"),
        ("launch.eager", {}, None),
        ("collective.torch", {"operation": "all_gather"}, "nccl.gather"),
        ("collective.torch", {"operation": "reduce_scatter"}, "nccl.gather"),
        ("collective.torch", {"operation": "point_to_point"}, "point_to_point"),
        ("collective.torch", {"operation": "all_to_all"}, None),
        # torch.distributed sums by NCCL; engines have kernels of their own, three times as fast on small messages
        ("collective.torch", {"operation": "all_reduce"}, "nccl.all_reduce"),
    ],
)  # fmt: skip
def test_a_profiled_kernel_gives_the_constants_of_what_it_ran(kernel, shape, belongs):
    assert family(kernel, shape) == belongs


def test_a_profiled_all_reduce_is_held_against_nccl():
    chip = gpu("h100-sxm")
    cal = calibration("measured", chip, "vllm")
    shapes = [
        {"operation": "all_reduce", "ranks": 8, "bytes": 1 << 14},
        {"operation": "all_reduce", "ranks": 2, "bytes": 1 << 26},
    ]
    at = columns("nccl.all_reduce", ["collective.torch"] * 2, shapes)
    found = predict("nccl.all_reduce", at, chip, cal)
    # AIConfigurator's NCCL 2.27.3 tables: 17.4 us for 16 KB on eight H100, 253 us for 64 MB on two
    assert [float(x) * 1e6 for x in found] == pytest.approx([17.4, 253.3], rel=0.25)
    own = float(collectives.all_reduce_s(1 << 14, 8, chip, cal))
    assert float(found[0]) > 2.0 * own
