"""Lengths as they were measured: quantiles, values with weights, pairs of input and output."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from sizing.workload.checks import require
from sizing.workload.lengths import MOST_TOKENS, Floats, Ints, Length


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles(Length):
    """Lengths between measured quantiles, straight from one to the next.

    Attributes
    ----------
    shares
        Shares of requests, rising from 0 to 1. [1]
    tokens
        Length that each share does not exceed. [token]
    """

    shares: tuple[float, ...]
    tokens: tuple[float, ...]

    def __post_init__(self) -> None:
        shares, tokens = self.shares, self.tokens
        require(len(shares) == len(tokens) >= 2, "shares", len(shares), "as many shares as tokens, at least two")
        rising = shares[0] == 0 and shares[-1] == 1 and all(a < b for a, b in pairwise(shares))
        require(rising, "shares", shares, "shares that rise from 0 to 1")
        ordered = all(a <= b for a, b in pairwise(tokens))
        require(ordered and tokens[0] >= 0 and tokens[-1] <= MOST_TOKENS, "tokens", tokens, "rising token counts")

    @classmethod
    def of(cls, samples: npt.ArrayLike, points: int = 101) -> "Quantiles":
        """Quantiles of measured lengths [token]: ``points`` even ones and five more in the upper tail.

        All are scaled by one factor near 1 (within 2 % in published traces) so that the mean is the measured one.
        """
        measured = np.asarray(samples, dtype=np.float64)
        shares = np.unique([*np.linspace(0.0, 1.0, points).round(6), 0.985, 0.995, 0.998, 0.999, 0.9995])
        values = np.quantile(measured, shares)
        whole = float(np.sum(np.diff(shares) * (values[1:] + values[:-1])) / 2)
        values *= float(measured.mean()) / whole if whole > 0 else 1.0
        return cls(shares=tuple(map(float, shares)), tokens=tuple(float(v) for v in values.round(3)))

    @property
    def mean(self) -> float:
        """Mean. [token]"""
        p, q = np.asarray(self.shares), np.asarray(self.tokens)
        return float(np.sum(np.diff(p) * (q[1:] + q[:-1])) / 2)

    @property
    def std(self) -> float:
        """Standard deviation. [token]"""
        p, q = np.asarray(self.shares), np.asarray(self.tokens)
        a, b = q[:-1], q[1:]
        second = float(np.sum(np.diff(p) * (a * a + a * b + b * b)) / 3)
        return math.sqrt(max(second - self.mean**2, 0.0))

    @property
    def least(self) -> float:
        """Shortest length. [token]"""
        return self.tokens[0]

    @property
    def most(self) -> float:
        """Longest length. [token]"""
        return self.tokens[-1]

    def quantile(self, share: npt.ArrayLike) -> Floats:
        """Length that a share of requests does not exceed. [token]"""
        return np.asarray(np.interp(np.asarray(share, dtype=np.float64), self.shares, self.tokens))

    def record(self) -> dict[str, Any]:
        """Kind and both rows of the table."""
        return {"kind": "quantiles", "shares": list(self.shares), "tokens": list(self.tokens)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Empirical(Length):
    """Measured lengths, each with its weight.

    Attributes
    ----------
    tokens
        Lengths that occur, rising. [token]
    weights
        How often each occurs, in any scale. [1]
    """

    tokens: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        tokens, weights = self.tokens, self.weights
        require(len(tokens) == len(weights) >= 1, "tokens", len(tokens), "as many tokens as weights, at least one")
        ordered = all(a < b for a, b in pairwise(tokens))
        require(
            ordered and tokens[0] >= 0 and tokens[-1] <= MOST_TOKENS,
            "tokens",
            tokens[:5],
            "rising token counts",
        )
        usable = all(0 <= w < math.inf for w in weights) and sum(weights) > 0
        require(usable, "weights", weights[:5], "numbers of at least 0, not all 0")

    @classmethod
    def of(cls, samples: npt.ArrayLike) -> "Empirical":
        """Every measured length with its count. [token]"""
        values, counts = np.unique(np.asarray(samples, dtype=np.float64), return_counts=True)
        return cls(tokens=tuple(map(float, values)), weights=tuple(map(float, counts)))

    @property
    def mean(self) -> float:
        """Mean. [token]"""
        return float(np.average(self.tokens, weights=self.weights))

    @property
    def std(self) -> float:
        """Standard deviation. [token]"""
        gaps = np.asarray(self.tokens) - self.mean
        return math.sqrt(float(np.average(gaps * gaps, weights=self.weights)))

    @property
    def least(self) -> float:
        """Shortest length. [token]"""
        return self.tokens[0]

    @property
    def most(self) -> float:
        """Longest length. [token]"""
        return self.tokens[-1]

    def quantile(self, share: npt.ArrayLike) -> Floats:
        """Length that a share of requests does not exceed. [token]"""
        steps = np.cumsum(self.weights)
        place = np.searchsorted(steps / steps[-1], np.asarray(share, dtype=np.float64), side="left")
        return np.asarray(self.tokens, dtype=np.float64)[np.minimum(place, len(steps) - 1)]

    def record(self) -> dict[str, Any]:
        """Kind, lengths and weights."""
        return {"kind": "empirical", "tokens": list(self.tokens), "weights": list(self.weights)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pairs:
    """Measured pairs of input and output lengths, drawn together.

    Attributes
    ----------
    input_tokens, output_tokens
        One entry a measured request. [token]
    """

    input_tokens: Ints
    output_tokens: Ints

    def __post_init__(self) -> None:
        n = len(self.input_tokens)
        require(n == len(self.output_tokens) >= 1, "output_tokens", n, "as many outputs as inputs, at least one")

    @classmethod
    def of(cls, input_tokens: Sequence[int] | Ints, output_tokens: Sequence[int] | Ints) -> "Pairs":
        """Pairs from two sequences of the same length. [token]"""
        return cls(
            input_tokens=np.asarray(input_tokens, dtype=np.int64),
            output_tokens=np.asarray(output_tokens, dtype=np.int64),
        )

    def marginals(self) -> tuple[Empirical, Empirical]:
        """The two distributions on their own. [token]"""
        return Empirical.of(self.input_tokens), Empirical.of(self.output_tokens)

    def sample(self, random: np.random.Generator, n: int) -> tuple[Ints, Ints]:
        """Draw ``n`` pairs. [token]"""
        chosen = random.integers(0, len(self.input_tokens), n)
        return self.input_tokens[chosen], self.output_tokens[chosen]
