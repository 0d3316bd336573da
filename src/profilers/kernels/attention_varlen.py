"""Attention over a paged cache by the flash kernel that torch carries.

Called as ``torch.nn.attention.varlen.varlen_attn`` calls it, without the tensor that it fills beside: that takes a
launch of its own, as long as a short attention.
"""

from collections.abc import Callable

import torch

from profilers.attentions import Pages, Sizes, attention_work, check_last, paged_caches, register_paged
from profilers.bench import Bench
from profilers.kernel import Unsupported, Work
from profilers.tensors import random

PAGE = 256
"""This kernel's pages come in multiples of 256. [token]"""


def _flash(bench: Bench) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Torch's operation; told whether it knows pages by its own list of arguments."""
    operation = getattr(torch.ops.aten, "_flash_attention_forward", None)
    names = {a.name for a in operation.default._schema.arguments} if operation is not None else set()
    if not {"block_table", "seqused_k"} <= names:
        raise Unsupported(f"the flash attention of torch {torch.__version__} takes no table of pages")
    if not bench.cuda:
        raise Unsupported("torch's paged flash attention runs on CUDA only")
    return operation.default  # type: ignore[no-any-return, union-attr]


def _work(at: Sizes, bench: Bench) -> Work:
    flash = _flash(bench)
    query = random((at.batch * at.tokens, at.heads, at.head_dim), bench.device)
    starts = torch.arange(at.batch + 1, device=bench.device, dtype=torch.int32) * at.tokens
    caches = paged_caches(at, bench, PAGE)

    def attend(cache: Pages) -> torch.Tensor:
        return flash(
            query, cache.keys, cache.values, starts, None, at.tokens, at.context, 0.0, True, False,
            window_size_left=-1, window_size_right=0, seqused_k=cache.lengths, block_table=cache.table,
        )[0]  # fmt: skip

    def check() -> float:
        own = slice((at.batch - 1) * at.tokens, None)
        output = attend(caches[-1])[own].transpose(0, 1)
        return check_last(output, query[own].transpose(0, 1), *caches[-1].sequence(at.batch - 1))

    return attention_work(at, [lambda c=c: attend(c) for c in caches], check, "torch varlen", PAGE)


register_paged("varlen", decode=_work, prefill=_work)
