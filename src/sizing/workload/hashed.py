"""Rows of traces with block hashes (Mooncake and its relatives) to columns."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sizing.workload.blocks import Blocks
from sizing.workload.jsonlines import Interned, Row, number
from sizing.workload.lengths import Floats, Ints
from sizing.workload.trace import Raw

TIME = ("timestamp", "created_time")
INPUT = ("input_length", "input_tokens")
OUTPUT = ("output_length", "output_tokens")
DELAY = ("delay", "delay_ms")
TICKED_SHARE = 0.5  #: share of equal neighbours from which coarse stamps count as clock ticks [1]
LEAST_TICK_S = 1.0  #: shortest tick that is spread [s]


@dataclass(slots=True)
class HashedRows:
    """Columns of rows with hashes, grown row by row."""

    time: "array[float]" = field(default_factory=lambda: array("d"))
    inputs: "array[float]" = field(default_factory=lambda: array("d"))
    outputs: "array[float]" = field(default_factory=lambda: array("d"))
    lines: "array[int]" = field(default_factory=lambda: array("q"))
    ids: "array[int]" = field(default_factory=lambda: array("q"))
    ends: "array[int]" = field(default_factory=lambda: array("q", [0]))
    _named: Interned = field(default_factory=Interned)

    def add(self, line: int, row: Row, scope: object = None) -> None:
        """Take a row; ids of a ``scope`` are apart from those of another."""
        self.time.append(number(row, TIME))
        self.inputs.append(number(row, INPUT))
        self.outputs.append(number(row, OUTPUT))
        self.lines.append(line)
        self.add_ids(row.get("hash_ids"), scope)

    def add_ids(self, ids: object, scope: object = None) -> None:
        """Take the block ids of a row, whatever they are made of."""
        if isinstance(ids, list) and ids:
            before = len(self.ids)
            try:
                if scope is not None:
                    raise TypeError("local ids")
                self.ids.extend(ids)
            except (TypeError, OverflowError):
                del self.ids[before:]
                self.ids.extend(-2 - self._named.number(f"{scope}/{i!r}") for i in ids)
        self.ends.append(len(self.ids))

    def counts(self) -> Ints:
        """Blocks of each row."""
        ends = np.array(self.ends, dtype=np.int64)
        return np.asarray(ends[1:] - ends[:-1])

    def blocks(self, block_tokens: int) -> Blocks | None:
        """The block ids, None if there are none."""
        if not self.ids:
            return None
        return Blocks(
            ids=np.frombuffer(self.ids, dtype=np.int64).copy(),
            offsets=np.frombuffer(self.ends, dtype=np.int64).copy(), block_tokens=block_tokens,
        )  # fmt: skip

    def columns(self) -> tuple[Floats, Floats, Floats, Ints]:
        """Time as it is in the file, input and output tokens, lines."""
        arrays = (np.array(a, dtype=np.float64) for a in (self.time, self.inputs, self.outputs))
        return (*arrays, np.array(self.lines, dtype=np.int64))  # type: ignore[return-value]


def block_tokens_of(inputs: Floats, counts: Ints, choices: Sequence[int] = (16, 32, 64, 128, 256, 512, 1024)) -> int:
    """Block size that explains how many hashes prompts have: ``ceil(tokens / size)``. [token]"""
    usable = np.isfinite(inputs) & (inputs > 0) & (counts > 1)
    if not usable.any():
        return 512
    missed = [float(np.mean(np.abs(np.ceil(inputs[usable] / c) - counts[usable]) > 1)) for c in choices]
    return choices[int(np.argmin(missed))]


def spread_ticks(raw: Raw, seed: int) -> None:
    """Spread arrivals uniformly inside the ticks of a coarse clock, and say so.

    The published Mooncake trace stamps requests at whole 3,000 ms: as they are, nine gaps in ten are zero, and
    the burstiness is that of the clock.
    """
    if raw.arrival_s is None or raw.closed_loop:
        return
    times = raw.arrival_s[np.isfinite(raw.arrival_s)]
    if len(times) < 10:
        return
    gaps = np.diff(np.sort(times))
    equal = float(np.mean(gaps == 0))
    if equal < TICKED_SHARE or equal == 1 or np.min(gaps[gaps > 0]) < LEAST_TICK_S:
        return
    tick_s = float(np.median(gaps[gaps > 0]))
    random = np.random.Generator(np.random.PCG64(seed))
    spread = np.sort(times) + random.random(len(times)) * tick_s
    places = np.argsort(np.where(np.isfinite(raw.arrival_s), raw.arrival_s, np.inf), kind="stable")
    raw.arrival_s[places[: len(times)]] = np.sort(spread)
    raw.notes.append(
        f"arrival times are stamped every {tick_s * 1e3:,.0f} ms ({equal:.0%} of gaps are zero); arrivals were "
        f"spread uniformly inside the ticks (seed {seed})"
    )
