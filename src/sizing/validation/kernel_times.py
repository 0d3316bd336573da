"""What the roofline says of a row of a kernel table."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sizing import collectives, roofline
from sizing.calibration import BY_FORMAT, Calibration
from sizing.catalog import Gpu
from sizing.errors import InputError, nearest
from sizing.validation.kernel_tables import KernelTable

Floats = NDArray[np.float64]

WEIGHTS = {
    "bf16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "nvfp4": "nvfp4",
    "int8": "int8",
    "int8_weight": "int8_w8a16",
    "int4_weight": "int4",
}
"""A weight format that runs on each kernel format."""

HEAD_DIM = 128.0
HIDDEN, QUERY_RANK, LATENT, ROPE, NOPE, VALUE = 7168.0, 1536.0, 512.0, 64.0, 128.0, 128.0
"""DeepSeek-V3's attention, which the MLA tables measure. [element]"""
BLOCK_CALLS = 4.0
"""Small kernels of an MLA block: norms, rotation, cache write, concatenation. [1]"""
SKEWED_TOUCH, SKEWED_MOST = 0.9, 0.8
"""Of routing by a power law 1.01: tokens that spread as if even, and the largest load of an expert over tokens. [1]"""
LARGEST_OF = (
    (1, 0.0),
    (2, 0.564),
    (4, 1.029),
    (8, 1.424),
    (16, 1.766),
    (32, 2.070),
    (64, 2.344),
    (128, 2.594),
    (256, 2.825),
)
"""Expected largest of n standard normal draws (Harter 1961, https://doi.org/10.1093/biomet/48.1-2.151)."""


def predicted_s(table: KernelTable, gpu: Gpu, cal: Calibration) -> Floats:
    """Predicted time of every row. [s]

    Parameters
    ----------
    table
        Sizes.
    gpu, cal
        The accelerator and its constants.
    """
    family, _, kernel_format = table.operation.partition(".")
    if family not in PREDICTORS:
        raise InputError(
            f"kernel tables: no operation {table.operation!r}; choose one of {', '.join(PREDICTORS)}"
            f"{nearest(family, PREDICTORS)}"
        )
    formats = WEIGHTS if family.endswith("_module") else BY_FORMAT.get(family)
    if formats and kernel_format not in formats:
        raise InputError(
            f"kernel tables: {table.operation}: no format {kernel_format!r}; choose {', '.join(formats)}"
            f"{nearest(kernel_format, formats)}"
        )
    try:
        return np.asarray(PREDICTORS[family](table, kernel_format, gpu, cal))
    except KeyError as column:
        raise InputError(f"kernel tables: {table.gpu} {table.engine} {table.operation}: no column {column}") from None


def _gemm(table: KernelTable, kernel_format: str, gpu: Gpu, cal: Calibration) -> Floats:
    s = table.sizes
    return roofline.gemm_s(s["m"], s["n"], s["k"], WEIGHTS[kernel_format], gpu, cal)


def _batched(table: KernelTable, kernel_format: str, gpu: Gpu, cal: Calibration) -> Floats:
    s = table.sizes
    return roofline.batched_gemm_s(s["heads"], s["m"], s["n"], s["k"], gpu, cal, resident=True)


def skewed_load(tokens: Floats, groups: Floats, local_experts: Floats) -> Floats:
    """Load of the busiest rank over the mean, where experts' loads are drawn by a power law of exponent 1.

    Loads ``x`` are log-uniform from 1 to ``X = 0.8 tokens``: ``E x = X / ln X`` and ``E x^2 = X^2 / (2 ln X)``, so
    the relative variance of one expert is ``ln X / 2 - 1``, of a rank's sum that over its experts. The collector
    times the busiest rank, the largest of ``groups`` sums. [1]

    Parameters
    ----------
    tokens
        Tokens into the group [token].
    groups, local_experts
        Ranks, and experts of each [1].
    """
    variance = np.maximum(np.log(np.maximum(SKEWED_MOST * tokens, 1.0)) / 2.0 - 1.0, 0.0) / local_experts
    counts, largest = np.array(LARGEST_OF).T
    draws = np.interp(np.log2(groups), np.log2(counts), largest)
    return np.asarray(np.minimum(1.0 + draws * np.sqrt(variance), groups))


def _moe(table: KernelTable, kernel_format: str, gpu: Gpu, cal: Calibration) -> Floats:
    s = table.sizes
    even = s["balanced"] > 0.5
    touched = np.where(
        even,
        np.minimum(s["experts"], s["m"] * s["top_k"]),
        roofline.distinct_experts(SKEWED_TOUCH * s["m"], s["experts"], s["top_k"]),
    )
    touched = np.maximum(touched, np.minimum(s["experts"] / s["local_experts"], s["m"] * s["top_k"]))
    busiest = skewed_load(s["m"], s["experts"] / s["local_experts"], s["local_experts"])
    return roofline.moe_s(
        s["m"], s["n"], s["k"], s["experts"], s["top_k"], WEIGHTS[kernel_format], gpu, cal,
        local_experts=s["local_experts"], touched=touched, skew=np.where(even, 1.0, busiest),
    )  # fmt: skip


def _decode(table: KernelTable, kernel_format: str, gpu: Gpu, cal: Calibration) -> Floats:
    s = table.sizes
    return roofline.attention_decode_s(
        s["batch"],
        s["batch"] * s["length"],
        s["heads"],
        s["kv_heads"],
        HEAD_DIM,
        s["kv_bytes"],
        gpu,
        cal,
        resident=True,
    )


def _pairs(table: KernelTable) -> Floats:
    s = table.sizes
    return np.asarray(s["batch"] * s["length"] * (s["length"] + 1.0) / 2.0)


def _prefill(table: KernelTable, kernel_format: str, gpu: Gpu, cal: Calibration) -> Floats:
    s = table.sizes
    return roofline.attention_prefill_s(
        s["batch"] * s["length"], _pairs(table), s["heads"], s["kv_heads"], HEAD_DIM, s["kv_bytes"], gpu, cal,
        sequences=s["batch"],
    )  # fmt: skip


def _latent_decode(table: KernelTable, kernel_format: str, gpu: Gpu, cal: Calibration) -> Floats:
    s = table.sizes
    return roofline.mla_decode_s(
        s["batch"], s["batch"] * s["length"], s["heads"], LATENT, ROPE, s["kv_bytes"], gpu, cal, resident=True
    )


def _latent_prefill(table: KernelTable, kernel_format: str, gpu: Gpu, cal: Calibration) -> Floats:
    s = table.sizes
    return roofline.mla_prefill_s(
        s["batch"] * s["length"],
        _pairs(table),
        s["heads"],
        NOPE + ROPE,
        VALUE,
        gpu,
        cal,
        sequences=s["batch"],
        kv_bytes=s["kv_bytes"],
    )


def _projections(tokens: Floats, heads: Floats, weights: str, gpu: Gpu, cal: Calibration) -> Floats:
    """Products at both ends of an MLA block, and its small kernels."""
    down = roofline.gemm_s(tokens, QUERY_RANK + LATENT + ROPE, HIDDEN, weights, gpu, cal)
    query = roofline.gemm_s(tokens, heads * (NOPE + ROPE), QUERY_RANK, weights, gpu, cal)
    output = roofline.gemm_s(tokens, HIDDEN, heads * VALUE, weights, gpu, cal)
    moved = 2.0 * tokens * (2.0 * QUERY_RANK + 2.0 * (LATENT + ROPE) + 2.0 * heads * (NOPE + ROPE))
    return np.asarray(down + query + output + roofline.elementwise_s(moved, gpu, cal, calls=BLOCK_CALLS))


def _latent_decode_block(table: KernelTable, kernel_format: str, gpu: Gpu, cal: Calibration) -> Floats:
    s = table.sizes
    absorbed = roofline.batched_gemm_s(s["heads"], s["batch"], LATENT, NOPE, gpu, cal, resident=True)
    absorbed = absorbed + roofline.batched_gemm_s(s["heads"], s["batch"], VALUE, LATENT, gpu, cal, resident=True)
    ends = _projections(s["batch"], s["heads"], WEIGHTS[kernel_format], gpu, cal)
    return np.asarray(_latent_decode(table, "", gpu, cal) + absorbed + ends)


def _latent_prefill_block(table: KernelTable, kernel_format: str, gpu: Gpu, cal: Calibration) -> Floats:
    s = table.sizes
    tokens = s["batch"] * s["length"]
    weights = WEIGHTS[kernel_format]
    expanded = roofline.gemm_s(tokens, s["heads"] * (NOPE + VALUE), LATENT, weights, gpu, cal)
    return np.asarray(
        _latent_prefill(table, "", gpu, cal) + expanded + _projections(tokens, s["heads"], weights, gpu, cal)
    )


def _by_group(function: Callable[[Floats, int], Floats], table: KernelTable) -> Floats:
    """Collectives take their group as one number: a group at a time."""
    out = np.zeros(len(table))
    for gpus in np.unique(table.sizes["gpus"]).astype(int):
        here = table.sizes["gpus"] == gpus
        out[here] = function(table.sizes["bytes"][here], int(gpus))
    return out


def _collective(table: KernelTable, kernel_format: str, gpu: Gpu, cal: Calibration) -> Floats:
    if kernel_format == "gather":
        return _by_group(lambda size, gpus: collectives.all_gather_s(size, gpus, gpu, cal), table)
    return _by_group(lambda size, gpus: collectives.all_reduce_s(size, gpus, gpu, cal, family=table.operation), table)


def _expert_exchange(table: KernelTable, kernel_format: str, gpu: Gpu, cal: Calibration) -> Floats:
    s, low = table.sizes, table.operation.startswith("deepep_low")
    return collectives.all_to_all_s(
        s["m"], s["n"], s["top_k"], int(s["gpus"][0]), gpu, cal, combine=kernel_format == "combine", low_latency=low
    )


PREDICTORS: dict[str, Callable[[KernelTable, str, Gpu, Calibration], Floats]] = {
    "gemm": _gemm,
    "batched_gemm": _batched,
    "moe": _moe,
    "attention_decode": _decode,
    "attention_prefill": _prefill,
    "mla_decode": _latent_decode,
    "mla_prefill": _latent_prefill,
    "mla_decode_module": _latent_decode_block,
    "mla_prefill_module": _latent_prefill_block,
    "all_reduce": _collective,
    "nccl": _collective,
    "deepep": _expert_exchange,
    "deepep_low": _expert_exchange,
}
"""Formula of each operation of a table."""
