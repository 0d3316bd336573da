"""Groups of layers as vLLM's hybrid KV cache manager forms them, and the pools of engines that have none.

Rules read off start-up logs ("Add N padding layers", "GPU KV cache size", "Maximum concurrency") and
checked against them in the tests:

- layers of equal kind, window and bytes a token form a type; a group has as many layers as the smallest
  type (or as the largest, when the two differ by less than a quarter), and a type is padded to whole groups;
- all groups share blocks of one byte size: types with fewer bytes a token get proportionally longer blocks;
- a recurrent state takes one block; attention blocks are made long enough to hold it;
- attention layers of different sizes without window or state form a single group.
"""

import math
from collections import defaultdict
from dataclasses import dataclass

from sizing.architecture import Mixer
from sizing.engines.cache import CacheGroup, CachePool
from sizing.engines.record import Rank

CACHED = ("attention", "sliding", "chunked", "mla", "sparse", "compressed", "linear")


@dataclass(frozen=True, slots=True)
class LayerType:
    """Layers that need the same of the cache."""

    kind: str
    token_bytes: float
    state_bytes: float
    window: int | None


def layer_types(rank: Rank, hybrid: bool) -> dict[LayerType, int]:
    """Types of cached layers of a stage with their counts; without ``hybrid`` every window is cached in full."""
    types: dict[LayerType, int] = defaultdict(int)
    for layer in rank.layers:
        mixer = layer.mixer
        if mixer.kind not in CACHED or mixer.shares_cache:
            continue
        token, state = _token_bytes(mixer, rank), _state_bytes(mixer, rank)
        if token <= 0 and state <= 0:
            continue
        kind, window = _kind(mixer, hybrid, rank.max_model_len)
        types[LayerType(kind, token, state, window)] += layer.count
    return dict(types)


def _token_bytes(mixer: Mixer, rank: Rank) -> float:
    return float(mixer.kv_bytes_per_token(rank.kv, rank.tp))


def _state_bytes(mixer: Mixer, rank: Rank) -> float:
    if not mixer.state_elements and not mixer.conv_elements:
        return 0.0
    return float(mixer.state_bytes(rank.model.state_dtype, tp=rank.tp))


def _kind(mixer: Mixer, hybrid: bool, longest: int) -> tuple[str, int | None]:
    if mixer.kind == "linear":
        return "state", None
    if mixer.window is None or mixer.kind == "compressed" or not hybrid:
        return "full", None
    return ("chunked" if mixer.kind == "chunked" else "sliding"), mixer.window


def block_pools(rank: Rank, kv_bytes: float, hybrid: bool = True) -> tuple[CachePool, ...]:
    """One pool of equal blocks for all layers of a stage, by vLLM's grouping rules.

    Parameters
    ----------
    rank
        GPU and settings.
    kv_bytes
        Room of the pool. [byte]
    hybrid
        Whether layers with windows are grouped apart; otherwise they are cached in full.
    """
    types = layer_types(rank, hybrid)
    if not types:
        return ()
    paged = {t: n for t, n in types.items() if t.kind != "state"}
    states = {t: n for t, n in types.items() if t.kind == "state"}
    if not states and all(t.kind == "full" for t in paged):
        return (_single_group(paged, rank, kv_bytes),)
    block, page = _page(paged, states, rank.block_size)
    size = _group_layers(list(types.values()))
    groups: list[CacheGroup] = []
    for kind, count in types.items():
        tokens = block if kind.kind == "state" else round(page / kind.token_bytes) if kind.token_bytes else block
        one = _group(kind, size, max(tokens, 1), rank)
        groups += [one] * math.ceil(count / size)
    block_bytes = page * size
    return (CachePool(groups=tuple(groups), block_bytes=block_bytes, blocks=_blocks(kv_bytes, block_bytes),
                      token_scale=rank.cp),)  # fmt: skip


def _single_group(types: dict[LayerType, int], rank: Rank, kv_bytes: float) -> CachePool:
    """All layers cached in full: one group whose block is the sum of the layers' pages."""
    token = sum(t.token_bytes * n for t, n in types.items())
    block_bytes = token * rank.block_size
    group = CacheGroup(kind="full", layers=sum(types.values()), block_tokens=rank.block_size)
    return CachePool(
        groups=(group,), block_bytes=block_bytes, blocks=_blocks(kv_bytes, block_bytes), token_scale=rank.cp
    )


def _blocks(kv_bytes: float, block_bytes: float) -> float:
    return float(max(0.0, kv_bytes) // block_bytes) if block_bytes > 0 else 0.0


def _page(paged: dict[LayerType, int], states: dict[LayerType, int], block: int) -> tuple[int, float]:
    """Tokens of the smallest attention block, and bytes of the one page size all layers get."""
    largest_state = max((t.state_bytes for t in states), default=0.0)
    most = max((t.token_bytes for t in paged), default=0.0)
    if largest_state and most:
        block = block * max(1, math.ceil(largest_state / (block * most)))
    return block, max(block * most, largest_state)


def _group_layers(counts: list[int]) -> int:
    fewest, most = min(counts), max(counts)
    return most if most < fewest * 1.25 else fewest


def _group(kind: LayerType, layers: int, block: int, rank: Rank) -> CacheGroup:
    if kind.kind == "state":
        return CacheGroup(kind="state", layers=layers, block_tokens=block, fixed_blocks=1)
    if kind.kind == "full" or kind.window is None:
        return CacheGroup(kind="full", layers=layers, block_tokens=block)
    budget = rank.max_num_batched_tokens
    if kind.kind == "chunked":
        return CacheGroup(kind="chunked", layers=layers, block_tokens=block, most_tokens=kind.window + budget)
    return CacheGroup(
        kind="sliding", layers=layers, block_tokens=block, most_tokens=kind.window - 1 + budget, extra_blocks=1
    )
