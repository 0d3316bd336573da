"""Several kinds of request in one stream, and any distribution back from its record."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sizing.errors import InputError
from sizing.workload.checks import kind_of, made_of, require
from sizing.workload.lengths import Fixed, Floats, Ints, Length, Lognormal
from sizing.workload.measured import Empirical, Quantiles

_TABLE_POINTS = 4097


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture(Length):
    """Several kinds of request in one stream.

    Attributes
    ----------
    parts
        Distribution of each kind.
    weights
        Share of requests of each kind, in any scale. [1]
    """

    parts: tuple[Length, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        require(len(self.parts) == len(self.weights) >= 1, "weights", self.weights, "one weight for each part")
        usable = all(0 < w < math.inf for w in self.weights)
        require(usable, "weights", self.weights, "positive weights")

    @property
    def _shares(self) -> Floats:
        return np.asarray(self.weights) / sum(self.weights)

    @property
    def mean(self) -> float:
        """Mean. [token]"""
        return float(self._shares @ [p.mean for p in self.parts])

    @property
    def std(self) -> float:
        """Standard deviation. [token]"""
        second = self._shares @ [p.std**2 + p.mean**2 for p in self.parts]
        return math.sqrt(max(float(second) - self.mean**2, 0.0))

    @property
    def least(self) -> float:
        """Shortest length. [token]"""
        return min(p.least for p in self.parts)

    @property
    def most(self) -> float:
        """Longest length. [token]"""
        return max(p.most for p in self.parts)

    def quantile(self, share: npt.ArrayLike) -> Floats:
        """Length that a share of requests does not exceed, from a table of the mixture. [token]"""
        shares, tokens = _mixture_table(self)
        return np.asarray(np.interp(np.asarray(share, dtype=np.float64), shares, tokens))

    def sample(self, random: np.random.Generator, n: int) -> Ints:
        """Draw ``n`` lengths, each from a part drawn by weight. [token]"""
        part = np.searchsorted(np.cumsum(self._shares)[:-1], random.random(n), side="right")
        lengths = np.empty(n, dtype=np.int64)
        for i, distribution in enumerate(self.parts):
            chosen = part == i
            lengths[chosen] = distribution.sample(random, int(chosen.sum()))
        return lengths

    def record(self) -> dict[str, Any]:
        """Kind, parts and weights."""
        return {"kind": "mixture", "parts": [p.record() for p in self.parts], "weights": list(self.weights)}


@lru_cache(maxsize=32)
def _mixture_table(mixture: Mixture) -> tuple[Floats, Floats]:
    """Shares and lengths of a mixture: the nodes of its parts, merged by size."""
    nodes = [p.nodes(_TABLE_POINTS) for p in mixture.parts]
    weights = np.repeat(mixture._shares / _TABLE_POINTS, _TABLE_POINTS)
    tokens = np.concatenate(nodes)
    order = np.argsort(tokens, kind="stable")
    return np.cumsum(weights[order]) - 0.5 * weights[order], tokens[order]


def length_from_record(record: dict[str, Any], where: str = "length") -> Length:
    """Distribution written by :meth:`Length.record`.

    Raises
    ------
    InputError
        Unknown kind, or a value that is missing, of the wrong type or out of range.
    """
    kinds: dict[str, type[Length]] = {
        "fixed": Fixed, "lognormal": Lognormal, "quantiles": Quantiles, "empirical": Empirical,
        "mixture": Mixture,
    }  # fmt: skip
    if isinstance(record, int | float) and not isinstance(record, bool):
        return Fixed(tokens=float(record))
    fields = dict(record) if isinstance(record, dict) else record
    make = kind_of(fields, kinds, where)
    kind = fields.pop("kind")
    if kind == "mixture" and isinstance(fields.get("parts"), list):
        fields["parts"] = tuple(length_from_record(p, f"{where}.parts") for p in fields["parts"])
    fields = {k: _plain(v, f"{where}.{k}") for k, v in fields.items()}
    return made_of(make, fields, kind, where)


def _plain(value: object, where: str) -> object:
    if isinstance(value, list | tuple) and all(isinstance(v, int | float) for v in value):
        return tuple(float(v) for v in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, tuple) and all(isinstance(v, Length) for v in value):
        return value
    raise InputError(f"{where}: {value!r} is not allowed; give a number or a list of numbers")
