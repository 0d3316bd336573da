"""Time of each family of operations."""

from collections.abc import Callable

import numpy as np

from sizing import collectives, roofline
from sizing.calibration import Calibration
from sizing.catalog import Gpu
from sizing.operations.record import Array, Operation, Step


def seconds(operation: Operation, step: Step, gpu: Gpu, cal: Calibration) -> Array:
    """Time of an operation in a step, all its calls. [s]

    Parameters
    ----------
    operation
        One entry of :func:`operations`.
    step
        What is computed.
    gpu, cal
        The accelerator and its constants.
    """
    return operation.count * TIMES[operation.family](operation, step, gpu, cal)


def driver(op: Operation, step: Step) -> Array:
    """What the operation's phase counts, the part that one call sees. [token] or [sequence]"""
    per = {"tokens": step.tokens, "rows": step.rows, "decode": step.batch, "prefill": step.new}[op.phase]
    return per * op.share


def _gemm(op: Operation, step: Step, gpu: Gpu, cal: Calibration) -> Array:
    return roofline.gemm_s(driver(op, step), op.n, op.k, op.format, gpu, cal, fused=True)


ROUTER_SPREAD = 1.0
"""Log-sigma of experts' popularity in served models: between even routing and the power laws that kernel tables are
measured with (exponents 1.0 and 1.2); 0.8 to 1.3 leave the least error on models left out. [1]"""


def _moe(op: Operation, step: Step, gpu: Gpu, cal: Calibration) -> Array:
    tokens = driver(op, step)
    spread = 0.0 if cal.ideal else ROUTER_SPREAD
    touched = roofline.routed_experts(tokens, op.experts, op.top_k, spread) if op.touched is None else op.touched
    return roofline.moe_s(
        tokens, op.n, op.k, op.experts, op.top_k, op.format, gpu, cal,
        local_experts=op.local_experts, matrices=op.matrices, skew=op.skew, touched=touched,
    )  # fmt: skip


def _elementwise(op: Operation, step: Step, gpu: Gpu, cal: Calibration) -> Array:
    size = driver(op, step)
    moved = np.where(size > 0, op.fixed_bytes + size * op.token_bytes, 0.0)
    return np.where(size > 0, roofline.elementwise_s(moved, gpu, cal, calls=op.launches), 0.0)


def seen_in_decode(batch: Array, context: Array, window: float | None, chunked: bool = False) -> Array:
    """Tokens that decode attention reads, a window applied to the mean context. [token]"""
    if window is None:
        return context
    mean = context / np.maximum(batch, 1.0)
    cap = np.where(mean > window, window / 2.0, mean) if chunked else np.minimum(mean, window)
    return batch * cap


def seen_in_prefill(new: Array, pairs: Array, sequences: Array, window: float | None) -> Array:
    """Pairs that prefill attention computes, a window applied. [1]

    A token at position p attends to min(p, w) tokens; its integral from the start to the end of a chunk.
    """
    if window is None:
        return pairs
    each = new / np.maximum(sequences, 1.0)
    start = np.maximum(pairs / np.maximum(new, 1.0) - each / 2.0, 0.0)

    def below(x: Array) -> Array:
        return np.where(x < window, x * x / 2.0, window * x - window * window / 2.0)

    return np.maximum(sequences, 1.0) * (below(start + each) - below(start))


def _attention_decode(op: Operation, step: Step, gpu: Gpu, cal: Calibration) -> Array:
    batch, context = step.batch * op.share, step.context * op.share
    context = seen_in_decode(batch, context, op.window, op.chunked)
    time_s = roofline.attention_decode_s(
        batch, context, op.heads, op.kv_heads, op.head_dim, op.kv_bytes, gpu, cal, value_dim=op.value_dim
    )
    return np.where(batch > 0, time_s, 0.0)


def _attention_prefill(op: Operation, step: Step, gpu: Gpu, cal: Calibration) -> Array:
    new = step.new * op.share
    pairs = seen_in_prefill(step.new, step.pairs, step.sequences, op.window) * op.share
    time_s = roofline.attention_prefill_s(
        new, pairs, op.heads, op.kv_heads, op.head_dim, op.kv_bytes, gpu, cal,
        value_dim=op.value_dim, sequences=step.sequences,
    )  # fmt: skip
    return np.where(new > 0, time_s, 0.0)


def _mla_decode(op: Operation, step: Step, gpu: Gpu, cal: Calibration) -> Array:
    batch, context = step.batch * op.share, step.context * op.share
    context = seen_in_decode(batch, context, op.window)
    time_s = roofline.mla_decode_s(batch, context, op.heads, op.n, op.k, op.kv_bytes, gpu, cal)
    return np.where(batch > 0, time_s, 0.0)


def _mla_prefill(op: Operation, step: Step, gpu: Gpu, cal: Calibration) -> Array:
    new = step.new * op.share
    pairs = seen_in_prefill(step.new, step.pairs, step.sequences, op.window) * op.share
    time_s = roofline.mla_prefill_s(
        new, pairs, op.heads, op.head_dim, op.value_dim, gpu, cal, sequences=step.sequences, kv_bytes=op.kv_bytes
    )
    return np.where(new > 0, time_s, 0.0)


def _indexer(op: Operation, step: Step, gpu: Gpu, cal: Calibration) -> Array:
    """Scores of every cached token by a small attention of index heads with one shared key."""
    if op.phase == "decode":
        pairs, traffic = step.context * op.share, step.context * op.share * op.token_bytes
        moved = roofline.elementwise_s(traffic, gpu, cal, calls=2.0)
    else:
        pairs = step.pairs * op.share
        moved = roofline.elementwise_s(step.new * op.share * op.token_bytes, gpu, cal, calls=2.0)
    peak = gpu.peak_flops_per_s.get("fp8", gpu.peak_flops_per_s["bf16"])
    compute = cal.attention("attention_prefill").compute_fraction * peak
    return np.where(pairs > 0, moved + 2.0 * pairs * op.heads * op.head_dim / compute, 0.0)


def _message(op: Operation, step: Step) -> Array:
    return driver(op, step) * op.token_bytes


def _all_reduce(op: Operation, step: Step, gpu: Gpu, cal: Calibration) -> Array:
    return collectives.all_reduce_s(_message(op, step), op.gpus, gpu, cal)


def _all_gather(op: Operation, step: Step, gpu: Gpu, cal: Calibration) -> Array:
    return collectives.all_gather_s(_message(op, step), op.gpus, gpu, cal)


def _all_to_all(op: Operation, step: Step, gpu: Gpu, cal: Calibration) -> Array:
    return collectives.expert_exchange_s(
        driver(op, step), op.n, op.top_k, op.gpus, gpu, cal, element_bytes=op.token_bytes
    )


def _point_to_point(op: Operation, step: Step, gpu: Gpu, cal: Calibration) -> Array:
    return collectives.point_to_point_s(
        _message(op, step), gpu, cal, across_nodes=op.gpus > collectives.island_gpus(gpu)
    )


TIMES: dict[str, Callable[[Operation, Step, Gpu, Calibration], Array]] = {
    "gemm": _gemm,
    "moe": _moe,
    "elementwise": _elementwise,
    "attention_decode": _attention_decode,
    "attention_prefill": _attention_prefill,
    "mla_decode": _mla_decode,
    "mla_prefill": _mla_prefill,
    "indexer": _indexer,
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
    "point_to_point": _point_to_point,
}
"""Formula of each family of operations."""
