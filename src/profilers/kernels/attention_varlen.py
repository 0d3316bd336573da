"""Attention over a paged cache by the flash kernel that torch carries (``torch.nn.attention.varlen``)."""

import torch

from profilers.attentions import (
    Pages,
    Sizes,
    attention_work,
    check_last,
    decode_cases,
    paged_caches,
    prefill_cases,
    sizes,
)
from profilers.bench import Bench
from profilers.kernel import Case, Unsupported, Work, kernel
from profilers.tensors import random

PAGE = 256
"""This kernel's pages come in multiples of 256. [token]"""


@kernel("attention_decode.varlen", cases=lambda plan: decode_cases("attention_decode.varlen", plan))
def decode(case: Case, bench: Bench) -> Work:
    """One query a sequence."""
    return _work(sizes(case), bench)


@kernel("attention_prefill.varlen", cases=lambda plan: prefill_cases("attention_prefill.varlen", plan, history=True))
def prefill(case: Case, bench: Bench) -> Work:
    """A causal prompt, its keys already in the pages."""
    return _work(sizes(case), bench)


def _need(bench: Bench):  # noqa: ANN202 - a function of torch's
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        raise Unsupported(f"torch {torch.__version__} has no torch.nn.attention.varlen") from None
    if "block_table" not in (varlen_attn.__kwdefaults__ or {}):
        raise Unsupported(f"varlen_attn of torch {torch.__version__} takes no block_table")
    if not bench.cuda:
        raise Unsupported("torch's paged flash attention runs on CUDA only")
    return varlen_attn


def _work(at: Sizes, bench: Bench) -> Work:
    varlen_attn = _need(bench)
    query = random((at.batch * at.tokens, at.heads, at.head_dim), bench.device)
    starts = torch.arange(at.batch + 1, device=bench.device, dtype=torch.int32) * at.tokens
    caches = paged_caches(at, bench, PAGE)

    def attend(cache: Pages) -> torch.Tensor:
        return varlen_attn(
            query, cache.keys, cache.values, starts, None, at.tokens, at.context, window_size=(-1, 0),
            enable_gqa=True, seqused_k=cache.lengths, block_table=cache.table,
        )  # fmt: skip

    def check() -> float:
        own = slice((at.batch - 1) * at.tokens, None)
        output = attend(caches[-1])[own].transpose(0, 1)
        return check_last(output, query[own].transpose(0, 1), *caches[-1].sequence(at.batch - 1))

    return attention_work(at, [lambda c=c: attend(c) for c in caches], check, "torch varlen", PAGE)
