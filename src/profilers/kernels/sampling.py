"""Choosing the next token: greedy, and top-k with top-p at a temperature."""

from collections.abc import Iterator

import torch

from profilers.bench import Bench
from profilers.kernel import Case, Work, kernel
from profilers.plan import Plan
from profilers.tensors import random

VOCABULARY = 151936


def _cases(name: str, plan: Plan) -> Iterator[Case]:
    if plan.toy:
        yield Case(kernel=name, shape={"sequences": 3, "vocabulary": 64}, priority=0)
    elif plan.grid:
        for sequences in (1, 32, 128):
            yield Case(kernel=name, shape={"sequences": sequences, "vocabulary": VOCABULARY}, priority=0)


def _logits(case: Case, bench: Bench) -> torch.Tensor:
    return random((int(case.shape["sequences"]), int(case.shape["vocabulary"])), bench.device, torch.float32)


@kernel("sampling.greedy", cases=lambda plan: _cases("sampling.greedy", plan))
def greedy(case: Case, bench: Bench) -> Work:
    """The likeliest token."""
    logits = _logits(case, bench)

    def check() -> float:
        token = torch.argmax(logits, dim=1, keepdim=True)
        return float((logits.amax(dim=1, keepdim=True) - logits.gather(1, token)).abs().max())

    return _work(logits, lambda: torch.argmax(logits, dim=1), check, "argmax", 1e-6, passes=1.0)


def top_k_top_p(logits: torch.Tensor, k: int, p: float, temperature: float) -> torch.Tensor:
    """A token of the k likeliest, cut where their share exceeds p; drawn by the exponential trick.

    Parameters
    ----------
    logits
        ``[sequences, vocabulary]``.
    k
        Tokens kept. [token]
    p
        Share of probability kept. [1]
    temperature
        Divides the logits. [1]
    """
    value, index = torch.topk(logits / temperature, k, dim=1)
    share = torch.softmax(value, dim=1)
    share = torch.where(share.cumsum(dim=1) - share < p, share, 0.0)
    noise = torch.empty_like(share).exponential_()
    return index.gather(1, torch.argmax(share / noise, dim=1, keepdim=True))


@kernel("sampling.top_k_top_p", cases=lambda plan: _cases("sampling.top_k_top_p", plan))
def sampled(case: Case, bench: Bench) -> Work:
    """Top 50, then 0.9 of their share, at temperature 0.7."""
    logits = _logits(case, bench)
    k = min(50, logits.shape[1])

    def check() -> float:
        drawn = logits.gather(1, top_k_top_p(logits, k, 0.9, 0.7))
        lowest = torch.topk(logits, k, dim=1).values[:, -1:]
        return float((drawn < lowest).sum())

    return _work(logits, lambda: top_k_top_p(logits, k, 0.9, 0.7), check, "torch topk", 0.0, passes=3.0)


def _work(logits: torch.Tensor, call, check, name: str, tolerance: float, passes: float) -> Work:  # noqa: ANN001
    size = 4.0 * logits.numel()
    return Work(
        calls=[call],
        check=check,
        tolerance=tolerance,
        flops=0.0,
        moved_bytes=passes * size,
        implementation=name,
        footprint_bytes=size,
    )
