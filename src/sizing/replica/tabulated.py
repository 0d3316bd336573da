"""Distributions as tables: a share of requests below each level, a row a rate."""

import numpy as np

from sizing.replica.loads import Values


def percentile_of(levels: Values, below: Values, percentile: float) -> Values:
    """Level that a percentage of requests stays below, between the two levels around it, shape (rates,).

    Parameters
    ----------
    levels, below
        Levels, and the share of requests below each, shape (rates, levels).
    percentile
        Between 0 and 100. [%]
    """
    share = percentile / 100.0
    place = np.clip((below < share).sum(axis=1), 1, below.shape[1] - 1)
    rows = np.arange(len(place))
    low, high = below[rows, place - 1], below[rows, place]
    part = np.clip((share - low) / np.maximum(high - low, 1e-12), 0.0, 1.0)
    return np.asarray(levels[rows, place - 1] * (1.0 - part) + levels[rows, place] * part)
