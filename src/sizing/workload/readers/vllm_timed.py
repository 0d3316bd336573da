"""vLLM's timed trace (``vllm bench serve --dataset-name timed_trace``): Mooncake's rows in seconds.

The bench reads stamps in seconds and hashes of 16-token blocks unless told otherwise; a file that it takes with
``--timed-trace-chunk-hash-size 512 --timed-trace-sec-multiplier 0.001`` is a Mooncake trace.
"""

from sizing.workload.readers.mooncake import Mooncake, _fine_blocks, looks_hashed, read_hashed
from sizing.workload.source import Head, Source
from sizing.workload.trace import TRACE_READERS, Raw, Reader, RowLog


@TRACE_READERS.register("vllm-timed")
class VllmTimed(Reader):
    """vLLM's timed trace."""

    describes = "JSON lines with timestamp [s], input_length, output_length, hash_ids of 16-token blocks"

    def recognises(self, head: Head) -> bool:
        """Whether rows are Mooncake's, with hashes of 16-token blocks, and are not Qwen-Bailian's."""
        own = not any("chat_id" in o or "delay" in o or "delay_ms" in o for o in head.objects())
        return own and looks_hashed(head) and _fine_blocks(head) and not Mooncake().recognises(head)

    def read(self, source: Source, log: RowLog, seed: int) -> Raw:
        """Seconds as they are; hashes to blocks."""
        return read_hashed(source, log, seed, time_scale_s=1.0)
