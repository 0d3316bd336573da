r"""When requests come: arrival processes.

A process is a stream of unit rate, pulled through the cumulative intensity of its profile:
:math:`t_i = \Lambda^{-1}(s_i)` where :math:`s_i` are the points of the stream and :math:`\Lambda(t)` is the
expected count by ``t``. Gaps of the stream are rounded to whole nanoseconds and summed as integers, so that
the same seed gives the same arrivals on every machine.

References
----------
.. [1] Y. Xiang et al., "ServeGen: workload characterization and generation of large language model serving
   in production", arXiv:2505.09999: Gamma and Weibull gaps for a client, rates that move by the hour.
.. [2] E. Cinlar, "Introduction to Stochastic Processes", 1975, ch. 4: inversion of the cumulative intensity.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sizing.workload.checks import is_number, kind_of, made_of, require
from sizing.workload.lengths import Floats

DAY_S = 86_400.0
WEEK_S = 7 * DAY_S
_NS = 1e-9


class Arrivals(ABC):
    """An arrival process; the mean rate is the workload's."""

    __slots__ = ()

    @property
    @abstractmethod
    def gap_cv(self) -> float:
        """Standard deviation over mean of the gaps, at a steady rate. [1]"""

    @property
    def peak_to_mean(self) -> float:
        """Rate of the busiest time over the mean rate. [1]"""
        return 1.0

    @abstractmethod
    def sample_s(self, random: np.random.Generator, n: int, rate_per_s: float) -> Floats:
        """Draw the first ``n`` arrival times from time zero on, sorted. [s]"""

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """The process as plain values, for a workload file."""


def _summed(gaps_s: Floats) -> Floats:
    """Running sum of gaps, exact: in whole nanoseconds."""
    gaps_s *= 1e9
    np.rint(gaps_s, out=gaps_s)
    return np.asarray(np.cumsum(gaps_s.astype(np.int64)) * _NS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson(Arrivals):
    """Requests that know nothing of each other: exponential gaps."""

    @property
    def gap_cv(self) -> float:
        """One. [1]"""
        return 1.0

    def sample_s(self, random: np.random.Generator, n: int, rate_per_s: float) -> Floats:
        """Draw the first ``n`` arrival times. [s]"""
        return _summed(random.standard_exponential(n) / rate_per_s)

    def record(self) -> dict[str, Any]:
        """Kind."""
        return {"kind": "poisson"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gamma(Arrivals):
    r"""Independent Gamma gaps of shape :math:`1/c^2`: bursty above CV 1, regular below.

    Attributes
    ----------
    cv
        Standard deviation over mean of the gaps. [1]
    """

    cv: float

    def __post_init__(self) -> None:
        require(is_number(self.cv) and 0.01 <= self.cv <= 30, "cv", self.cv, "a number from 0.01 to 30")

    @property
    def gap_cv(self) -> float:
        """The CV. [1]"""
        return self.cv

    def sample_s(self, random: np.random.Generator, n: int, rate_per_s: float) -> Floats:
        """Draw the first ``n`` arrival times. [s]"""
        shape = 1.0 / self.cv**2
        return _summed(random.standard_gamma(shape, n) / (shape * rate_per_s))

    def record(self) -> dict[str, Any]:
        """Kind and CV."""
        return {"kind": "gamma", "cv": self.cv}


def _modulated(stream: Floats, edges_s: Floats, factors: Floats) -> Floats:
    """Times at which the cumulative intensity of a step profile reaches the points of a stream."""
    reached = np.concatenate([[0.0], np.cumsum(np.diff(edges_s) * factors)])
    return np.asarray(np.interp(stream, reached, edges_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class OnOff(Arrivals):
    """Bursts: a busy state and a quiet one, each lasting an exponential time, Poisson arrivals inside.

    Attributes
    ----------
    on_s, off_s
        Mean length of the busy and of the quiet state. [s]
    quiet_share
        Rate in the quiet state over the rate in the busy one. [1]
    """

    on_s: float
    off_s: float
    quiet_share: float = 0.0

    def __post_init__(self) -> None:
        for name in ("on_s", "off_s"):
            require(0 < getattr(self, name) < 1e9, name, getattr(self, name), "a positive number of seconds")
        require(0 <= self.quiet_share < 1, "quiet_share", self.quiet_share, "a share from 0 to below 1")

    @property
    def peak_to_mean(self) -> float:
        """Rate of the busy state over the mean rate. [1]"""
        return (self.on_s + self.off_s) / (self.on_s + self.quiet_share * self.off_s)

    @property
    def gap_cv(self) -> float:
        """CV of the Poisson stream inside a state; the bursts are in :meth:`dispersion`. [1]"""
        return 1.0

    def dispersion(self, rate_per_s: float) -> float:
        r"""Index of dispersion of counts over long windows [1]: :math:`1 + 2 v/(\lambda (a + b))`.

        ``a`` and ``b`` are the rates of leaving the states and ``v`` the variance of the rate (a two-state
        Markov-modulated Poisson process; Fischer and Meier-Hellstern, Perf. Eval. 18, 1993).
        """
        share = self.on_s / (self.on_s + self.off_s)
        busy = rate_per_s * self.peak_to_mean
        variance = share * (1 - share) * (busy * (1 - self.quiet_share)) ** 2
        return 1 + 2 * variance / (rate_per_s * (1 / self.on_s + 1 / self.off_s))

    def sample_s(self, random: np.random.Generator, n: int, rate_per_s: float) -> Floats:
        """Draw the first ``n`` arrival times, from a state drawn by its share. [s]"""
        stream = np.cumsum(random.standard_exponential(n)) / rate_per_s
        begins_on = bool(random.random() < self.on_s / (self.on_s + self.off_s))
        busy = self.peak_to_mean
        means = np.array([self.on_s, self.off_s] if begins_on else [self.off_s, self.on_s])
        rates = np.array([busy, busy * self.quiet_share] if begins_on else [busy * self.quiet_share, busy])
        sojourns, factors, reached = [], [], 0.0
        while reached <= stream[-1]:
            pairs = 16 + int(1.2 * (stream[-1] - reached) / (self.on_s + self.off_s))
            more = random.standard_exponential((pairs, 2)) * means
            sojourns.append(more.ravel())
            factors.append(np.tile(rates, pairs))
            reached += float(np.sum(more * rates))
        edges = np.concatenate([[0.0], np.cumsum(np.concatenate(sojourns))])
        times = _modulated(stream, edges, np.concatenate(factors))
        return np.rint(times * 1e9) * _NS

    def record(self) -> dict[str, Any]:
        """Kind, state lengths and quiet share."""
        return {"kind": "on-off", "on_s": self.on_s, "off_s": self.off_s, "quiet_share": self.quiet_share}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(Arrivals):
    """A rate that moves with the clock: equal steps, repeated (a day, a week) or held at the end (a ramp).

    Attributes
    ----------
    factors
        Rate in each step over the workload's rate; brought to mean 1 when the profile repeats. [1]
    step_s
        Length of a step. [s]
    repeats
        Whether the profile starts again at its end; else its last factor holds for good.
    stream
        Arrivals at a steady rate: Poisson or Gamma.
    """

    factors: tuple[float, ...]
    step_s: float
    repeats: bool = True
    stream: Poisson | Gamma = field(default_factory=Poisson)

    def __post_init__(self) -> None:
        usable = len(self.factors) >= 1 and all(0 <= f < math.inf for f in self.factors)
        require(usable and max(self.factors, default=0) > 0, "factors", self.factors[:5], "numbers of at least 0")
        require(self.repeats or self.factors[-1] > 0, "factors", self.factors[-1], "a last factor above 0")
        require(0 < self.step_s <= 1e12, "step_s", self.step_s, "a positive number of seconds")

    @property
    def period_s(self) -> float:
        """Length of the profile. [s]"""
        return len(self.factors) * self.step_s

    @property
    def scaled(self) -> Floats:
        """Factors as they are used: mean 1 when the profile repeats. [1]"""
        factors = np.asarray(self.factors, dtype=np.float64)
        return np.asarray(factors / factors.mean()) if self.repeats else factors

    @property
    def gap_cv(self) -> float:
        """CV of the stream at a steady rate. [1]"""
        return self.stream.gap_cv

    @property
    def peak_to_mean(self) -> float:
        """Largest factor. [1]"""
        return float(self.scaled.max())

    def sample_s(self, random: np.random.Generator, n: int, rate_per_s: float) -> Floats:
        """Draw the first ``n`` arrival times, from the start of the profile on. [s]"""
        stream = self.stream.sample_s(random, n, rate_per_s)
        factors = self.scaled
        edges = np.asarray(np.arange(len(factors) + 1) * self.step_s, dtype=np.float64)
        whole = float(factors.sum() * self.step_s)
        if self.repeats:
            rounds = np.floor(stream / whole)
            times = rounds * self.period_s + _modulated(stream - rounds * whole, edges, factors)
        else:
            times = _modulated(np.minimum(stream, whole), edges, factors)
            times += np.maximum(stream - whole, 0.0) / factors[-1]
        return np.maximum.accumulate(np.rint(times * 1e9)) * _NS

    def record(self) -> dict[str, Any]:
        """Kind, factors, step and stream."""
        return {
            "kind": "profile", "factors": list(self.factors), "step_s": self.step_s,
            "repeats": self.repeats, "stream": self.stream.record(),
        }  # fmt: skip


def diurnal(amplitude: float = 0.5, *, peak_hour: float = 15.0, cv: float = 1.0, steps: int = 96) -> Profile:
    r"""A day that rises and falls as a sine: factor :math:`1 + A \cos(2\pi(h - h_p)/24)`.

    Parameters
    ----------
    amplitude
        Half the swing over the mean; the peak is ``1 + amplitude`` times the mean. [1]
    peak_hour
        Hour of the peak. [h]
    cv
        CV of the gaps at a steady rate. [1]
    steps
        Steps a day. [1]
    """
    require(0 <= amplitude <= 1, "amplitude", amplitude, "a share from 0 to 1")
    hours = (np.arange(steps) + 0.5) * 24 / steps
    factors = 1 + amplitude * np.cos(2 * np.pi * (hours - peak_hour) / 24)
    return Profile(factors=tuple(map(float, factors)), step_s=DAY_S / steps, stream=_stream(cv))


def weekly(amplitude: float = 0.5, *, weekend: float = 0.5, peak_hour: float = 15.0, cv: float = 1.0) -> Profile:
    """Seven diurnal days, Monday first, the last two at a fraction of a weekday.

    Parameters
    ----------
    amplitude, peak_hour, cv
        As for :func:`diurnal`. [1], [h], [1]
    weekend
        Rate of a weekend day over a weekday. [1]
    """
    require(0 < weekend <= 10, "weekend", weekend, "a positive number up to 10")
    day = diurnal(amplitude, peak_hour=peak_hour, cv=cv, steps=24)
    factors = [f * (weekend if d >= 5 else 1.0) for d in range(7) for f in day.factors]
    return Profile(factors=tuple(factors), step_s=day.step_s, stream=day.stream)


def ramp(start: float, end: float, duration_s: float, *, cv: float = 1.0, steps: int = 100) -> Profile:
    """A rate that moves in a straight line and stays.

    Parameters
    ----------
    start, end
        Rate at either end over the workload's rate. [1]
    duration_s
        Time from one to the other. [s]
    cv
        CV of the gaps at a steady rate. [1]
    steps
        Steps of the line. [1]
    """
    require(is_number(start) and 0 <= start < math.inf, "start", start, "a number of at least 0")
    require(is_number(end) and 0 < end < math.inf, "end", end, "a number above 0")
    require(is_number(duration_s) and 0 < duration_s <= 1e12, "duration_s", duration_s, "a positive number of seconds")
    line = start + (end - start) * (np.arange(steps) + 0.5) / steps
    factors = (*map(float, line), float(end))
    return Profile(factors=factors, step_s=duration_s / steps, repeats=False, stream=_stream(cv))


def _stream(cv: float) -> Poisson | Gamma:
    return Poisson() if cv == 1 else Gamma(cv=cv)


def arrivals_from_record(record: object, where: str = "arrivals") -> Arrivals:
    """Process written by :meth:`Arrivals.record`, or a diurnal or weekly profile or a ramp by its few numbers.

    Raises
    ------
    InputError
        Unknown kind, or a value that is missing, of the wrong type or out of range.
    """
    kinds: dict[str, Callable[..., Arrivals]] = {
        "poisson": Poisson,
        "gamma": Gamma,
        "on-off": OnOff,
        "profile": Profile,
        "diurnal": diurnal,
        "weekly": weekly,
        "ramp": ramp,
    }
    make = kind_of(record, kinds, where)
    fields = dict(record) if isinstance(record, dict) else {}
    kind = fields.pop("kind")
    if kind == "profile":
        fields["stream"] = arrivals_from_record(fields.get("stream", {"kind": "poisson"}), f"{where}.stream")
        if isinstance(fields.get("factors"), list):
            fields["factors"] = tuple(fields["factors"])
    return made_of(make, fields, kind, where)
