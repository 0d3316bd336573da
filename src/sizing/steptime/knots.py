"""Knots of tables and values between them."""

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float64]


def middle(value: object) -> float:
    """A constant, or the median of its draws."""
    return float(np.median(np.asarray(value, dtype=float)))


def even_knots(most: float, count: int) -> Seconds:
    """0, 1, ... evenly in logarithm up to ``most``, whole numbers."""
    most = max(float(most), 2.0)
    return np.unique(np.concatenate([[0.0], np.round(np.geomspace(1.0, most, count))]))


def between(sizes: Seconds, knots: Seconds, values: Seconds) -> Seconds:
    """Values between knots by straight lines, zero where nothing runs; the last line goes on."""
    if values.ndim == 1 and sizes.size > 1 and sizes.max() <= knots[-1]:
        return np.where(sizes > 0, np.interp(sizes, knots, values), 0.0)
    left = np.clip(np.searchsorted(knots, sizes, side="right") - 1, 0, len(knots) - 2)
    share = np.maximum((sizes - knots[left]) / (knots[left + 1] - knots[left]), 0.0)
    found = values[..., left] * (1.0 - share) + values[..., left + 1] * share
    return np.where(sizes > 0, found, 0.0)
