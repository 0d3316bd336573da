"""Times of collectives: laws, and golden values against measurements."""

import numpy as np
import pytest

from sizing import collectives
from sizing.calibration import Calibration, calibration
from sizing.catalog import Gpu, gpu


def case(name: str, engine: str = "vllm") -> tuple[Gpu, Calibration]:
    chip = gpu(name)
    return chip, calibration("measured", chip, engine)


# AIConfigurator 0.12.0, H100 SXM, vLLM custom all-reduce in a CUDA graph and TensorRT-LLM's; microseconds.
@pytest.mark.parametrize(
    ("engine", "gpus", "size", "measured_us"),
    [("trtllm", 8, 1 << 30, 4008.0), ("trtllm", 4, 1 << 30, 4534.0), ("trtllm", 2, 1 << 28, 888.0)],
)
def test_large_all_reduces_of_h100_are_near_single_measurements(
    engine: str, gpus: int, size: int, measured_us: float
) -> None:
    chip, cal = case("h100-sxm", engine)
    assert float(collectives.all_reduce_s(size, gpus, chip, cal)) * 1e6 == pytest.approx(measured_us, rel=0.15)


# NCCL 2.27.3 all-reduce of 8,192 to 33,554,432 halves, AIConfigurator's collectives tables; microseconds.
@pytest.mark.parametrize(
    ("name", "gpus", "size", "measured_us"),
    [("h100-sxm", 2, 1 << 14, 7.2), ("h100-sxm", 4, 1 << 14, 11.5), ("h100-sxm", 8, 1 << 14, 17.4),
     ("a100-80-sxm", 8, 1 << 14, 22.6), ("h100-sxm", 8, 1 << 26, 323.5), ("a100-80-sxm", 4, 1 << 26, 544.3)],
)  # fmt: skip
def test_all_reduces_of_the_library_are_near_single_measurements(
    name: str, gpus: int, size: int, measured_us: float
) -> None:
    chip, cal = case(name)
    found = float(collectives.all_reduce_s(size, gpus, chip, cal, family="nccl.all_reduce")) * 1e6
    assert found == pytest.approx(measured_us, rel=0.25)


def test_an_engines_own_sum_of_a_decode_step_is_faster_than_the_librarys() -> None:
    chip, cal = case("h100-sxm", "trtllm")
    own, library = (
        float(collectives.all_reduce_s(1 << 14, 8, chip, cal, family=family))
        for family in ("all_reduce", "nccl.all_reduce")
    )
    assert library > 2.5 * own


def test_one_gpu_and_empty_messages_take_no_time() -> None:
    chip, cal = case("h100-sxm")
    assert float(collectives.all_reduce_s(1e6, 1, chip, cal)) == 0.0
    assert float(collectives.all_gather_s(0.0, 8, chip, cal)) == 0.0
    assert collectives.all_reduce_s([0.0, 1e6], 4, chip, cal)[0] == 0.0


@pytest.mark.parametrize("name", ["h100-sxm", "b200-hgx", "a100-80-sxm", "l40s", "mi300x"])
@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_no_collective_beats_its_link(name: str, gpus: int) -> None:
    chip, cal = case(name)
    size = np.geomspace(1e3, 1e9, 30)
    assert np.all(np.diff(collectives.all_reduce_s(size, gpus, chip, cal)) > 0)
    link = collectives.link_bytes_per_s(chip, gpus)
    assert np.all(collectives.all_gather_s(size, gpus, chip, cal) >= size * (gpus - 1) / gpus / link)


def test_a_group_across_nodes_is_held_against_the_network() -> None:
    chip, cal = case("h100-sxm")
    assert collectives.link_bytes_per_s(chip, 16) == chip.nic_bytes_per_s
    inside, across = (float(collectives.all_reduce_s(1e8, n, chip, cal)) for n in (8, 16))
    assert across > 5 * inside
    near, far = (float(collectives.point_to_point_s(1e8, chip, cal, across_nodes=x)) for x in (False, True))
    assert far > near


def test_dispatch_sends_a_token_once_to_each_rank() -> None:
    # 8 ranks, 8 experts a token: 8 (1 - (7/8)^8) = 5.25 ranks of 8, 7/8 of them elsewhere
    chip, cal = case("h100-sxm")
    many = float(collectives.all_to_all_s(65536, 7168, 8, 8, chip, cal, element_bytes=2, low_latency=False))
    moved = 65536 * 7168 * 2 * 8 * (1 - (7 / 8) ** 8) * 7 / 8
    assert many >= moved / chip.link_bytes_per_s
    # DeepEP, H100, combine of 65,536 tokens of 7,168: 21.2 ms (aiconfigurator 0.12.0)
    assert many == pytest.approx(21.2e-3, rel=0.25)


def test_few_tokens_take_the_low_latency_kernels() -> None:
    chip, cal = case("h100-sxm")
    few = float(collectives.all_to_all_s(16, 7168, 8, 8, chip, cal, combine=False, element_bytes=2))
    low = float(collectives.all_to_all_s(16, 7168, 8, 8, chip, cal, combine=False, element_bytes=2, low_latency=True))
    high = float(collectives.all_to_all_s(16, 7168, 8, 8, chip, cal, combine=False, element_bytes=2, low_latency=False))
    assert few == low < high
    assert low == pytest.approx(60e-6, rel=0.25)  # DeepEP low-latency dispatch, H100: 58-67 us up to 32 tokens


TOKENS = np.array([1.0, 8.0, 64.0, 512.0, 513.0, 2048.0, 8192.0])


def exchanges(name: str, gpus: int, hidden: int = 7168, top_k: int = 8, element_bytes: float = 2.0) -> list[np.ndarray]:
    """What engines choose, and each way by itself: all-to-all, and all tokens gathered in 16 bit. [s]"""
    chip, cal = case(name)
    asked = (TOKENS, hidden, top_k, gpus, chip, cal)
    return [
        collectives.expert_exchange_s(*asked, element_bytes=element_bytes),
        collectives.all_to_all_s(*asked, element_bytes=element_bytes),
        collectives.all_gather_s(TOKENS * gpus * hidden * 2.0, gpus, chip, cal),
    ]


@pytest.mark.parametrize("name", ["h100-sxm", "h200-sxm", "b200-hgx", "gb200-nvl72", "mi300x", "l40s"])
@pytest.mark.parametrize("gpus", [1, 2, 8, 16, 64])
@pytest.mark.parametrize("element_bytes", [1.0, 2.0])
def test_experts_exchange_by_the_faster_of_both_ways(name: str, gpus: int, element_bytes: float) -> None:
    taken, sparse, gathered = exchanges(name, gpus, element_bytes=element_bytes)
    assert np.all(taken <= sparse)
    assert np.all(taken <= gathered)
    assert np.all((taken == sparse) | (taken == gathered))
    assert np.all(np.diff(taken) >= 0.0)
    assert np.all(taken == 0.0) == (gpus == 1)


@pytest.mark.parametrize("name", ["h100-sxm", "h200-sxm", "b200-hgx"])
@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_tokens_are_gathered_within_a_node(name: str, gpus: int) -> None:
    """Some microseconds where the all-to-all's kernels take 50 to 60 (DeepEP), and never faster than the links."""
    taken, sparse, gathered = exchanges(name, gpus)
    assert taken.tolist() == gathered.tolist()
    assert taken[0] < 25e-6 < 45e-6 < sparse[0]
    assert np.all(taken >= TOKENS * (gpus - 1) * 7168 * 2 / case(name)[0].link_bytes_per_s)


def test_wide_groups_send_a_token_to_its_experts_alone() -> None:
    """64 ranks: a token has 64 (1 - (63/64)^8) = 7.6 destinations where gathering sends it to 63."""
    taken, sparse, gathered = exchanges("gb200-nvl72", 64)
    assert taken[1:].tolist() == sparse[1:].tolist()
    assert gathered[0] < sparse[0]  # a single token a GPU is a matter of start-up alone
    assert np.all(gathered[2:] > 1.5 * taken[2:])
    wide, _, _ = exchanges("gb200-nvl72", 64, top_k=64)
    assert np.all(wide >= taken)


# -- bridges and PCIe ------------------------------------------------------------------------------------


def test_a_group_wider_than_a_bridged_pair_talks_over_pcie() -> None:
    # A100 PCIe: an NVLink bridge joins two (600 GB/s both ways); four meet on PCIe 4 x16, 32 GB/s, shared by two pairs.
    pcie, sxm = gpu("a100-80-pcie"), gpu("a100-80-sxm")
    assert collectives.link_bytes_per_s(pcie, 2) == collectives.link_bytes_per_s(sxm, 2) == 3e11
    assert collectives.link_bytes_per_s(sxm, 4) == collectives.link_bytes_per_s(sxm, 8) == 3e11
    assert collectives.link_bytes_per_s(pcie, 4) == pytest.approx(3.2e10 / 2.0**0.3)
    assert collectives.link_bytes_per_s(pcie, 8) == pytest.approx(3.2e10 / 4.0**0.3)
    nvl = gpu("h200-nvl")  # bridges of four
    assert collectives.link_bytes_per_s(nvl, 4) == 4.5e11
    assert collectives.link_bytes_per_s(nvl, 8) == pytest.approx(6.4e10 / 4.0**0.3)


@pytest.mark.parametrize("gpus", [4, 8])
def test_large_sums_take_longer_by_the_links_ratio(gpus: int) -> None:
    sxm, cal = case("a100-80-sxm")
    pcie = gpu("a100-80-pcie")
    fast, slow = (float(collectives.all_reduce_s(1 << 33, gpus, chip, cal)) for chip in (sxm, pcie))
    ratio = collectives.link_bytes_per_s(sxm, gpus) / collectives.link_bytes_per_s(pcie, gpus)
    assert ratio > 9
    assert slow / fast == pytest.approx(ratio, rel=0.01)


def test_gpus_without_links_and_links_of_a_rack() -> None:
    assert collectives.link_bytes_per_s(gpu("l40s"), 2) == 3.2e10
    assert collectives.link_bytes_per_s(gpu("l40s"), 4) == pytest.approx(3.2e10 / 2.0**0.3)
    rack = gpu("gb200-nvl72")
    assert collectives.link_bytes_per_s(rack, 72) == rack.link_bytes_per_s == 9e11
    assert collectives.link_bytes_per_s(rack, 144) == rack.nic_bytes_per_s
    bridged = gpu("a100-80-pcie")
    assert collectives.link_bytes_per_s(bridged, 16) <= collectives.link_bytes_per_s(bridged, 8)


# DeepEP, docs/legacy.md: 128 tokens of 7,168, top 8, dispatched in FP8 and combined in BF16, H800 with 50 GB/s of
# network each; microseconds.
@pytest.mark.parametrize(
    ("gpus", "dispatch_us", "combine_us"),
    [(8, 77, 114), (16, 118, 195), (32, 155, 273), (64, 173, 314), (128, 192, 369), (256, 194, 360)],
)
def test_few_tokens_cross_nodes_as_fast_as_deepep_says(gpus: int, dispatch_us: float, combine_us: float) -> None:
    chip, cal = case("h100-sxm")
    found = [
        float(collectives.all_to_all_s(128, 7168, 8, gpus, chip, cal, element_bytes=b, low_latency=True)) * 1e6
        for b in (1.0, 2.0)
    ]
    assert found == [pytest.approx(dispatch_us, rel=0.1), pytest.approx(combine_us, rel=0.2)]


# The same source: 4,096 tokens reach 43, 58 and 51 GB/s of network, copies to the own node among them.
@pytest.mark.parametrize(("gpus", "measured"), [(16, 43e9), (32, 58e9), (64, 51e9)])
@pytest.mark.parametrize("element_bytes", [1.0, 2.0])
def test_many_tokens_reach_the_network_rate_that_deepep_says(gpus: int, measured: float, element_bytes: float) -> None:
    chip, cal = case("h100-sxm")
    took = float(
        collectives.all_to_all_s(4096, 7168, 8, gpus, chip, cal, element_bytes=element_bytes, low_latency=False)
    )
    nodes = gpus / 8
    sent = 4096 * 7168 * element_bytes * nodes * (1 - (1 - 1 / nodes) ** 8)
    assert sent / took == pytest.approx(measured, rel=0.35)


def test_faster_links_do_not_speed_up_what_the_multiprocessors_bound() -> None:
    """DeepEP, eight GPUs, combine of 16,384 tokens of 7,168: 5.0 and 6.1 ms on H200, 8.0 and 8.7 on B200.

    With 256 and 384 experts (aiconfigurator 0.12.0); B200's links are twice as fast.
    """
    took = {
        name: float(collectives.all_to_all_s(16384, 7168, 8, 8, *case(name), low_latency=False)) * 1e3
        for name in ("h200-sxm", "b200-hgx")
    }
    assert took["h200-sxm"] == pytest.approx(5.5, rel=0.2)
    assert took["b200-hgx"] == pytest.approx(8.3, rel=0.2)
