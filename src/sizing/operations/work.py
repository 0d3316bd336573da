"""Work of an operation at peak rates: bytes from memory, floating-point operations, bytes over links."""

import numpy as np

from sizing.catalog import Gpu
from sizing.formats import weight_format
from sizing.operations.record import Array, Operation, Step
from sizing.operations.times import driver, seen_in_decode, seen_in_prefill
from sizing.roofline import distinct_experts, kernel_format


def weight_bytes(operation: Operation) -> float:
    """Bytes of weights that all calls of an operation hold, experts all counted. [B]

    Parameters
    ----------
    operation
        One entry of the pass.
    """
    size = weight_format(operation.format).bytes_per_weight
    if operation.family == "gemm":
        return operation.count * operation.n * operation.k * size
    if operation.family == "moe":
        return operation.count * operation.local_experts * operation.matrices * operation.n * operation.k * size
    return 0.0


def work(op: Operation, step: Step, gpu: Gpu) -> tuple[Array, Array, float]:
    """Least traffic and operations of all calls of an operation, and the peak that applies.

    Weights, cache and state are counted, activations not (they may stay in the second-level cache).

    Parameters
    ----------
    op
        One entry of the pass.
    step
        What is computed.
    gpu
        The accelerator.

    Returns
    -------
    tuple
        Bytes [B], operations [FLOP], peak [FLOP/s].
    """
    tokens = driver(op, step)
    peak16 = kernel_format("bf16", gpu)[1]
    if op.family == "gemm":
        _, peak, size = kernel_format(op.format, gpu)
        moved = np.where(tokens > 0, op.n * op.k * size, 0.0)
        return op.count * moved, op.count * 2.0 * tokens * op.n * op.k, peak
    if op.family == "moe":
        _, peak, size = kernel_format(op.format, gpu)
        share = op.local_experts / op.experts
        each = op.matrices * op.n * op.k
        moved = distinct_experts(tokens, op.experts, op.top_k) * share * each * size
        return op.count * moved, op.count * 2.0 * tokens * op.top_k * share * each, peak
    moved, flops = _attention(op, step)
    return op.count * moved, op.count * flops, peak16


def _attention(op: Operation, step: Step) -> tuple[Array, Array]:
    zero = np.zeros_like(step.tokens)
    width = op.head_dim + op.value_dim
    if op.family == "attention_decode":
        seen = seen_in_decode(step.batch * op.share, step.context * op.share, op.window, op.chunked)
        return seen * op.kv_heads * width * op.kv_bytes, 2.0 * seen * op.heads * width
    if op.family == "mla_decode":
        seen = seen_in_decode(step.batch * op.share, step.context * op.share, op.window)
        return seen * (op.n + op.k) * op.kv_bytes, 2.0 * seen * op.heads * (2.0 * op.n + op.k)
    if op.family in ("attention_prefill", "mla_prefill"):
        pairs = seen_in_prefill(step.new, step.pairs, step.sequences, op.window) * op.share
        return zero, 2.0 * pairs * op.heads * width
    if op.family == "elementwise" and op.phase == "decode":
        return driver(op, step) * op.token_bytes, zero
    return zero, zero
