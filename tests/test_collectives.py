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
