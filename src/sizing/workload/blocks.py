"""Hashes of prompt blocks: what an unlimited prefix cache would have held, and the tree behind it.

A trace with hashes gives each prompt as a list of block ids; an id stands for the block and all before it, so a
prompt's blocks are a path from the root of a tree.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sizing.workload.lengths import Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blocks:
    """Block ids of requests, one after the other.

    Attributes
    ----------
    ids
        Ids, request after request.
    offsets
        Where each request's ids begin, and where the last one's end: one entry more than requests.
    block_tokens
        Tokens of a block. [token]
    """

    ids: Ints
    offsets: Ints
    block_tokens: int

    @property
    def counts(self) -> Ints:
        """Blocks of each request."""
        return np.diff(self.offsets)

    def take(self, chosen: Ints) -> "Blocks":
        """Blocks of the chosen requests, in that order."""
        counts = self.counts[chosen]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        if len(chosen) == len(self.offsets) - 1 and np.array_equal(chosen, np.arange(len(chosen))):
            return self
        places = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - self.offsets[:-1][chosen], counts)
        return Blocks(ids=self.ids[places], offsets=offsets, block_tokens=self.block_tokens)


def _leading(flags: npt.NDArray[np.bool_], offsets: Ints) -> Ints:
    """Length of the run of true flags at the beginning of each request."""
    counts = np.diff(offsets)
    run = np.zeros(len(counts), dtype=np.int64)
    some = counts > 0
    if some.any():
        place = np.arange(len(flags)) - np.repeat(offsets[:-1], counts)
        stop = np.where(flags, np.iinfo(np.int64).max, place)
        first_stop = np.minimum.reduceat(stop, offsets[:-1][some])
        run[some] = np.minimum(first_stop, counts[some])
    return run


def reused_tokens(blocks: Blocks, input_tokens: Ints) -> Ints:
    """Prompt tokens of each request that an unlimited cache would hold when it comes. [token]"""
    _, first, inverse = np.unique(blocks.ids, return_index=True, return_inverse=True)
    owner = np.repeat(np.arange(len(blocks.offsets) - 1), blocks.counts)
    earlier = owner[first][inverse] < owner
    return np.minimum(_leading(earlier, blocks.offsets) * blocks.block_tokens, input_tokens)


class PrefixTree(NamedTuple):
    """What prompts share, as edges of a tree: each is a run of blocks with one continuation.

    Attributes
    ----------
    chain
        Edge where the shared part of each request ends, -1 for none.
    shared_tokens
        Tokens from the first on that lie on the path to that edge. [token]
    parent
        Edge before each edge, -1 at the root.
    start_tokens
        Tokens before each edge. [token]
    """

    chain: Ints
    shared_tokens: Ints
    parent: Ints
    start_tokens: Ints


def prefix_tree(blocks: Blocks, input_tokens: Ints) -> PrefixTree:
    """Tree of the blocks that more than one request has; blocks of one request alone are left out.

    A block's parent is the block before it where it first occurs. An edge begins at a root, or at a block whose
    parent goes on in more than one way.
    """
    _, first, inverse, uses = np.unique(blocks.ids, return_index=True, return_inverse=True, return_counts=True)
    reach = _leading(uses[inverse] > 1, blocks.offsets)
    counts, n = blocks.counts, len(blocks.offsets) - 1
    place = np.arange(len(inverse)) - np.repeat(blocks.offsets[:-1], counts)
    shared = np.zeros(len(first), dtype=np.bool_)
    shared[inverse[place < np.repeat(reach, counts)]] = True
    before = np.where(place[first] > 0, inverse[np.maximum(first - 1, 0)], -1)
    before[~shared[before]] = -1  # ids that do not stand for all before them: a root of its own
    children = np.bincount(before[shared & (before >= 0)], minlength=len(first))
    head = shared & ((before < 0) | (children[before] > 1))
    edge_of = np.where(head | ~shared, np.arange(len(first)), before)
    while True:  # follow parents, twice as far each time, to the block that begins the edge
        further = edge_of[edge_of]
        if np.array_equal(further[shared], edge_of[shared]):
            break
        edge_of = further
    number = np.cumsum(head) - 1
    heads = np.flatnonzero(head)
    above = before[heads]
    parent = np.where(above >= 0, number[edge_of[above]], -1)
    chain = np.full(n, -1, dtype=np.int64)
    some = reach > 0
    chain[some] = number[edge_of[inverse[(blocks.offsets[:-1] + reach - 1)[some]]]]
    size = blocks.block_tokens
    return PrefixTree(chain, np.minimum(reach * size, input_tokens), parent, place[first][heads] * size)
