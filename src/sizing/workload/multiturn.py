"""Conversations recorded turn by turn, where each turn gives its delay after the one before."""

from collections.abc import Sequence

import numpy as np

from sizing.workload.hashed import DELAY, HashedRows, block_tokens_of
from sizing.workload.jsonlines import Interned, Row, number
from sizing.workload.lengths import Ints
from sizing.workload.trace import Raw

NEWS_ONLY = "a later turn's length counts only its new tokens; history was added"
CLOSED = "later turns follow their answers after a delay; the time of the answer is not in the arrival times"


def conversations(rows: Sequence[tuple[int, Row]], time_scale_s: float) -> Raw:
    """Columns of rows that carry a ``session_id``, and a ``delay`` [ms] from the second turn on."""
    names, columns = Interned(), HashedRows()
    session: list[int] = []
    turn: list[int] = []
    clock: dict[int, float] = {}
    turns: dict[int, int] = {}
    arrivals: list[float] = []
    pauses: list[float] = []
    for line, row in rows:
        number_ = names.number(row.get("session_id"))
        columns.add(line, row)
        stamp, delay_ms = columns.time[-1] * time_scale_s, number(row, DELAY)
        before = clock.get(number_, 0.0)
        arrival = stamp if stamp == stamp else before + (delay_ms * 1e-3 if delay_ms == delay_ms else 0.0)
        if number_ >= 0:
            clock[number_] = arrival
            turn.append(turns.get(number_, 0))
            turns[number_] = turn[-1] + 1
        else:
            turn.append(0)
        session.append(number_)
        arrivals.append(arrival)
        pauses.append(arrival - before)
    _, inputs, outputs, lines = columns.columns()
    sessions, places = np.array(session, dtype=np.int64), np.array(turn, dtype=np.int64)
    counts = columns.counts()
    blocks = columns.blocks(block_tokens_of(inputs, counts))
    raw = Raw(
        arrival_s=np.array(arrivals), input_tokens=inputs, output_tokens=outputs, lines=lines,
        session=sessions, turn=places, blocks=blocks, closed_loop=True, notes=[CLOSED], pause_s=np.array(pauses),
    )  # fmt: skip
    if _only_news(columns, sessions):
        _add_history(raw)
    return raw


def _only_news(columns: HashedRows, session: Ints) -> bool:
    """Whether later turns leave out the blocks of the turn before: then lengths count only what is new."""
    ids, ends = columns.ids, columns.ends
    if not ids:
        return True
    first: dict[int, int] = {}
    repeats = differs = 0
    for i, conversation in enumerate(session.tolist()):
        if ends[i + 1] == ends[i] or conversation < 0:
            continue
        begin = ids[ends[i]]
        if conversation in first:
            same = first[conversation] == begin
            repeats, differs = repeats + same, differs + (not same)
        first.setdefault(conversation, begin)
    return differs >= repeats


def _add_history(raw: Raw) -> None:
    """Turn new tokens into whole prompts: all prompts and answers before, in the same conversation."""
    assert raw.session is not None
    order = np.argsort(raw.session, kind="stable")
    session = raw.session[order]
    both = np.nan_to_num(raw.input_tokens[order] + raw.output_tokens[order], nan=0.0, posinf=0.0, neginf=0.0).clip(0.0)
    before = np.cumsum(both) - both
    first = np.concatenate([[True], np.diff(session) != 0]) | (session < 0)
    start = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    history = np.empty(len(order))
    history[order] = before - before[start]
    raw.input_tokens = raw.input_tokens + history
    raw.blocks = None
    raw.notes.append(NEWS_ONLY)
