"""Attention cores of decode and prefill with grouped heads."""

import numpy as np
from numpy.typing import ArrayLike

from sizing.calibration import Calibration, Decode, Prefill
from sizing.catalog import Gpu
from sizing.roofline.smooth import CACHE_GAIN, CACHE_SHARE, Seconds, in_cache, peak_16_bit, smooth_max, smooth_max_of

KEY_TILE = 128.0
"""Keys a kernel takes at a time. [token]"""


def decode_core_s(
    traffic: ArrayLike,
    flops: ArrayLike,
    units: ArrayLike,
    mean_context: ArrayLike,
    narrow: ArrayLike,
    gpu: Gpu,
    c: Decode,
    resident: bool,
) -> Seconds:
    """Time of a decode core from its traffic, operations and independent units of work.

    ``smooth max(fixed, smooth max(memory, compute, context, waves))``: a sequence's context is walked in parts
    that can't all run at once, and units beyond one a multiprocessor come in waves.

    Parameters
    ----------
    traffic, flops
        Bytes moved and operations [B], [FLOP].
    units
        Sequences times KV heads [1].
    mean_context
        Tokens in the cache of one sequence [token].
    narrow
        1 where the cache has one byte an element and query heads share it, else 0 [1].
    gpu, c
        The accelerator and its constants.
    resident
        Whether the bytes may still be in L2 from the call before.

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    moved = np.asarray(traffic, dtype=float)
    if resident:
        moved = moved * (1.0 - in_cache(moved, gpu, CACHE_SHARE) * (1.0 - 1.0 / CACHE_GAIN))
    processors = float(gpu.sm_count or 100)
    factor = 1.0 + np.asarray(narrow) * (c.narrow - 1.0)
    memory_s = moved / (c.memory_fraction * gpu.memory_bandwidth_bytes_per_s)
    compute_s = np.asarray(flops) / (c.compute_fraction * peak_16_bit(gpu))
    waves_s = c.unit_s * (np.ceil(np.asarray(units) / processors) - 1.0) * factor
    context_s = c.context_s * np.asarray(mean_context)
    busy_s = smooth_max_of((memory_s, compute_s, context_s, np.maximum(waves_s, 0.0)), 3.0)
    return np.asarray(c.scale * smooth_max(c.fixed_s * factor, busy_s, c.smoothness))


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
    resident: bool = False,
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
    resident
        Whether the cache may still be in L2 from the call before (a microbenchmark).

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    batch, context = np.asarray(batch, dtype=float), np.asarray(context_tokens, dtype=float)
    heads, kv_heads = np.asarray(heads, dtype=float), np.asarray(kv_heads, dtype=float)
    kv_bytes, width = np.asarray(kv_bytes, dtype=float), np.asarray(head_dim, dtype=float)
    width = width + (width if value_dim is None else np.asarray(value_dim, dtype=float))
    c = cal.decode("attention_decode")
    traffic = context * kv_heads * width * kv_bytes
    flops = 2.0 * context * heads * width
    if cal.ideal:
        bandwidth = c.memory_fraction * gpu.memory_bandwidth_bytes_per_s
        return smooth_max(traffic / bandwidth, flops / (c.compute_fraction * peak_16_bit(gpu)), c.smoothness)
    return decode_core_s(
        traffic + 2.0 * batch * heads * width, flops, batch * kv_heads, context / np.maximum(batch, 1.0),
        (kv_bytes < 2.0) & (kv_heads < heads), gpu, c, resident,
    )  # fmt: skip


def prefill_core_s(
    tokens: ArrayLike,
    pairs: ArrayLike,
    sequences: ArrayLike,
    heads: ArrayLike,
    kv_heads: ArrayLike,
    width: ArrayLike,
    moved_bytes: ArrayLike,
    narrow: ArrayLike,
    gpu: Gpu,
    c: Prefill,
) -> Seconds:
    """Time of a causal core: query tiles that each walk their keys, in waves, plus the traffic.

    A tile of ``q`` query rows costs ``2 q (keys + ramp) width`` operations, ``keys`` its mean number of keys
    with the masked half of the diagonal; the longest tile is a lower bound.

    Parameters
    ----------
    tokens, pairs, sequences
        As for :func:`attention_prefill_s`.
    heads, kv_heads
        Query and KV heads on this GPU [head].
    width
        Width of a query head and a value head together [element].
    moved_bytes
        Queries, outputs, keys and values [B].
    narrow
        1 where the cache has one byte an element, else 0 [1].
    gpu, c
        The accelerator and its constants.

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    tokens, pairs, heads, kv_heads = (np.asarray(x, dtype=float) for x in (tokens, pairs, heads, kv_heads))
    sequences = np.maximum(np.asarray(sequences, dtype=float), 1e-9)
    each = np.maximum(tokens / sequences, 1.0)
    share = np.where(np.asarray(c.packed) > 0.5, heads / kv_heads, 1.0)
    rows = np.ceil(each * share / c.tile_rows)
    tiles = sequences * heads / share * rows
    mean_keys = pairs / np.maximum(tokens, 1.0) - 0.5
    keys = np.maximum(mean_keys + KEY_TILE / 2.0, np.minimum(KEY_TILE, np.ceil(each / KEY_TILE) * KEY_TILE))
    longest = mean_keys + each / 2.0
    processors = float(gpu.sm_count or 100)
    filling = processors * np.ceil(tiles / processors) / tiles
    factor = 1.0 + np.asarray(narrow) * (c.narrow - 1.0)
    rate = c.compute_fraction * peak_16_bit(gpu)
    tile_flops = 2.0 * np.asarray(width) * c.tile_rows * factor
    compute_s = tile_flops * tiles * (keys + c.ramp_tokens) / rate * filling**c.wave_exponent
    longest_s = tile_flops * (longest + c.ramp_tokens) / (rate / processors)
    moved_s = np.asarray(moved_bytes) / (c.memory_fraction * gpu.memory_bandwidth_bytes_per_s)
    busy_s = smooth_max(compute_s, longest_s, 4.0) + moved_s + c.token_s * tokens
    return np.asarray(c.scale * (c.fixed_s + busy_s))


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
    kv_bytes = np.asarray(kv_bytes, dtype=float)
    c = cal.prefill("attention_prefill")
    each = tokens / np.maximum(sequences, 1e-9)
    history = np.maximum(pairs / np.maximum(each, 1.0) - tokens / 2.0, 0.0)
    moved = 2.0 * tokens * heads * width + kv_heads * width * (tokens * (2.0 + kv_bytes) + history * kv_bytes)
    if cal.ideal:
        return smooth_max(
            moved / (c.memory_fraction * gpu.memory_bandwidth_bytes_per_s),
            2.0 * pairs * heads * width / (c.compute_fraction * peak_16_bit(gpu)),
            c.smoothness,
        )
    return prefill_core_s(tokens, pairs, sequences, heads, kv_heads, width, moved, kv_bytes < 2.0, gpu, c)
