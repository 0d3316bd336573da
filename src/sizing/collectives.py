"""Time of communication between the GPUs of a replica.

All functions take scalars or arrays and give seconds. A group larger than the NVLink domain crosses nodes
and is held against the network's bandwidth; a GPU without links talks over PCIe.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sizing.calibration import Calibration
from sizing.catalog import Gpu
from sizing.roofline import smooth_max

Seconds = NDArray[np.float64]


def link_bytes_per_s(gpu: Gpu, gpus: int) -> float:
    """Bandwidth per GPU and direction that a group of that size has. [B/s]

    Parameters
    ----------
    gpu
        The accelerator.
    gpus
        GPUs in the group [gpu].
    """
    within = gpu.link_bytes_per_s or gpu.pcie_bytes_per_s or 3.2e10
    if gpus <= max(gpu.link_domain_gpus, gpu.gpus_per_node):
        return within
    return min(within, gpu.nic_bytes_per_s or 1.25e10)


def _exchange_s(moved_bytes: ArrayLike, gpus: int, family: str, gpu: Gpu, cal: Calibration) -> Seconds:
    moved = np.asarray(moved_bytes, dtype=float)
    if gpus <= 1:
        return np.zeros_like(moved)
    c = cal.exchange(family)
    busy = moved / (c.link_fraction * link_bytes_per_s(gpu, gpus))
    return np.asarray(c.scale * np.where(moved > 0, smooth_max(c.fixed_s, busy, c.smoothness), 0.0))


def all_reduce_s(message_bytes: ArrayLike, gpus: int, gpu: Gpu, cal: Calibration) -> Seconds:
    """Time of an all-reduce; ``2 (p - 1) / p`` of the message crosses each link.

    Parameters
    ----------
    message_bytes
        Size of the tensor that is summed, on each GPU [B].
    gpus
        GPUs in the group; 1 takes no time [gpu].
    gpu, cal
        The accelerator and its constants.

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    share = 2.0 * (gpus - 1) / gpus
    return _exchange_s(np.asarray(message_bytes, dtype=float) * share, gpus, "all_reduce", gpu, cal)


def all_gather_s(total_bytes: ArrayLike, gpus: int, gpu: Gpu, cal: Calibration) -> Seconds:
    """Time of an all-gather or a reduce-scatter; ``(p - 1) / p`` of the whole crosses each link.

    Parameters
    ----------
    total_bytes
        Size of the gathered tensor [B].
    gpus, gpu, cal
        As for :func:`all_reduce_s`.

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    share = (gpus - 1) / gpus
    return _exchange_s(np.asarray(total_bytes, dtype=float) * share, gpus, "gather", gpu, cal)


def all_to_all_s(
    tokens: ArrayLike,
    hidden: ArrayLike,
    top_k: ArrayLike,
    gpus: int,
    gpu: Gpu,
    cal: Calibration,
    *,
    element_bytes: float = 2.0,
) -> Seconds:
    """Time of one way of the experts' all-to-all (dispatch or combine), DeepEP-like.

    A token goes once to each distinct rank that holds one of its experts: ``p (1 - (1 - 1/p)^k)`` ranks.

    Parameters
    ----------
    tokens
        Tokens on each GPU [token].
    hidden
        Width of the model [element].
    top_k
        Experts a token goes to [expert].
    gpus, gpu, cal
        As for :func:`all_reduce_s`.
    element_bytes
        Size of an element on the wire [B].

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    ranks = gpus * (1.0 - (1.0 - 1.0 / gpus) ** np.asarray(top_k, dtype=float))
    token_bytes = np.asarray(hidden, dtype=float) * element_bytes * ranks * (gpus - 1) / gpus
    return _exchange_s(np.asarray(tokens, dtype=float) * token_bytes, gpus, "all_to_all", gpu, cal)


def point_to_point_s(
    message_bytes: ArrayLike, gpu: Gpu, cal: Calibration, *, across_nodes: bool = False
) -> Seconds:
    """Time to send a message to one other GPU (pipeline stages, KV transfer).

    Parameters
    ----------
    message_bytes
        Size of the message [B].
    gpu, cal
        The accelerator and its constants.
    across_nodes
        Over the network and not over the links of a node.

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    gpus = 1 << 30 if across_nodes else 2
    return _exchange_s(message_bytes, gpus, "point_to_point", gpu, cal)
