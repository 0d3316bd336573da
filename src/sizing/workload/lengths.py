"""How long prompts and answers are: distributions of token counts.

Every distribution answers the same questions: its mean, its spread, its quantiles, a seeded sample, and
the lengths that belong to given standard normals (which is how two of them are made to move together).
Samples are whole tokens.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from sizing.errors import InputError
from sizing.workload.checks import kind_of, require

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
MOST_TOKENS = 100_000_000  #: longest length that is taken for real [token]
_TABLE_POINTS = 4097


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
    try:
        return make(**fields)
    except TypeError as error:
        raise InputError(f"{where}: a {kind} length with {sorted(fields)} does not work ({error})") from error
    except InputError as error:
        raise InputError(f"{where}.{error}") from error


def _plain(value: object, where: str) -> object:
    if isinstance(value, list | tuple) and all(isinstance(v, int | float) for v in value):
        return tuple(float(v) for v in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, tuple) and all(isinstance(v, Length) for v in value):
        return value
    raise InputError(f"{where}: {value!r} is not allowed; give a number or a list of numbers")


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
