"""AIPerf: its multi-turn input files, and the per-request export of a run.

Input rows have ``session_id``, ``input_length``, ``output_length``, ``hash_ids`` and, from the second turn on, a
``delay`` [ms] in place of a ``timestamp`` [ms]; the length of a later turn counts only what is new. Export rows
(``profile_export.jsonl``) have ``metadata`` with times [ns] and ``metrics`` with lengths.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from sizing.workload.hashed import DELAY, INPUT
from sizing.workload.jsonlines import Interned, Row, number, objects
from sizing.workload.multiturn import conversations
from sizing.workload.readers.mooncake import is_header
from sizing.workload.source import Head, Source
from sizing.workload.trace import TRACE_READERS, Raw, Reader, RowLog


@TRACE_READERS.register("aiperf")
class AiPerf(Reader):
    """AIPerf."""

    describes = "JSON lines with session_id, input_length, output_length, delay [ms]; or a run's per-request export"

    def recognises(self, head: Head) -> bool:
        """Whether rows have a session and a delay, or are a run's export."""
        found = head.objects()
        turns = any("session_id" in o and any(k in o for k in INPUT) for o in found)
        return (turns and any(k in o for o in found for k in DELAY)) or any(_is_export(o) for o in found)

    def read(self, source: Source, log: RowLog, seed: int) -> Raw:
        """Conversations with their history, or requests of a run."""
        rows = [(line, row) for line, row in objects(source, log) if not is_header(row)]
        if any(_is_export(row) for _, row in rows[:20]):
            return _exported(rows)
        return conversations(rows, 1e-3)


def _is_export(row: Row) -> bool:
    return isinstance(row.get("metadata"), dict) and isinstance(row.get("metrics"), dict)


def _metric(row: Row, name: str) -> float:
    entry = row.get("metrics", {}).get(name) if isinstance(row.get("metrics"), Mapping) else None
    return number(entry, ("value",)) if isinstance(entry, Mapping) else np.nan


def _exported(rows: Sequence[tuple[int, Row]]) -> Raw:
    names = Interned()
    session, times = [], []
    for _, row in rows:
        about = row.get("metadata")
        about = about if isinstance(about, Mapping) else {}
        times.append(number(about, ("request_start_ns",)) * 1e-9)
        session.append(names.number(about.get("x_correlation_id") or about.get("conversation_id")))
    origin = min((t for t in times if t == t), default=0.0)
    return Raw(
        arrival_s=np.array(times) - origin,
        input_tokens=np.array([_metric(row, "input_sequence_length") for _, row in rows]),
        output_tokens=np.array([_metric(row, "output_sequence_length") for _, row in rows]),
        lines=np.array([line for line, _ in rows], dtype=np.int64),
        notes=["arrivals are those of a benchmark's client: they show its load, not your users'"],
    )
