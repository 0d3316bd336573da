"""The kernels that one step of a decoder is made of, so that their sum can be held against the whole."""

from collections.abc import Iterator
from dataclasses import dataclass

from profilers.shapes import DecoderShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One kernel of a step.

    Attributes
    ----------
    family
        Kind, such as ``gemm.bf16``, as the calibration names it.
    shape
        Its sizes, in the words of the kernel's cases.
    count
        How often it runs in the step. [1]
    """

    family: str
    shape: dict[str, int | str]
    count: int

    def as_record(self) -> dict[str, object]:
        """Plain values for the measurement file."""
        return {"family": self.family, "shape": self.shape, "count": self.count}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a step does.

    Attributes
    ----------
    sequences
        Sequences in it. [sequence]
    new_tokens
        New tokens of each: 1 decodes. [token]
    history
        Tokens that each has in the cache already. [token]
    """

    sequences: int
    new_tokens: int
    history: int

    @property
    def decodes(self) -> bool:
        """One new token a sequence."""
        return self.new_tokens == 1

    @property
    def tokens(self) -> int:
        """New tokens of all sequences. [token]"""
        return self.sequences * self.new_tokens

    def as_shape(self) -> dict[str, int | str]:
        """As part of a case's shape."""
        return {"sequences": self.sequences, "new_tokens": self.new_tokens, "history": self.history}


def step_operations(shape: DecoderShape, step: Step) -> tuple[Operation, ...]:
    """Kernels of one step, equal ones counted together.

    Parameters
    ----------
    shape
        The decoder on this GPU.
    step
        Its batch.
    """
    counted: dict[tuple[str, tuple[tuple[str, int | str], ...]], int] = {}
    for family, sizes, count in _all(shape, step):
        key = (family, tuple(sizes.items()))
        counted[key] = counted.get(key, 0) + count
    return tuple(Operation(family=f, shape=dict(sizes), count=n) for (f, sizes), n in counted.items())


_Item = tuple[str, dict[str, int | str], int]


def _all(shape: DecoderShape, step: Step) -> Iterator[_Item]:
    sparse = sum(shape.has_experts(i) for i in range(shape.layers))
    dense = shape.layers - sparse
    m = step.tokens
    for n, k in shape.attention_linears().values():
        yield _gemm(m, n, k, shape.layers)
    yield from _core(shape, step)
    yield _norm(m, shape.hidden, 2 * shape.layers)
    if dense:
        yield from _mlp(m, shape.hidden, shape.intermediate, dense)
    if sparse:
        yield _gemm(m, shape.experts, shape.hidden, sparse)
        sizes = {
            "tokens": m,
            "hidden": shape.hidden,
            "intermediate": shape.moe_intermediate,
            "experts": shape.experts,
            "top_k": shape.top_k,
        }
        yield "moe.bf16", dict(sizes), sparse
        if shape.shared_intermediate:
            yield from _mlp(m, shape.hidden, shape.shared_intermediate, sparse)
    yield _norm(step.sequences, shape.hidden, 1)
    yield _gemm(step.sequences, shape.vocab, shape.hidden, 1)


def _core(shape: DecoderShape, step: Step) -> Iterator[_Item]:
    """Attention proper, with the absorbed projections of latent attention."""
    sizes: dict[str, int | str] = {"batch": step.sequences}
    if not shape.mla:
        yield _rope(step.tokens, (shape.heads + shape.kv_heads) * shape.head_dim, shape.layers)
        heads: dict[str, int | str] = {"heads": shape.heads, "kv_heads": shape.kv_heads, "head_dim": shape.head_dim}
        if step.decodes:
            yield "attention_decode", {**sizes, "context": step.history + 1, **heads}, shape.layers
        else:
            sizes |= {"tokens": step.new_tokens, "history": step.history}
            yield "attention_prefill", {**sizes, **heads}, shape.layers
        return
    yield _rope(step.tokens, (shape.heads + 1) * shape.rope_dim, shape.layers)
    if step.decodes:
        yield _batched(shape.heads, step.tokens, shape.kv_lora, shape.nope_dim, shape.layers)
        sizes |= {"context": step.history + 1, "heads": shape.heads, "latent": shape.kv_lora, "rope": shape.rope_dim}
        yield "mla_decode", sizes, shape.layers
        yield _batched(shape.heads, step.tokens, shape.value_dim, shape.kv_lora, shape.layers)
        return
    context = step.sequences * (step.history + step.new_tokens)
    yield _gemm(context, shape.heads * (shape.nope_dim + shape.value_dim), shape.kv_lora, shape.layers)
    sizes |= {"tokens": step.new_tokens, "history": step.history, "heads": shape.heads}
    yield "mla_prefill", {**sizes, "head_dim": shape.head_dim, "value_dim": shape.value_dim}, shape.layers


def _mlp(m: int, hidden: int, width: int, count: int) -> Iterator[_Item]:
    yield _gemm(m, 2 * width, hidden, count)
    yield "elementwise.silu_mul", {"tokens": m, "width": width}, count
    yield _gemm(m, hidden, width, count)


def _gemm(m: int, n: int, k: int, count: int) -> _Item:
    return "gemm.bf16", {"m": m, "n": n, "k": k}, count


def _batched(batches: int, m: int, n: int, k: int, count: int) -> _Item:
    return "batched_gemm.bf16", {"batches": batches, "m": m, "n": n, "k": k}, count


def _norm(m: int, width: int, count: int) -> _Item:
    return "elementwise.add_rms_norm", {"tokens": m, "width": width}, count


def _rope(m: int, width: int, count: int) -> _Item:
    return "elementwise.rope", {"tokens": m, "width": width}, count
