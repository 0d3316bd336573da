"""Multi-head latent attention: the absorbed decode core, the expanded prefill core, the absorbed projections.

DeepSeek-V2 report, section 2.1: the cache of a token is one latent vector and one rotary key that all heads
share; decoding moves the up-projections to the query and the output ("absorbed").
"""

from collections.abc import Iterator

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import pad
from torch.nn.functional import scaled_dot_product_attention as sdpa

from profilers.attentions import TOLERANCE, reference
from profilers.bench import Bench
from profilers.kernel import Case, Unsupported, Work, kernel
from profilers.plan import Plan
from profilers.tensors import error, random

DECODE_HEADS = (16, 128)
"""Query heads: DeepSeek-V2-Lite, DeepSeek-V3. [head]"""

PAGE = 64


def _decode_cases(plan: Plan, kernel_name: str) -> Iterator[Case]:
    if plan.toy:
        yield _decode(kernel_name, 3, 20, 4, 32, 8, 0)
    elif plan.grid:
        for heads in DECODE_HEADS:
            for batch in (1, 8, 32, 128):
                for context in (1024, 4096, 16384):
                    if batch * context <= 1 << 19:
                        yield _decode(kernel_name, batch, context, heads, 512, 64, 0 if context != 1024 else 2)
    for shape in plan.shapes("mla_decode"):
        yield Case(kernel=kernel_name, shape=shape, priority=1)


def _decode(name: str, batch: int, context: int, heads: int, latent: int, rope: int, priority: int) -> Case:
    shape = {"batch": batch, "context": context, "heads": heads, "latent": latent, "rope": rope}
    return Case(kernel=name, shape=shape, priority=priority)


def absorbed(query: torch.Tensor, cache: torch.Tensor, latent: int, scale: float) -> torch.Tensor:
    """Absorbed attention of one query a sequence, two batched products and a softmax.

    Parameters
    ----------
    query
        ``[batch, heads, latent + rope]``.
    cache
        ``[batch, context, latent + rope]``; its first ``latent`` columns are the values too.
    latent
        Width of the latent vector. [element]
    scale
        Of the scores. [1]
    """
    score = torch.bmm(query, cache.transpose(1, 2))
    share = torch.softmax(score * scale, dim=2, dtype=torch.float32).to(cache.dtype)
    return torch.bmm(share, cache[:, :, :latent])


def _decode_work(case: Case, calls: list, check, copies: int, name: str, page: int = 0) -> Work:  # noqa: ANN001
    s = {key: int(value) for key, value in case.shape.items()}
    width = s["latent"] + s["rope"]
    cache_bytes = 2.0 * s["batch"] * s["context"] * width
    return Work(
        calls=calls,
        check=check,
        tolerance=TOLERANCE,
        flops=2.0 * s["batch"] * s["context"] * s["heads"] * (width + s["latent"]),
        moved_bytes=cache_bytes + 2.0 * s["batch"] * s["heads"] * (width + s["latent"]),
        implementation=name,
        footprint_bytes=copies * cache_bytes,
        facts={"page_tokens": page},
    )


@kernel("mla_decode.bmm", cases=lambda plan: _decode_cases(plan, "mla_decode.bmm"))
def mla_decode(case: Case, bench: Bench) -> Work:
    """With what torch has alone: the cache is read twice, which dedicated kernels avoid."""
    batch, context, heads, latent, rope = (int(case.shape[k]) for k in ("batch", "context", "heads", "latent", "rope"))
    width = latent + rope
    query = random((batch, heads, width), bench.device)
    copies = bench.copies(2.0 * batch * context * width)
    caches = [random((batch, context, width), bench.device) for _ in range(copies)]
    scale = width**-0.5

    def check() -> float:
        key = caches[-1][-1:]
        expected = _reference(query[-1], key[0], latent, scale)
        return error(absorbed(query, caches[-1], latent, scale)[-1], expected)

    calls = [lambda c=c: absorbed(query, c, latent, scale) for c in caches]
    return _decode_work(case, calls, check, copies, "torch bmm")


def _reference(query: torch.Tensor, cache: torch.Tensor, latent: int, scale: float) -> torch.Tensor:
    share = (query.float() @ cache.float().t() * scale).softmax(dim=1)
    return share @ cache[:, :latent].float()


@kernel("mla_decode.flashinfer", cases=lambda plan: _decode_cases(plan, "mla_decode.flashinfer"))
def mla_decode_flashinfer(case: Case, bench: Bench) -> Work:
    """FlashInfer's paged kernel."""
    from profilers.kernels.attention_flashinfer import library

    wrapper = library().mla.BatchMLAPagedAttentionWrapper
    batch, context, heads, latent, rope = (int(case.shape[k]) for k in ("batch", "context", "heads", "latent", "rope"))
    if bench.cuda and (latent, rope) != (512, 64):
        raise Unsupported("FlashInfer's latent attention is built for widths 512 and 64")
    blocks = -(-context // PAGE)
    copies = bench.copies(2.0 * batch * context * (latent + rope))
    query, rotary = (random((batch, heads, width), bench.device) for width in (latent, rope))
    shape = (batch * blocks, PAGE)
    caches = [(random((*shape, latent), bench.device), random((*shape, rope), bench.device)) for _ in range(copies)]
    order = torch.randperm(batch * blocks, device=bench.device).to(torch.int32)
    scale = (latent + rope) ** -0.5
    made = wrapper(torch.zeros(256 << 20 if bench.cuda else 1024, dtype=torch.uint8, device=bench.device))
    steps = torch.arange(batch + 1, device=bench.device, dtype=torch.int32)
    lengths = torch.full((batch,), context, dtype=torch.int32, device=bench.device)
    made.plan(
        steps, steps * blocks, order, lengths, heads, latent, rope, PAGE, False, scale, torch.bfloat16, torch.bfloat16
    )

    def check() -> float:
        pages = order[-blocks:].long()
        rows = torch.cat([part[pages].flatten(0, 1)[:context] for part in caches[-1]], dim=1)
        expected = _reference(torch.cat([query[-1], rotary[-1]], dim=1), rows, latent, scale)
        return error(made.run(query, rotary, *caches[-1])[-1], expected)

    calls = [lambda c=c: made.run(query, rotary, *c) for c in caches]
    return _decode_work(case, calls, check, copies, "flashinfer", PAGE)


def _prefill_cases(plan: Plan) -> Iterator[Case]:
    name = "mla_prefill.sdpa"
    if plan.toy:
        yield _prefill(name, 8, 0, 4, 24, 16, 0)
        yield _prefill(name, 8, 8, 4, 24, 16, 0)
    elif plan.grid:
        for heads in DECODE_HEADS:
            for tokens, history in ((512, 0), (2048, 0), (8192, 0), (512, 8192)):
                yield _prefill(name, tokens, history, heads, 192, 128, 0 if heads == 16 else 2)
    for shape in plan.shapes("mla_prefill"):
        yield Case(kernel=name, shape=shape, priority=1)


def _prefill(name: str, tokens: int, history: int, heads: int, head_dim: int, value_dim: int, priority: int) -> Case:
    shape = {"batch": 1, "tokens": tokens, "history": history}
    shape |= {"heads": heads, "head_dim": head_dim, "value_dim": value_dim}
    return Case(kernel=name, shape=shape, priority=priority)


def expanded(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cuda: bool) -> torch.Tensor:
    """Causal attention with values narrower than keys; the values are padded for the flash kernel.

    Parameters
    ----------
    query, key
        ``[batch, heads, tokens, head_dim]``.
    value
        ``[batch, heads, tokens, value_dim]``.
    cuda
        Whether the flash kernel is there.
    """
    width = value.shape[-1]
    backends = [SDPBackend.FLASH_ATTENTION] if cuda else [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    padded = pad(value, (0, key.shape[-1] - width))
    with sdpa_kernel(backends):
        if query.shape[2] == key.shape[2]:
            output = sdpa(query, key, padded, is_causal=True)
        else:
            output = sdpa(query, key, padded, attn_mask=causal_lower_right(query.shape[2], key.shape[2]))
    return output[..., :width]


@kernel("mla_prefill.sdpa", cases=_prefill_cases)
def mla_prefill(case: Case, bench: Bench) -> Work:
    """Keys and values expanded from the latent cache beforehand."""
    s = {name: int(value) for name, value in case.shape.items()}
    batch, tokens, heads, context = s["batch"], s["tokens"], s["heads"], s["history"] + s["tokens"]
    query = random((batch, heads, tokens, s["head_dim"]), bench.device)
    read = 2.0 * batch * heads * context * (s["head_dim"] + s["value_dim"])
    pairs = [
        tuple(random((batch, heads, context, s[width]), bench.device) for width in ("head_dim", "value_dim"))
        for _ in range(bench.copies(read))
    ]

    def check() -> float:
        key, value = pairs[-1]
        few = min(tokens, 16)
        expected = reference(query[-1][:, -few:], key[-1], value[-1])
        return error(expanded(query, key, value, bench.cuda)[-1][:, -few:], expected)

    scored = batch * (tokens * s["history"] + tokens * (tokens + 1) / 2)
    return Work(
        calls=[lambda k=k, v=v: expanded(query, k, v, bench.cuda) for k, v in pairs],
        check=check,
        tolerance=TOLERANCE,
        flops=2.0 * scored * heads * (s["head_dim"] + s["value_dim"]),
        moved_bytes=read + 2.0 * batch * heads * tokens * (s["head_dim"] + s["value_dim"]),
        implementation="sdpa flash, values padded",
        footprint_bytes=len(pairs) * read,
    )


def _batched_cases(plan: Plan) -> Iterator[Case]:
    name = "batched_gemm.bf16"
    if plan.toy:
        yield _batched(name, 4, 3, 32, 16, 0)
    elif plan.grid:
        for heads in DECODE_HEADS:
            for m in (1, 16, 128):
                yield _batched(name, heads, m, 512, 128, 0)
                yield _batched(name, heads, m, 128, 512, 2)
    for shape in plan.shapes(name):
        yield Case(kernel=name, shape=shape, priority=1)


def _batched(name: str, batches: int, m: int, n: int, k: int, priority: int) -> Case:
    return Case(kernel=name, shape={"batches": batches, "m": m, "n": n, "k": k}, priority=priority)


@kernel("batched_gemm.bf16", cases=_batched_cases)
def batched_gemm(case: Case, bench: Bench) -> Work:
    """One small product a head: the absorbed projections."""
    batches, m, n, k = (int(case.shape[x]) for x in ("batches", "m", "n", "k"))
    x = random((batches, m, k), bench.device)
    each = 2.0 * batches * n * k
    weights = [random((batches, k, n), bench.device) for _ in range(bench.copies(each))]
    return Work(
        calls=[lambda w=w: torch.bmm(x, w) for w in weights],
        check=lambda: error(torch.bmm(x, weights[-1]), torch.bmm(x.float(), weights[-1].float())),
        tolerance=0.01,
        flops=2.0 * batches * m * n * k,
        moved_bytes=each + 2.0 * batches * m * (n + k),
        implementation="bmm",
        footprint_bytes=len(weights) * each,
    )
