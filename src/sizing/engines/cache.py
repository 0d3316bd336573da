"""How a KV pool is divided: blocks, groups of layers, and the blocks one request takes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheGroup:
    """Layers that share one block table.

    Attributes
    ----------
    kind
        ``full``, ``sliding``, ``chunked`` or ``state``.
    layers
        Layers in the group, padding included.
    block_tokens
        Tokens of one block. [token]
    most_tokens
        Tokens that one request keeps here at most; None: all. [token]
    extra_blocks
        Blocks a request takes besides (a window that starts inside a block). [block]
    fixed_blocks
        Blocks a request takes whatever its length (recurrent state); 0 for attention. [block]
    """

    kind: str
    layers: int
    block_tokens: int
    most_tokens: int | None = None
    extra_blocks: int = 0
    fixed_blocks: int = 0

    def blocks(self, tokens: ArrayLike) -> NDArray[np.float64]:
        """Blocks that one request of ``tokens`` takes in this group. [block]"""
        if self.fixed_blocks:
            return np.full(np.shape(tokens), float(self.fixed_blocks))
        kept = np.asarray(tokens, dtype=float)
        if self.most_tokens is not None:
            kept = np.minimum(kept, float(self.most_tokens))
        return np.ceil(kept / self.block_tokens) + self.extra_blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePool:
    """Blocks of one size that the groups of layers draw from.

    Attributes
    ----------
    groups
        The groups.
    block_bytes
        One block of one group on one GPU, all its layers. [byte]
    blocks
        Blocks in the pool. [block]
    token_scale
        Tokens in the whole TP group for one on this GPU (decode context parallel). [1]
    """

    groups: tuple[CacheGroup, ...]
    block_bytes: float
    blocks: float
    token_scale: int = 1

    def blocks_per_request(self, tokens: ArrayLike) -> NDArray[np.float64]:
        """Blocks one request takes in all groups. [block]"""
        on_this_gpu = np.asarray(tokens, dtype=float) / self.token_scale
        return np.asarray(sum(group.blocks(on_this_gpu) for group in self.groups))

    def requests(self, tokens: ArrayLike) -> NDArray[np.float64]:
        """Requests of ``tokens`` that fit at once. [request]"""
        each = self.blocks_per_request(tokens)
        endless = np.full(np.shape(each), np.inf)
        return np.asarray(np.divide(self.blocks, each, out=endless, where=each > 0))

    @property
    def printed_tokens(self) -> int:
        """What vLLM prints as "GPU KV cache size": blocks over groups, times the smallest block. [token]"""
        if not self.groups:
            return 0
        smallest = min(group.block_tokens for group in self.groups)
        return int(self.blocks // len(self.groups)) * smallest * self.token_scale
