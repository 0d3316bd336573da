"""Attention over a paged cache by the FlashInfer library, as several engines run it."""

from types import ModuleType
from typing import Any

import torch

from profilers.attentions import Pages, Sizes, attention_work, check_last, paged_caches, register_paged
from profilers.bench import Bench
from profilers.kernel import Unsupported, Work
from profilers.tensors import random

PAGE = 16
WORKSPACE_BYTES = 256 << 20


def library() -> ModuleType:
    """FlashInfer, or why not."""
    try:
        import flashinfer
    except ImportError:
        raise Unsupported("needs flashinfer-python, which is not installed") from None
    return flashinfer  # type: ignore[no-any-return]


def _decode(at: Sizes, bench: Bench) -> Work:
    """One query a sequence; the plan is made once, as engines do for a step."""
    flashinfer = library()
    query = random((at.batch, at.heads, at.head_dim), bench.device)
    caches = paged_caches(at, bench, PAGE)
    wrappers, workspace = [], _workspace(bench)
    for cache in caches:
        made = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=True)
        starts, indices, last = _index(at, cache, bench)
        made.plan(
            starts, indices, last, at.heads, at.kv_heads, at.head_dim, PAGE,
            q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16,
        )  # fmt: skip
        wrappers.append(made)
    return _finish(at, query, caches, wrappers)


def _prefill(at: Sizes, bench: Bench) -> Work:
    """A causal prompt, its keys already in the pages."""
    flashinfer = library()
    query = random((at.batch * at.tokens, at.heads, at.head_dim), bench.device)
    caches = paged_caches(at, bench, PAGE)
    query_starts = torch.arange(at.batch + 1, device=bench.device, dtype=torch.int32) * at.tokens
    wrappers, workspace = [], _workspace(bench)
    for cache in caches:
        made = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")
        starts, indices, last = _index(at, cache, bench)
        made.plan(
            query_starts, starts, indices, last, at.heads, at.kv_heads, at.head_dim, PAGE, causal=True,
            q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16,
        )  # fmt: skip
        wrappers.append(made)
    return _finish(at, query, caches, wrappers)


def _workspace(bench: Bench) -> torch.Tensor:
    """Scratch memory that calls share, for they run one after another."""
    return torch.zeros(WORKSPACE_BYTES if bench.cuda else 1024, dtype=torch.uint8, device=bench.device)


def _index(at: Sizes, cache: Pages, bench: Bench) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Where each sequence's pages start, the pages, and the tokens in the last page of each."""
    blocks = cache.table.shape[1]
    starts = torch.arange(at.batch + 1, device=bench.device, dtype=torch.int32) * blocks
    last = torch.full((at.batch,), at.context - (blocks - 1) * PAGE, dtype=torch.int32, device=bench.device)
    return starts, cache.table.flatten().contiguous(), last


def _finish(at: Sizes, query: torch.Tensor, caches: list[Pages], wrappers: list[Any]) -> Work:
    def attend(index: int) -> torch.Tensor:
        cache = caches[index]
        output: torch.Tensor = wrappers[index].run(query, (cache.keys, cache.values))
        return output

    def check() -> float:
        own = slice((at.batch - 1) * at.tokens, None)
        output = attend(-1)[own].transpose(0, 1)
        return check_last(output, query[own].transpose(0, 1), *caches[-1].sequence(at.batch - 1))

    calls = [lambda i=i: attend(i) for i in range(len(caches))]
    return attention_work(at, calls, check, "flashinfer", PAGE)


register_paged("flashinfer", decode=_decode, prefill=_prefill)
