"""Moving a KV cache from one replica to another."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def transfer_s(
    moved_bytes: ArrayLike, bandwidth_bytes_per_s: ArrayLike, latency_s: ArrayLike = 0.0
) -> NDArray[np.float64]:
    """Time to move bytes over a link: latency + bytes / bandwidth. [s]

    Parameters
    ----------
    moved_bytes
        Size of the cache. [byte]
    bandwidth_bytes_per_s
        One direction of the link. [byte/s]
    latency_s
        Time before the first byte arrives. [s]
    """
    moved, bandwidth = np.asarray(moved_bytes, dtype=float), np.asarray(bandwidth_bytes_per_s, dtype=float)
    return np.asarray(np.asarray(latency_s, dtype=float) + moved / bandwidth)


def exposed_transfer_s(transfer: ArrayLike, prefill: ArrayLike, layers: int) -> NDArray[np.float64]:
    """Part of a layer-by-layer transfer that prefill does not hide. [s]

    Parameters
    ----------
    transfer, prefill
        Time to move the whole cache, and to compute it. [s]
    layers
        Layers that are sent as they finish. [layer]

    Notes
    -----
    max(t / L, t - p (L - 1) / L): the last layer is always exposed, and what the link can't keep up with.
    """
    t, p = np.asarray(transfer, dtype=float), np.asarray(prefill, dtype=float)
    return np.asarray(np.maximum(t / layers, t - p * (layers - 1) / layers))
