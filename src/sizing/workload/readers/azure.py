"""Azure LLM inference traces of 2023 and 2024 (CC-BY-4.0, Splitwise and DynamoLLM), and vidur's copies of them.

Columns ``TIMESTAMP,ContextTokens,GeneratedTokens``. Stamps of 2023 have seven digits of a second and no zone,
those of 2024 end in ``+00:00`` and leave out a fraction that is zero. The multimodal trace of 2025 adds
``NumImages``, which is noted and left alone.
"""

import numpy as np

from sizing.workload.source import Head, Source
from sizing.workload.table import Column, date_of, read_table
from sizing.workload.trace import TRACE_READERS, Raw, Reader, RowLog


@TRACE_READERS.register("azure")
class Azure(Reader):
    """Azure 2023 and 2024."""

    describes = "CSV with TIMESTAMP,ContextTokens,GeneratedTokens"

    def recognises(self, head: Head) -> bool:
        """Whether the header has the three columns."""
        columns = {c.lower() for c in head.columns()}
        return {"timestamp", "contexttokens", "generatedtokens"} <= columns

    def read(self, source: Source, log: RowLog, seed: int) -> Raw:
        """Stamps to seconds, tokens as they are."""
        wanted = {
            "time": Column(("timestamp",), "time"),
            "input": Column(("contexttokens",)),
            "output": Column(("generatedtokens",)),
            "images": Column(("numimages",), required=False),
        }
        table = read_table(source, log, wanted)
        times = table.numbers["time"]
        images = table.numbers.get("images")
        notes = []
        if images is not None and np.nansum(images) > 0:
            notes.append("images are not counted: their tokens are part of the context only if the file says so")
        return Raw(
            arrival_s=times, input_tokens=table.numbers["input"], output_tokens=table.numbers["output"],
            lines=table.lines, start=date_of(float(times.min())) if len(times) else "", notes=notes,
        )  # fmt: skip
