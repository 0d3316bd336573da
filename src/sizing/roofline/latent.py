"""Multi-head latent attention (MLA): absorbed decode, expanded prefill."""

import numpy as np
from numpy.typing import ArrayLike

from sizing.calibration import Calibration
from sizing.catalog import Gpu
from sizing.roofline.attention import DecodeWork, decode_core_s, prefill_core_s
from sizing.roofline.elementwise import elementwise_s
from sizing.roofline.matrix import TRAFFIC_OF_QUANTISING
from sizing.roofline.smooth import Seconds, peak_16_bit, smooth_max

HEAD_TILE = 64.0
"""Query heads that an absorbed decode kernel takes at a time. [head]"""


def mla_decode_s(
    batch: ArrayLike,
    context_tokens: ArrayLike,
    heads: ArrayLike,
    latent_dim: ArrayLike,
    rope_dim: ArrayLike,
    kv_bytes: ArrayLike,
    gpu: Gpu,
    cal: Calibration,
    *,
    resident: bool = False,
) -> Seconds:
    """Time of one layer's absorbed MLA decode, core only (the projections are matrix products).

    Every query head reads the one compressed cache; heads come in tiles of 64.

    Parameters
    ----------
    batch
        Sequences that decode [sequence].
    context_tokens
        Tokens in the cache that they read, summed over sequences [token].
    heads
        Query heads on this GPU [head].
    latent_dim, rope_dim
        Width of the compressed cache and of its rotary part [element].
    kv_bytes
        Size of one cached element [B].
    gpu, cal
        The accelerator and its constants.
    resident
        Whether the cache may still be in L2 from the call before (a microbenchmark).

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    batch, context, heads = (np.asarray(x, dtype=float) for x in (batch, context_tokens, heads))
    latent, rope = np.asarray(latent_dim, dtype=float), np.asarray(rope_dim, dtype=float)
    c = cal.decode("mla_decode")
    traffic = context * (latent + rope) * np.asarray(kv_bytes, dtype=float)
    if cal.ideal:
        bandwidth = c.memory_fraction * gpu.memory_bandwidth_bytes_per_s
        flops = 2.0 * context * heads * (2.0 * latent + rope)
        return smooth_max(traffic / bandwidth, flops / (c.compute_fraction * peak_16_bit(gpu)), c.smoothness)
    tiles = np.ceil(heads / HEAD_TILE)
    flops = 2.0 * context * tiles * HEAD_TILE * (2.0 * latent + rope)
    work = DecodeWork(
        traffic=traffic + 2.0 * batch * heads * (2.0 * latent + rope), flops=flops, units=batch * tiles,
        group=np.minimum(heads, HEAD_TILE), mean_context=context / np.maximum(batch, 1.0),
        narrow=np.asarray(kv_bytes) < 2.0,
    )  # fmt: skip
    return decode_core_s(work, gpu, c, resident)


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
    kv_bytes: ArrayLike = 2.0,
) -> Seconds:
    """Time of one layer's MLA prefill, core only, keys and values expanded (not absorbed).

    Parameters
    ----------
    tokens
        New tokens of all sequences [token].
    pairs
        Query and key pairs that are not masked [1].
    heads
        Query heads on this GPU [head].
    head_dim, value_dim
        Width of a query and key head (no-rope and rope part together) and of a value head [element].
    gpu, cal
        The accelerator and its constants.
    sequences
        Sequences that the tokens belong to [sequence].
    kv_bytes
        Size of one cached element; a kernel that computes in one byte quantises queries, keys and values first [B].

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    tokens, pairs, heads = (np.asarray(x, dtype=float) for x in (tokens, pairs, heads))
    width = np.asarray(head_dim, dtype=float) + np.asarray(value_dim, dtype=float)
    c = cal.prefill("mla_prefill")
    each = tokens / np.maximum(sequences, 1e-9)
    history = np.maximum(pairs / np.maximum(each, 1.0) - tokens / 2.0, 0.0)
    moved = 2.0 * (2.0 * tokens + history) * heads * width
    if cal.ideal:
        return smooth_max(
            moved / (c.memory_fraction * gpu.memory_bandwidth_bytes_per_s),
            2.0 * pairs * heads * width / (c.compute_fraction * peak_16_bit(gpu)),
            c.smoothness,
        )
    narrow = (np.asarray(kv_bytes, dtype=float) < 2.0) & (np.asarray(c.quantises) > 0.5)
    core_s = prefill_core_s(tokens, pairs, sequences, heads, heads, width, moved, narrow, gpu, c)
    quantised = TRAFFIC_OF_QUANTISING * heads * (tokens * np.asarray(head_dim) + (tokens + history) * width)
    return np.asarray(core_s + np.where(narrow, elementwise_s(quantised, gpu, cal), 0.0))
