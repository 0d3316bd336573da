"""Mooncake traces (Apache-2.0, FAST 2025) and their dialects.

JSON lines ``timestamp`` [ms], ``input_length``, ``output_length``, ``hash_ids`` (512-token blocks). Dialects of Dynamo
name them ``created_time``, ``input_tokens``, ``output_tokens``, add ``session_id``, and may begin with a header
object that states the block size and the scope of the hashes.
"""

import numpy as np

from sizing.workload.hashed import INPUT, OUTPUT, TIME, HashedRows, block_tokens_of, spread_ticks
from sizing.workload.jsonlines import Interned, Row, number, objects
from sizing.workload.source import Head, Source
from sizing.workload.trace import TRACE_READERS, Raw, Reader, RowLog

_HEADER = ("schema", "version", "block_size", "hash_id_scope")


def is_header(row: Row) -> bool:
    """Whether an object is the header of the agentic dialect."""
    return not any(k in row for k in INPUT) and sum(k in row for k in _HEADER) >= 2


def looks_hashed(head: Head) -> bool:
    """Whether the file is JSON lines with a time and both lengths."""
    return any(
        any(k in o for k in TIME) and any(k in o for k in INPUT) and any(k in o for k in OUTPUT) for o in head.objects()
    )


@TRACE_READERS.register("mooncake")
class Mooncake(Reader):
    """Mooncake and Dynamo's dialects of it."""

    describes = "JSON lines with timestamp [ms], input_length, output_length, hash_ids"

    def recognises(self, head: Head) -> bool:
        """Whether rows have a time and lengths, and are of no relative of the format."""
        found = head.objects()
        relative = any("chat_id" in o or "delay" in o or "delay_ms" in o or "metrics" in o for o in found)
        return looks_hashed(head) and not relative and not _fine_blocks(head)

    def read(self, source: Source, log: RowLog, seed: int) -> Raw:
        """Milliseconds to seconds, spread inside the clock's ticks; hashes to blocks."""
        return read_hashed(source, log, seed, time_scale_s=1e-3)


def _fine_blocks(head: Head) -> bool:
    """Whether hashes are of 16-token blocks, as vLLM's timed traces have them."""
    rows = [o for o in head.objects() if isinstance(o.get("hash_ids"), list) and o["hash_ids"]]
    if not rows:
        return False
    inputs = np.array([number(o, INPUT) for o in rows])
    counts = np.array([len(o["hash_ids"]) for o in rows])
    return bool(np.any(counts > 1)) and block_tokens_of(inputs, counts) == 16


def read_hashed(source: Source, log: RowLog, seed: int, *, time_scale_s: float) -> Raw:
    """Rows with hashes; ``time_scale_s`` is the unit of the stamps [s]."""
    columns, names = HashedRows(), Interned()
    session: list[int] = []
    header: Row = {}
    for line, row in objects(source, log):
        if not header and is_header(row):
            header = row
            continue
        name = row.get("session_id")
        session.append(names.number(name))
        columns.add(line, row, scope=name if header.get("hash_id_scope") == "local" else None)
    time, inputs, outputs, lines = columns.columns()
    counts = columns.counts()
    stated = header.get("block_size")
    block = stated if isinstance(stated, int) and 0 < stated < 1 << 20 else block_tokens_of(inputs, counts)
    raw = Raw(
        arrival_s=time * time_scale_s, input_tokens=inputs, output_tokens=outputs, lines=lines,
        blocks=columns.blocks(block),
    )  # fmt: skip
    if len(names):
        from sizing.workload.readers.burstgpt import turns_in_order

        raw.session = np.array(session, dtype=np.int64)
        raw.turn = turns_in_order(raw.session, time)
    spread_ticks(raw, seed)
    return raw
