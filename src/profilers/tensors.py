"""Random data, quantised operands and errors against FP32.

Formats: OCP 8-bit floating point (E4M3); NVFP4 as in NVIDIA's cuBLAS documentation, "1D block scaling": 16
elements share an E4M3 scale, scales stored in tiles of 128 rows by 4 columns.
"""

from collections.abc import Sequence

import torch

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0
FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Magnitudes of E2M1, by code."""


def random(shape: Sequence[int], device: torch.device, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Normal data of standard deviation 1, made in FP32 only as far as memory is small."""
    if dtype in (torch.bfloat16, torch.float16, torch.float32):
        return torch.randn(*shape, device=device, dtype=dtype)
    return torch.randn(*shape, device=device, dtype=torch.bfloat16).to(dtype)


def error(measured: torch.Tensor, reference: torch.Tensor) -> float:
    """Largest absolute error relative to the largest reference value; infinite where not finite. [1]"""
    measured, reference = measured.float(), reference.float()
    if not bool(torch.isfinite(measured).all()):
        return float("inf")
    largest = float(reference.abs().max())
    return float((measured - reference).abs().max()) / max(largest, 1e-20)


def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """``x @ weight.T`` in FP32, some rows at a time so that a large check does not need much memory."""
    weight = weight.float()
    return torch.cat([rows.float() @ weight.t() for rows in x.split(1024)])


def to_fp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise to E4M3 with one scale; ``x = q * scale``."""
    scale = x.abs().max().float().clamp(min=1e-12) / FP8_MAX
    return (x.float() / scale).clamp(-FP8_MAX, FP8_MAX).to(FP8), scale


def to_fp8_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise to E4M3 with a scale a row, shape ``[rows, 1]``."""
    scale = x.abs().amax(dim=1, keepdim=True).float().clamp(min=1e-12) / FP8_MAX
    return (x.float() / scale).clamp(-FP8_MAX, FP8_MAX).to(FP8), scale


def to_fp4(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Quantise to NVFP4: packed codes (two a byte, the lower four bits first), E4M3 scales, dequantised values.

    Parameters
    ----------
    x
        Matrix with rows of a multiple of 16.
    """
    rows, columns = x.shape
    blocks = x.float().view(rows, columns // 16, 16)
    scale = (blocks.abs().amax(dim=2) / 6.0).clamp(min=2**-9, max=FP8_MAX).to(FP8)
    scaled = blocks / scale.float().unsqueeze(2)
    table = torch.tensor(FP4_VALUES, device=x.device)
    middles = (table[1:] + table[:-1]) / 2
    code = torch.bucketize(scaled.abs().contiguous(), middles)
    value = table[code] * scaled.sign() * scale.float().unsqueeze(2)
    bits = (code + 8 * (scaled < 0)).to(torch.uint8).view(rows, columns)
    packed = bits[:, 0::2] | (bits[:, 1::2] << 4)
    return packed.contiguous(), scale, value.view(rows, columns)


def swizzled(scale: torch.Tensor) -> torch.Tensor:
    """Block scales in the order that the tensor cores read: tiles of 128 x 4, each stored as 32 x 16."""
    rows, columns = scale.shape
    up, across = -(-rows // 128), -(-columns // 4)
    padded = torch.zeros(up * 128, across * 4, dtype=torch.uint8, device=scale.device)
    padded[:rows, :columns] = scale.view(torch.uint8)
    tiles = padded.view(up, 128, across, 4).permute(0, 2, 1, 3)
    order = tiles.reshape(-1, 4, 32, 4).transpose(1, 2).reshape(-1, 32, 16)
    return order.flatten().view(FP8)


def to_int4(weight: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Quantise to 4 bits, a scale and zero point a group: codes, ``[k/group, n, 2]`` scales, dequantised values.

    torch's kernel stands for ``(code - 8) * scale + zero``.

    Parameters
    ----------
    weight
        Matrix ``[n, k]``.
    group
        Elements of a row that share a scale. [element]
    """
    n, k = weight.shape
    blocks = weight.float().view(n, k // group, group)
    low, high = blocks.amin(dim=2), blocks.amax(dim=2)
    scale = ((high - low) / 15.0).clamp(min=1e-6).to(torch.bfloat16).float()
    zero = (low + 8.0 * scale).to(torch.bfloat16).float()
    codes = ((blocks - zero.unsqueeze(2)) / scale.unsqueeze(2) + 8.0).round().clamp(0, 15)
    value = (codes - 8.0) * scale.unsqueeze(2) + zero.unsqueeze(2)
    scales = torch.stack([scale.t(), zero.t()], dim=2).to(torch.bfloat16).contiguous()
    return codes.to(torch.int32).view(n, k), scales, value.view(n, k)
