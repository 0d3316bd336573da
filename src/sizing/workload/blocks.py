"""Hashes of prompt blocks: what an unlimited prefix cache would have held, and the chains behind it.

A trace with hashes gives each prompt as a list of block ids; an id stands for the block and all before it, so a
prompt's blocks are a path from the root of a tree.
"""

from dataclasses import dataclass

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


def _shared_blocks(blocks: Blocks) -> tuple[Ints, Ints]:
    """Leading blocks of each request that an earlier one had, and that an earlier or later one has."""
    _, first, inverse, uses = np.unique(blocks.ids, return_index=True, return_inverse=True, return_counts=True)
    owner = np.repeat(np.arange(len(blocks.offsets) - 1), blocks.counts)
    earlier = owner[first][inverse] < owner
    return _leading(earlier, blocks.offsets), _leading(uses[inverse] > 1, blocks.offsets)


def reused_tokens(blocks: Blocks, input_tokens: Ints) -> Ints:
    """Prompt tokens of each request that an unlimited cache would hold when it comes. [token]"""
    earlier, _ = _shared_blocks(blocks)
    return np.minimum(earlier * blocks.block_tokens, input_tokens)


def flat_chains(blocks: Blocks, input_tokens: Ints) -> tuple[Ints, Ints]:
    """Chains for a cache that knows no trees, and the tokens that each request shares with its chain. [token]

    A request that carries on from the tip of a chain extends it; one that turns off earlier gets a chain of its
    own if a later request follows it, and else shares what it can with the old one. What a chain can't show is
    the first use of a fork's common part; :func:`reused_tokens` counts that too.
    """
    earlier, ever = _shared_blocks(blocks)
    names, place = np.unique(blocks.ids, return_inverse=True)
    chain_of_block = np.full(len(names), -1, dtype=np.int64)
    n = len(blocks.offsets) - 1
    chain, shared = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64)
    length: list[int] = []
    begins, known, reach = blocks.offsets[:-1].tolist(), earlier.tolist(), ever.tolist()
    for i in range(n):
        depth, most, begin = known[i], reach[i], begins[i]
        if most == 0:
            continue
        current = int(chain_of_block[place[begin + depth - 1]]) if depth else -1
        if current < 0 or (most > depth and depth < length[current]):
            current = len(length)
            length.append(0)
        if most > length[current]:
            chain_of_block[place[begin + depth : begin + most]] = current
            length[current] = most
        chain[i], shared[i] = current, most
    return chain, np.minimum(shared * blocks.block_tokens, input_tokens)
