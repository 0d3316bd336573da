"""Bits a weight of each format, scales included, against what the formats' authors state."""

import pytest

from sizing.errors import InputError
from sizing.formats import kv_format, kv_formats, weight_format, weight_formats


@pytest.mark.parametrize(
    ("name", "bits", "source"),
    [
        ("bf16", 16, "IEEE 754 width"),
        ("fp8", 8, "one scale a tensor"),
        ("fp8_block", 8 + 32 / 128**2, "DeepSeek-V3 report, section 3.3: an FP32 scale for 128 x 128"),
        ("nvfp4", 4.5, "NVIDIA, Introducing NVFP4 (2025): 4.5 bits a value with its FP8 scale for 16"),
        ("mxfp4", 4.25, "OCP MX v1.0, table 1: E8M0 scale for 32"),
        ("int4", 4 + 20 / 128, "AutoGPTQ: FP16 scale and 4-bit zero for 128"),
        ("int4_g128_sym", 4.125, "compressed-tensors W4A16: BF16 scale for 128"),
        ("int4_g32_sym", 4.5, "Kimi-K2-Thinking: BF16 scale for 32"),
        ("nf4", 4 + 8.125 / 64, "QLoRA, section 3: 0.127 bits for double quantised constants"),
        ("q8_0", 8.5, "llama.cpp block_q8_0: 34 bytes for 32"),
        ("q4_0", 4.5, "llama.cpp block_q4_0: 18 bytes for 32"),
        ("q6_k", 6.5625, "llama.cpp block_q6_K: 210 bytes for 256"),
    ],
)
def test_bits_a_weight(name: str, bits: float, source: str) -> None:
    assert weight_format(name).bits_per_weight == pytest.approx(bits, rel=1e-12), source


def test_nvfp4_is_nine_sixteenths_of_a_byte() -> None:
    # peers.md: shipped as 8/16 of a byte; right is 9/16
    assert weight_format("nvfp4").bytes_per_weight == 9 / 16


def test_a_matrix_with_partial_groups_rounds_up() -> None:
    # 200 inputs are 2 groups of 128: 10 rows x (200 x 4 bit + 2 x 16 bit) = 8,320 bit
    assert weight_format("int4_g128_sym").matrix_bytes(200, 10) == 8320 / 8
    # 130 x 129 in blocks of 128 x 128 are 4 blocks
    assert weight_format("fp8_block").matrix_bytes(130, 129) == 130 * 129 + 4 * 4


@pytest.mark.parametrize(
    ("said", "means"),
    [("BF16", "bf16"), ("bfloat16", "bf16"), ("FP8-dynamic", "fp8_channel"), ("w4a16", "int4"), ("Q4_K_M", "q4_k_m"),
     ("AWQ", "int4"), ("w8a8", "int8"), ("bnb-4bit", "nf4"), ("NVFP4", "nvfp4")],
)  # fmt: skip
def test_other_spellings(said: str, means: str) -> None:
    assert weight_format(said).name == means


def test_unknown_formats_are_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="nvfp4"):
        weight_format("nvfp5")
    with pytest.raises(InputError, match="fp8"):
        kv_format("fp9")
    for bad in ("", None, 8, "int4_g0"):
        with pytest.raises(InputError):
            weight_format(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "bits"), [("auto", 16), ("fp8_e4m3", 8), ("fp8", 8), ("nvfp4", 4.5), ("bf16", 16)])
def test_kv_bits(name: str, bits: float) -> None:
    assert kv_format(name).bits_per_element == bits


@pytest.mark.parametrize("name", weight_formats())
def test_every_weight_format_is_sane(name: str) -> None:
    format = weight_format(name)
    assert format.element_bits <= format.bits_per_weight <= 32
    assert format.compute_dtype in {"fp32", "bf16", "fp16", "fp8", "fp4", "int8", "int4"}
    assert format.matrix_bytes(4096, 4096) == pytest.approx(4096**2 * format.bytes_per_weight, rel=2e-3)


@pytest.mark.parametrize("name", kv_formats())
def test_every_kv_format_is_sane(name: str) -> None:
    assert 4 <= kv_format(name).bits_per_element <= 32
