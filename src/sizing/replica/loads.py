"""What a run is asked of: lengths, load, room; and what it answers."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sizing.errors import InputError

Values = NDArray[np.float64]
TIE = 1e-12
"""Keeps divisions and logarithms away from zero."""


def _normal_quantile(tail: float) -> float:
    """Where a standard normal has so much above; to 5e-4 for tails up to 0.5 (Abramowitz and Stegun 26.2.23)."""
    t = float(np.sqrt(-2.0 * np.log(min(tail, 0.5))))
    above = 2.515517 + 0.802853 * t + 0.010328 * t**2
    return t - above / (1.0 + 1.432788 * t + 0.189269 * t**2 + 0.001308 * t**3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths of requests.

    Attributes
    ----------
    input_tokens, output_tokens
        Means. [token]
    input_cv, output_cv
        Coefficient of variation; 0 for fixed lengths. [1]
    output_most
        Longest answer over the mean where it has a bound; None: lognormal. [1]
    """

    input_tokens: float
    output_tokens: float
    input_cv: float = 0.0
    output_cv: float = 0.0
    output_most: float | None = None

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens"):
            value = getattr(self, name)
            if not 0 < value < 1e9:
                raise InputError(f"{name}: {value!r} is not allowed; give a positive number of tokens")

    @classmethod
    def uniform(cls, input_tokens: float, output_tokens: float, low: float = 0.8) -> "Lengths":
        """Lengths drawn evenly from ``low`` times the nominal length up to it.

        Parameters
        ----------
        input_tokens, output_tokens
            Nominal, the longest. [token]
        low
            Shortest over longest. [1]
        """
        mean = (1.0 + low) / 2.0
        cv = (1.0 - low) / 12.0**0.5 / mean
        return cls(input_tokens=max(input_tokens * mean, 1.0), output_tokens=max(output_tokens * mean, 1.0),
                   input_cv=cv, output_cv=cv, output_most=1.0 / mean)  # fmt: skip

    def longest_of(self, answers: float) -> float:
        """The longest of so many answers over the mean: the lognormal's ``1 - 1/n`` quantile, within the bound. [1]

        Parameters
        ----------
        answers
            How many. [request]
        """
        sigma = float(np.sqrt(np.log1p(self.output_cv**2)))
        longest = float(np.exp(sigma * _normal_quantile(1.0 / max(answers, 2.0)) - sigma**2 / 2.0))
        return longest if self.output_most is None else min(longest, self.output_most)

    @property
    def fixed(self) -> bool:
        """Whether all requests are alike, so that a closed loop runs in lockstep."""
        return self.input_cv == 0.0 and self.output_cv == 0.0

    @property
    def mean_context_tokens(self) -> float:
        """Tokens in the cache of a decoding request, averaged over time: I + O (1 + cv^2) / 2. [token]"""
        return self.input_tokens + self.output_tokens * (1.0 + self.output_cv**2) / 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """So many users, each sends its next request when the last one is answered.

    Attributes
    ----------
    users
        Requests in flight. [request]
    requests
        Requests of the run, the first wave among them; None: ten a user. [request]
    """

    users: float
    requests: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoop:
    """Arrivals at a rate, whatever the replica does.

    Attributes
    ----------
    request_rate_per_s
        Mean rate; infinite when all requests are there at the start. [request/s]
    requests
        Requests of the run, which bound the queue of an overloaded one; None: 1000. [request]
    poisson
        Memoryless arrivals; False for even gaps.
    sustained
        Whether it is known that the replica kept up; the state is then taken below saturation.
    """

    request_rate_per_s: float
    requests: float | None = None
    poisson: bool = True
    sustained: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Offline:
    """All requests at once, throughput is what counts.

    Attributes
    ----------
    requests
        Requests of the run; None: many times what runs at once. [request]
    """

    requests: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Targeted:
    """An open loop at the largest rate whose 99th percentiles stay within targets, as load generators seek it.

    Attributes
    ----------
    ttft_s, tpot_s
        Targets. [s]
    requests
        Requests of the run. [request]
    """

    ttft_s: float
    tpot_s: float
    requests: float | None = None


RunLoad = ClosedLoop | OpenLoop | Offline | Targeted


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with the bounds that hold it in 80 % of runs."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> "Estimate":
        """The same estimate scaled, bounds included."""
        return Estimate(value=self.value * factor, low=self.low * factor, high=self.high * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run, predicted.

    Attributes
    ----------
    ttft_s, tpot_s, itl_s
        Means over requests. [s]
    output_tokens_per_s, request_rate_per_s
        Of the whole replica. [token/s], [request/s]
    decoding, active
        Requests that decode, and that are admitted, on average. [request]
    waiting
        Requests that wait because the KV room or the engine's limit is full. [request]
    limited_by
        ``load``, ``kv_room``, ``max_num_seqs``, ``overload`` or ``weights_do_not_fit``.
    kv_short
        Whether requests queue for KV room, so that TTFT is a cliff and not a number to rely on.
    """

    ttft_s: Estimate
    tpot_s: Estimate
    itl_s: Estimate
    output_tokens_per_s: Estimate
    request_rate_per_s: Estimate
    decoding: float
    active: float
    waiting: float
    limited_by: str
    kv_short: bool
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many requests one replica runs at once.

    Attributes
    ----------
    kv_requests
        Requests whose caches fit, on average. [request]
    max_num_seqs
        The engine's limit. [request]
    """

    kv_requests: float
    max_num_seqs: float = 1e9

    @property
    def most(self) -> float:
        """The smaller of both. [request]"""
        return min(self.kv_requests, self.max_num_seqs)


QUANTILE_80 = 1.2815515655446004
"""Standard normal quantile at 90 %: what bounds the middle 80 %. [1]"""


def estimate(values: Values, sigma: float) -> Estimate:
    """The first value (nominal constants) with bounds from the draws that follow and a residual.

    Parameters
    ----------
    values
        Nominal value, then draws; or the nominal value alone.
    sigma
        Log-sigma of the residual. [1]
    """
    value = float(values[0])
    if not np.isfinite(value) or value <= 0:
        return Estimate(value=value, low=value, high=value)
    logs = np.log(np.maximum(values[1:], TIE)) if len(values) > 2 else np.zeros(1)
    width = float(np.exp(QUANTILE_80 * np.hypot(np.std(logs), sigma)))
    return Estimate(value=value, low=value / width, high=value * width)
