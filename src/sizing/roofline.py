"""Time of one operation on one GPU: a smooth roofline with tiles, waves and a fixed cost.

Every function takes scalars or arrays (numpy broadcasting) and gives seconds; constants that carry draws put
the draw axis first. Nothing here knows a model or an engine. Shapes are per GPU, after sharding.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sizing.calibration import Attention, Calibration
from sizing.catalog import Gpu
from sizing.formats import weight_format

Seconds = NDArray[np.float64]
TILE = 128.0
"""Rows and columns of the usual tile of a matrix product. [element]"""


def smooth_max(a: ArrayLike, b: ArrayLike, exponent: ArrayLike) -> Seconds:
    """``(a^p + b^p)^(1/p)`` without overflow; an infinite exponent gives the maximum."""
    large = np.maximum(a, b)
    small = np.minimum(a, b)
    ratio = small / np.maximum(large, 1e-300)
    return np.asarray(large * (1.0 + ratio ** np.asarray(exponent)) ** (1.0 / np.asarray(exponent)))


@lru_cache(maxsize=512)
def _kernel(weights: str, has: tuple[str, ...]) -> tuple[str, str, float]:
    """Kernel format, peak it is held against, and bytes per weight."""
    known = weight_format(weights)
    compute, size = known.compute_dtype, known.bytes_per_weight
    if compute == "fp4" and "fp4" in has:
        return "nvfp4", "fp4", size
    if compute == "fp8" and "fp8" in has:
        return ("fp8_block" if known.group_elements == 128 else "fp8"), "fp8", size
    if compute == "int8" and "int8" in has:
        return "int8", "int8", size
    peak = next((name for name in ("bf16", "fp16", "fp32") if name in has), "bf16")
    if size >= 1.9:
        return "bf16", ("fp32" if compute == "fp32" else peak), size
    return ("int8_weight" if size > 0.9 else "int4_weight"), peak, size


def kernel_format(weights: str, gpu: Gpu) -> tuple[str, float, float]:
    """Which kernel a weight format runs on this GPU.

    Returns
    -------
    tuple
        Kernel format (:data:`sizing.calibration.KERNEL_FORMATS`), dense peak [FLOP/s], bytes per weight [B].
        A format that the GPU has no tensor type for runs as weight-only: unpacked to 16 bits.
    """
    name, peak, size = _kernel(weights, tuple(gpu.peak_flops_per_s))
    return name, gpu.peak_flops_per_s[peak], size


def gemm_s(m: ArrayLike, n: ArrayLike, k: ArrayLike, weights: str, gpu: Gpu, cal: Calibration) -> Seconds:
    """Time of ``y[m, n] = x[m, k] W[k, n]``, quantising its input where the format asks for it.

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

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    kind, peak, weight_bytes = kernel_format(weights, gpu)
    c = cal.gemm(kind)
    m, n, k = (np.asarray(x, dtype=float) for x in (m, n, k))
    bandwidth = gpu.memory_bandwidth_bytes_per_s
    if cal.ideal:
        return smooth_max(
            n * k * weight_bytes / (c.memory_fraction * bandwidth),
            2.0 * m * n * k / (c.compute_fraction * peak),
            c.smoothness,
        )
    memory_s = (n * k * weight_bytes + 2.0 * m * (n + k)) / (c.memory_fraction * bandwidth)
    rows = np.ceil(m / TILE)
    tiles = rows * np.ceil(n / TILE)
    filled = tiles / (gpu.sm_count * np.ceil(tiles / gpu.sm_count))
    compute_s = 2.0 * rows * TILE * n * (k + c.ramp_k) / (c.compute_fraction * peak * filled**c.wave_exponent)
    return np.asarray(c.scale * (c.fixed_s + smooth_max(memory_s, compute_s, c.smoothness)))


def batched_gemm_s(
    batches: ArrayLike, m: ArrayLike, n: ArrayLike, k: ArrayLike, gpu: Gpu, cal: Calibration
) -> Seconds:
    """Time of ``batches`` products ``[m, k] x [k, n]`` in 16 bits in one call (MLA's absorbed projections).

    Parameters
    ----------
    batches
        Products, such as query heads on this GPU [1].
    m, n, k
        Tokens, outputs, inputs of each [element].
    gpu, cal
        The accelerator and its constants.

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    batches = np.asarray(batches, dtype=float)
    return gemm_s(m, batches * np.asarray(n, dtype=float), k, "bf16", gpu, cal)


def distinct_experts(tokens: ArrayLike, experts: ArrayLike, top_k: ArrayLike) -> NDArray[np.float64]:
    """Expected experts touched by some tokens under even routing: ``E (1 - (1 - k/E)^m)``. [expert]

    Parameters
    ----------
    tokens
        Tokens [token].
    experts
        Routed experts of the layer [expert].
    top_k
        Experts a token goes to [expert].
    """
    experts = np.asarray(experts, dtype=float)
    share = np.minimum(np.asarray(top_k, dtype=float) / experts, 1.0 - 1e-12)
    return np.asarray(experts * -np.expm1(np.asarray(tokens, dtype=float) * np.log1p(-share)))


def moe_s(
    tokens: ArrayLike,
    hidden: ArrayLike,
    intermediate: ArrayLike,
    experts: ArrayLike,
    top_k: ArrayLike,
    weights: str,
    gpu: Gpu,
    cal: Calibration,
    *,
    local_experts: ArrayLike | None = None,
    matrices: float = 3.0,
    skew: float = 1.0,
) -> Seconds:
    """Time of the fused experts (gate, up, down) on one GPU, router left out.

    Parameters
    ----------
    tokens
        Tokens into the expert-parallel group, before routing [token].
    hidden, intermediate
        Width of the model, and of one expert on this GPU [element].
    experts, top_k
        Routed experts of the layer, and how many a token goes to [expert].
    weights
        Weight format, a name of :mod:`sizing.formats`.
    gpu, cal
        The accelerator and its constants.
    local_experts
        Experts on this GPU (``experts / ep``); None: all [expert].
    matrices
        Matrices an expert has: 3 gated, 2 plain [1].
    skew
        Load of the busiest GPU of the group over the mean [1].

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    kind, peak, weight_bytes = kernel_format(weights, gpu)
    c = cal.moe(kind)
    tokens, hidden, intermediate = (np.asarray(x, dtype=float) for x in (tokens, hidden, intermediate))
    experts, top_k = np.asarray(experts, dtype=float), np.asarray(top_k, dtype=float)
    local = experts if local_experts is None else np.asarray(local_experts, dtype=float)
    rows = tokens * top_k * local / experts * skew
    touched = distinct_experts(tokens, experts, top_k) * local / experts
    bandwidth = c.memory_fraction * gpu.memory_bandwidth_bytes_per_s
    memory_s = touched * matrices * hidden * intermediate * weight_bytes / bandwidth
    compute_s = 2.0 * matrices * rows * hidden * intermediate / (c.compute_fraction * peak)
    if cal.ideal:
        return smooth_max(memory_s, compute_s, c.smoothness)
    return np.asarray(
        c.scale * (c.fixed_s + smooth_max(memory_s, compute_s, c.smoothness) + c.token_s * tokens)
    )


def _attention_s(
    c: Attention, traffic: ArrayLike, flops: ArrayLike, units: ArrayLike, gpu: Gpu, peak: float, ideal: bool
) -> Seconds:
    memory_s = np.asarray(traffic) / (c.memory_fraction * gpu.memory_bandwidth_bytes_per_s)
    compute_s = np.asarray(flops) / (c.compute_fraction * peak)
    if ideal:
        return smooth_max(memory_s, compute_s, c.smoothness)
    busy_s = smooth_max(c.fixed_s, smooth_max(memory_s, compute_s, 4.0), c.smoothness)
    return np.asarray(c.scale * (busy_s + c.head_s * np.asarray(units)))


def _peak16(gpu: Gpu) -> float:
    peaks = gpu.peak_flops_per_s
    return next((peaks[name] for name in ("bf16", "fp16", "fp32") if name in peaks), max(peaks.values()))


def attention_decode_s(
    batch: ArrayLike,
    context_tokens: ArrayLike,
    heads: ArrayLike,
    kv_heads: ArrayLike,
    head_dim: ArrayLike,
    kv_bytes: ArrayLike,
    gpu: Gpu,
    cal: Calibration,
    *,
    value_dim: ArrayLike | None = None,
) -> Seconds:
    """Time of one layer's decode attention: one new token a sequence against its cache.

    Parameters
    ----------
    batch
        Sequences that decode [sequence].
    context_tokens
        Tokens in the cache that they read, summed over sequences [token].
    heads, kv_heads
        Query and KV heads on this GPU [head].
    head_dim
        Width of a query and key head [element].
    kv_bytes
        Size of one cached element [B].
    gpu, cal
        The accelerator and its constants.
    value_dim
        Width of a value head; None: ``head_dim`` [element].

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    batch, context = np.asarray(batch, dtype=float), np.asarray(context_tokens, dtype=float)
    heads, width = np.asarray(heads, dtype=float), np.asarray(head_dim, dtype=float)
    width = width + (width if value_dim is None else np.asarray(value_dim, dtype=float))
    traffic = context * np.asarray(kv_heads, dtype=float) * width * np.asarray(kv_bytes, dtype=float)
    flops = 2.0 * context * heads * width
    return _attention_s(
        cal.attention("attention_decode"), traffic, flops, batch * heads, gpu, _peak16(gpu), cal.ideal
    )


def attention_prefill_s(
    tokens: ArrayLike,
    pairs: ArrayLike,
    heads: ArrayLike,
    kv_heads: ArrayLike,
    head_dim: ArrayLike,
    kv_bytes: ArrayLike,
    gpu: Gpu,
    cal: Calibration,
    *,
    value_dim: ArrayLike | None = None,
    sequences: ArrayLike = 1,
) -> Seconds:
    """Time of one layer's prefill attention, causal, with any history in the cache.

    Parameters
    ----------
    tokens
        New tokens of all sequences [token].
    pairs
        Query and key pairs that are not masked: the sum over sequences of ``q start + q (q + 1) / 2`` [1].
    heads, kv_heads, head_dim, kv_bytes, gpu, cal, value_dim
        As for :func:`attention_decode_s`.
    sequences
        Sequences that the tokens belong to [sequence].

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    tokens, pairs = np.asarray(tokens, dtype=float), np.asarray(pairs, dtype=float)
    heads, kv_heads, width = (np.asarray(x, dtype=float) for x in (heads, kv_heads, head_dim))
    width = width + (width if value_dim is None else np.asarray(value_dim, dtype=float))
    mean_new = tokens / np.maximum(sequences, 1.0)
    context = pairs / np.maximum(mean_new, 1.0) + tokens / 2.0
    traffic = tokens * heads * width * 2.0 + context * kv_heads * width * np.asarray(kv_bytes, dtype=float)
    flops = 2.0 * pairs * heads * width
    return _attention_s(
        cal.attention("attention_prefill"), traffic, flops, tokens * heads, gpu, _peak16(gpu), cal.ideal
    )


def mla_decode_s(
    batch: ArrayLike,
    context_tokens: ArrayLike,
    heads: ArrayLike,
    latent_dim: ArrayLike,
    rope_dim: ArrayLike,
    kv_bytes: ArrayLike,
    gpu: Gpu,
    cal: Calibration,
) -> Seconds:
    """Time of one layer's absorbed MLA decode, core only (the projections are matrix products).

    Parameters
    ----------
    batch, context_tokens, heads, kv_bytes, gpu, cal
        As for :func:`attention_decode_s`.
    latent_dim, rope_dim
        Width of the compressed cache and of its rotary part [element].

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    batch, context, heads = (np.asarray(x, dtype=float) for x in (batch, context_tokens, heads))
    latent, rope = np.asarray(latent_dim, dtype=float), np.asarray(rope_dim, dtype=float)
    traffic = context * (latent + rope) * np.asarray(kv_bytes, dtype=float)
    flops = 2.0 * context * heads * (2.0 * latent + rope)
    return _attention_s(
        cal.attention("mla_decode"), traffic, flops, batch * heads, gpu, _peak16(gpu), cal.ideal
    )


def mla_prefill_s(
    tokens: ArrayLike,
    pairs: ArrayLike,
    heads: ArrayLike,
    head_dim: ArrayLike,
    value_dim: ArrayLike,
    gpu: Gpu,
    cal: Calibration,
    *,
    sequences: ArrayLike = 1,
) -> Seconds:
    """Time of one layer's MLA prefill, core only, keys and values expanded (not absorbed).

    Parameters
    ----------
    tokens, pairs, heads, gpu, cal, sequences
        As for :func:`attention_prefill_s`.
    head_dim, value_dim
        Width of a query and key head (no-rope and rope part together) and of a value head [element].

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    tokens, pairs, heads = (np.asarray(x, dtype=float) for x in (tokens, pairs, heads))
    width = np.asarray(head_dim, dtype=float) + np.asarray(value_dim, dtype=float)
    mean_new = tokens / np.maximum(sequences, 1.0)
    context = pairs / np.maximum(mean_new, 1.0) + tokens / 2.0
    traffic = (tokens + context) * heads * width * 2.0
    return _attention_s(
        cal.attention("mla_prefill"), traffic, 2.0 * pairs * heads * width, tokens * heads, gpu,
        _peak16(gpu), cal.ideal,
    )  # fmt: skip


def elementwise_s(traffic_bytes: ArrayLike, gpu: Gpu, cal: Calibration, *, calls: ArrayLike = 1) -> Seconds:
    """Time of kernels that only move data: norms, activation, rotary embedding, quantise, sampling.

    Parameters
    ----------
    traffic_bytes
        Bytes read and written [B].
    gpu, cal
        The accelerator and its constants.
    calls
        Kernels launched [1].

    Returns
    -------
    numpy.ndarray
        Time [s]; zero under an ideal calibration.
    """
    traffic = np.asarray(traffic_bytes, dtype=float)
    if cal.ideal:
        return np.zeros_like(traffic)
    c = cal.elementwise
    moved = traffic / (c.memory_fraction * gpu.memory_bandwidth_bytes_per_s)
    return np.asarray(c.scale * (np.asarray(calls, dtype=float) * c.fixed_s + moved))
