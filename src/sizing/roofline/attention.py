"""Attention cores of decode and prefill with grouped heads."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sizing.calibration import Calibration, Decode, Prefill
from sizing.catalog import Gpu
from sizing.roofline.smooth import CACHE_GAIN, CACHE_SHARE, Seconds, in_cache, peak_16_bit, smooth_max, smooth_max_of

KEY_TILE = 128.0
"""Keys a kernel takes at a time. [token]"""
SPLIT_CONTEXT = 512.0
"""Context from which a sequence is walked in parts that a second kernel adds up. [token]"""
WHOLE_SHARE = 2.2
"""What a block that walks a whole cache alone reads of memory bandwidth, in fair shares of its multiprocessor: TPOT of
one user over context, NIM 1.0 on A100 and H100, 8B and 70B, TP 1 to 8 (12-16 and 8-10 ns a token and layer). [1]"""
WHOLE_NARROW = 1.2
"""A one-byte cache over a two-byte one there, per element: the same runs in FP8 and FP16 (10.4 and 8.2-9.5 ns). [1]"""
SHARED_GROUP, BLOCKS_PER_PROCESSOR = 8.0, 0.25
"""From how many query heads of a KV head, and how many sequences and KV heads for each multiprocessor, TensorRT-LLM
0.10 takes the kernel that shares a KV head (``kEnableMinBlockFactor`` of its decoderXQAConstants.h). [head], [1]"""
GROUP_COST = 0.025
"""Share that each further query head of a group adds to the cost of a unit; 0.01-0.04 in seven kernels. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeWork:
    """What one decode core has to do.

    Attributes
    ----------
    traffic, flops
        Bytes moved and operations [B], [FLOP].
    units
        Sequences times KV heads: what runs independently [1].
    group
        Query heads of a unit [head].
    mean_context
        Tokens in the cache of one sequence [token].
    narrow
        Whether a one-byte cache is read by another kernel than a two-byte one: query heads share it [1].
    unpacked
        Elements of a one-byte cache, else 0 [1].
    alone
        Whether no query heads share a two-byte cache [1].
    reordered
        Whether grouped heads of several sequences and KV heads are copied into place [1].
    """

    traffic: ArrayLike
    flops: ArrayLike
    units: ArrayLike
    group: ArrayLike
    mean_context: ArrayLike
    narrow: ArrayLike
    unpacked: ArrayLike = 0.0
    alone: ArrayLike = 0.0
    reordered: ArrayLike = 0.0


def decode_core_s(work: DecodeWork, gpu: Gpu, c: Decode, resident: bool) -> Seconds:
    """Time of a decode core: what starts and ends it, and the slowest of what overlaps.

    With U units on P multiprocessors, the heads of a group g, a context of L tokens::

        busy  = smooth max(memory, compute, context, waves)
        fixed = fixed_s x narrow + split_s x [U < P, L > 512] + reorder_s x [grouped, several]
        time  = smooth max(fixed, busy)

    A sequence's context is walked in parts that can't all run at once, and units beyond one a multiprocessor come
    in waves. ``split_s`` is the second kernel that adds up the parts: it fades from U = P/2 to 3 P/2 and over the
    first 512 tokens.

    Parameters
    ----------
    work
        What there is to do.
    gpu, c
        The accelerator and its constants.
    resident
        Whether the bytes may still be in L2 from the call before.

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    processors = float(gpu.sm_count or 100)
    context = np.asarray(work.mean_context, dtype=float)
    units, narrow = np.asarray(work.units, dtype=float), np.asarray(work.narrow, dtype=float)
    fixed_s = c.fixed_s * (1.0 + narrow * (c.narrow - 1.0))
    if np.any(c.split_s):
        parts = np.clip(1.5 - units / processors, 0.0, 1.0) * np.clip(context / SPLIT_CONTEXT, 0.0, 1.0)
        fixed_s = fixed_s + c.split_s * parts
    if np.any(c.reorder_s):
        fixed_s = fixed_s + c.reorder_s * np.asarray(work.reordered)
    return np.asarray(c.scale * smooth_max(fixed_s, _decode_busy_s(work, gpu, c, resident), c.smoothness))


def _decode_busy_s(work: DecodeWork, gpu: Gpu, c: Decode, resident: bool) -> Seconds:
    """The slowest of traffic (and unpacking), operations, one sequence's walk, and waves of units."""
    processors = float(gpu.sm_count or 100)
    moved = np.asarray(work.traffic, dtype=float)
    if resident:
        moved = moved * (1.0 - in_cache(moved, gpu, CACHE_SHARE) * (1.0 - 1.0 / CACHE_GAIN))
    narrow, group = np.asarray(work.narrow, dtype=float), np.asarray(work.group, dtype=float)
    memory_s = moved / (c.memory_fraction * gpu.memory_bandwidth_bytes_per_s)
    if np.any(work.unpacked):
        memory_s = smooth_max(memory_s, np.asarray(work.unpacked) * c.element_s / processors, 4.0)
    rate = c.compute_fraction * peak_16_bit(gpu) * (1.0 + narrow * (c.narrow_rate - 1.0))
    wide = np.where((group > 1.0) & (narrow < 0.5), c.shared, 1.0)
    unit_s = c.unit_s * (1.0 + GROUP_COST * (group - 1.0)) * wide
    waves_s = unit_s * np.maximum(np.ceil(np.asarray(work.units) / processors) - 1.0, 0.0)
    context_s = (c.context_s + np.asarray(work.alone) * c.alone_s) * np.asarray(work.mean_context)
    return smooth_max_of((memory_s, np.asarray(work.flops) / rate, context_s, waves_s), 3.0)


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

    A kernel that can't share a KV head among so many query heads reads it for each, mostly from L2.

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
    elements, flops = context * kv_heads * width, 2.0 * context * heads * width
    if cal.ideal:
        bandwidth = c.memory_fraction * gpu.memory_bandwidth_bytes_per_s
        return smooth_max(
            elements * kv_bytes / bandwidth, flops / (c.compute_fraction * peak_16_bit(gpu)), c.smoothness
        )
    apart = heads > kv_heads * c.shared_heads
    again = np.where(apart, 1.0 + (heads / kv_heads - 1.0) / CACHE_GAIN, 1.0)
    kv_heads = np.where(apart, heads, kv_heads)
    grouped, one_byte = kv_heads < heads, kv_bytes < 2.0
    work = DecodeWork(
        traffic=elements * kv_bytes * again + 2.0 * batch * heads * width, flops=flops, units=batch * kv_heads,
        group=heads / kv_heads, mean_context=context / np.maximum(batch, 1.0), narrow=one_byte & grouped,
        unpacked=np.where(one_byte, elements, 0.0) if np.any(one_byte) else 0.0, alone=~grouped & ~one_byte,
        reordered=grouped & (kv_heads > 1.0) & (batch > 1.0),
    )  # fmt: skip
    core_s = decode_core_s(work, gpu, c, resident)
    if not np.any(c.whole):
        return core_s
    shares = (heads >= SHARED_GROUP * kv_heads) & (batch * kv_heads >= BLOCKS_PER_PROCESSOR * (gpu.sm_count or 100))
    whole_s = _whole_cache_s(batch * heads, context / np.maximum(batch, 1.0), width, one_byte, gpu)
    return np.asarray(np.where(shares, core_s, c.scale * (c.fixed_s + whole_s)))


def _whole_cache_s(blocks: Seconds, context: ArrayLike, width: Seconds, narrow: ArrayLike, gpu: Gpu) -> Seconds:
    """Blocks of one query head that each walk their sequence's whole cache, in waves of one a multiprocessor. [s]"""
    processors = float(gpu.sm_count or 100)
    elements_per_s = WHOLE_SHARE * gpu.memory_bandwidth_bytes_per_s / processors / 2.0
    token_s = width / elements_per_s * np.where(narrow, WHOLE_NARROW, 1.0)
    return np.asarray(np.ceil(blocks / processors) * np.asarray(context) * token_s)


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
