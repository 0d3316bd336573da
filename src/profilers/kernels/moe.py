"""Experts of a mixture: routing's permutation, two grouped products with the gate between, and the sum back."""

from collections.abc import Callable, Iterator

import torch
from torch.nn.functional import silu

from profilers.bench import Bench
from profilers.kernel import Case, Unsupported, Work, kernel
from profilers.plan import Plan
from profilers.tensors import FP8, error, random, to_fp8_rows

MODELS = ((2048, 768, 128, 8), (4096, 1536, 128, 8), (2048, 1408, 64, 6))
"""Hidden, expert width, experts, experts a token: Qwen3-30B-A3B, Qwen3-235B-A22B, DeepSeek-V2-Lite."""

TOKENS = (1, 4, 16, 64, 256, 1024, 4096)

Grouped = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def _cases(name: str, plan: Plan, *, model_shapes: bool) -> Iterator[Case]:
    if plan.toy:
        yield _case(name, 6, (64, 32, 4, 2), 0)
    elif plan.grid:
        for model in MODELS:
            for tokens in TOKENS:
                yield _case(name, tokens, model, 0 if model != MODELS[2] and tokens != 4 else 2)
    if model_shapes:
        for shape in plan.shapes("moe.bf16"):
            yield Case(kernel=name, shape=shape, priority=1)


def _case(name: str, tokens: int, model: tuple[int, int, int, int], priority: int) -> Case:
    shape = {"tokens": tokens, "hidden": model[0], "intermediate": model[1], "experts": model[2], "top_k": model[3]}
    return Case(kernel=name, shape=shape, priority=priority)


def route(logits: torch.Tensor, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and index of the experts that each token goes to."""
    weight, index = torch.topk(logits.float(), top_k, dim=1)
    return torch.softmax(weight, dim=1), index


def apply_experts(
    x: torch.Tensor,
    weight: torch.Tensor,
    index: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    grouped: Grouped,
) -> torch.Tensor:
    """Send tokens to their experts and add up what comes back; nothing waits for the host.

    Parameters
    ----------
    x
        ``[tokens, hidden]``.
    weight, index
        Of each token's experts, ``[tokens, top_k]``.
    gate_up, down
        Weights of all experts, ``[experts, hidden, 2 width]`` and ``[experts, width, hidden]``.
    grouped
        Product of sorted rows with each expert's matrix, given where each expert's rows end.
    """
    experts, top_k = gate_up.shape[0], index.shape[1]
    flat = index.flatten()
    order = torch.argsort(flat, stable=True)
    marks = torch.arange(experts, device=x.device)
    ends = torch.searchsorted(flat[order], marks, right=True).to(torch.int32)
    rows = x[order // top_k]
    gate, up = grouped(rows, gate_up, ends).chunk(2, dim=1)
    out = grouped(silu(gate) * up, down, ends)
    scaled = out * weight.flatten()[order].unsqueeze(1).to(out.dtype)
    back = torch.empty_like(scaled)
    back[order] = scaled
    return back.view(x.shape[0], top_k, -1).sum(dim=1)


def routes(case: Case, bench: Bench, weight_bytes: float) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Choices of experts, so many that those that one call reads are out of the L2 before they come again.

    Parameters
    ----------
    case
        Which.
    bench
        Where.
    weight_bytes
        Size of a weight. [B]
    """
    tokens, hidden, width, experts, top_k = _numbers(case)
    read = 3.0 * min(tokens * top_k, experts) * hidden * width * weight_bytes
    count = max(2, bench.copies(read, at_most=24))
    return [route(random((tokens, experts), bench.device), top_k) for _ in range(count)]


def grouped_bf16(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Torch's grouped product in BF16."""
    product: torch.Tensor = torch._grouped_mm(rows, weights, offs=ends)
    return product


def _reference(
    x: torch.Tensor, weight: torch.Tensor, index: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    """The same in FP32, an expert at a time."""
    total = torch.zeros(x.shape, device=x.device)
    for expert in index.unique().tolist():
        token, slot = (index == expert).nonzero(as_tuple=True)
        gate, up = (x[token].float() @ gate_up[expert].float()).chunk(2, dim=1)
        total[token] += weight[token, slot].unsqueeze(1) * ((silu(gate) * up) @ down[expert].float())
    return total


@kernel("moe.bf16", cases=lambda plan: _cases("moe.bf16", plan, model_shapes=True))
def moe_bf16(case: Case, bench: Bench) -> Work:
    """Experts in BF16."""
    if not hasattr(torch, "_grouped_mm"):
        raise Unsupported(f"needs torch._grouped_mm; torch {torch.__version__} has none")
    if bench.cuda and bench.capability < (9, 0):
        raise Unsupported(f"torch's grouped product needs compute capability 9.0; this chip has {bench.capability}")
    tokens, hidden, width, experts, _ = _numbers(case)
    expert_bytes = 6.0 * experts * hidden * width
    x = random((tokens, hidden), bench.device)
    weights = [
        (
            random((experts, 2 * width, hidden), bench.device).mul_(hidden**-0.5).transpose(1, 2),
            random((experts, hidden, width), bench.device).mul_(width**-0.5).transpose(1, 2),
        )
        for _ in range(min(bench.copies(expert_bytes), 2))
    ]
    chosen = routes(case, bench, 2.0)

    def run(i: int) -> torch.Tensor:
        return apply_experts(x, *chosen[i], *weights[i % len(weights)], grouped_bf16)

    def check() -> float:
        few = slice(0, min(tokens, 8))
        weight, index = (part[few] for part in chosen[-1])
        last = weights[(len(chosen) - 1) % len(weights)]
        return error(run(len(chosen) - 1)[few], _reference(x[few], weight, index, *last))

    return _work(case, [lambda i=i: run(i) for i in range(len(chosen))], check, chosen, 2.0, "torch grouped_mm")


@kernel("moe.bf16_vllm", cases=lambda plan: _cases("moe.bf16_vllm", plan, model_shapes=True))
def moe_vllm(case: Case, bench: Bench) -> Work:
    """Experts in BF16 by vLLM's fused kernel, where vLLM is installed."""
    try:
        from vllm.model_executor.layers.fused_moe import fused_experts
    except ImportError:
        raise Unsupported("needs vllm, which is not installed") from None
    tokens, hidden, width, experts, _ = _numbers(case)
    x = random((tokens, hidden), bench.device)
    weights = [
        (
            random((experts, 2 * width, hidden), bench.device).mul_(hidden**-0.5),
            random((experts, hidden, width), bench.device).mul_(width**-0.5),
        )
        for _ in range(min(bench.copies(6.0 * experts * hidden * width), 2))
    ]
    chosen = routes(case, bench, 2.0)

    def run(i: int) -> torch.Tensor:
        weight, index = chosen[i]
        out: torch.Tensor = fused_experts(x, *weights[i % len(weights)], weight, index.to(torch.int32))
        return out

    def check() -> float:
        few = slice(0, min(tokens, 8))
        weight, index = (part[few] for part in chosen[-1])
        last = (w.transpose(1, 2) for w in weights[(len(chosen) - 1) % len(weights)])
        return error(run(len(chosen) - 1)[few], _reference(x[few], weight, index, *last))

    return _work(case, [lambda i=i: run(i) for i in range(len(chosen))], check, chosen, 2.0, "vllm fused_experts")


@kernel("moe.fp8", cases=lambda plan: _cases("moe.fp8", plan, model_shapes=False))
def moe_fp8(case: Case, bench: Bench) -> Work:
    """Experts in FP8 with a scale an output channel; inputs are quantised a token at a time on the way."""
    if bench.cuda and bench.capability[0] != 9:
        raise Unsupported(f"torch's FP8 grouped product is for compute capability 9; this chip has {bench.capability}")
    tokens, hidden, width, experts, _ = _numbers(case)
    x = random((tokens, hidden), bench.device)
    plain = [random((experts, 2 * width, hidden), bench.device), random((experts, hidden, width), bench.device)]
    plain = [w.mul_(w.shape[2] ** -0.5) for w in plain]
    coded, scales, values = zip(*(_quantised(w) for w in plain), strict=True)
    chosen = routes(case, bench, 1.0)
    by_matrix = {id(w): s for w, s in zip(coded, scales, strict=True)}

    def grouped(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        quantised, scale = to_fp8_rows(rows)
        w_scale = by_matrix[id(weights)]
        if not bench.cuda:
            value = (weights.float() * w_scale.unsqueeze(1)).to(torch.bfloat16)
            return torch._grouped_mm((quantised.float() * scale).to(torch.bfloat16), value, offs=ends)
        return torch._scaled_grouped_mm(
            quantised, weights, scale.flatten(), w_scale, offs=ends, out_dtype=torch.bfloat16, use_fast_accum=True
        )

    def run(i: int) -> torch.Tensor:
        return apply_experts(x, *chosen[i], *coded, grouped)

    def check() -> float:
        few = slice(0, min(tokens, 8))
        weight, index = (part[few] for part in chosen[-1])
        return error(run(-1)[few], _reference(x[few], weight, index, *values))

    calls = [lambda i=i: run(i) for i in range(len(chosen))]
    return _work(case, calls, check, chosen, 1.0, "torch scaled_grouped_mm", tolerance=0.1)


def _quantised(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes and scales of ``[experts, outputs, inputs]``, transposed for the product; and what they stand for."""
    experts, outputs, inputs = weight.shape
    coded, scale = to_fp8_rows(weight.view(-1, inputs))
    coded, scale = coded.view(experts, outputs, inputs), scale.view(experts, outputs)
    value = (coded.float() * scale.unsqueeze(2)).to(torch.bfloat16).transpose(1, 2)
    assert coded.dtype == FP8
    return coded.transpose(1, 2), scale, value


def _numbers(case: Case) -> tuple[int, int, int, int, int]:
    s = {name: int(value) for name, value in case.shape.items()}
    return s["tokens"], s["hidden"], s["intermediate"], s["experts"], s["top_k"]


def _work(  # noqa: ANN202, RUF100 - one place for both formats
    case: Case,
    calls: list[Callable[[], torch.Tensor]],
    check: Callable[[], float],
    chosen: list[tuple[torch.Tensor, torch.Tensor]],
    weight_bytes: float,
    implementation: str,
    tolerance: float = 0.03,
) -> Work:
    tokens, hidden, width, _, top_k = _numbers(case)
    touched = sum(len(index.unique()) for _, index in chosen) / len(chosen)
    read = touched * 3.0 * hidden * width * weight_bytes
    return Work(
        calls=calls,
        check=check,
        tolerance=tolerance,
        flops=6.0 * tokens * top_k * hidden * width,
        moved_bytes=read + 4.0 * tokens * hidden,
        implementation=implementation,
        footprint_bytes=len(calls) * read,
        facts={"experts_touched": touched},
    )
