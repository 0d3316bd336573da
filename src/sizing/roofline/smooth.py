"""What the formulas of the operations share."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sizing.catalog import Gpu

Seconds = NDArray[np.float64]

CACHE_SHARE, CACHE_GAIN = 0.75, 1.7
"""Share of L2 that a repeated call can count on, and its speed over HBM. [1]"""


def smooth_max(a: ArrayLike, b: ArrayLike, exponent: ArrayLike) -> Seconds:
    """Smooth maximum ``(a^p + b^p)^(1/p)`` of two times; an infinite exponent gives the maximum.

    Parameters
    ----------
    a, b
        Non-negative times [s].
    exponent
        Sharpness [1].

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    return smooth_max_of((a, b), exponent)


def smooth_max_of(times: Sequence[ArrayLike], exponent: ArrayLike) -> Seconds:
    """Smooth maximum ``(sum of t^p)^(1/p)`` of several times, without overflow; cubes take the short way.

    Parameters
    ----------
    times
        Non-negative times [s].
    exponent
        Sharpness [1].

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    if np.ndim(exponent) == 0 and float(np.asarray(exponent)) == 3.0:
        arrays = [np.asarray(t, dtype=float) for t in times]
        return np.asarray(np.cbrt(sum(t * t * t for t in arrays)))
    power = np.asarray(exponent, dtype=float)
    largest = np.asarray(times[0], dtype=float)
    for time_s in times[1:]:
        largest = np.maximum(largest, time_s)
    if np.ndim(power) == 0 and np.isinf(power):
        return largest
    unit = np.maximum(largest, 1e-300)
    if len(times) == 2:
        ratio = np.minimum(times[0], times[1]) / unit
        return np.asarray(largest * (1.0 + ratio**power) ** (1.0 / power))
    total = sum((np.asarray(t, dtype=float) / unit) ** power for t in times)
    return np.asarray(largest * np.asarray(total) ** (1.0 / power))


def in_cache(moved_bytes: ArrayLike, gpu: Gpu, share: float) -> Seconds:
    """Part of the traffic that the L2 cache serves when the same bytes were just used.

    A logistic step in the logarithm of size over capacity. A microbenchmark that repeats one call sees it; a
    layer of a served model does not, because the other layers' weights pass through the cache in between.

    Parameters
    ----------
    moved_bytes
        Working set of the call [B].
    gpu
        The accelerator.
    share
        Share of the capacity at which half is served [1].

    Returns
    -------
    numpy.ndarray
        Share of the bytes [1].
    """
    capacity = share * (gpu.l2_bytes or 4e7)
    return np.asarray(1.0 / (1.0 + (np.asarray(moved_bytes, dtype=float) / capacity) ** 8))


def peak_16_bit(gpu: Gpu) -> float:
    """Dense peak of 16-bit products, FP32 where there are none. [FLOP/s]"""
    peaks = gpu.peak_flops_per_s
    return next((peaks[name] for name in ("bf16", "fp16", "fp32") if name in peaks), max(peaks.values()))
