"""One operation of a pass, and what a step computes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one GPU computes in a step, after data and pipeline parallelism.

    Attributes
    ----------
    tokens
        Tokens that go through the layers, decode and prefill together. [token]
    rows
        Positions whose logits are computed. [token]
    batch, context
        Decoding sequences, and tokens in their caches together. [sequence], [token]
    new, pairs, sequences
        New prompt tokens, pairs of one of them and a token it attends to, and their sequences. [token], [1],
        [sequence]
    """

    tokens: Array
    rows: Array
    batch: Array
    context: Array
    new: Array
    pairs: Array
    sequences: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One kind of kernel of the pass.

    Attributes
    ----------
    name
        Where it belongs, such as ``attention.qkv``.
    family
        Key of :data:`TIMES`: which formula gives its time.
    phase
        ``tokens``, ``rows``, ``decode`` or ``prefill``.
    count
        How often it runs in a step. [1]
    launches
        Kernels that one of it launches when no graph is replayed. [1]
    n, k
        Outputs and inputs of a matrix product; width of a model or an expert. [element]
    format
        Weight format.
    heads, kv_heads, head_dim, value_dim
        Of attention, on this GPU. [head], [element]
    kv_bytes
        Size of one cached element. [B]
    window
        Tokens that are looked back at most. [token]
    experts, top_k, local_experts, matrices, skew
        Of a mixture of experts; the load of the busiest GPU over the mean.
    touched
        Experts that get a token, when routing is not even (made-up weights send all tokens to the same). [expert]
    token_bytes, fixed_bytes
        Traffic per token (per sequence in phase decode) and per call. [B]
    gpus
        Size of a communication group. [gpu]
    share
        Part of the tokens of its phase that one call sees (1 / pipeline stages, 1 / ranks). [1]
    """

    name: str
    family: str
    phase: str = "tokens"
    count: float = 1.0
    launches: float = 1.0
    n: float = 0.0
    k: float = 0.0
    format: str = "bf16"
    heads: float = 0.0
    kv_heads: float = 0.0
    head_dim: float = 0.0
    value_dim: float = 0.0
    kv_bytes: float = 2.0
    window: float | None = None
    chunked: bool = False
    experts: float = 0.0
    top_k: float = 0.0
    local_experts: float = 0.0
    matrices: float = 3.0
    skew: float = 1.0
    touched: float | None = None
    token_bytes: float = 0.0
    fixed_bytes: float = 0.0
    gpus: int = 1
    share: float = 1.0

    @property
    def works(self) -> bool:
        """Whether it runs at all: a group of one GPU exchanges nothing."""
        return self.gpus > 1 or self.family not in (
            "all_reduce",
            "all_gather",
            "all_to_all",
            "point_to_point",
        )
