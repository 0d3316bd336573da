"""BurstGPT 1, 2 and 3 (CC-BY-4.0): two services of a campus, over months.

Columns ``Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type``; version 3 puts ``Session ID`` and
``Elapsed time`` between the first two, so columns go by name. Stamps are whole seconds. A request of a service
that failed has no tokens.
"""

import numpy as np

from sizing.workload.jsonlines import Interned
from sizing.workload.lengths import Floats, Ints
from sizing.workload.source import Head, Source
from sizing.workload.table import Column, read_table
from sizing.workload.trace import TRACE_READERS, Raw, Reader, RowLog


@TRACE_READERS.register("burstgpt")
class BurstGpt(Reader):
    """BurstGPT 1 to 3."""

    describes = "CSV with Timestamp,Model,Request tokens,Response tokens"

    def recognises(self, head: Head) -> bool:
        """Whether the header has the stamp and both lengths."""
        return {"timestamp", "request tokens", "response tokens"} <= {c.lower() for c in head.columns()}

    def read(self, source: Source, log: RowLog, seed: int) -> Raw:
        """Seconds and tokens as they are; conversations where the file has them."""
        wanted = {
            "time": Column(("timestamp", "timestamp(s)")),
            "input": Column(("request tokens",)),
            "output": Column(("response tokens",)),
            "session": Column(("session id",), "text", required=False),
        }
        table = read_table(source, log, wanted)
        session = None
        if "session" in table.texts:
            names = Interned()
            session = np.array([names.number(s.strip()) for s in table.texts["session"]], dtype=np.int64)
        return Raw(
            arrival_s=table.numbers["time"], input_tokens=table.numbers["input"],
            output_tokens=table.numbers["output"], lines=table.lines, session=session,
            turn=turns_in_order(session, table.numbers["time"]) if session is not None else None,
        )  # fmt: skip


def turns_in_order(session: Ints, time: Floats) -> Ints:
    """Place of each request in its conversation, by time; 0 outside one."""
    order = np.lexsort((np.arange(len(time)), time, session))
    grouped = session[order]
    first = np.concatenate([[True], np.diff(grouped) != 0])
    start = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    turn = np.empty(len(order), dtype=np.int64)
    turn[order] = np.arange(len(order)) - start
    return np.where(session < 0, 0, turn)
