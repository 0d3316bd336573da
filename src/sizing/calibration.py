"""The record of efficiency constants: how close to its peaks a GPU's kernels come, and how sure we are.

A :class:`Calibration` belongs to one GPU and one engine's kernels. Every constant carries its spread, what
it was fitted on, when, and on what basis; nothing is fitted here (see :mod:`sizing.fitting`). A constant is
a scalar, or an array with a leading axis of joint draws (:meth:`Calibration.draws`), so that an error bar is
one more array axis of the same arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizing.catalog import Gpu
from sizing.errors import CalibrationError, nearest

Value = float | NDArray[np.float64]
SCHEMA = 1
"""Version of the calibration file's layout."""

NAMED = ("measured", "rule-of-thumb")
"""Calibrations that come with the library."""


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
    "compute_fraction": Bound(0.05, 1.0, "1", "of the dense peak"),
    "link_fraction": Bound(0.02, 1.0, "1", "of the link bandwidth per direction"),
    "ramp_k": Bound(0.0, 4096.0, "element", "depth at which a tile reaches half its rate"),
    "wave_exponent": Bound(0.0, 1.0, "1", "how much of a partly filled wave is lost"),
    "smoothness": Bound(0.3, math.inf, "1", "exponent of the smooth maximum"),
    "head_s": Bound(0.0, 1e-6, "s", "per sequence and query head (decode), per token and head (prefill)"),
    "token_s": Bound(0.0, 1e-6, "s", "routing and permutation, per token"),
    "step_s": Bound(0.0, 0.1, "s", "per step"),
    "sequence_s": Bound(0.0, 1e-2, "s", "per running sequence and step"),
    "prefill_step_s": Bound(0.0, 0.5, "s", "more, in a step that prefills"),
    "prefill_token_s": Bound(0.0, 1e-3, "s", "per prompt token"),
    "first_token_s": Bound(0.0, 5.0, "s", "once per request, outside the steps"),
    "memory_scale": Bound(0.2, 2.0, "1", "on the time of the memory-bound kernels"),
    "compute_scale": Bound(0.2, 2.0, "1", "on the time of the compute-bound kernels"),
    "link_scale": Bound(0.2, 5.0, "1", "on the time of the collectives"),
    "scale": Bound(
        0.2, 5.0, "1", "on the family's time; its spread is what the form leaves unexplained"
    ),
}
"""Physical bounds of every constant, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """Matrix product with one weight format."""

    fixed_s: Value = 3e-6
    memory_fraction: Value = 0.82
    compute_fraction: Value = 0.80
    ramp_k: Value = 120.0
    wave_exponent: Value = 0.4
    smoothness: Value = 5.0
    scale: Value = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Attention core of decode or prefill; the same names, fitted apart."""

    fixed_s: Value = 1e-5
    memory_fraction: Value = 0.85
    compute_fraction: Value = 0.6
    head_s: Value = 1e-9
    smoothness: Value = 1.0
    scale: Value = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Fused experts with one weight format."""

    fixed_s: Value = 2e-5
    memory_fraction: Value = 0.75
    compute_fraction: Value = 0.5
    token_s: Value = 2e-8
    smoothness: Value = 3.0
    scale: Value = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A collective: all-reduce, gather, expert all-to-all, point to point."""

    fixed_s: Value = 5e-6
    link_fraction: Value = 0.75
    smoothness: Value = 0.6
    scale: Value = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """Norms, activation, rotary embedding, quantise, sampling: traffic and launches."""

    fixed_s: Value = 2e-6
    memory_fraction: Value = 0.75
    scale: Value = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTime:
    """The engine's own time; at most ten numbers an engine and GPU."""

    step_s: Value = 0.0
    sequence_s: Value = 0.0
    prefill_step_s: Value = 0.0
    prefill_token_s: Value = 0.0
    first_token_s: Value = 0.0
    memory_scale: Value = 1.0
    compute_scale: Value = 1.0
    link_scale: Value = 1.0
    scale: Value = 1.0


FAMILIES: dict[str, type[Any]] = {
    "gemm": Gemm,
    "moe": Moe,
    "attention_decode": Attention,
    "attention_prefill": Attention,
    "mla_decode": Attention,
    "mla_prefill": Attention,
    "all_reduce": Exchange,
    "gather": Exchange,
    "all_to_all": Exchange,
    "point_to_point": Exchange,
    "elementwise": Elementwise,
    "engine": EngineTime,
}
"""Kinds of operation; ``gemm`` and ``moe`` are kept per weight format (``gemm.fp8``)."""

BY_FORMAT = ("gemm", "moe")
KERNEL_FORMATS = ("bf16", "fp8", "fp8_block", "nvfp4", "int8", "int8_weight", "int4_weight")
"""Weight formats that kernels differ by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Where the constants of one family come from.

    Attributes
    ----------
    basis
        ``fitted``, ``fitted end to end`` or ``assumed``.
    fitted_on
        Tables or rows, in words.
    date
        Day of the fit, ISO 8601.
    residual
        Log-sigma of measured over predicted time of single calls. [1]
    spreads
        Relative spread (log-sigma) of each constant. [1]
    """

    basis: str = "assumed"
    fitted_on: str = ""
    date: str = ""
    residual: float = 0.3
    spreads: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Efficiency constants of one GPU and engine.

    Attributes
    ----------
    name, gpu, engine
        What was asked for.
    families
        Constants by family, ``gemm`` and ``moe`` by ``family.format``.
    evidence
        Where each family's constants come from.
    ideal
        No tiles, no activation traffic, nothing but peaks and fractions (``rule-of-thumb``).
    notes
        What a reader should be told (a fallback taken).
    """

    name: str
    gpu: str
    engine: str
    families: Mapping[str, Any]
    evidence: Mapping[str, Evidence]
    ideal: bool = False
    notes: tuple[str, ...] = ()

    def gemm(self, kernel_format: str) -> Gemm:
        """Constants of a matrix product with weights in that format."""
        found: Gemm = self.families[f"gemm.{kernel_format}"]
        return found

    def moe(self, kernel_format: str) -> Moe:
        """Constants of fused experts with weights in that format."""
        found: Moe = self.families[f"moe.{kernel_format}"]
        return found

    def attention(self, family: str) -> Attention:
        """Constants of ``attention_decode``, ``attention_prefill``, ``mla_decode`` or ``mla_prefill``."""
        found: Attention = self.families[family]
        return found

    def exchange(self, family: str) -> Exchange:
        """Constants of ``all_reduce``, ``gather``, ``all_to_all`` or ``point_to_point``."""
        found: Exchange = self.families[family]
        return found

    @property
    def elementwise(self) -> Elementwise:
        """Constants of norms, activation and copies."""
        found: Elementwise = self.families["elementwise"]
        return found

    @property
    def engine_time(self) -> EngineTime:
        """The engine's own time."""
        found: EngineTime = self.families["engine"]
        return found

    def spread(self, kind: str) -> float:
        """Log-sigma of measured over predicted time of one call of a family such as ``gemm.bf16``. [1]"""
        return self.evidence[kind].residual if kind in self.evidence else 0.3

    def draws(self, n: int, seed: int = 0, axes: int = 1) -> Calibration:
        """Joint draws of every constant that has a spread.

        Parameters
        ----------
        n
            Number of draws. [1]
        seed
            Seed of the draws; the same seed gives the same draws.
        axes
            Axes that the arrays of an evaluation have: constants get the shape ``(n, 1, ..., 1)`` with that
            many ones, so that the draw axis comes first in every result. [1]
        """
        rng = np.random.default_rng(seed)
        shape = (n,) + (1,) * axes
        drawn = {}
        for key in sorted(self.families):
            constants, evidence = self.families[key], self.evidence.get(key, Evidence())
            changes: dict[str, Value] = {}
            for item in fields(constants):
                normal = rng.standard_normal(n).reshape(shape)
                spread = evidence.spreads.get(item.name, 0.0)
                if spread > 0.0:
                    value = getattr(constants, item.name) * np.exp(spread * normal)
                    changes[item.name] = np.clip(value, BOUNDS[item.name].low, BOUNDS[item.name].high)
            drawn[key] = replace(constants, **changes)
        return replace(self, families=drawn)

    def with_constants(self, family: str, **values: Value) -> Calibration:
        """The same calibration with some constants of one family replaced."""
        families = {**self.families, family: replace(self.families[family], **values)}
        return replace(self, families=families)


def calibration(name: str | Path, gpu: Gpu, engine: str = "vllm") -> Calibration:
    """Constants by name or from a file, for one GPU and engine.

    Parameters
    ----------
    name
        ``measured``, ``rule-of-thumb`` or the path of a TOML file.
    gpu
        The accelerator; one without measurements gets its class's constants, marked ``assumed``.
    engine
        Whose kernels and engine time (``vllm``, ``trtllm``, ``sglang``, ``transformers``).
    """
    if str(name) == "rule-of-thumb":
        return rule_of_thumb(gpu=gpu.id, engine=engine)
    if str(name) == "measured":
        return _provisional(gpu.id, engine)
    raise CalibrationError(
        f"calibration: no {str(name)!r}; choose {', '.join(NAMED)} or give a TOML file{nearest(str(name), NAMED)}"
    )


@lru_cache
def rule_of_thumb(*, mbu: float = 0.70, mfu: float = 0.50, gpu: str = "any", engine: str = "any") -> Calibration:
    """Shares of peak bandwidth and compute, nothing else (the seeds' arithmetic; kept for good).

    Parameters
    ----------
    mbu
        Share of the memory bandwidth that is reached [1].
    mfu
        Share of the dense peak that is reached [1].
    gpu, engine
        What it is marked for.
    """
    for name, share in (("mbu", mbu), ("mfu", mfu)):
        if not 0.0 < share <= 1.0:
            raise CalibrationError(f"{name}: {share!r} is not allowed; give a share above 0 and up to 1")
    plain = {
        "fixed_s": 0.0,
        "memory_fraction": mbu,
        "compute_fraction": mfu,
        "smoothness": math.inf,
        "ramp_k": 0.0,
        "wave_exponent": 0.0,
        "head_s": 0.0,
        "token_s": 0.0,
        "link_fraction": 0.70,
    }
    families = {
        key: kind(**{f.name: plain[f.name] for f in fields(kind) if f.name in plain}) for key, kind in _keys()
    }
    known = Evidence(basis="assumed", fitted_on="rule of thumb of the seeds", date="2026-11-29")
    return Calibration(
        name="rule-of-thumb",
        gpu=gpu,
        engine=engine,
        families=families,
        evidence=dict.fromkeys(families, known),
        ideal=True,
    )


@lru_cache
def _provisional(gpu: str, engine: str) -> Calibration:
    families = {key: kind() for key, kind in _keys()}
    return Calibration(
        name="measured",
        gpu=gpu,
        engine=engine,
        families=families,
        evidence=dict.fromkeys(families, Evidence(residual=0.1, spreads={"scale": 0.1})),
    )


def _keys() -> list[tuple[str, type[Any]]]:
    keys: list[tuple[str, type[Any]]] = []
    for family, kind in FAMILIES.items():
        keys += [(f"{family}.{f}", kind) for f in KERNEL_FORMATS] if family in BY_FORMAT else [(family, kind)]
    return keys
