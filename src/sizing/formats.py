"""Number formats of weights and of the KV cache: bits an element, scales and zero points included.

A weight format states what one stored weight costs, its share of scales and zero points with it, and the
number type that the matrix product runs in (which peak it is held against).

Sources: OCP Microscaling Formats (MX) v1.0, table 1 (MXFP4: 32 elements share one E8M0 scale); NVIDIA
ModelOpt (NVFP4: 16 elements share one FP8 E4M3 scale, one FP32 scale a tensor); AutoGPTQ and AutoAWQ
(INT4: an FP16 scale and a 4-bit zero point a group); DeepSeek-V3 report, section 3.3 (FP8: an FP32 scale a
128 x 128 block); llama.cpp ``ggml-common.h`` block structs (GGUF types, bytes a block).
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from sizing.errors import InputError, nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """How one weight is stored.

    Parameters
    ----------
    name
        The name it goes by, such as ``"nvfp4"``.
    element_bits
        Bits of the element alone [bit].
    compute_dtype
        Number type of the matrix product, a key of ``Gpu.peak_flops_per_s``.
    group_elements
        Elements of one row that share a scale; 0: one scale an output channel or a tensor [element].
    group_rows
        Rows that share a scale (128 in a 128 x 128 block) [row].
    scale_bits
        Bits of a scale [bit].
    zero_bits
        Bits of a zero point [bit].
    note
        What the name leaves unsaid.
    """

    name: str
    element_bits: float
    compute_dtype: str
    group_elements: int = 0
    group_rows: int = 1
    scale_bits: float = 0.0
    zero_bits: float = 0.0
    note: str = ""

    @property
    def bits_per_weight(self) -> float:
        """Bits a weight with its share of scales and zero points. [bit]"""
        if not self.group_elements:
            return self.element_bits
        shared = self.scale_bits + self.zero_bits
        return self.element_bits + shared / (self.group_elements * self.group_rows)

    @property
    def bytes_per_weight(self) -> float:
        """Bytes a weight with its share of scales and zero points. [B]"""
        return self.bits_per_weight / 8

    def matrix_bytes(self, inputs: int, outputs: int) -> float:
        """Bytes of one matrix, partial groups rounded up. [B]

        Parameters
        ----------
        inputs
            Length of a row, the dimension that is summed over [element].
        outputs
            Number of rows [element].
        """
        elements = inputs * outputs * self.element_bits
        shared = self.scale_bits + self.zero_bits
        if not shared:
            return elements / 8
        across = -(-inputs // self.group_elements) if self.group_elements else 1
        return (elements + across * -(-outputs // self.group_rows) * shared) / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class KvFormat:
    """How one element of the KV cache is stored.

    Parameters
    ----------
    name
        The name it goes by.
    bits_per_element
        Bits an element, scales included [bit].
    compute_dtype
        Number type of the attention products.
    """

    name: str
    bits_per_element: float
    compute_dtype: str = "bf16"

    @property
    def bytes_per_element(self) -> float:
        """Bytes an element, scales included. [B]"""
        return self.bits_per_element / 8


def _plain(name: str, bits: float, compute: str) -> WeightFormat:
    return WeightFormat(name=name, element_bits=bits, compute_dtype=compute)


def _grouped(name: str, bits: float, compute: str, group: int, scale: float, **more: float) -> WeightFormat:
    return WeightFormat(
        name=name,
        element_bits=bits,
        compute_dtype=compute,
        group_elements=group,
        scale_bits=scale,
        group_rows=int(more.get("rows", 1)),
        zero_bits=more.get("zero", 0.0),
    )


_WEIGHTS: dict[str, WeightFormat] = {
    entry.name: entry
    for entry in (
        _plain("fp32", 32, "fp32"),
        _plain("bf16", 16, "bf16"),
        _plain("fp16", 16, "fp16"),
        _plain("fp8", 8, "fp8"),
        _grouped("fp8_channel", 8, "fp8", 0, 32),
        _grouped("fp8_block", 8, "fp8", 128, 32, rows=128),
        _grouped("fp8_block_ue8m0", 8, "fp8", 128, 8, rows=128),
        _grouped("mxfp8", 8, "fp8", 32, 8),
        _plain("fp8_w8a16", 8, "bf16"),
        _grouped("int8", 8, "int8", 0, 16),
        _grouped("int8_w8a16", 8, "bf16", 0, 16),
        _grouped("int4", 4, "bf16", 128, 16, zero=4),
        _grouped("nvfp4", 4, "fp4", 16, 8),
        _grouped("nvfp4_w4a16", 4, "bf16", 16, 8),
        _grouped("mxfp4", 4, "bf16", 32, 8),
        _grouped("mxfp4_a4", 4, "fp4", 32, 8),
        _grouped("mxfp6", 6, "bf16", 32, 8),
        _grouped("nf4", 4, "bf16", 64, 8.125),
        _plain("bnb_int8", 8, "int8"),
        _grouped("q8_0", 8, "bf16", 32, 16),
        _grouped("q4_0", 4, "bf16", 32, 16),
        _grouped("q4_1", 4, "bf16", 32, 32),
        _grouped("q5_0", 5, "bf16", 32, 16),
        _grouped("q5_1", 5, "bf16", 32, 32),
        _grouped("iq4_nl", 4, "bf16", 32, 16),
        _plain("iq4_xs", 4.25, "bf16"),
        _plain("q2_k", 2.625, "bf16"),
        _plain("q3_k", 3.4375, "bf16"),
        _plain("q4_k", 4.5, "bf16"),
        _plain("q5_k", 5.5, "bf16"),
        _plain("q6_k", 6.5625, "bf16"),
        # Mixtures: mean over the tensors of an 8B Llama, llama.cpp quantize README.
        _plain("q2_k_s", 2.97, "bf16"),
        _plain("q3_k_s", 3.64, "bf16"),
        _plain("q3_k_m", 4.00, "bf16"),
        _plain("q3_k_l", 4.30, "bf16"),
        _plain("q4_k_s", 4.67, "bf16"),
        _plain("q4_k_m", 4.89, "bf16"),
        _plain("q5_k_s", 5.57, "bf16"),
        _plain("q5_k_m", 5.70, "bf16"),
    )
}

#: Other spellings people and files use.
_ALIASES = {
    "bfloat16": "bf16", "half": "fp16", "float16": "fp16", "f16": "fp16", "float": "fp32", "float32": "fp32",
    "f32": "fp32", "float8": "fp8", "fp8_e4m3": "fp8", "fp8_e4m3fn": "fp8", "float8_e4m3fn": "fp8",
    "fp8_e5m2": "fp8", "f8": "fp8", "w8a8_fp8": "fp8", "fp8_dynamic": "fp8_channel", "fp8_pc_pt": "fp8_channel",
    "fp8_pb_wo": "fp8_block", "fp8_pb_real": "fp8_block", "w8a8": "int8", "int8_w8a8": "int8", "i8": "int8",
    "w8a8_int8": "int8", "smoothquant": "int8", "w8a16": "int8_w8a16", "i4": "int4", "gptq": "int4",
    "awq": "int4", "gptq_int4": "int4", "awq_int4": "int4", "w4a16": "int4", "w4a16_awq": "int4",
    "int4_awq": "int4", "int4_wo": "int4", "int8_wo": "int8_w8a16", "fp4": "nvfp4", "w4a4": "nvfp4",
    "w4a16_nvfp4": "nvfp4_w4a16", "nvfp4_awq": "nvfp4", "mxfp4_w4a16": "mxfp4", "bnb": "nf4",
    "bitsandbytes": "nf4", "bnb_4bit": "nf4", "int4_bnb": "nf4", "gguf": "q4_k_m", "q8": "q8_0",
    "w4afp8": "int4", "int4_g128": "int4",
}  # fmt: skip

_KV: dict[str, KvFormat] = {
    entry.name: entry
    for entry in (
        KvFormat(name="fp32", bits_per_element=32, compute_dtype="fp32"),
        KvFormat(name="bf16", bits_per_element=16),
        KvFormat(name="fp16", bits_per_element=16, compute_dtype="fp16"),
        KvFormat(name="fp8", bits_per_element=8, compute_dtype="fp8"),
        KvFormat(name="int8", bits_per_element=8),
        KvFormat(name="int4", bits_per_element=4.125),
        KvFormat(name="nvfp4", bits_per_element=4.5, compute_dtype="fp8"),
        KvFormat(name="mxfp4", bits_per_element=4.25),
    )
}
_KV_ALIASES = {
    "auto": "bf16", "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8", "fp8_inc": "fp8", "float8_e4m3fn": "fp8", "fp8_ds_mla": "fp8", "e4m3": "fp8", "fp4": "nvfp4",
    "i8": "int8", "i4": "int4",
}  # fmt: skip

_PATTERN = re.compile(r"(?:int|uint|w)(?P<bits>[2-8])(?:a16)?_g(?P<group>\d{1,5})(?P<symmetric>_sym)?")
_CHANNEL = re.compile(r"(?:int|uint|w)(?P<bits>[2-8])(?:a16)?_channel")


def _spelling(name: object, what: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"a {what} is a name such as 'bf16' or 'fp8', got {name!r}")
    return name.strip().lower().replace("-", "_").replace(".", "_").replace(" ", "_")


@lru_cache(maxsize=256)
def weight_format(name: str) -> WeightFormat:
    """Weight format of that name.

    Parameters
    ----------
    name
        ``bf16``, ``fp8``, ``fp8_block``, ``int4``, ``int4_g32``, ``int4_g128_sym``, ``nvfp4``, ``mxfp4``,
        ``nf4``, ``q4_k_m``, ... in any case, with ``-`` or ``_``.

    Raises
    ------
    InputError
        No such format; the message names the nearest.
    """
    spelled = _spelling(name, "weight format")
    known = _WEIGHTS.get(_ALIASES.get(spelled, spelled))
    if known is not None:
        return known
    match = _PATTERN.fullmatch(spelled)
    if match and int(match["group"]):
        bits, group = int(match["bits"]), int(match["group"])
        zero = 0.0 if match["symmetric"] else float(bits)
        return _grouped(spelled, bits, "bf16", group, 16, zero=zero)
    if match := _CHANNEL.fullmatch(spelled):
        return _grouped(spelled, int(match["bits"]), "bf16", 0, 16)
    names = (*_WEIGHTS, *_ALIASES)
    raise InputError(
        f"no weight format {name!r}; choose one of {', '.join(_WEIGHTS)}, or int4_g32, int4_g128_sym and the like"
        f"{nearest(spelled, names)}"
    )


@lru_cache(maxsize=64)
def kv_format(name: str) -> KvFormat:
    """KV cache format of that name (``bf16``, ``fp8``, ``int8``, ``nvfp4``, ...).

    Raises
    ------
    InputError
        No such format; the message names the nearest.
    """
    spelled = _spelling(name, "KV format")
    known = _KV.get(_KV_ALIASES.get(spelled, spelled))
    if known is not None:
        return known
    raise InputError(f"no KV format {name!r}; choose one of {', '.join(_KV)}{nearest(spelled, _KV)}")


def weight_formats() -> tuple[str, ...]:
    """Names of the weight formats."""
    return tuple(_WEIGHTS)


def kv_formats() -> tuple[str, ...]:
    """Names of the KV cache formats."""
    return tuple(_KV)
