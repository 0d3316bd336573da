"""What the roofline says of a profiled kernel: shapes of a profile in, seconds out."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizing import collectives, roofline
from sizing.calibration import Calibration
from sizing.catalog import Gpu

Floats = NDArray[np.float64]
Columns = Mapping[str, Floats]
Predictor = Callable[[Columns, Gpu, Calibration], Floats]

FORMATS = {
    "gemm.bf16": "bf16",
    "gemm.fp8": "fp8",
    "gemm.fp8_block": "fp8_block",
    "gemm.nvfp4": "nvfp4",
    "gemm.int4_weight": "int4",
    "moe.bf16": "bf16",
    "moe.fp8": "fp8",
}
"""Weight format of each family of matrix products, a name of :mod:`sizing.formats`."""

SAME_FAMILY = {"gemm.fp8_row": "gemm.fp8", "moe.bf16_vllm": "moe.bf16"}
"""Other ways to do what a family does."""

TRAFFIC = {"add_rms_norm": 8.0, "silu_mul": 6.0, "rope": 4.0, "fp8_quantise": 3.0}
"""Bytes read and written per element. [B]"""

QUANTISED_INPUT = ("gemm.fp8", "gemm.fp8_block", "gemm.nvfp4")
"""Measured with the input quantised beforehand, which a served model does as it goes."""

COLLECTIVES = {
    "all_reduce": "nccl.all_reduce", "all_gather": "nccl.gather", "reduce_scatter": "nccl.gather",
    "point_to_point": "point_to_point",
}  # fmt: skip
"""Families of what torch.distributed runs, which is NCCL: an engine's own all-reduce is another kernel."""


def family(kernel: str, shape: Mapping[str, Any]) -> str | None:
    """Family of the calibration that a profiled kernel belongs to; None: to none of them."""
    kind, _, rest = kernel.partition(".")
    if kind in ("attention_decode", "attention_prefill", "mla_decode", "mla_prefill", "elementwise"):
        return kind
    if kind in ("gemm", "moe"):
        name = SAME_FAMILY.get(kernel, kernel)
        return name if name in FORMATS else None
    if kernel == "batched_gemm.bf16":
        return kernel
    if kind == "collective":
        return COLLECTIVES.get(str(shape.get("operation", rest)))
    return None


def columns(name: str, kernels: Sequence[str], shapes: Sequence[Mapping[str, Any]]) -> Columns:
    """Sizes of cases of one family as arrays.

    Parameters
    ----------
    name
        Family.
    kernels, shapes
        Kernel and shape of each case.
    """
    numbers = sorted({k for s in shapes for k, v in s.items() if isinstance(v, int | float)})
    out = {k: np.array([float(s.get(k, 0.0)) for s in shapes]) for k in numbers}
    if name == "nccl.gather":  # what a rank holds before: a part of the whole when gathering, the whole when scattering
        scattered = np.array([s.get("operation") == "reduce_scatter" for s in shapes])
        out["bytes"] = np.where(scattered, out["bytes"] / out["ranks"], out["bytes"])
    if name == "elementwise":
        out["element_bytes"] = np.array([TRAFFIC[k.partition(".")[2]] for k in kernels])
    return out


def predict(name: str, at: Columns, gpu: Gpu, cal: Calibration) -> Floats:
    """Seconds of every case of one family.

    Parameters
    ----------
    name
        Family.
    at
        Sizes.
    gpu, cal
        The accelerator and its constants.
    """
    own = _PREDICTORS.get(name) or _PREDICTORS.get(name.partition(".")[0])
    return np.asarray(own(at, gpu, cal) if own else _matrix(name, at, gpu, cal))


def _matrix(name: str, at: Columns, gpu: Gpu, cal: Calibration) -> Floats:
    if name.startswith("gemm."):
        return roofline.gemm_s(at["m"], at["n"], at["k"], FORMATS[name], gpu, cal)
    return roofline.moe_s(
        at["tokens"], at["hidden"], at["intermediate"], at["experts"], at["top_k"], FORMATS[name], gpu, cal
    )


def _batched(at: Columns, gpu: Gpu, cal: Calibration) -> Floats:
    return roofline.batched_gemm_s(at["batches"], at["m"], at["n"], at["k"], gpu, cal)


def _decode(at: Columns, gpu: Gpu, cal: Calibration) -> Floats:
    tokens = at["batch"] * at["context"]
    return roofline.attention_decode_s(at["batch"], tokens, at["heads"], at["kv_heads"], at["head_dim"], 2.0, gpu, cal)


def _pairs(at: Columns) -> Floats:
    return np.asarray(at["batch"] * (at["tokens"] * at["history"] + at["tokens"] * (at["tokens"] + 1.0) / 2.0))


def _prefill(at: Columns, gpu: Gpu, cal: Calibration) -> Floats:
    tokens, heads = at["batch"] * at["tokens"], (at["heads"], at["kv_heads"], at["head_dim"])
    return roofline.attention_prefill_s(tokens, _pairs(at), *heads, 2.0, gpu, cal, sequences=at["batch"])


def _latent_decode(at: Columns, gpu: Gpu, cal: Calibration) -> Floats:
    tokens = at["batch"] * at["context"]
    return roofline.mla_decode_s(at["batch"], tokens, at["heads"], at["latent"], at["rope"], 2.0, gpu, cal)


def _latent_prefill(at: Columns, gpu: Gpu, cal: Calibration) -> Floats:
    tokens, heads = at["batch"] * at["tokens"], (at["heads"], at["head_dim"], at["value_dim"])
    return roofline.mla_prefill_s(tokens, _pairs(at), *heads, gpu, cal, sequences=at["batch"])


def _elementwise(at: Columns, gpu: Gpu, cal: Calibration) -> Floats:
    return roofline.elementwise_s(at["element_bytes"] * at["tokens"] * at["width"], gpu, cal)


def _by_ranks(function: Callable[..., Floats], size: Callable[[Floats, int], Floats]) -> Predictor:
    """Collectives take their group as one number: a group at a time."""

    def seconds(at: Columns, gpu: Gpu, cal: Calibration) -> Floats:
        out = np.zeros_like(at["bytes"])
        for ranks in np.unique(at["ranks"]).astype(int):
            here = at["ranks"] == ranks
            out[here] = function(size(at["bytes"][here], int(ranks)), int(ranks), gpu, cal)
        return out

    return seconds


_PREDICTORS: dict[str, Predictor] = {
    "batched_gemm": _batched,
    "attention_decode": _decode,
    "attention_prefill": _prefill,
    "mla_decode": _latent_decode,
    "mla_prefill": _latent_prefill,
    "elementwise": _elementwise,
    "nccl.all_reduce": _by_ranks(partial(collectives.all_reduce_s, family="nccl.all_reduce"), lambda b, _: b),
    "nccl.gather": _by_ranks(collectives.all_gather_s, lambda b, ranks: b * ranks),
    "point_to_point": _by_ranks(lambda b, _, gpu, cal: collectives.point_to_point_s(b, gpu, cal), lambda b, _: b),
}


def quantising_s(name: str, at: Columns, gpu: Gpu, cal: Calibration) -> Floats:
    """What quantising the input adds to a product that was measured without it. [s]

    Parameters
    ----------
    name
        Family.
    at
        Sizes.
    gpu, cal
        The accelerator and its constants.
    """
    if name not in QUANTISED_INPUT:
        return np.zeros_like(at["m"])
    return roofline.elementwise_s(TRAFFIC["fp8_quantise"] * at["m"] * at["k"], gpu, cal)
