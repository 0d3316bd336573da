"""Attention by torch's ``scaled_dot_product_attention`` on a contiguous cache."""

from collections.abc import Iterator

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention as sdpa

from profilers.attentions import Sizes, attention_work, check_last, decode_cases, prefill_cases, sizes
from profilers.bench import Bench
from profilers.kernel import Case, Unsupported, Work, kernel
from profilers.plan import Plan
from profilers.tensors import random


def _cudnn_cases(plan: Plan) -> Iterator[Case]:
    return prefill_cases("attention_prefill.cudnn", plan, history=False)


@kernel("attention_decode.sdpa", cases=lambda plan: decode_cases("attention_decode.sdpa", plan))
def decode(case: Case, bench: Bench) -> Work:
    """Flash kernel, grouped query heads, split over the cache."""
    return _work(sizes(case), bench, SDPBackend.FLASH_ATTENTION, "sdpa flash")


@kernel("attention_prefill.sdpa", cases=lambda plan: prefill_cases("attention_prefill.sdpa", plan, history=True))
def prefill(case: Case, bench: Bench) -> Work:
    """Flash kernel, causal, also behind a cached history."""
    return _work(sizes(case), bench, SDPBackend.FLASH_ATTENTION, "sdpa flash")


@kernel("attention_prefill.cudnn", cases=_cudnn_cases)
def prefill_cudnn(case: Case, bench: Bench) -> Work:
    """CuDNN's kernel, which uses Hopper's and Blackwell's own instructions."""
    if bench.cuda and bench.capability < (8, 0):
        raise Unsupported(f"cuDNN attention needs compute capability 8.0; this chip has {bench.capability}")
    return _work(sizes(case), bench, SDPBackend.CUDNN_ATTENTION, "sdpa cudnn")


def _work(at: Sizes, bench: Bench, backend: SDPBackend, name: str) -> Work:
    query = random((at.batch, at.heads, at.tokens, at.head_dim), bench.device)
    shape = (at.batch, at.kv_heads, at.context, at.head_dim)
    caches = [(random(shape, bench.device), random(shape, bench.device)) for _ in range(bench.copies(at.kv_bytes))]
    allowed = [backend] if bench.cuda else [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]

    def attend(key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(allowed):
            if at.tokens == 1:
                return sdpa(query, key, value, enable_gqa=True)
            if at.tokens == at.context:
                return sdpa(query, key, value, is_causal=True, enable_gqa=True)
            mask = causal_lower_right(at.tokens, at.context)
            return sdpa(query, key, value, attn_mask=mask, enable_gqa=True)

    def check() -> float:
        key, value = caches[-1]
        return check_last(attend(key, value)[-1], query[-1], key[-1], value[-1])

    calls = [lambda k=k, v=v: attend(k, v) for k, v in caches]
    return attention_work(at, calls, check, name if bench.cuda else "sdpa cpu")
