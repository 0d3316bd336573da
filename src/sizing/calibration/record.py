"""A calibration: the constants of one GPU and engine, with their evidence."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from sizing.calibration.constants import (
    BOUNDS,
    Decode,
    Elementwise,
    EngineTime,
    Exchange,
    ExpertExchange,
    Gemm,
    Moe,
    Prefill,
    Value,
    family_keys,
)
from sizing.errors import CalibrationError

UNKNOWN_RESIDUAL = 0.3
"""Log-sigma of a family that nothing is known of. [1]"""


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
    residuals
        Log-sigma of measured over predicted of a run, by ``tpot`` and ``ttft``, where a user's own load test gave the
        engine's constants; empty: the engine's shipped ones hold. [1]
    """

    basis: str = "assumed"
    fitted_on: str = ""
    date: str = ""
    residual: float = UNKNOWN_RESIDUAL
    spreads: Mapping[str, float] = field(default_factory=dict)
    residuals: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedConstant:
    """One constant as a table shows it; attributes as in :class:`Evidence` and :class:`Bound`."""

    family: str
    name: str
    value: float
    spread: float
    unit: str
    basis: str
    fitted_on: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Efficiency constants of one GPU and engine.

    Attributes
    ----------
    name, gpu, engine
        What was asked for.
    families
        Constants by family, those of :data:`BY_FORMAT` by ``family.format``.
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

    def decode(self, family: str) -> Decode:
        """Constants of ``attention_decode`` or ``mla_decode``."""
        found: Decode = self.families[family]
        return found

    def prefill(self, family: str) -> Prefill:
        """Constants of ``attention_prefill`` or ``mla_prefill``."""
        found: Prefill = self.families[family]
        return found

    def attention(self, family: str) -> Decode | Prefill:
        """Constants of any attention core."""
        found: Decode | Prefill = self.families[family]
        return found

    def exchange(self, family: str) -> Exchange:
        """Constants of a collective, such as ``all_reduce``."""
        found: Exchange = self.families[family]
        return found

    def expert_exchange(self, family: str) -> ExpertExchange:
        """Constants of one way of the experts' exchange, such as ``deepep.dispatch``."""
        found: ExpertExchange = self.families[family]
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
        return self.evidence[kind].residual if kind in self.evidence else UNKNOWN_RESIDUAL

    def constants(self) -> Iterator[NamedConstant]:
        """Every constant with its evidence, family by family."""
        for key in sorted(self.families):
            evidence = self.evidence.get(key, Evidence())
            for item in fields(self.families[key]):
                yield NamedConstant(
                    family=key, name=item.name, value=float(np.median(getattr(self.families[key], item.name))),
                    spread=evidence.spreads.get(item.name, 0.0), unit=BOUNDS[item.name].unit,
                    basis=evidence.basis, fitted_on=evidence.fitted_on, date=evidence.date,
                )  # fmt: skip

    def draws(self, n: int, seed: int = 0, axes: int = 1) -> "Calibration":
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

    def with_constants(self, family: str, **values: Value) -> "Calibration":
        """The same calibration with some constants of one family replaced."""
        families = {**self.families, family: replace(self.families[family], **values)}
        return replace(self, families=families)


@lru_cache(maxsize=256)
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
        "link_fraction": 0.70,
        "smoothness": math.inf,
        "growth": 0.0,
    }
    families = {
        key: kind(**{f.name: plain[f.name] for f in fields(kind) if f.name in plain}) for key, kind in family_keys()
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
