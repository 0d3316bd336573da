"""Processed traces of the vidur simulator: lengths, with or without arrival times.

Columns ``arrived_at,num_prefill_tokens,num_decode_tokens`` (seconds), or the lengths only.
"""

from sizing.workload.source import Head, Source
from sizing.workload.table import Column, read_table
from sizing.workload.trace import TRACE_READERS, Raw, Reader, RowLog


@TRACE_READERS.register("vidur")
class Vidur(Reader):
    """Processed traces of vidur."""

    describes = "CSV with num_prefill_tokens,num_decode_tokens and perhaps arrived_at"

    def recognises(self, head: Head) -> bool:
        """Whether the header has both lengths."""
        return {"num_prefill_tokens", "num_decode_tokens"} <= {c.lower() for c in head.columns()}

    def read(self, source: Source, log: RowLog, seed: int) -> Raw:
        """Seconds and tokens as they are."""
        wanted = {
            "time": Column(("arrived_at", "arrived_at(s)"), required=False),
            "input": Column(("num_prefill_tokens",)),
            "output": Column(("num_decode_tokens",)),
        }
        table = read_table(source, log, wanted)
        return Raw(
            arrival_s=table.numbers.get("time"), input_tokens=table.numbers["input"],
            output_tokens=table.numbers["output"], lines=table.lines,
            notes=[] if "time" in table.numbers else ["the file has no arrival times; give the rate"],
        )  # fmt: skip
