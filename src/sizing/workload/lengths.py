"""How long prompts and answers are: distributions of token counts.

Every distribution answers the same questions: its mean, its spread, its quantiles, a seeded sample, and
the lengths that belong to given standard normals (which is how two of them are made to move together).
Samples are whole tokens.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sizing.errors import InputError
from sizing.workload.checks import require

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
MOST_TOKENS = 100_000_000  #: longest length that is taken for real [token]


def _tokens(values: npt.NDArray[np.floating[Any]]) -> Ints:
    whole: Ints = np.rint(values).astype(np.int64)
    return whole


class Length(ABC):
    """A distribution of token counts."""

    __slots__ = ()

    @property
    @abstractmethod
    def mean(self) -> float:
        """Mean. [token]"""

    @property
    @abstractmethod
    def std(self) -> float:
        """Standard deviation. [token]"""

    @property
    @abstractmethod
    def least(self) -> float:
        """Shortest length that occurs. [token]"""

    @property
    @abstractmethod
    def most(self) -> float:
        """Longest length that occurs. [token]"""

    @abstractmethod
    def quantile(self, share: npt.ArrayLike) -> Floats:
        """Length that a share of requests does not exceed. [token]"""

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """The distribution as plain values, for a workload file."""

    @property
    def variation(self) -> float:
        """Coefficient of variation: standard deviation over mean. [1]"""
        return self.std / self.mean

    def sample(self, random: np.random.Generator, n: int) -> Ints:
        """Draw ``n`` lengths. [token]"""
        return _tokens(self.quantile(random.random(n)))

    def from_normal(self, normals: Floats) -> Ints:
        """Lengths that sit at the same ranks as given standard normals. [token]"""
        from scipy.special import ndtr

        return _tokens(self.quantile(ndtr(normals)))

    def nodes(self, n: int) -> Floats:
        """Lengths at the middles of ``n`` equal shares, for integrals over the distribution. [token]"""
        return self.quantile((np.arange(n) + 0.5) / n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed(Length):
    """One length for every request.

    Attributes
    ----------
    tokens
        The length; a fraction stays in the mean and is rounded in samples. [token]
    """

    tokens: float

    def __post_init__(self) -> None:
        require(0 <= self.tokens <= MOST_TOKENS, "tokens", self.tokens, f"a number from 0 to {MOST_TOKENS:,}")

    @property
    def mean(self) -> float:
        """The length. [token]"""
        return float(self.tokens)

    @property
    def std(self) -> float:
        """Zero. [token]"""
        return 0.0

    @property
    def least(self) -> float:
        """The length. [token]"""
        return float(self.tokens)

    @property
    def most(self) -> float:
        """The length. [token]"""
        return float(self.tokens)

    def quantile(self, share: npt.ArrayLike) -> Floats:
        """The length, whatever the share. [token]"""
        return np.full(np.shape(share), float(self.tokens))

    def sample(self, random: np.random.Generator, n: int) -> Ints:
        """The length, ``n`` times. [token]"""
        return np.full(n, round(self.tokens), dtype=np.int64)

    def from_normal(self, normals: Floats) -> Ints:
        """The length, whatever the rank. [token]"""
        return np.full(normals.shape, round(self.tokens), dtype=np.int64)

    def record(self) -> dict[str, Any]:
        """Kind and length."""
        return {"kind": "fixed", "tokens": self.tokens}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal(Length):
    r"""Lognormal lengths, cut at both ends.

    With :math:`\sigma^2 = \ln(1 + c^2)` and :math:`\mu = \ln m - \sigma^2/2` for mean ``m`` and coefficient
    of variation ``c`` before the cut; :attr:`mean` and :attr:`std` are those after it.

    Attributes
    ----------
    mean_tokens
        Mean before the cut. [token]
    cv
        Standard deviation over mean, before the cut. [1]
    least_tokens, most_tokens
        Lengths beyond are set to these. [token]
    """

    mean_tokens: float
    cv: float
    least_tokens: float = 1.0
    most_tokens: float = 1_000_000.0

    def __post_init__(self) -> None:
        require(0 < self.mean_tokens <= MOST_TOKENS, "mean_tokens", self.mean_tokens, "a positive number")
        require(0 < self.cv <= 100, "cv", self.cv, "a number above 0 and up to 100")
        holds = 0 <= self.least_tokens < self.most_tokens <= MOST_TOKENS
        require(holds, "most_tokens", self.most_tokens, f"a number above least_tokens, up to {MOST_TOKENS:,}")

    @classmethod
    def of_median(cls, *, mean: float, median: float, least: float = 1.0, most: float = 1e6) -> "Lognormal":
        """Lognormal with a given mean and median [token]: the squared ratio of the two is ``1 + cv^2``."""
        require(mean > median > 0, "median", median, "a positive number below the mean")
        cv = math.sqrt((mean / median) ** 2 - 1)
        return cls(mean_tokens=mean, cv=cv, least_tokens=least, most_tokens=most)

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm. [1]"""
        return math.sqrt(math.log1p(self.cv**2))

    @property
    def mu(self) -> float:
        """Mean of the logarithm. [1]"""
        return math.log(self.mean_tokens) - 0.5 * self.sigma**2

    def _moment(self, k: int) -> float:
        """k-th moment after the cut."""
        mu, sigma = self.mu, self.sigma

        def below(limit: float, shift: float) -> float:
            if limit <= 0:
                return 0.0
            return 0.5 * math.erfc(-((math.log(limit) - mu) / sigma - shift) / math.sqrt(2.0))

        low, high = self.least_tokens, self.most_tokens
        inside = math.exp(k * mu + 0.5 * (k * sigma) ** 2) * (below(high, k * sigma) - below(low, k * sigma))
        return low**k * below(low, 0.0) + high**k * (1.0 - below(high, 0.0)) + inside

    @property
    def mean(self) -> float:
        """Mean after the cut. [token]"""
        return self._moment(1)

    @property
    def std(self) -> float:
        """Standard deviation after the cut. [token]"""
        return math.sqrt(max(self._moment(2) - self._moment(1) ** 2, 0.0))

    @property
    def least(self) -> float:
        """Lower cut. [token]"""
        return self.least_tokens

    @property
    def most(self) -> float:
        """Upper cut. [token]"""
        return self.most_tokens

    def _cut(self, normals: Floats) -> Floats:
        values = np.array(normals, dtype=np.float64)
        values *= self.sigma
        values += self.mu
        np.exp(values, out=values)
        np.clip(values, self.least_tokens, self.most_tokens, out=values)
        return values

    def quantile(self, share: npt.ArrayLike) -> Floats:
        """Length that a share of requests does not exceed. [token]"""
        from scipy.special import ndtri

        return self._cut(np.asarray(ndtri(np.asarray(share, dtype=np.float64))))

    def sample(self, random: np.random.Generator, n: int) -> Ints:
        """Draw ``n`` lengths. [token]"""
        return self.from_normal(random.standard_normal(n))

    def from_normal(self, normals: Floats) -> Ints:
        """Lengths at the ranks of given standard normals. [token]"""
        return _tokens(self._cut(normals))

    def record(self) -> dict[str, Any]:
        """Kind and parameters."""
        return {
            "kind": "lognormal", "mean_tokens": self.mean_tokens, "cv": self.cv,
            "least_tokens": self.least_tokens, "most_tokens": self.most_tokens,
        }  # fmt: skip


def as_length(value: "float | Length", name: str = "tokens") -> Length:
    """A distribution as it is, a number as a fixed length. [token]"""
    if isinstance(value, Length):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not math.isfinite(value):
        raise InputError(f"{name}: {value!r} is not allowed; give a positive number or a Length")
    return _fixed(float(value))


@lru_cache(maxsize=4096)
def _fixed(tokens: float) -> "Fixed":
    return Fixed(tokens=tokens)
