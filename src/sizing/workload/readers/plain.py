"""Your own log: a CSV with a header or JSON lines, with an arrival time and both lengths under plain names.

Times are seconds from any origin, or dates; columns go by name, in any order, and others are left alone.
"""

import math

import numpy as np

from sizing.workload.jsonlines import Interned, number, objects
from sizing.workload.readers.burstgpt import turns_in_order
from sizing.workload.source import Head, Source
from sizing.workload.table import Column, date_of, read_table, seconds_of
from sizing.workload.trace import TRACE_READERS, Raw, Reader, RowLog

TIMES = ("arrival_s", "arrived_at", "arrival_time", "arrival", "time_s", "start_time", "timestamp", "time")
INPUTS = ("input_tokens", "prompt_tokens", "isl", "input_length", "prompt_len")
OUTPUTS = ("output_tokens", "completion_tokens", "generated_tokens", "osl", "output_length", "output_len")
SESSIONS = ("session", "session_id", "conversation_id", "user")


def _has(names: set[str]) -> bool:
    return all(any(n in names for n in wanted) for wanted in (TIMES, INPUTS, OUTPUTS))


@TRACE_READERS.register("plain")
class Plain(Reader):
    """A log of one's own."""

    describes = "CSV or JSON lines with arrival_s, input_tokens, output_tokens (and perhaps session)"

    def recognises(self, head: Head) -> bool:
        """Whether a time and both lengths go by plain names, and nothing marks another format."""
        found = head.objects()
        if found:
            marks = ("hash_ids", "chat_id", "delay", "delay_ms", "input_length", "created_time")
            return any(_has(set(o)) and not any(m in o for m in marks) and "timestamp" not in o for o in found)
        return _has({c.lower() for c in head.columns()})

    def lacks(self, head: Head) -> str:
        """The column that is not there, if the two others are."""
        rows = head.objects()
        names = set(rows[0]) if rows else {c.lower() for c in head.columns()}
        missing = [wanted for wanted in (TIMES, INPUTS, OUTPUTS) if not names & set(wanted)]
        return f"it lacks {missing[0][0]}" if len(missing) == 1 else ""

    def read(self, source: Source, log: RowLog, seed: int) -> Raw:
        """Times and tokens as they are."""
        head = source.head()
        return _json(source, log) if head.objects() else _csv(source, log, head)


def _csv(source: Source, log: RowLog, head: Head) -> Raw:
    columns = [c.lower() for c in head.columns()]
    dated = False
    if len(head.lines) > 1:
        place = next((columns.index(n) for n in TIMES if n in columns), 0)
        cells = head.lines[1].split(",")
        dated = place < len(cells) and not math.isnan(seconds_of(cells[place].strip('" ')))
        dated = dated and ("-" in cells[place] or ":" in cells[place])
    wanted = {
        "time": Column(TIMES, "time" if dated else "number"),
        "input": Column(INPUTS),
        "output": Column(OUTPUTS),
        "session": Column(SESSIONS, "text", required=False),
    }
    table = read_table(source, log, wanted)
    names = Interned()
    texts = table.texts.get("session")
    session = None if texts is None else np.array([names.number(t.strip()) for t in texts], dtype=np.int64)
    times = table.numbers["time"]
    return Raw(
        arrival_s=times, input_tokens=table.numbers["input"], output_tokens=table.numbers["output"],
        lines=table.lines, session=session, turn=None if session is None else turns_in_order(session, times),
        start=date_of(float(times.min())) if dated and len(times) else "",
    )  # fmt: skip


def _json(source: Source, log: RowLog) -> Raw:
    names = Interned()
    rows, session = [], []
    for line, row in objects(source, log):
        time = number(row, TIMES)
        texts = [row[n] for n in TIMES if isinstance(row.get(n), str)]
        if math.isnan(time) and texts:
            time = seconds_of(texts[0])
        rows.append((time, number(row, INPUTS), number(row, OUTPUTS), float(line)))
        session.append(names.number(next((row[n] for n in SESSIONS if n in row), None)))
    columns = np.array(rows, dtype=np.float64).reshape(-1, 4)
    raw = Raw(
        arrival_s=columns[:, 0].copy(), input_tokens=columns[:, 1], output_tokens=columns[:, 2],
        lines=columns[:, 3].astype(np.int64),
    )  # fmt: skip
    if len(names):
        raw.session = np.array(session, dtype=np.int64)
        raw.turn = turns_in_order(raw.session, columns[:, 0])
    return raw
