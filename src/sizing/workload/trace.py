"""A recorded stream of requests, read from one of the published formats."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sizing.errors import InputError
from sizing.registry import Registry
from sizing.workload.blocks import Blocks, prefix_tree, reused_tokens
from sizing.workload.lengths import MOST_TOKENS, Floats, Ints
from sizing.workload.requests import Requests
from sizing.workload.source import Head, Progress, Source

if TYPE_CHECKING:
    from sizing.workload.statistics import Summary
    from sizing.workload.traffic import Workload

NOT_A_NUMBER = "not a number"
FAILED = "failed request (no output tokens)"
NO_INPUT = "no input tokens"
NEGATIVE = "negative number"
TOO_LARGE = f"more than {MOST_TOKENS:,} tokens"
FIELDS_MISSING = "fields missing"
NOT_JSON = "not a JSON object"
TOO_LATE = "time beyond 30,000 years"
LONGEST_S = 1e12
CUT_SHORT = "gzip cut short, the rest is lost"
NO_FAULT = (FAILED,)  #: reasons that are no fault of the file


@dataclass(slots=True)
class RowLog:
    """Rows that were left out: how many for each reason, and where the first one was."""

    counts: dict[str, int] = field(default_factory=dict)
    first_lines: dict[str, int] = field(default_factory=dict)

    def skip(self, reason: str, line: int, count: int = 1) -> None:
        """Count rows left out for ``reason``, the first of them at ``line``."""
        self.counts[reason] = self.counts.get(reason, 0) + count
        self.first_lines.setdefault(reason, line)

    def keep(self, wrong: npt.NDArray[np.bool_], reason: str, lines: Ints) -> None:
        """Count the rows that are ``wrong``."""
        if wrong.any():
            self.skip(reason, int(lines[np.argmax(wrong)]), int(wrong.sum()))

    @property
    def faults(self) -> int:
        """Rows left out because something is wrong with them."""
        return sum(n for reason, n in self.counts.items() if reason not in NO_FAULT)

    def first_fault(self) -> str:
        """Where the first fault is, and what it is."""
        lines = {r: n for r, n in self.first_lines.items() if r not in NO_FAULT} or self.first_lines
        if not lines:
            return ""
        reason = min(lines, key=lambda r: lines[r])
        return f"line {lines[reason]}: {reason}"


@dataclass(slots=True, kw_only=True)
class Raw:
    """What a reader hands over: columns as they are in the file, not yet checked or in order.

    Attributes
    ----------
    arrival_s
        Arrival times from any origin, None when the file has none. [s]
    input_tokens, output_tokens
        Lengths. [token]
    lines
        Line of the file each request is from.
    session, turn
        Conversation and place in it, -1 for none.
    blocks
        Hashes of the prompt's blocks.
    start
        Date and time of the origin, if the file tells.
    notes
        What the reader did that a person should know.
    closed_loop
        Whether arrivals within a conversation follow its answers, so that the file fixes no rate.
    pause_s
        Time from the answer before to each request, in a closed loop. [s]
    """

    arrival_s: Floats | None
    input_tokens: Floats
    output_tokens: Floats
    lines: Ints
    session: Ints | None = None
    turn: Ints | None = None
    blocks: Blocks | None = None
    start: str = ""
    notes: list[str] = field(default_factory=list)
    closed_loop: bool = False
    pause_s: Floats | None = None


class Reader(ABC):
    """A trace format: how to tell it and how to read it. One file a format; it registers itself."""

    #: What the format looks like, for messages and help.
    describes: str = ""

    @abstractmethod
    def recognises(self, head: Head) -> bool:
        """Whether a file that begins like this is of the format."""

    def lacks(self, head: Head) -> str:
        """What a file that is nearly of the format lacks; empty if it is not near."""
        return ""

    @abstractmethod
    def read(self, source: Source, log: RowLog, seed: int) -> Raw:
        """Columns of the file; rows that can't be read are counted in ``log``."""


TRACE_READERS: Registry[type[Reader]] = Registry("trace kind", "sizing.workload.readers")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """A recorded stream of requests.

    Attributes
    ----------
    kind
        Name of the format it was read as.
    path
        File it was read from.
    requests
        Its requests, in order of arrival, the first about time zero.
    skipped
        Rows left out, by reason.
    first_lines
        Line of the first row left out for each reason.
    start
        Date and time of time zero, empty where the file does not tell.
    timed
        Whether the file has arrival times.
    closed_loop
        Whether later turns wait for earlier answers, so that the file fixes no rate.
    blocks
        Hashes of the prompts' blocks, in the order of the requests, or None.
    notes
        What was done to the file's numbers.
    """

    kind: str
    path: str
    requests: Requests
    skipped: Mapping[str, int] = field(default_factory=dict)
    first_lines: Mapping[str, int] = field(default_factory=dict)
    start: str = ""
    timed: bool = True
    closed_loop: bool = False
    blocks: Blocks | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.requests)

    @property
    def arrival_s(self) -> Floats:
        """Arrival times, sorted. [s]"""
        return self.requests.arrival_s

    @property
    def input_tokens(self) -> Ints:
        """Prompt lengths. [token]"""
        return self.requests.input_tokens

    @property
    def output_tokens(self) -> Ints:
        """Answer lengths. [token]"""
        return self.requests.output_tokens

    @property
    def session(self) -> Ints | None:
        """Conversation of each request, or None."""
        return self.requests.session

    @property
    def turn(self) -> Ints | None:
        """Place of each request in its conversation, or None."""
        return self.requests.turn

    @property
    def hash_ids(self) -> Ints | None:
        """Hashes of the prompts' blocks, request after request, or None."""
        return self.blocks.ids if self.blocks is not None else None

    def summary(self) -> "Summary":
        """What a planner needs to know of it."""
        from sizing.workload.statistics import summarise

        return summarise(self)

    def to_workload(self, *, rate: str = "mean", lengths: str = "quantiles") -> "Workload":
        """The traffic that this trace is a sample of; see :func:`sizing.workload.fit.fit`."""
        from sizing.workload.fit import fit

        return fit(self, rate=rate, lengths=lengths)


def read_trace(path: str | Path, kind: str | None = None, *, seed: int = 0, progress: Progress | None = None) -> Trace:
    """Read a trace, plain or gzip, of a format told by its content.

    Parameters
    ----------
    path
        The file.
    kind
        Name of the format, such as ``azure`` or ``mooncake``; None to tell it by the content.
    seed
        Seed of what has to be drawn: arrivals inside a clock tick, requests of a statistical trace.
    progress
        Shows progress, such as ``sizing.cli.output.progress``.

    Raises
    ------
    UnknownFile
        There is no such file.
    InputError
        Not a trace, an unknown kind, or more rows wrong than right; the message names the line.
    """
    source = Source(Path(path), progress)
    head = source.head()
    name = kind or _told(head)
    reader = TRACE_READERS.get(name)()
    log = RowLog()
    raw = reader.read(source, log, seed)
    if source.cut_short:
        log.skip(CUT_SHORT, source.line)
    return _checked(raw, log, name, source)


def trace_kinds() -> dict[str, str]:
    """Names of the formats that can be read, each with what it looks like."""
    return {name: reader.describes for name, reader in TRACE_READERS.entries().items()}


def _told(head: Head) -> str:
    for name, reader in TRACE_READERS.entries().items():
        if reader().recognises(head):
            return name
    first = head.lines[0] if len(head.lines[0]) <= 80 else head.lines[0][:77] + "..."
    first = "".join(c if c.isprintable() else "?" for c in first)
    lacks = next(filter(None, (reader().lacks(head) for reader in TRACE_READERS.entries().values())), "")
    kinds = "; ".join(f"{n}: {d}" for n, d in trace_kinds().items())
    raise InputError(
        f"{head.path}: line 1: {first!r} begins no trace format that is known{lacks and f' ({lacks})'}; give one of "
        f'these, or name its kind (--kind), or begin a workload file with schema = "sizing.workload" ({kinds})'
    )


def _checked(raw: Raw, log: RowLog, kind: str, source: Source) -> Trace:
    """A trace from raw columns: wrong rows counted and left out, the rest in order of arrival."""
    good = _good_rows(raw, log)
    kept = int(good.sum())
    if kept == 0 or log.faults > max(kept, 1):
        what = "no row can be used" if kept == 0 else f"{log.faults} of {kept + log.faults} rows can't be used"
        first = log.first_fault()
        what = f"{what}, the first at {first}" if first else "no row can be used: there is none"
        raise InputError(f"{source.path}: {what}; is this a {kind} trace?")
    chosen = np.flatnonzero(good)
    notes = list(raw.notes)
    times = np.zeros(kept) if raw.arrival_s is None else raw.arrival_s[chosen]
    late = int(np.count_nonzero(times[1:] < np.maximum.accumulate(times)[:-1])) if kept > 1 else 0
    if late:
        notes.append(f"{late} requests were out of order and were put in order of arrival")
        order = np.argsort(times, kind="stable")
        chosen, times = chosen[order], times[order]
    if raw.arrival_s is not None and kept > 1:
        ties = int(np.count_nonzero(np.diff(times) == 0))
        if ties:
            notes.append(f"{ties} requests arrive at the same time as the one before")
    blocks = raw.blocks.take(chosen) if raw.blocks is not None else None
    requests = _requests(raw, chosen, times - times[0], blocks)
    notes += [f"{n} left out: {r} (first at line {log.first_lines[r]})" for r, n in log.counts.items()]
    return Trace(
        kind=kind, path=str(source.path), requests=requests, skipped=dict(log.counts),
        first_lines=dict(log.first_lines), start=raw.start, timed=raw.arrival_s is not None,
        closed_loop=raw.closed_loop, blocks=blocks, notes=tuple(notes),
    )  # fmt: skip


def _good_rows(raw: Raw, log: RowLog) -> npt.NDArray[np.bool_]:
    """Rows whose numbers can be true; the others are counted."""
    good = np.ones(len(raw.lines), dtype=np.bool_)
    columns: Sequence[Floats] = [raw.input_tokens, raw.output_tokens]
    if raw.arrival_s is not None:
        columns = [*columns, raw.arrival_s]
    late = np.zeros(len(good), dtype=np.bool_)
    with np.errstate(invalid="ignore"):
        if raw.arrival_s is not None:
            late = np.abs(raw.arrival_s) > LONGEST_S
        finite = np.logical_and.reduce([np.isfinite(c) for c in columns])
        negative = (raw.input_tokens < 0) | (raw.output_tokens < 0)
        huge = (raw.input_tokens > MOST_TOKENS) | (raw.output_tokens > MOST_TOKENS)
        tests = (
            (~finite, NOT_A_NUMBER), (negative, NEGATIVE), (huge, TOO_LARGE), (late, TOO_LATE),
            (raw.output_tokens < 1, FAILED), (raw.input_tokens < 1, NO_INPUT),
        )  # fmt: skip
        for wrong, reason in tests:
            log.keep(wrong & good, reason, raw.lines)
            good &= ~wrong
    return good


def _requests(raw: Raw, chosen: Ints, arrival_s: Floats, blocks: Blocks | None) -> Requests:
    inputs = np.rint(raw.input_tokens[chosen]).astype(np.int64)
    outputs = np.rint(raw.output_tokens[chosen]).astype(np.int64)
    more: dict[str, Any] = {}
    if raw.session is not None:
        more["session"] = raw.session[chosen]
        more["turn"] = raw.turn[chosen] if raw.turn is not None else None
    if blocks is not None:
        more["reused_tokens"] = reused_tokens(blocks, inputs)
        tree = prefix_tree(blocks, inputs)
        more |= {"chain": tree.chain, "shared_tokens": tree.shared_tokens}
        more |= {"chain_parent": tree.parent, "chain_start_tokens": tree.start_tokens}
    elif raw.session is not None and raw.closed_loop:
        known = more["session"] >= 0
        more["chain"] = more["session"]
        more["shared_tokens"] = np.where(known, inputs + outputs, 0)
    if raw.closed_loop and raw.pause_s is not None and raw.session is not None and raw.turn is not None:
        more["after"] = _turn_before(more["session"], more["turn"])
        more["pause_s"] = np.where(more["after"] >= 0, np.nan_to_num(raw.pause_s[chosen]), 0.0)
    return Requests(arrival_s=arrival_s, input_tokens=inputs, output_tokens=outputs, **more)


def _turn_before(session: Ints, turn: Ints) -> Ints:
    """Position of the turn before, in the same conversation; -1 for none."""
    order = np.lexsort((turn, session))
    follows = (session[order][1:] == session[order][:-1]) & (session[order][1:] >= 0)
    after = np.full(len(session), -1, dtype=np.int64)
    after[order[1:][follows]] = order[:-1][follows]
    return after
