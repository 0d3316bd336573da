"""Matrix products: tiles, waves, split depth, and the quantisation of the input."""

import functools
import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from sizing.calibration import Calibration, Gemm
from sizing.catalog import Gpu
from sizing.formats import weight_format
from sizing.roofline.smooth import CACHE_GAIN, CACHE_SHARE, Seconds, in_cache, peak_16_bit, smooth_max, smooth_max_of

TILES = ((64.0, 64.0), (128.0, 128.0), (256.0, 128.0))
"""Output tiles a library chooses from: rows, columns. [element]"""
SPLITS = (1.0, 4.0, 16.0)
"""Parts that the depth of a tile is split into. [1]"""
CHOICES = np.array([(rows, columns, parts) for parts in SPLITS for rows, columns in TILES])
LARGE = 4096
"""Array size above which the choices are not stacked. [1]"""
BATCHED_FIXED = 1.8
"""Fixed cost of a batched product over that of one product. [1]"""
SMALL_TILE_COST = 0.25
"""Loss of rate of a 64 x 64 tile to feeding its operands, times 5/4. [1]"""
QUANTISES = ("fp8", "fp8_block", "nvfp4")
"""Kernel formats whose input is quantised in front of the product."""
FUSES = {"vllm": ("fp8",)}
"""Of those, formats that an engine's served models quantise in the norm or activation before, not in a kernel of
their own, by engine; vLLM's compiled graphs do so for one scale a tensor, not for NVFP4."""
ALL_FUSED = ("fp8", "nvfp4")
"""The same for engines that :data:`FUSES` does not name: every format that has one scale a tensor."""
TRAFFIC_OF_QUANTISING = 3.0
"""Bytes moved to quantise one 16-bit input element: read two, write one. [B]"""


@lru_cache(maxsize=512)
def _kernel(weights: str, has: tuple[str, ...]) -> tuple[str, str, float]:
    """Kernel format, peak it is held against, and bytes per weight."""
    known = weight_format(weights)
    compute, size = known.compute_dtype, known.bytes_per_weight
    if compute == "fp4" and "fp4" in has:
        return "nvfp4", "fp4", size
    if compute == "fp8" and "fp8" in has:
        return ("fp8_block" if known.group_elements else "fp8"), "fp8", size
    if compute == "int8" and "int8" in has:
        return "int8", "int8", size
    peak = next((name for name in ("bf16", "fp16", "fp32") if name in has), "bf16")
    if size >= 1.9:
        return "bf16", ("fp32" if compute == "fp32" and "fp32" in has else peak), size
    return ("int8_weight" if size > 0.9 else "int4_weight"), peak, size


def kernel_format(weights: str, gpu: Gpu) -> tuple[str, float, float]:
    """Which kernel a weight format runs on this GPU.

    A format that the GPU has no tensor type for runs as weight-only: unpacked to 16 bits on the way.

    Parameters
    ----------
    weights
        Weight format, a name of :mod:`sizing.formats`.
    gpu
        The accelerator.

    Returns
    -------
    tuple
        Kernel format (:data:`sizing.calibration.KERNEL_FORMATS`), dense peak [FLOP/s], bytes per weight [B].
    """
    name, peak, size = _kernel(weights, tuple(gpu.peak_flops_per_s))
    peaks = gpu.peak_flops_per_s
    return name, peaks[peak] if peak in peaks else max(peaks.values()), size


def _tiled_s(
    m: Seconds, n: Seconds, k: Seconds, size: float, peak: float, gpu: Gpu, c: Gemm, quantised: bool
) -> Seconds:
    """Least time over tiles and splits of the depth.

    For tiles of ``r x s`` and the depth in ``d`` parts, on P multiprocessors::

        waves    = ceil(ceil(m/r) ceil(n/s) d / P)
        compute  = 2 r s tiles (k + d ramp) / (f F) * (waves P / (tiles d))^w * (1 + h (64/r + 64/s - 3/4))
        depth    = bytes of one row of weights x depth_s / d      one tile's loop can't run faster
        memory   = (weights + inputs + outputs + partial sums) / (f BW)
        time     = smooth max(memory, depth, compute) + (d > 1) split_s

    The choices are one more array axis in front; a large array takes them one after the other.
    """
    shape = np.broadcast_shapes(*(np.shape(x) for x in (m, n, k, c.compute_fraction, c.memory_fraction)))
    if math.prod(shape) > LARGE:
        each = (_choice_s(choice, m, n, k, size, peak, gpu, c, quantised) for choice in CHOICES)
        return functools.reduce(np.minimum, each)
    front = CHOICES.T.reshape((3, len(CHOICES)) + (1,) * len(shape))
    return np.asarray(_choice_s(front, m, n, k, size, peak, gpu, c, quantised).min(axis=0))


def _choice_s(
    choice: Seconds, m: Seconds, n: Seconds, k: Seconds, size: float, peak: float, gpu: Gpu, c: Gemm, quantised: bool
) -> Seconds:
    """Time with one choice of rows, columns and parts, or with all of them along the first axis."""
    rows, columns, parts = choice
    bandwidth = c.memory_fraction * gpu.memory_bandwidth_bytes_per_s
    moved = n * k * size + m * k * (size if quantised else 2.0) + 2.0 * m * n
    processors = float(gpu.sm_count or 100)
    tiles = np.ceil(m / rows) * np.ceil(n / columns)
    blocks = tiles * parts
    filling = processors * np.ceil(blocks / processors) / blocks
    feed = 1.0 + SMALL_TILE_COST * (64.0 / rows + 64.0 / columns - 0.75)
    compute_s = 2.0 * rows * columns * feed * tiles * filling**c.wave_exponent / (c.compute_fraction * peak)
    compute_s = compute_s * (k + c.ramp_bytes / size * parts)
    split = parts > 1.0
    memory_s = (moved + np.where(split, 8.0 * parts, 0.0) * (m * n)) / bandwidth
    time_s = smooth_max_of((memory_s, k * size * c.depth_s / parts, compute_s), c.smoothness)
    return np.asarray(time_s + np.where(split, c.split_s, 0.0))


def gemm_s(
    m: ArrayLike, n: ArrayLike, k: ArrayLike, weights: str, gpu: Gpu, cal: Calibration, *, fused: bool = False
) -> Seconds:
    """Time of ``y[m, n] = x[m, k] W[k, n]``, quantising its input where the format asks for it.

    Smooth maximum of three ceilings (memory, compute with tiles and waves, depth of one tile's loop), the
    least over the tiles and splits of a library, plus a fixed cost; formats that quantise the input add
    ``max(m row_s, 3 m k / (f BW))``. See ``docs/explanation/kernels.md``.

    Parameters
    ----------
    m
        Tokens [token].
    n, k
        Outputs and inputs on this GPU [element].
    weights
        Weight format, a name of :mod:`sizing.formats`.
    gpu, cal
        The accelerator and its constants.
    fused
        Whether the kernel before writes its output quantised where a format allows it, as served models do;
        tables of single calls hold a kernel of its own for it.

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    kind, peak, size = kernel_format(weights, gpu)
    c = cal.gemm(kind)
    m, n, k = (np.asarray(x, dtype=float) for x in (m, n, k))
    bandwidth = gpu.memory_bandwidth_bytes_per_s
    if cal.ideal:
        return smooth_max(
            n * k * size / (c.memory_fraction * bandwidth),
            2.0 * m * n * k / (c.compute_fraction * peak),
            c.smoothness,
        )
    quantised = kind in QUANTISES
    alone = quantised and not (fused and kind in FUSES.get(cal.engine, ALL_FUSED))
    fixed_s = c.fixed_s if alone or not quantised else np.minimum(cal.gemm("bf16").fixed_s, c.fixed_s)
    time_s = fixed_s + _tiled_s(m, n, k, size, peak, gpu, c, quantised)
    if alone:
        moved_s = TRAFFIC_OF_QUANTISING * m * k / (c.quantise_fraction * bandwidth)
        time_s = time_s + np.maximum(m * c.quantise_row_s, moved_s)
    return np.asarray(c.scale * time_s)


def batched_gemm_s(
    batches: ArrayLike,
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    gpu: Gpu,
    cal: Calibration,
    *,
    resident: bool = False,
) -> Seconds:
    """Time of ``batches`` products ``[m, k] x [k, n]`` in 16 bits in one call (MLA's absorbed projections).

    ``1.8 fixed + smooth max(memory, compute)`` with the constants of the 16-bit matrix product; rows padded to 64.

    Parameters
    ----------
    batches
        Products, such as query heads on this GPU [1].
    m, n, k
        Tokens, outputs, inputs of each [element].
    gpu, cal
        The accelerator and its constants.
    resident
        Whether the bytes may still be in L2 from the call before (a microbenchmark).

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    c = cal.gemm("bf16")
    batches, m, n, k = (np.asarray(x, dtype=float) for x in (batches, m, n, k))
    bandwidth = c.memory_fraction * gpu.memory_bandwidth_bytes_per_s
    moved = 2.0 * batches * (n * k + m * (n + k))
    if cal.ideal:
        compute_s = 2.0 * batches * m * n * k / (c.compute_fraction * peak_16_bit(gpu))
        return smooth_max(2.0 * batches * n * k / bandwidth, compute_s, c.smoothness)
    if resident:
        moved = moved * (1.0 - in_cache(moved, gpu, CACHE_SHARE) * (1.0 - 1.0 / CACHE_GAIN))
    rows = np.ceil(m / 64.0) * 64.0
    compute_s = 2.0 * batches * rows * n * (k + c.ramp_bytes / 2.0) / (c.compute_fraction * peak_16_bit(gpu))
    busy_s = smooth_max(moved / bandwidth, compute_s, c.smoothness)
    return np.asarray(c.scale * (BATCHED_FIXED * c.fixed_s + busy_s))
