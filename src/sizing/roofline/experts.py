"""Fused experts of a mixture-of-experts layer."""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sizing.calibration import Calibration
from sizing.catalog import Gpu
from sizing.roofline.matrix import kernel_format
from sizing.roofline.smooth import Seconds, smooth_max

ROUTING_WIDTH = 2048.0
"""Width of the model at which ``token_s`` is stated. [element]"""


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


_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)


@lru_cache(maxsize=256)
def _chances(share: float, spread: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights of popularities, and ``c f`` of each: one token passes an expert by with chance ``exp(-c f)``. [1]

    A token's k experts are drawn one after the other by popularity (successive sampling, Rosen 1972: chance to be drawn
    ``1 - exp(-c f)``); c makes the mean chance ``k/E``. Newton's method.
    """
    weights = _WEIGHTS / _WEIGHTS.sum()
    factors = np.exp(spread * _NODES - spread**2 / 2.0)
    c = share
    for _ in range(30):
        passed = np.exp(-c * factors)
        c -= float((weights @ (1.0 - passed) - share) / (weights @ (factors * passed)))
    return weights, c * factors


def routed_experts(tokens: ArrayLike, experts: float, top_k: float, spread: float) -> NDArray[np.float64]:
    """Expected experts touched when a router prefers some; one token still goes to k experts, and many to all.

    Experts' popularity is lognormal with mean 1: some tens of tokens touch fewer than under even routing.

    Parameters
    ----------
    tokens
        Tokens; scalar or array [token].
    experts, top_k
        Routed experts of the layer, and how many a token goes to [expert].
    spread
        Log-sigma of the experts' popularity [1].
    """
    if spread == 0.0 or top_k >= experts:
        return distinct_experts(tokens, experts, top_k)
    weights, rates = _chances(float(top_k) / float(experts), spread)
    drawn = -np.expm1(-np.multiply.outer(np.asarray(tokens, dtype=float), rates))
    return np.asarray(experts * (drawn @ weights))


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
    skew: ArrayLike = 1.0,
    touched: ArrayLike | None = None,
) -> Seconds:
    """Time of the fused experts (gate, up, down) on one GPU, router left out.

    With ``A`` experts touched on this GPU and ``R`` token copies that reach it::

        memory  = (A matrices hidden intermediate bytes + 4 R (2 hidden + 3 intermediate)) / (f BW)
        compute = 2 matrices (R + A tile_rows) hidden intermediate / (f F)
        routing = (token_s tokens + copy_s tokens top_k + row_s R) hidden / 2048
        time    = fixed + smooth max(memory, compute) + routing

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
    touched
        Experts of the layer that get a token; None: expected under even routing [expert].

    Returns
    -------
    numpy.ndarray
        Time [s].
    """
    kind, peak, size = kernel_format(weights, gpu)
    c = cal.moe(kind)
    tokens, hidden, intermediate = (np.asarray(x, dtype=float) for x in (tokens, hidden, intermediate))
    experts, top_k = np.asarray(experts, dtype=float), np.asarray(top_k, dtype=float)
    share = 1.0 if local_experts is None else np.asarray(local_experts, dtype=float) / experts
    rows = tokens * top_k * share * np.asarray(skew, dtype=float)
    seen = distinct_experts(tokens, experts, top_k) if touched is None else np.asarray(touched, dtype=float)
    active = seen * share
    bandwidth = c.memory_fraction * gpu.memory_bandwidth_bytes_per_s
    area = matrices * hidden * intermediate
    rate = c.compute_fraction * peak
    if cal.ideal:
        return smooth_max(active * area * size / bandwidth, 2.0 * rows * area / rate, c.smoothness)
    moved = active * area * size + 4.0 * rows * (2.0 * hidden + 3.0 * intermediate)
    padded = rows + active * c.tile_rows
    busy_s = smooth_max(moved / bandwidth, 2.0 * padded * area / rate, c.smoothness)
    routing_s = (c.token_s * tokens + c.copy_s * tokens * top_k + c.row_s * rows) * hidden / ROUTING_WIDTH
    return np.asarray(c.scale * (c.fixed_s + busy_s + routing_s))
