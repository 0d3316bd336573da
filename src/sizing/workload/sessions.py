r"""Requests that share: conversations that resend their history, and prompts that begin alike.

In a conversation of ``T`` turns with ``u`` new and ``a`` generated tokens a turn, the prompt of turn ``k``
(from 0) is the shared prefix, ``k (u + a)`` tokens of history and ``u`` new ones, so that over requests the
mean prompt is :math:`p + u + (u + a)\,E[T(T-1)]/(2 E[T])`.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sizing.errors import InputError
from sizing.workload.checks import check_fields, require
from sizing.workload.lengths import Floats, Ints, Length, as_length
from sizing.workload.mixture import length_from_record

_NODES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """Time from one turn's arrival to the next one's: a mixture of lognormals.

    Attributes
    ----------
    mean_s
        Mean of each kind of pause. [s]
    cv
        Standard deviation over mean of each. [1]
    weights
        Share of each. [1]
    """

    mean_s: tuple[float, ...]
    cv: tuple[float, ...] = (1.0,)
    weights: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        same = len(self.mean_s) == len(self.cv) == len(self.weights) >= 1
        require(same, "weights", self.weights, "as many weights and CVs as means")
        for name in ("mean_s", "cv", "weights"):
            values = getattr(self, name)
            require(all(0 < v < math.inf for v in values), name, values, "positive numbers")

    @property
    def mean(self) -> float:
        """Mean pause. [s]"""
        return float(np.average(self.mean_s, weights=self.weights))

    def sample(self, random: np.random.Generator, n: int) -> Floats:
        """Draw ``n`` pauses. [s]"""
        shares = np.cumsum(self.weights) / sum(self.weights)
        part = np.searchsorted(shares[:-1], random.random(n), side="right")
        sigma = np.sqrt(np.log1p(np.square(self.cv)))
        mu = np.log(self.mean_s) - 0.5 * sigma**2
        return np.asarray(np.exp(mu[part] + sigma[part] * random.standard_normal(n)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Conversations: every turn sends all that went before.

    Attributes
    ----------
    turns
        Turns of a conversation, rounded, at least one. [request]
    pauses
        Time from one turn to the next.
    most_context_tokens
        A conversation ends before the turn whose prompt and answer would not fit. [token]
    """

    turns: float | Length
    pauses: Pauses = Pauses(mean_s=(60.0,))
    most_context_tokens: float = math.inf

    def __post_init__(self) -> None:
        mean = as_length(self.turns, "turns").mean
        require(mean >= 1, "turns", mean, "at least one turn")
        require(self.most_context_tokens > 0, "most_context_tokens", self.most_context_tokens, "a positive number")

    def turn_nodes(self) -> Ints:
        """Representative numbers of turns, equally probable. [request]"""
        return np.maximum(np.rint(as_length(self.turns).nodes(_NODES)), 1).astype(np.int64)

    @property
    def mean_turns(self) -> float:
        """Mean turns of a conversation, before any is cut short by its context. [request]"""
        return float(self.turn_nodes().mean())

    @property
    def mean_earlier_turns(self) -> float:
        """Mean number of turns before a request's own: ``E[T(T-1)] / (2 E[T])``. [request]"""
        turns = self.turn_nodes().astype(np.float64)
        return float(np.mean(turns * (turns - 1)) / (2 * turns.mean()))


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPrefix:
    """Prompts that begin with one of a few fixed texts: system prompts, tools, documents.

    Attributes
    ----------
    tokens
        Length of the text; its own for every group when it is a distribution. [token]
    groups
        How many texts there are.
    zipf
        Exponent of their popularity: 0 for all alike, 1 for Zipf's law. [1]
    """

    tokens: float | Length
    groups: int = 1
    zipf: float = 0.0

    def __post_init__(self) -> None:
        require(as_length(self.tokens).mean >= 0, "tokens", self.tokens, "a number of at least 0")
        whole = isinstance(self.groups, int) and 1 <= self.groups <= 10_000_000
        require(whole, "groups", self.groups, "a whole number from 1 to 10 million")
        require(0 <= self.zipf <= 10, "zipf", self.zipf, "a number from 0 to 10")

    @property
    def mean_tokens(self) -> float:
        """Mean length of the shared beginning. [token]"""
        return as_length(self.tokens).mean

    def shares(self) -> Floats:
        """Share of requests (or conversations) of each group, the most popular first. [1]"""
        weight = np.arange(1, self.groups + 1, dtype=np.float64) ** -self.zipf
        return np.asarray(weight / weight.sum())

    def sample(self, random: np.random.Generator, n: int) -> tuple[Ints, Ints]:
        """Draw a group and its length for each of ``n`` requests or conversations. [token]"""
        lengths = as_length(self.tokens).sample(random, self.groups)
        edges = np.cumsum(self.shares())
        group = np.minimum(np.searchsorted(edges, random.random(n), side="right"), self.groups - 1)
        return group, lengths[group]


class Turns(NamedTuple):
    """Turns of sampled conversations, conversation after conversation."""

    session: Ints
    turn: Ints
    history_tokens: Ints
    first: Ints


def turns_of(counts: Ints, new_tokens: Ints) -> Turns:
    """Number, place and history of every turn.

    Parameters
    ----------
    counts
        Turns of each conversation. [request]
    new_tokens
        Tokens that each turn adds to its conversation, prompt and answer. [token]
    """
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    session = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(new_tokens) - new_tokens
    return Turns(session, np.arange(len(session)) - first[session], before - before[first][session], first)


def sessions_record(sessions: Sessions) -> dict[str, Any]:
    """Conversations as plain values, for a workload file."""
    record: dict[str, Any] = {
        "turns": as_length(sessions.turns).record(),
        "pauses": {k: list(getattr(sessions.pauses, k)) for k in ("mean_s", "cv", "weights")},
    }
    if math.isfinite(sessions.most_context_tokens):
        record["most_context_tokens"] = sessions.most_context_tokens
    return record


def sessions_from_record(record: dict[str, Any], where: str = "sessions") -> Sessions:
    """Conversations written by :func:`sessions_record`."""
    require(isinstance(record, dict), where, record, "a table")
    fields = dict(record)
    if "turns" in fields:
        fields["turns"] = length_from_record(fields["turns"], f"{where}.turns")
    try:
        if "pauses" in fields:
            fields["pauses"] = Pauses(**{k: tuple(v) for k, v in fields["pauses"].items()})
        check_fields(Sessions, fields, where)
        return Sessions(**fields)
    except (TypeError, AttributeError) as error:
        raise InputError(f"{where}: a value is no number or list of numbers ({error})") from error
    except InputError as error:
        raise InputError(f"{where}.{error}") from error


def prefix_record(prefix: SharedPrefix) -> dict[str, Any]:
    """A shared prefix as plain values, for a workload file."""
    return {"tokens": as_length(prefix.tokens).record(), "groups": prefix.groups, "zipf": prefix.zipf}


def prefix_from_record(record: dict[str, Any], where: str = "prefix") -> SharedPrefix:
    """A shared prefix written by :func:`prefix_record`."""
    require(isinstance(record, dict), where, record, "a table")
    fields = dict(record)
    if "tokens" in fields:
        fields["tokens"] = length_from_record(fields["tokens"], f"{where}.tokens")
    check_fields(SharedPrefix, fields, where)
    try:
        return SharedPrefix(**fields)
    except TypeError as error:
        raise InputError(f"{where}: a value is no number ({error})") from error
    except InputError as error:
        raise InputError(f"{where}.{error}") from error
