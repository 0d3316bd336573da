"""Qwen-Bailian traces (Apache-2.0; "KVCache cache in the wild", arXiv:2506.02634).

JSON lines ``chat_id``, ``parent_chat_id`` (-1 at the root), ``timestamp`` [s], ``input_length``, ``output_length``,
``type``, ``turn``, ``hash_ids`` of 16-token blocks. A conversation is a root and all that descends from it.
"""

import numpy as np

from sizing.workload.hashed import HashedRows, spread_ticks
from sizing.workload.jsonlines import Interned, number, objects
from sizing.workload.source import Head, Source
from sizing.workload.trace import TRACE_READERS, Raw, Reader, RowLog

BLOCK_TOKENS = 16


@TRACE_READERS.register("qwen-bailian")
class QwenBailian(Reader):
    """Qwen-Bailian."""

    describes = "JSON lines with chat_id, parent_chat_id, timestamp [s], input_length, output_length, hash_ids"

    def recognises(self, head: Head) -> bool:
        """Whether rows name a chat and its parent."""
        return any("chat_id" in o and "parent_chat_id" in o for o in head.objects())

    def read(self, source: Source, log: RowLog, seed: int) -> Raw:
        """Seconds as they are; a chat belongs to its parent's conversation."""
        columns, names = HashedRows(), Interned()
        root: dict[object, int] = {}
        session: list[int] = []
        turn: list[float] = []
        for line, row in objects(source, log):
            parent = row.get("parent_chat_id", -1)
            chat = row.get("chat_id")
            own = root.get(_key(parent)) if parent != -1 else None
            own = names.number(f"{chat}") if own is None else own
            root[_key(chat)] = own
            session.append(own)
            place = number(row, ("turn",))
            turn.append(max(place - 1, 0) if np.isfinite(place) else 0)
            columns.add(line, row)
        time, inputs, outputs, lines = columns.columns()
        raw = Raw(
            arrival_s=time, input_tokens=inputs, output_tokens=outputs, lines=lines,
            session=np.array(session, dtype=np.int64), turn=np.array(turn).astype(np.int64),
            blocks=columns.blocks(BLOCK_TOKENS),
        )  # fmt: skip
        spread_ticks(raw, seed)
        return raw


def _key(name: object) -> object:
    return name if isinstance(name, str | int | float) else repr(name)
