"""Requests as arrays: what a sampled workload and a trace both become, and what the simulator reads."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sizing.errors import InputError
from sizing.workload.lengths import Floats, Ints


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
    prefix, prefix_tokens
        Group of requests whose prompts begin alike (-1 for none), and the tokens of that beginning. [token]
    chain, chain_tokens
        For a cache that knows chains and no trees: the first ``chain_tokens`` tokens of prompt and answer are
        those of chain ``chain`` (-1 for none), the rest is the request's own. [token]
    reused_tokens
        Prompt tokens that an unlimited cache would have held, where blocks were recorded. [token]
    """

    arrival_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    session: Ints | None = None
    turn: Ints | None = None
    prefix: Ints | None = None
    prefix_tokens: Ints | None = None
    chain: Ints | None = None
    chain_tokens: Ints | None = None
    reused_tokens: Ints | None = None

    def __post_init__(self) -> None:
        n = len(self.arrival_s)
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and len(value) != n:
                raise InputError(f"{field.name}: {len(value)} entries for {n} requests; give one entry a request")

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.arrival_s)

    def take(self, chosen: npt.NDArray[Any] | slice) -> "Requests":
        """The chosen requests: a mask, positions or a slice; in order of arrival if the choice is."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: v[chosen] for k, v in values.items() if v is not None})

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
    whole = {k: np.asarray(v, dtype=np.int64) for k, v in arrays.items() if v is not None}
    if len(times) and not np.all(np.isfinite(times)):
        raise InputError("arrival_s: not every arrival is a finite number; give seconds")
    if len(times) > 1 and np.any(np.diff(times) < 0):
        order = np.argsort(times, kind="stable")
        times, whole = times[order], {k: v[order] for k, v in whole.items() if len(v) == len(times)}
    return Requests(arrival_s=times, **whole)
