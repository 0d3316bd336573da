"""Time of communication between the GPUs of a replica.

All functions take scalars or arrays and give seconds. A group larger than a node and than the link
domain is held against the network's bandwidth; GPUs without links, or of more than one bridged pair, talk over PCIe.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sizing.calibration import Calibration
from sizing.catalog import Gpu
from sizing.roofline import smooth_max

Seconds = NDArray[np.float64]


IN_SWITCH_SHARE = 4.0 / 3.0
"""Traffic per link over message size when the NVLink switch adds up (NVLS), 8 GPUs and more. [1]"""
CONTENTION = 0.3
"""Power of the group's size, over two, that shared PCIe paths slow down with. [1]"""
LOW_LATENCY_TOKENS = 512.0
"""Tokens a GPU sends, at most, with the low-latency kernels of expert parallelism. [token]"""


def island_gpus(gpu: Gpu) -> int:
    """GPUs that reach each other without the network: a node, or a link domain that is larger. [gpu]

    Parameters
    ----------
    gpu
        The accelerator.
    """
    return max(gpu.link_domain_gpus or 1, gpu.gpus_per_node or 8)


def link_bytes_per_s(gpu: Gpu, gpus: int) -> float:
    """Bandwidth per GPU and direction that a group of that size has. [B/s]

    Parameters
    ----------
    gpu
        The accelerator.
    gpus
        GPUs in the group.
    """
    if gpus > island_gpus(gpu):
        return min(gpu.link_bytes_per_s or 3.2e10, gpu.nic_bytes_per_s or 1.25e10)
    if gpu.link_bytes_per_s and gpus <= (gpu.link_domain_gpus or gpus):
        return gpu.link_bytes_per_s
    return float((gpu.pcie_bytes_per_s or 3.2e10) / max(gpus / 2.0, 1.0) ** CONTENTION)


def _exchange_s(moved_bytes: ArrayLike, gpus: int, family: str, gpu: Gpu, cal: Calibration) -> Seconds:
    """``smooth max(fixed (p/2)^growth, bytes / (f link))``; nothing to send takes no time."""
    moved = np.asarray(moved_bytes, dtype=float)
    if gpus <= 1:
        return np.zeros_like(moved)
    c = cal.exchange(family)
    busy_s = moved / (c.link_fraction * link_bytes_per_s(gpu, gpus))
    start_s = c.fixed_s * (gpus / 2.0) ** np.asarray(c.growth)
    return np.asarray(c.scale * np.where(moved > 0, smooth_max(start_s, busy_s, c.smoothness), 0.0))


def _adds_in_switch(gpu: Gpu) -> bool:
    """Whether the link switch can add up: NVLink of Hopper and later."""
    return bool(gpu.link_bytes_per_s) and str(gpu.architecture).startswith(("Hopper", "Blackwell", "Rubin"))


def all_reduce_s(
    message_bytes: ArrayLike, gpus: int, gpu: Gpu, cal: Calibration, *, family: str = "all_reduce"
) -> Seconds:
    """Time of an all-reduce; ``2 (p - 1) / p`` of the message crosses each link, 4/3 where the switch adds.

    Parameters
    ----------
    message_bytes
        Size of the tensor that is summed, on each GPU [B].
    gpus
        GPUs in the group; 1 takes no time [gpu].
    gpu, cal
        The accelerator and its constants.
    family
        ``all_reduce``, what the engine runs, or ``nccl.all_reduce``, NCCL's.

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    share = 2.0 * (gpus - 1) / gpus
    if gpus >= 8 and _adds_in_switch(gpu):
        share = min(share, IN_SWITCH_SHARE)
    return _exchange_s(np.asarray(message_bytes, dtype=float) * share, gpus, family, gpu, cal)


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
    return _exchange_s(np.asarray(total_bytes, dtype=float) * share, gpus, "nccl.gather", gpu, cal)


def _distinct(draws: ArrayLike, places: float) -> Seconds:
    """Distinct places that so many draws fall on, expected: ``p (1 - (1 - 1/p)^k)``. [1]"""
    return np.asarray(places * (1.0 - (1.0 - 1.0 / places) ** np.asarray(draws, dtype=float)))


def _crossings(top_k: ArrayLike, gpus: int, gpu: Gpu, forwards: bool) -> Seconds:
    """Copies of a token that cross a GPU's own link: to other ranks, or over the network to other nodes. [1]

    The kernels for many tokens send one copy to each node and forward it there; those for few send every copy.
    """
    island = island_gpus(gpu)
    places = gpus / island if gpus > island else float(gpus)
    copies = np.asarray(top_k, dtype=float) if gpus > island and not forwards else _distinct(top_k, places)
    return np.asarray(copies * (places - 1.0) / places)


def _copy_tokens_s(
    tokens: Seconds, row_bytes: Seconds, top_k: ArrayLike, gpus: int, family: str, gpu: Gpu, cal: Calibration
) -> Seconds:
    """``smooth max(fixed, max(n c (b + overhead) / rate, n x b / (f link)))`` for n tokens of b bytes.

    ``c`` is the other ranks that a token goes to, ``x`` the copies of it that cross the link. The rate is that of the
    few multiprocessors that copy (20 in DeepEP's tables), whatever the links carry.
    """
    if gpus <= 1:
        return np.zeros(np.broadcast(tokens, row_bytes).shape)
    c = cal.expert_exchange(family)
    copies = tokens * _distinct(top_k, gpus) * (gpus - 1.0) / gpus
    copy_s = copies * (row_bytes + c.overhead_bytes) / (c.copy_bytes_per_s * np.asarray(c.copy_scale))
    crossing = tokens * _crossings(top_k, gpus, gpu, forwards=family.startswith("deepep."))
    link_s = crossing * row_bytes / (c.link_fraction * link_bytes_per_s(gpu, gpus))
    time_s = smooth_max(c.fixed_s, np.maximum(copy_s, link_s), c.smoothness)
    return np.asarray(c.scale * np.where(copies > 0, time_s, 0.0))


def all_to_all_s(
    tokens: ArrayLike,
    hidden: ArrayLike,
    top_k: ArrayLike,
    gpus: int,
    gpu: Gpu,
    cal: Calibration,
    *,
    element_bytes: float = 2.0,
    combine: bool | None = None,
    low_latency: bool | None = None,
) -> Seconds:
    """Time of one way of the experts' all-to-all (dispatch or combine), DeepEP-like.

    A token goes once to each distinct rank that holds one of its experts: ``p (1 - (1 - 1/p)^k)`` ranks. Up
    to 512 tokens a GPU the low-latency kernels are there as well, and the faster is taken.

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
    combine
        Whether results come back; None: yes if elements have two bytes.
    low_latency
        Whether the low-latency kernels run; None: where they are there and faster.

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    back = element_bytes >= 2.0 if combine is None else combine
    way = "combine" if back else "dispatch"
    count = np.asarray(tokens, dtype=float)
    row_bytes = np.asarray(hidden, dtype=float) * element_bytes
    families = [f"deepep.{way}", f"deepep_low.{way}"]
    if low_latency is not None:
        return _copy_tokens_s(count, row_bytes, top_k, gpus, families[low_latency], gpu, cal)
    many, few = (_copy_tokens_s(count, row_bytes, top_k, gpus, family, gpu, cal) for family in families)
    return np.where(count <= LOW_LATENCY_TOKENS, np.minimum(many, few), many)


def expert_exchange_s(tokens: ArrayLike, hidden: ArrayLike, top_k: ArrayLike, gpus: int, gpu: Gpu, cal: Calibration,
                      *, element_bytes: float = 2.0) -> Seconds:  # fmt: skip
    """Time of one way between data-parallel attention and experts, by whichever exchange is the faster.

    Within a node engines gather all tokens to every rank and reduce-scatter the results, in 16 bit (vLLM's default
    ``allgather_reducescatter``, SGLang's without ``--moe-a2a-backend``, TensorRT-LLM's without an all-to-all
    kernel): few microseconds, but every token on every link. Wide groups use the all-to-all.

    Parameters
    ----------
    tokens, hidden, top_k, gpus, gpu, cal, element_bytes
        As for :func:`all_to_all_s`.

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    whole = np.asarray(tokens, dtype=float) * gpus * np.asarray(hidden, dtype=float) * 2.0
    sparse = all_to_all_s(tokens, hidden, top_k, gpus, gpu, cal, element_bytes=element_bytes)
    return np.minimum(sparse, all_gather_s(whole, gpus, gpu, cal))


def point_to_point_s(message_bytes: ArrayLike, gpu: Gpu, cal: Calibration, *, across_nodes: bool = False) -> Seconds:
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
