"""Efficiency constants: how close to its peaks a GPU's kernels come, and how sure we are.

A :class:`Calibration` belongs to one GPU and one engine's kernels. Every constant carries its spread, what
it was fitted on, when, and on what basis; nothing is fitted here (see :mod:`sizing.fitting`). A constant is
a scalar, or an array with a leading axis of joint draws (:meth:`Calibration.draws`), so that an error bar is
one more array axis of the same arithmetic.
"""

from sizing.calibration.constants import (
    BOUNDS,
    BY_FORMAT,
    BY_KEY,
    FAMILIES,
    KERNEL_FORMATS,
    Bound,
    Decode,
    Elementwise,
    EngineTime,
    Exchange,
    ExpertExchange,
    Gemm,
    Moe,
    Prefill,
    Value,
    default,
    family_keys,
)
from sizing.calibration.files import (
    ANY,
    NAMED,
    SCHEMA,
    Table,
    Tables,
    applied,
    calibration,
    kernels_of,
    read_tables,
    write_tables,
)
from sizing.calibration.record import Calibration, Evidence, NamedConstant, rule_of_thumb

__all__ = [
    "ANY",
    "BOUNDS",
    "BY_FORMAT",
    "BY_KEY",
    "FAMILIES",
    "KERNEL_FORMATS",
    "NAMED",
    "SCHEMA",
    "Bound",
    "Calibration",
    "Decode",
    "Elementwise",
    "EngineTime",
    "Evidence",
    "Exchange",
    "ExpertExchange",
    "Gemm",
    "Moe",
    "NamedConstant",
    "Prefill",
    "Table",
    "Tables",
    "Value",
    "applied",
    "calibration",
    "default",
    "family_keys",
    "kernels_of",
    "read_tables",
    "rule_of_thumb",
    "write_tables",
]
