"""Rows of kernel tables that are left out, each by a named rule with its bound."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sizing.catalog import Gpu
from sizing.errors import InputError
from sizing.roofline.smooth import peak_16_bit
from sizing.validation.kernel_tables import KernelTable

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rule:
    """One reason to leave rows out.

    Attributes
    ----------
    name
        What the output calls it.
    why
        The defect, with its bound.
    leaves_out
        Mask of the rows that go.
    """

    name: str
    why: str
    leaves_out: Callable[[KernelTable, Gpu], Mask]


def _none(table: KernelTable) -> Mask:
    return np.zeros(len(table), dtype=bool)


def _eager_blocks(table: KernelTable, gpu: Gpu) -> Mask:
    """VLLM's FP8 block products were timed without CUDA graphs, tens of microseconds of launch in each."""
    eager = table.engine == "vllm" and table.operation == "gemm.fp8_block"
    return np.ones(len(table), dtype=bool) if eager else _none(table)


def _eager_reduce(table: KernelTable, gpu: Gpu) -> Mask:
    return np.char.endswith(table.kernel, "_eager") if table.operation == "all_reduce" else _none(table)


def _slow_experts(table: KernelTable, gpu: Gpu) -> Mask:
    slow = table.engine == "vllm" and table.operation == "moe.fp8" and str(gpu.architecture).startswith("Hopper")
    return np.ones(len(table), dtype=bool) if slow else _none(table)


def _above_bandwidth(table: KernelTable, gpu: Gpu) -> Mask:
    """Read faster than HBM allows, from a working set that L2 can't hold."""
    if table.operation != "attention_decode":
        return _none(table)
    s = table.sizes
    moved = 256.0 * s["batch"] * s["length"] * s["kv_heads"] * s["kv_bytes"]
    least = moved / gpu.memory_bandwidth_bytes_per_s
    return (table.time_s < least) & (moved > 2.0 * (gpu.l2_bytes or 0.0))


def _suspect_decode(table: KernelTable, gpu: Gpu) -> Mask:
    """A table in which over 2 % of the large rows beat the bandwidth is not believed on any large row."""
    if table.operation != "attention_decode":
        return _none(table)
    s = table.sizes
    large = 256.0 * s["batch"] * s["length"] * s["kv_heads"] * s["kv_bytes"] > 2.0 * (gpu.l2_bytes or 0.0)
    broken = int(np.sum(_above_bandwidth(table, gpu))) > 0.02 * max(int(np.sum(large)), 1)
    return large if broken else _none(table)


def _above_compute(table: KernelTable, gpu: Gpu) -> Mask:
    if table.operation != "gemm.bf16":
        return _none(table)
    s = table.sizes
    return np.asarray(2.0 * s["m"] * s["n"] * s["k"] / peak_16_bit(gpu) > table.time_s)


def _one_host(table: KernelTable, gpu: Gpu) -> Mask:
    """PCIe paths of one machine, 20 times slower at 4 and 8 GPUs than at 2; serving runs elsewhere show 1.5."""
    if gpu.link_bytes_per_s or table.operation not in ("all_reduce", "nccl.all_reduce", "nccl.gather"):
        return _none(table)
    return np.asarray(table.sizes["gpus"] > 2)


def _not_a_time(table: KernelTable, gpu: Gpu) -> Mask:
    return ~(np.isfinite(table.time_s) & (table.time_s > 0))


def _slower_of_two(table: KernelTable, gpu: Gpu) -> Mask:
    """An engine that was timed with several kernels for one shape runs the fastest."""
    if not table.operation.startswith(("moe", "gemm")) or len(np.unique(table.kernel)) < 2:
        return _none(table)
    shape = np.unique(np.stack(list(table.sizes.values())), axis=1, return_inverse=True)[1].ravel()
    best = np.full(shape.max() + 1, np.inf)
    np.minimum.at(best, shape, table.time_s)
    return np.asarray(table.time_s > best[shape])


RULES = (
    Rule("not-a-time", "missing, zero or negative time", _not_a_time),
    Rule(
        "eager-fp8-block", "vLLM FP8 block products collected without CUDA graphs: 57-288 us of launch", _eager_blocks
    ),
    Rule("eager-all-reduce", "all-reduce outside a CUDA graph: about 20 us of launch", _eager_reduce),
    Rule("one-host", "PCIe collectives of more than 2 GPUs on one machine: its host paths, not the GPU", _one_host),
    Rule("slow-fp8-experts", "vLLM FP8 experts on Hopper: 0.13-0.18 of either peak, a wrong kernel", _slow_experts),
    Rule("suspect-decode", "decode attention where over 2 % of large rows beat the bandwidth", _suspect_decode),
    Rule("above-bandwidth", "faster than 1.0 of HBM bandwidth from more than twice L2", _above_bandwidth),
    Rule("slower-of-two", "another kernel timed for the same shape is faster", _slower_of_two),
    Rule("above-peak", "more than 1.0 of the dense peak", _above_compute),
)
"""In the order in which they are tried; a row counts for the first that fits."""


def without_defects(table: KernelTable, gpu: Gpu) -> KernelTable:
    """The table without the rows that a rule leaves out, their numbers noted.

    Parameters
    ----------
    table
        As read.
    gpu
        The accelerator.
    """
    kept = np.ones(len(table), dtype=bool)
    excluded: dict[str, int] = {}
    for rule in RULES:
        try:
            goes = rule.leaves_out(table, gpu) & kept
        except KeyError as column:
            raise InputError(
                f"kernel tables: {table.gpu} {table.engine} {table.operation}: no column {column}"
            ) from None
        if np.any(goes):
            excluded[rule.name] = int(np.sum(goes))
            kept &= ~goes
    return replace(table.where(kept), excluded=excluded)
