"""Attention over a paged cache by the FlashAttention library, version 3 where installed, else version 2."""

from collections.abc import Callable

import torch

from profilers.attentions import Pages, Sizes, attention_work, check_last, paged_caches, register_paged
from profilers.bench import Bench
from profilers.kernel import Unsupported, Work
from profilers.tensors import random

PAGE = 256
"""A page that both versions take. [token]"""


def _library() -> tuple[Callable[..., torch.Tensor], str, str]:
    """The library's function, what it calls the table of pages, its name."""
    try:
        from flash_attn_interface import flash_attn_with_kvcache

        return flash_attn_with_kvcache, "page_table", "flash_attn 3"
    except ImportError:
        pass
    try:
        from flash_attn import flash_attn_with_kvcache

        return flash_attn_with_kvcache, "block_table", "flash_attn 2"
    except ImportError:
        raise Unsupported("needs flash-attn, which is not installed") from None


def _work(at: Sizes, bench: Bench) -> Work:
    attention, table, name = _library()
    query = random((at.batch, at.tokens, at.heads, at.head_dim), bench.device)
    caches = paged_caches(at, bench, PAGE)

    def attend(cache: Pages) -> torch.Tensor:
        pages = {table: cache.table}
        return attention(query, cache.keys, cache.values, cache_seqlens=cache.lengths, causal=True, **pages)

    def check() -> float:
        output = attend(caches[-1])[-1].transpose(0, 1)
        return check_last(output, query[-1].transpose(0, 1), *caches[-1].sequence(at.batch - 1))

    return attention_work(at, [lambda c=c: attend(c) for c in caches], check, name, PAGE)


register_paged("flash_attn", decode=_work, prefill=_work)
