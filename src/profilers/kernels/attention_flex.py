"""Attention by torch's FlexAttention, compiled on a GPU; the cache is paged by way of its block mask.

A physical block of the cache holds a logical block of a sequence, so the mask of a sequence lists the
physical blocks that are its own: queries of one sequence never read another's.
"""

import warnings
from collections.abc import Callable, Iterator

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from profilers.attentions import attention_work, check_last, decode_cases, prefill_cases, sizes
from profilers.bench import Bench
from profilers.kernel import Case, Work, kernel
from profilers.plan import Plan
from profilers.tensors import random

PAGE = 128


def _prefill_cases(plan: Plan) -> Iterator[Case]:
    return prefill_cases("attention_prefill.flex", plan, history=False, coarse=True)


@kernel("attention_decode.flex", cases=lambda plan: decode_cases("attention_decode.flex", plan, coarse=True))
def decode(case: Case, bench: Bench) -> Work:
    """One query a sequence against its pages of a shared pool."""
    at = sizes(case)
    blocks = -(-at.context // PAGE)
    pool = at.batch * blocks * PAGE
    order = torch.randperm(at.batch * blocks, device=bench.device).view(at.batch, blocks)
    mask = paged_mask(order, at.context, bench.device)
    query = random((at.batch, at.heads, 1, at.head_dim), bench.device)
    shape = (1, at.kv_heads, pool, at.head_dim)
    caches = [(random(shape, bench.device), random(shape, bench.device)) for _ in range(bench.copies(at.kv_bytes))]
    attention = _attention(bench)

    def attend(key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        key, value = (t.expand(at.batch, -1, -1, -1) for t in (key, value))
        return attention(query, key, value, block_mask=mask, enable_gqa=True)

    def check() -> float:
        rows = (order[-1][:, None] * PAGE + torch.arange(PAGE, device=bench.device)).flatten()[: at.context]
        key, value = (t[0][:, rows] for t in caches[-1])
        return check_last(attend(*caches[-1])[-1], query[-1], key, value)

    return attention_work(at, [lambda k=k, v=v: attend(k, v) for k, v in caches], check, "flex paged", PAGE)


@kernel("attention_prefill.flex", cases=_prefill_cases)
def prefill(case: Case, bench: Bench) -> Work:
    """A causal prompt, blocks above the diagonal skipped."""
    at = sizes(case)
    mask = create_block_mask(_causal, None, None, at.tokens, at.tokens, device=str(bench.device))
    query = random((at.batch, at.heads, at.tokens, at.head_dim), bench.device)
    shape = (at.batch, at.kv_heads, at.tokens, at.head_dim)
    caches = [(random(shape, bench.device), random(shape, bench.device)) for _ in range(bench.copies(at.kv_bytes))]
    attention = _attention(bench)

    def attend(key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return attention(query, key, value, block_mask=mask, enable_gqa=True)

    def check() -> float:
        key, value = caches[-1]
        return check_last(attend(key, value)[-1], query[-1], key[-1], value[-1])

    return attention_work(at, [lambda k=k, v=v: attend(k, v) for k, v in caches], check, "flex")


def paged_mask(order: torch.Tensor, context: int, device: torch.device) -> BlockMask:
    """Block mask of one query a sequence whose pages lie in ``order`` in the pool.

    Parameters
    ----------
    order
        Physical page of each logical page, ``[batch, blocks]``.
    context
        Tokens of a sequence. [token]
    device
        Where.
    """
    batch, blocks = order.shape
    pages = batch * blocks
    logical = torch.full((batch, pages), pages, device=device)
    here = torch.arange(blocks, device=device).expand(batch, blocks)
    logical.scatter_(1, order, here)

    def own(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        return logical[b, kv // PAGE] * PAGE + kv % PAGE < context

    whole = context // PAGE
    counts = torch.full((batch, 1, 1), blocks - whole, dtype=torch.int32, device=device)
    full_counts = torch.full((batch, 1, 1), whole, dtype=torch.int32, device=device)
    width = torch.zeros(batch, 1, 1, pages, dtype=torch.int32, device=device)
    partial, full = width.clone(), width.clone()
    partial[:, 0, 0, : blocks - whole] = order[:, whole:].to(torch.int32)
    full[:, 0, 0, :whole] = order[:, :whole].to(torch.int32)
    return BlockMask.from_kv_blocks(
        counts, partial, full_counts, full, BLOCK_SIZE=(PAGE, PAGE), mask_mod=own, seq_lengths=(1, pages * PAGE)
    )


def _causal(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
    return q >= kv


def _attention(bench: Bench) -> Callable[..., torch.Tensor]:
    if bench.cuda:
        torch.compiler.reset()
        return torch.compile(flex_attention, dynamic=False)  # type: ignore[no-any-return]

    def uncompiled(*arguments: torch.Tensor, **options: object) -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return flex_attention(*arguments, **options)  # type: ignore[return-value]

    return uncompiled
