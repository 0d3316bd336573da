"""Efficiency constants of each kind of operation, with their physical bounds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = float | NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bound:
    """What a constant may be, its unit and what it stands for."""

    low: float
    high: float
    unit: str
    about: str


BOUNDS: Mapping[str, Bound] = {
    "fixed_s": Bound(0.0, 1e-3, "s", "time of an empty call"),
    "memory_fraction": Bound(0.05, 1.0, "1", "of the HBM bandwidth"),
    "compute_fraction": Bound(0.02, 1.0, "1", "of the dense peak"),
    "link_fraction": Bound(0.02, 1.0, "1", "of the link bandwidth per direction"),
    "overhead_bytes": Bound(0.0, 1e5, "B", "of a copy of a token beside its elements, as long as that takes to move"),
    "copy_bytes_per_s": Bound(1e9, 1e15, "B/s", "that the multiprocessors of an exchange's kernel move, H100's"),
    "copy_scale": Bound(0.1, 10.0, "1", "how fast this GPU's multiprocessors move copies, over H100's"),
    "ramp_bytes": Bound(0.0, 4096.0, "B", "depth, in bytes of a weight row, that filling a tile's pipeline costs"),
    "depth_s": Bound(0.0, 2e-8, "s/B", "one tile's loop, per byte of a weight row"),
    "split_s": Bound(0.0, 1.0, "s", "adding up the parts of a split depth; 1: the kernel never splits"),
    "wave_exponent": Bound(0.0, 1.0, "1", "how much of a partly filled wave is lost"),
    "quantise_row_s": Bound(0.0, 1e-6, "s", "quantising the input, least time per token"),
    "quantise_fraction": Bound(0.01, 1.0, "1", "of the HBM bandwidth, quantising the input"),
    "smoothness": Bound(0.3, math.inf, "1", "exponent of the smooth maximum"),
    "unit_s": Bound(0.0, 1e-3, "s", "one more sequence and KV head on each multiprocessor"),
    "shared": Bound(0.2, 10.0, "1", "a unit whose query heads share a two-byte cache, over any other unit"),
    "shared_heads": Bound(1.0, 1024.0, "1", "query heads that can share a KV head; with more each reads it for itself"),
    "reorder_s": Bound(0.0, 1e-4, "s", "copying grouped heads into place, of several sequences and KV heads"),
    "alone_s": Bound(0.0, 1e-7, "s", "per token of context where no query heads share, walked by one unit"),
    "element_s": Bound(0.0, 1e-9, "s", "one multiprocessor unpacking one element of a one-byte cache"),
    "context_s": Bound(0.0, 1e-6, "s", "per token of a sequence's context, walked in parts"),
    "whole": Bound(0.0, 1.0, "1", "1: a block walks a sequence's whole cache for one query head, never in parts"),
    "narrow": Bound(0.2, 5.0, "1", "time with a one-byte cache over time with two bytes, traffic apart"),
    "narrow_rate": Bound(0.5, 2.0, "1", "rate of operations with a one-byte cache over that with two bytes"),
    "ramp_tokens": Bound(0.0, 4096.0, "token", "keys that starting a query tile costs"),
    "token_s": Bound(0.0, 1e-6, "s", "per token: routing at width 2,048, or preparing a prompt token"),
    "copy_s": Bound(0.0, 1e-6, "s", "per token and expert it goes to, on this GPU or not, at width 2,048"),
    "row_s": Bound(0.0, 1e-6, "s", "per token and expert it goes to on this GPU, at width 2,048"),
    "packed": Bound(0.0, 1.0, "1", "1: query heads of a group share a tile"),
    "quantises": Bound(0.0, 1.0, "1", "1: queries, keys and values are quantised to the format of a one-byte cache"),
    "tile_rows": Bound(0.0, 512.0, "row", "rows of a query tile; rows an expert's tile pads on average"),
    "growth": Bound(0.0, 2.0, "1", "power of the group's size, over two, that the fixed time grows with"),
    "step_s": Bound(0.0, 0.1, "s", "per step"),
    "sequence_s": Bound(0.0, 1e-2, "s", "per running sequence and step"),
    "host_step_s": Bound(0.0, 0.1, "s", "host work beside the kernels, per step"),
    "host_sequence_s": Bound(0.0, 1e-2, "s", "host work beside the kernels, per running sequence and step"),
    "prefill_step_s": Bound(0.0, 0.5, "s", "more, in a step that prefills"),
    "prefill_token_s": Bound(0.0, 1e-3, "s", "per prompt token"),
    "first_token_s": Bound(0.0, 5.0, "s", "once per request, outside the steps"),
    "first_token_steps": Bound(0.0, 200.0, "1", "decode steps until a first token that is ready reaches the client"),
    "start_scale": Bound(0.05, 20.0, "1", "on the time that a prompt waits and is computed before its first token"),
    "memory_scale": Bound(0.2, 2.0, "1", "on the time of the memory-bound kernels"),
    "compute_scale": Bound(0.2, 2.0, "1", "on the time of the compute-bound kernels"),
    "fixed_scale": Bound(0.0, 2.0, "1", "on the fixed time of every kernel (graphs overlap what a lone call pays)"),
    "moe_scale": Bound(0.0, 2.0, "1", "on the fixed time of fused experts, instead of fixed_scale"),
    "link_scale": Bound(0.2, 5.0, "1", "on the time of the collectives"),
    "scale": Bound(0.2, 5.0, "1", "on the family's time; its spread is what the form leaves unexplained"),
}
"""Physical bounds of every constant, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """Matrix product with one weight format."""

    fixed_s: Value = 2.6e-6
    memory_fraction: Value = 0.82
    compute_fraction: Value = 0.75
    ramp_bytes: Value = 230.0
    depth_s: Value = 0.75e-9
    split_s: Value = 2e-6
    wave_exponent: Value = 0.15
    quantise_row_s: Value = 0.3e-9
    quantise_fraction: Value = 0.45
    smoothness: Value = 3.0
    scale: Value = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """Attention core of decode."""

    fixed_s: Value = 1e-5
    memory_fraction: Value = 0.9
    compute_fraction: Value = 0.6
    unit_s: Value = 3e-6
    shared: Value = 1.0
    shared_heads: Value = 1024.0
    context_s: Value = 0.25e-9
    alone_s: Value = 0.0
    element_s: Value = 0.0
    narrow_rate: Value = 1.0
    split_s: Value = 0.0
    reorder_s: Value = 0.0
    narrow: Value = 1.0
    whole: Value = 0.0
    smoothness: Value = 0.85
    scale: Value = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """Causal attention core of prefill."""

    fixed_s: Value = 1e-5
    memory_fraction: Value = 0.65
    compute_fraction: Value = 0.65
    ramp_tokens: Value = 200.0
    token_s: Value = 0.5e-9
    narrow: Value = 1.0
    packed: Value = 0.0
    quantises: Value = 0.0
    tile_rows: Value = 128.0
    wave_exponent: Value = 0.9
    smoothness: Value = 4.0
    scale: Value = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Fused experts with one weight format."""

    fixed_s: Value = 2.5e-5
    memory_fraction: Value = 0.9
    compute_fraction: Value = 0.6
    token_s: Value = 5e-9
    copy_s: Value = 0.0
    row_s: Value = 0.0
    tile_rows: Value = 64.0
    smoothness: Value = 3.0
    scale: Value = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A collective that links bound: the engine's own all-reduce, NCCL's, gathers, point to point."""

    fixed_s: Value = 5e-6
    link_fraction: Value = 0.72
    smoothness: Value = 0.62
    growth: Value = 0.15
    scale: Value = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertExchange:
    """Dispatch or combine of experts' tokens, which the kernel's multiprocessors bound before the links do."""

    fixed_s: Value = 5e-6
    link_fraction: Value = 0.72
    copy_bytes_per_s: Value = 1e15
    overhead_bytes: Value = 0.0
    copy_scale: Value = 1.0
    smoothness: Value = 1.0
    scale: Value = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """Norms, activation, rotary embedding, quantise, sampling: traffic and launches."""

    fixed_s: Value = 2e-6
    memory_fraction: Value = 0.75
    scale: Value = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTime:
    """The engine's own time; at most ten numbers of it are fitted for an engine.

    ``start_scale`` is 1 in what ships: only a user's own load test moves it. An engine that works ahead of the GPU
    has ``host_step_s`` and ``host_sequence_s``, joined with the kernels in fourth powers, instead of the first two.
    """

    step_s: Value = 0.0
    sequence_s: Value = 0.0
    host_step_s: Value = 0.0
    host_sequence_s: Value = 0.0
    prefill_step_s: Value = 0.0
    prefill_token_s: Value = 0.0
    first_token_s: Value = 0.0
    first_token_steps: Value = 0.0
    start_scale: Value = 1.0
    memory_scale: Value = 1.0
    compute_scale: Value = 1.0
    fixed_scale: Value = 1.0
    moe_scale: Value = 1.0
    link_scale: Value = 1.0
    scale: Value = 1.0


FAMILIES: dict[str, type[Any]] = {
    "gemm": Gemm,
    "moe": Moe,
    "attention_decode": Decode,
    "attention_prefill": Prefill,
    "mla_decode": Decode,
    "mla_prefill": Prefill,
    "all_reduce": Exchange,
    "nccl": Exchange,
    "deepep": ExpertExchange,
    "deepep_low": ExpertExchange,
    "point_to_point": Exchange,
    "elementwise": Elementwise,
    "engine": EngineTime,
}
"""Kinds of operation; ``gemm`` and ``moe`` are kept per weight format (``gemm.fp8``), libraries' per collective."""

KERNEL_FORMATS = ("bf16", "fp8", "fp8_block", "nvfp4", "int8", "int8_weight", "int4_weight")
"""Weight formats that kernels differ by."""
EXPERT_WAYS = ("dispatch", "combine")
BY_FORMAT: Mapping[str, tuple[str, ...]] = {
    "gemm": KERNEL_FORMATS, "moe": KERNEL_FORMATS, "nccl": ("all_reduce", "gather"),
    "deepep": EXPERT_WAYS, "deepep_low": EXPERT_WAYS,
}  # fmt: skip
"""What a family is kept apart by: weight formats of products, collectives of a library."""

BY_KEY: Mapping[str, Mapping[str, float]] = {
    "gemm.fp8_block": {"fixed_s": 4.5e-6, "compute_fraction": 0.7, "ramp_bytes": 620.0, "split_s": 1.0,
                       "quantise_fraction": 0.55},
    "gemm.fp8": {"fixed_s": 5e-6, "quantise_fraction": 0.3},
    "gemm.nvfp4": {"fixed_s": 6.5e-6, "compute_fraction": 0.5, "ramp_bytes": 400.0, "split_s": 1.0,
                   "quantise_fraction": 0.6},
    "gemm.int8": {"fixed_s": 1e-5, "compute_fraction": 0.7},
    "gemm.int8_weight": {"fixed_s": 1e-5, "compute_fraction": 0.65},
    "gemm.int4_weight": {"fixed_s": 1e-5, "compute_fraction": 0.6},
    "attention_prefill": {"ramp_tokens": 250.0, "narrow": 0.83},
    "mla_decode": {"compute_fraction": 0.95, "unit_s": 6e-6},
    "mla_prefill": {"compute_fraction": 0.66, "memory_fraction": 0.8, "ramp_tokens": 70.0},
    "nccl.all_reduce": {"fixed_s": 7e-6, "link_fraction": 0.7, "growth": 0.68},
    "nccl.gather": {"fixed_s": 7e-6, "link_fraction": 0.7, "growth": 0.35},
    "deepep.dispatch": {"fixed_s": 2.7e-4, "link_fraction": 0.8, "copy_bytes_per_s": 3.5e11, "overhead_bytes": 7300.0,
                        "smoothness": 1.8},
    "deepep.combine": {"fixed_s": 8.5e-5, "link_fraction": 0.8, "copy_bytes_per_s": 2.65e11, "overhead_bytes": 6800.0,
                       "smoothness": 1.04},
    "deepep_low.dispatch": {"fixed_s": 5.7e-5, "link_fraction": 0.75, "copy_bytes_per_s": 1.03e11,
                            "overhead_bytes": 2700.0, "smoothness": 2.0},
    "deepep_low.combine": {"fixed_s": 5.6e-5, "link_fraction": 0.75, "copy_bytes_per_s": 9.2e10, "smoothness": 3.3},
    "point_to_point": {"fixed_s": 1e-5, "link_fraction": 0.75, "smoothness": 1.5, "growth": 0.0},
}  # fmt: skip
"""Defaults of single families and formats: what holds on every GPU for want of a fit."""


def default(key: str) -> Any:
    """Constants of a family, or of one of its formats, before any fit.

    Parameters
    ----------
    key
        Such as ``gemm.fp8``.
    """
    return FAMILIES[key.partition(".")[0]](**BY_KEY.get(key, {}))


def family_keys() -> list[tuple[str, type[Any]]]:
    """Every family with its record, those of :data:`BY_FORMAT` once per format."""
    keys: list[tuple[str, type[Any]]] = []
    for family, kind in FAMILIES.items():
        keys += [(f"{family}.{f}", kind) for f in BY_FORMAT[family]] if family in BY_FORMAT else [(family, kind)]
    return keys
