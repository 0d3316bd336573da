"""The traffic a service carries."""

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from sizing.errors import InputError
from sizing.workload.arrivals import Arrivals, OnOff, Poisson, Profile
from sizing.workload.checks import is_number
from sizing.workload.lengths import Fixed, Floats, Ints, Length, as_length
from sizing.workload.measured import Pairs
from sizing.workload.requests import Requests
from sizing.workload.sessions import Sessions, SharedPrefix, turns_of

LASTING_S = 60.0
"""A busy state this long, several times what a request stays, is planned for as a steady rate. [s]"""
_STREAMS = ("arrivals", "input", "output", "turns", "pauses", "prefix")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests a second, how long they are, when they come, and what they share.

    Attributes
    ----------
    request_rate_per_s
        Mean arrival rate of requests, every turn of a conversation counted. [request/s]
    input_tokens
        New prompt tokens of a request, a number or a distribution: the whole prompt (ISL) unless there are
        ``sessions`` or a ``prefix``, which come on top. [token]
    output_tokens
        Answer (OSL), a number or a distribution. [token]
    arrivals
        Arrival process.
    sessions
        Conversations that resend their history, or None.
    prefix
        Beginnings that prompts share, or None.
    correlation
        Correlation of the ranks of input and output length (of the normals behind them). [1]
    pairs
        Measured pairs that lengths are drawn from together; the two distributions are then theirs, whatever was given.
    prefix_hit_share
        Share of prompt tokens found in an unlimited prefix cache, where it was measured; else it follows from
        ``sessions`` and ``prefix``. [1]
    name, source
        What it is, and where its numbers come from.
    """

    request_rate_per_s: float
    input_tokens: float | Length
    output_tokens: float | Length
    arrivals: Arrivals = field(default_factory=Poisson)
    sessions: Sessions | None = None
    prefix: SharedPrefix | None = None
    correlation: float = 0.0
    pairs: Pairs | None = None
    prefix_hit_share: float | None = None
    name: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if not is_number(self.request_rate_per_s) or not 0 < self.request_rate_per_s < math.inf:
            raise InputError(f"request_rate_per_s: {self.request_rate_per_s!r} is not allowed; give a positive number")
        if self.pairs is not None:
            for name, own in zip(("input_tokens", "output_tokens"), self.pairs.marginals(), strict=True):
                object.__setattr__(self, name, own)
        for name in ("input_tokens", "output_tokens"):
            if not as_length(getattr(self, name), name).mean > 0:
                raise InputError(f"{name}: {getattr(self, name)!r} is not allowed; give a positive number")
        if not -1 < self.correlation < 1:
            raise InputError(f"correlation: {self.correlation!r} is not allowed; give a number between -1 and 1")
        if self.prefix_hit_share is not None and not 0 <= self.prefix_hit_share <= 1:
            raise InputError(f"prefix_hit_share: {self.prefix_hit_share!r} is not allowed; give a share from 0 to 1")

    @property
    def input_length(self) -> Length:
        """Distribution of the new prompt tokens of a request. [token]"""
        return as_length(self.input_tokens, "input_tokens")

    @property
    def output_length(self) -> Length:
        """Distribution of the answer. [token]"""
        return as_length(self.output_tokens, "output_tokens")

    @property
    def mean_new_tokens(self) -> float:
        """Mean prompt tokens that no earlier request sent. [token]"""
        if self.prefix_hit_share is not None:
            return self.mean_input_tokens * (1 - self.prefix_hit_share)
        return self.input_length.mean

    @property
    def mean_input_tokens(self) -> float:
        """Mean prompt length, history and shared prefix included. [token]"""
        if self.sessions is None:
            return self.input_length.mean + (self.prefix.mean_tokens if self.prefix else 0.0)
        return _session_means(self).input_tokens

    @property
    def mean_output_tokens(self) -> float:
        """Mean answer length. [token]"""
        return self.output_length.mean

    @property
    def ideal_prefix_share(self) -> float:
        """Share of prompt tokens that an unlimited prefix cache holds in the long run. [1]"""
        if self.prefix_hit_share is not None:
            return self.prefix_hit_share
        return 1.0 - self.input_length.mean / self.mean_input_tokens

    @property
    def peak_rate_per_s(self) -> float:
        """Arrival rate at the busiest time of the profile. [request/s]"""
        return self.request_rate_per_s * self.arrivals.peak_to_mean

    def at_rate(self, request_rate_per_s: float) -> "Workload":
        """The same requests at another mean rate [request/s]."""
        return replace(self, request_rate_per_s=request_rate_per_s)

    def at_peak(self) -> "Workload":
        """The busiest time of the profile, or of states that last, held for good."""
        if isinstance(self.arrivals, Profile):
            return replace(self, request_rate_per_s=self.peak_rate_per_s, arrivals=self.arrivals.stream)
        if isinstance(self.arrivals, OnOff) and self.arrivals.on_s >= LASTING_S:
            return replace(self, request_rate_per_s=self.peak_rate_per_s, arrivals=Poisson())
        return self

    def sample(self, n: int, seed: int = 0) -> Requests:
        """Draw the first ``n`` requests; the same ``seed`` gives the same ones on every machine.

        Each quantity has a stream of random numbers of its own, so that changing one leaves the others.
        """
        if not 1 <= n <= 2_000_000_000:
            raise InputError(f"n: {n!r} is not allowed; give a number of requests from 1 on")
        random = dict(zip(_STREAMS, _generators(seed), strict=True))
        if self.sessions is not None:
            return _sample_sessions(self, n, random)
        arrival_s = self.arrivals.sample_s(random["arrivals"], n, self.request_rate_per_s)
        input_tokens, output_tokens = _lengths(self, n, random)
        if self.prefix is None:
            return Requests(arrival_s=arrival_s, input_tokens=input_tokens, output_tokens=output_tokens)
        group, shared = self.prefix.sample(random["prefix"], n)
        return Requests(
            arrival_s=arrival_s, input_tokens=input_tokens + shared, output_tokens=output_tokens,
            chain=group, shared_tokens=shared,
        )  # fmt: skip

    def sample_for(self, duration_s: float, seed: int = 0) -> Requests:
        """Draw the requests of the first ``duration_s`` [s]."""
        expected = self.request_rate_per_s * duration_s
        n = int(expected + 6 * math.sqrt(expected) * max(self.arrivals.gap_cv, 1.0)) + 16
        drawn = self.sample(n, seed)
        while drawn.arrival_s[-1] < duration_s:
            n *= 2
            drawn = self.sample(n, seed)
        return drawn.take(slice(0, int(np.searchsorted(drawn.arrival_s, duration_s))))


def _generators(seed: int) -> list[np.random.Generator]:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed: {seed!r} is not allowed; give a whole number of at least 0")
    sequences = np.random.SeedSequence(int(seed)).spawn(len(_STREAMS))
    return [np.random.Generator(np.random.PCG64(s)) for s in sequences]


def _lengths(workload: Workload, n: int, random: dict[str, np.random.Generator]) -> tuple[Ints, Ints]:
    """New prompt and answer lengths, together where they depend on each other."""
    if workload.pairs is not None:
        inputs, outputs = workload.pairs.sample(random["input"], n)
    elif workload.correlation:
        rho = workload.correlation
        first = random["input"].standard_normal(n)
        second = rho * first + math.sqrt(1 - rho * rho) * random["output"].standard_normal(n)
        inputs, outputs = workload.input_length.from_normal(first), workload.output_length.from_normal(second)
    else:
        inputs = workload.input_length.sample(random["input"], n)
        outputs = workload.output_length.sample(random["output"], n)
    return np.maximum(inputs, 1), np.maximum(outputs, 1)


class _Conversations(NamedTuple):
    """Requests of whole conversations, before they are put in order."""

    session: Ints
    turn: Ints
    first: Ints
    group: Ints
    shared: Ints
    input_tokens: Ints
    output_tokens: Ints
    fits: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def _conversations(workload: Workload, counts: Ints, random: dict[str, np.random.Generator]) -> _Conversations:
    """Lengths of every turn of conversations with the given numbers of turns."""
    assert workload.sessions is not None
    own, outputs = _lengths(workload, int(counts.sum()), random)
    turns = turns_of(counts, own + outputs)
    group = shared = np.zeros(len(counts), dtype=np.int64)
    if workload.prefix is not None:
        group, shared = workload.prefix.sample(random["prefix"], len(counts))
    inputs = shared[turns.session] + turns.history_tokens + own
    fits = (inputs + outputs <= workload.sessions.most_context_tokens) | (turns.turn == 0)
    return _Conversations(turns.session, turns.turn, turns.first, group, shared, inputs, outputs, fits)


class _Means(NamedTuple):
    input_tokens: float
    turns: float


@lru_cache(maxsize=64)
def _session_means(workload: Workload) -> _Means:
    """Mean prompt and mean turns of a conversation: closed form, or drawn where contexts end it."""
    sessions = workload.sessions
    assert sessions is not None
    prefix = workload.prefix.mean_tokens if workload.prefix else 0.0
    own, answer = workload.input_length.mean, workload.output_length.mean
    if math.isinf(sessions.most_context_tokens):
        mean = prefix + own + (own + answer) * sessions.mean_earlier_turns
        return _Means(mean, sessions.mean_turns)
    random = dict(zip(_STREAMS, _generators(0), strict=True))
    counts = np.tile(sessions.turn_nodes(), 4)
    drawn = _conversations(workload, counts, random)
    return _Means(float(drawn.input_tokens[drawn.fits].mean()), float(drawn.fits.sum() / len(counts)))


def _sample_sessions(workload: Workload, n: int, random: dict[str, np.random.Generator]) -> Requests:
    """First ``n`` requests of conversations that began long enough before time zero for a steady mix."""
    assert workload.sessions is not None
    turns = _session_means(workload).turns
    longest = float(np.quantile(workload.sessions.turn_nodes(), 0.99))
    lead_s = min(longest * workload.sessions.pauses.mean, 10 * n / workload.request_rate_per_s)
    rate = workload.request_rate_per_s / turns
    wanted = rate * lead_s + n / turns
    count = int(wanted + 5 * math.sqrt(wanted) * max(workload.arrivals.gap_cv, 1.0) * math.sqrt(turns)) + 8
    begins = workload.arrivals.sample_s(random["arrivals"], count, rate) - lead_s
    drawn_turns = as_length(workload.sessions.turns).sample(random["turns"], count)
    drawn = _conversations(workload, np.maximum(drawn_turns, 1), random)
    arrival_s = _turn_times(drawn, begins, workload.sessions.pauses.sample(random["pauses"], len(drawn.session)))
    chosen = np.flatnonzero(drawn.fits & (arrival_s >= 0))
    chosen = chosen[np.argsort(arrival_s[chosen], kind="stable")][:n]
    if len(chosen) < n:
        raise InputError(f"sessions: only {len(chosen)} of {n} requests fall after the start; use shorter pauses")
    session = drawn.session[chosen]
    outputs, inputs = drawn.output_tokens[chosen], drawn.input_tokens[chosen]
    parent, start = _tree_of(workload, drawn)
    return Requests(
        arrival_s=arrival_s[chosen], input_tokens=inputs, output_tokens=outputs,
        session=session, turn=drawn.turn[chosen], shared_tokens=inputs + outputs,
        chain=session if workload.prefix is None else session + workload.prefix.groups,
        chain_parent=parent, chain_start_tokens=start,
    )  # fmt: skip


def _tree_of(workload: Workload, drawn: _Conversations) -> tuple[Ints | None, Ints | None]:
    """Tree of shared beginnings: an edge for each group of prompts, then one for each conversation below it."""
    if workload.prefix is None:
        return None, None
    groups = workload.prefix.groups
    roots = np.full(groups, -1, dtype=np.int64)
    parent = np.concatenate([roots, drawn.group])
    return parent, np.concatenate([np.zeros(groups, dtype=np.int64), drawn.shared])


def _turn_times(drawn: _Conversations, begins: Floats, pauses: Floats) -> Floats:
    """Arrival of each turn: its conversation's beginning plus the pauses before it, in whole nanoseconds."""
    steps = np.where(drawn.turn == 0, 0, np.rint(pauses * 1e9)).astype(np.int64)
    waited = np.cumsum(steps)
    waited -= waited[drawn.first][drawn.session]
    return np.asarray((np.rint(begins * 1e9).astype(np.int64)[drawn.session] + waited) * 1e-9)


def fixed(workload: Workload) -> Workload:
    """The same traffic with every request at the mean length: what a plan on averages sees."""
    return replace(
        workload, input_tokens=Fixed(tokens=workload.mean_input_tokens), sessions=None, prefix=None,
        output_tokens=Fixed(tokens=workload.mean_output_tokens), correlation=0.0, pairs=None,
        prefix_hit_share=workload.ideal_prefix_share or None,
    )  # fmt: skip
