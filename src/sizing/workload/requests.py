"""Requests as arrays: what a sampled workload and a trace both become, and what the simulator reads."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sizing.errors import InputError
from sizing.workload.lengths import Floats, Ints

_TREE = ("chain_parent", "chain_start_tokens")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Requests:
    """Arrays with one entry a request, in order of arrival; an optional one is None where there is none.

    Attributes
    ----------
    arrival_s
        Arrival times, sorted, from the start of the record. [s]
    input_tokens
        Whole prompt of the request, history and shared prefix included. [token]
    output_tokens
        Tokens generated. [token]
    session, turn
        Conversation that the request belongs to (-1 for none), and its place in it from 0.
    chain
        Edge of the tree of shared beginnings where the request's shared part ends, -1 for none.
    shared_tokens
        Tokens from the first on that lie on the path to that edge; more than the prompt where the answer is sent
        again later, as in a conversation. [token]
    chain_parent, chain_start_tokens
        The tree: edge before each edge (-1 at the root), and tokens before it; one entry an edge. [token]
    reused_tokens
        Prompt tokens that an unlimited cache would have held, where blocks were recorded. [token]
    after, pause_s
        Position of the request whose answer this one waits for (-1 for none), and the pause after that answer;
        then ``arrival_s`` is only the earliest arrival. [s]
    priority
        Class of each request, 0 the most urgent.
    """

    arrival_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    session: Ints | None = None
    turn: Ints | None = None
    chain: Ints | None = None
    shared_tokens: Ints | None = None
    chain_parent: Ints | None = None
    chain_start_tokens: Ints | None = None
    reused_tokens: Ints | None = None
    after: Ints | None = None
    pause_s: Floats | None = None
    priority: Ints | None = None

    def __post_init__(self) -> None:
        for name, value in self._columns().items():
            if len(value) != len(self.arrival_s):
                raise InputError(f"{name}: {len(value)} entries for {len(self)} requests; give one entry a request")

    def _columns(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays that have one entry a request."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _TREE}
        return {k: v for k, v in values.items() if v is not None}

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.arrival_s)

    def take(self, chosen: npt.NDArray[Any] | slice) -> "Requests":
        """The chosen requests, by mask, positions or slice; in order of arrival if the choice is."""
        kept = {k: v[chosen] for k, v in self._columns().items()}
        if self.after is not None:
            position = np.full(len(self) + 1, -1, dtype=np.int64)
            position[np.arange(len(self))[chosen]] = np.arange(len(kept["arrival_s"]))
            kept["after"] = position[kept["after"]]
        return replace(self, **kept)

    @property
    def span_s(self) -> float:
        """Time from the first arrival to the last. [s]"""
        return float(self.arrival_s[-1] - self.arrival_s[0]) if len(self) else 0.0


def requests(
    arrival_s: npt.ArrayLike,
    input_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    **more: npt.ArrayLike | None,
) -> Requests:
    """Requests from plain sequences, sorted by arrival (equal arrivals keep their order).

    Parameters
    ----------
    arrival_s
        Arrival times. [s]
    input_tokens, output_tokens
        Lengths. [token]
    more
        The other arrays of :class:`Requests`, by name.
    """
    times = np.asarray(arrival_s, dtype=np.float64)
    arrays = {"input_tokens": input_tokens, "output_tokens": output_tokens, **more}
    whole: dict[str, Any] = {k: np.asarray(v, dtype=np.int64) for k, v in arrays.items() if v is not None}
    if len(times) and not np.all(np.isfinite(times)):
        raise InputError("arrival_s: not every arrival is a finite number; give seconds")
    if len(times) > 1 and np.any(np.diff(times) < 0):
        order = np.argsort(times, kind="stable")
        times, whole = times[order], {k: v[order] for k, v in whole.items() if len(v) == len(times)}
    return Requests(arrival_s=times, **whole)
