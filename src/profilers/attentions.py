"""Shapes, caches and references that the attention kernels share."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from profilers.bench import Bench
from profilers.kernel import Case, Work, kernel
from profilers.plan import Plan
from profilers.tensors import error, random

HEADS = ((32, 8, 128), (64, 8, 128), (8, 1, 128))
"""Query heads, KV heads and their width: 8B, 32B, and 64 over 8 GPUs. [head], [head], [element]"""

OTHER_CONTEXTS, OTHER_PROMPTS = (2048, 8192), (512, 8192)
"""Lengths at which the other heads are measured; at all lengths in the compact suite alone. [token]"""

TOLERANCE = 0.03
"""BF16 in, probabilities rounded to BF16: about 2^-7 of the largest output, with room. [1]"""


def decode_cases(name: str, plan: Plan, *, coarse: bool = False) -> Iterator[Case]:
    """Decode: one query a sequence against its cache.

    Parameters
    ----------
    name
        Registered name.
    plan
        What to measure.
    coarse
        Only one point, or a few, for a kernel that is compiled for every shape.
    """
    if plan.toy:
        yield _decode(name, 3, 40, (4, 2, 16), 0)
    for batch, context in itertools.product((1, 8, 32, 128), (512, 2048, 8192, 32768)):
        if plan.grid and not plan.toy and batch * context <= 1 << 20 and not (coarse and context != 8192):
            for heads in HEADS[:1] if coarse else HEADS:
                seldom = heads != HEADS[0] or (coarse and batch != 32)
                if not seldom or plan.fine or (not coarse and context in OTHER_CONTEXTS):
                    yield _decode(name, batch, context, heads, 2 if seldom else int(coarse), compiles=coarse)
    if not coarse:
        for shape in plan.shapes("attention_decode"):
            yield Case(kernel=name, shape=shape, priority=1)


def prefill_cases(name: str, plan: Plan, *, history: bool, coarse: bool = False) -> Iterator[Case]:
    """Prefill: a causal prompt, alone or behind what is cached.

    Parameters
    ----------
    name
        Registered name.
    plan
        What to measure.
    history
        The kernel can attend to what is cached before the new tokens.
    coarse
        Only one point, or a few, for a kernel that is compiled for every shape.
    """
    if plan.toy:
        yield _prefill(name, 2, 24, 0, (4, 2, 16), 0)
        if history:
            yield _prefill(name, 1, 8, 16, (4, 2, 16), 0)
    elif plan.grid:
        for tokens in (2048, 8192) if coarse else (128, 512, 2048, 8192, 32768):
            for heads in HEADS[:1] if coarse else HEADS:
                seldom = heads != HEADS[0] or (coarse and tokens != 8192)
                if not seldom or plan.fine or (not coarse and tokens in OTHER_PROMPTS):
                    yield _prefill(name, 1, tokens, 0, heads, 2 if seldom else int(coarse), compiles=coarse)
        if history and not coarse:
            for tokens, before in ((512, 2048), (512, 8192), (512, 32256), (2048, 8192), (2048, 30720)):
                yield _prefill(name, 1, tokens, before, HEADS[0], 0)
    if not coarse:
        for shape in plan.shapes("attention_prefill"):
            if history or not shape["history"]:
                yield Case(kernel=name, shape=shape, priority=1)


Build = Callable[["Sizes", Bench], Work]


def register_paged(library: str, *, decode: Build, prefill: Build) -> None:
    """Enter a library's kernels over a paged cache: one query a sequence, and a causal prompt in the pages already.

    Parameters
    ----------
    library
        Second part of the kernels' names.
    decode, prefill
        Make the work of a case's sizes.
    """
    first, second = f"attention_decode.{library}", f"attention_prefill.{library}"
    kernel(first, cases=lambda plan: decode_cases(first, plan))(lambda case, bench: decode(sizes(case), bench))
    kernel(second, cases=lambda plan: prefill_cases(second, plan, history=True))(
        lambda case, bench: prefill(sizes(case), bench)
    )


def _decode(
    name: str, batch: int, context: int, heads: tuple[int, int, int], priority: int, *, compiles: bool = False
) -> Case:
    shape = {"batch": batch, "context": context, "heads": heads[0], "kv_heads": heads[1], "head_dim": heads[2]}
    return Case(kernel=name, shape=shape, priority=priority, compiles=compiles)


def _prefill(
    name: str,
    batch: int,
    tokens: int,
    history: int,
    heads: tuple[int, int, int],
    priority: int,
    *,
    compiles: bool = False,
) -> Case:
    shape = {"batch": batch, "tokens": tokens, "history": history}
    shape |= {"heads": heads[0], "kv_heads": heads[1], "head_dim": heads[2]}
    return Case(kernel=name, shape=shape, priority=priority, compiles=compiles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of an attention case: sequences, new tokens of each, tokens in the cache with them, heads."""

    batch: int
    tokens: int
    context: int
    heads: int
    kv_heads: int
    head_dim: int

    @property
    def pairs(self) -> float:
        """Query and key pairs that are not masked. [1]"""
        before = self.context - self.tokens
        return self.batch * (self.tokens * before + self.tokens * (self.tokens + 1) / 2)

    @property
    def kv_bytes(self) -> float:
        """The cache that is read. [B]"""
        return 4.0 * self.batch * self.context * self.kv_heads * self.head_dim


def sizes(case: Case) -> Sizes:
    """Sizes of a decode or prefill case."""
    s = {name: int(value) for name, value in case.shape.items()}
    tokens = s.get("tokens", 1)
    context = s["context"] if "context" in s else s["history"] + tokens
    return Sizes(
        batch=s["batch"],
        tokens=tokens,
        context=context,
        heads=s["heads"],
        kv_heads=s["kv_heads"],
        head_dim=s["head_dim"],
    )


def attention_work(
    at: Sizes, calls: list[Callable[[], torch.Tensor]], check: Callable[[], float], implementation: str, page: int = 0
) -> Work:
    """A case's work with its arithmetic and traffic filled in.

    Parameters
    ----------
    at
        Sizes.
    calls, check, implementation
        As in :class:`profilers.kernel.Work`.
    page
        Tokens of a page of the cache; 0: not paged. [token]
    """
    own = 4.0 * at.batch * at.tokens * at.heads * at.head_dim
    return Work(
        calls=calls,
        check=check,
        tolerance=TOLERANCE,
        flops=4.0 * at.pairs * at.heads * at.head_dim,
        moved_bytes=at.kv_bytes + own,
        implementation=implementation,
        footprint_bytes=len(calls) * at.kv_bytes,
        facts={"page_tokens": page},
    )


def reference(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Causal attention of the last queries in FP32; heads first, queries aligned to the end of the keys.

    Parameters
    ----------
    query
        ``[heads, queries, width]``.
    key, value
        ``[kv_heads, keys, width]``.
    """
    group = query.shape[0] // key.shape[0]
    key, value = (t.float().repeat_interleave(group, 0) for t in (key, value))
    score = query.float() @ key.transpose(1, 2) * query.shape[-1] ** -0.5
    position = torch.arange(key.shape[1], device=key.device)
    own = torch.arange(query.shape[1], device=key.device) + key.shape[1] - query.shape[1]
    score = score.masked_fill(position[None, :] > own[:, None], float("-inf"))
    return score.softmax(dim=2) @ value


def check_last(output: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> float:
    """Error of the last few queries of one sequence. [1]

    Parameters
    ----------
    output, query
        ``[heads, queries, width]``.
    key, value
        ``[kv_heads, keys, width]``.
    """
    few = min(query.shape[1], 16)
    return error(output[:, -few:], reference(query[:, -few:], key, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """A paged KV cache, its pages dealt out at random as an engine leaves them after a while.

    Attributes
    ----------
    keys, values
        ``[pages, page tokens, kv_heads, width]``.
    table
        Page of each block of each sequence, ``[batch, blocks]``, int32.
    lengths
        Tokens of each sequence, int32. [token]
    page
        Tokens a page. [token]
    """

    keys: torch.Tensor
    values: torch.Tensor
    table: torch.Tensor
    lengths: torch.Tensor
    page: int

    def sequence(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of one sequence, ``[kv_heads, tokens, width]``."""
        length = int(self.lengths[index])
        pages = self.table[index].long()
        return tuple(  # type: ignore[return-value]
            t[pages].flatten(0, 1)[:length].transpose(0, 1) for t in (self.keys, self.values)
        )


def paged_cache(at: Sizes, bench: Bench, page: int) -> Pages:
    """Fill a paged cache with random data.

    Parameters
    ----------
    at
        Sizes.
    bench
        Where.
    page
        Tokens a page. [token]
    """
    blocks = -(-at.context // page)
    table = torch.randperm(at.batch * blocks, device=bench.device).view(at.batch, blocks).to(torch.int32)
    shape = (at.batch * blocks, page, at.kv_heads, at.head_dim)
    lengths = torch.full((at.batch,), at.context, dtype=torch.int32, device=bench.device)
    return Pages(
        keys=random(shape, bench.device), values=random(shape, bench.device), table=table, lengths=lengths, page=page
    )


def paged_caches(at: Sizes, bench: Bench, page: int) -> list[Pages]:
    """As many caches as keep the L2 cold."""
    return [paged_cache(at, bench, page) for _ in range(bench.copies(at.kv_bytes))]
