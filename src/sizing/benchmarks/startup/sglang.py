"""SGLang start-up logs; sizes labelled GB are GiB."""

import re
from typing import ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.startup_log import LOG_READERS, StartupLog, number, size_bytes, whole, word

SIZE = r"([\d.]+)\s*(GB|GiB)"


@LOG_READERS.register("sglang")
class SglangLog:
    """SGLang, from ``server_args=`` to ``Capture cuda graph end``."""

    title: ClassVar[str] = "SGLang start-up log"

    def recognises(self, text: str) -> bool:
        """Lines that only SGLang prints."""
        return any(mark in text for mark in ("KV Cache is allocated", "Load weight end", "max_total_num_tokens="))

    def read(self, document: Document, text: str) -> StartupLog:
        """What the log states."""
        before = size_bytes(text, rf"Load weight begin\. avail mem={SIZE}", choose="min")
        after = size_bytes(text, rf"Load weight end\.[^\n]*?avail mem={SIZE}", choose="min")
        stated = size_bytes(text, rf"Load weight end\.[^\n]*?mem usage={SIZE}")
        derived = before - after if before is not None and after is not None else None
        return StartupLog(
            engine="sglang",
            source=document.name,
            sha256=document.sha256,
            version=word(text, r"sglang(?:==| version:? ?v?)([\w.]+)"),
            model=word(text, r"model_path=['\"]([^'\"]+)['\"]", r"--model(?:-path)?[ =]+(\S+)"),
            tp=whole(text, r"tp_size=(\d+)", r"--tp(?:-size)?[ =]+(\d+)"),
            pp=whole(text, r"pp_size=(\d+)"),
            dp=whole(text, r"dp_size=(\d+)"),
            ep=whole(text, r"ep_size=(\d+)"),
            weight_format=word(text, r"quantization=['\"](\w+)['\"]", r"Load weight end\.[^\n]*?dtype=torch\.(\w+)"),
            kv_format=word(text, r"kv_cache_dtype=['\"](\w+)['\"]"),
            utilization=number(text, r"mem_fraction_static=([\d.]+)", r"--mem-fraction-static[ =]+([\d.]+)"),
            max_model_len=whole(text, r"context_len=(\d+)", r"context_length=(\d+)"),
            max_num_batched_tokens=whole(text, r"chunked_prefill_size=(\d+)"),
            max_num_seqs=whole(text, r"max_running_requests=(\d+)"),
            block_size=whole(text, r"page_size=(\d+)"),
            free_before_bytes=before,
            weights_bytes=stated if stated is not None else derived,
            cuda_graph_bytes=size_bytes(text, rf"Capture cuda graph end\.[^\n]*?mem usage={SIZE}"),
            kv_bytes=_kv_bytes(text),
            kv_tokens=number(text, r"max_total_num_tokens=(\d+)", r"KV Cache is allocated\.[^\n]*?#tokens: (\d+)"),
            warnings=_warnings(text),
        )


def _kv_bytes(text: str) -> float | None:
    """K and V pools of one rank; models with sliding windows allocate two pools [bytes]."""
    lines = list(dict.fromkeys(re.findall(r"KV Cache is allocated\.([^\n]*)", text)))
    found = []
    for line in lines:
        joint = size_bytes(line, rf"KV size: {SIZE}")
        keys, values = size_bytes(line, rf"\bK size: {SIZE}"), size_bytes(line, rf"\bV size: {SIZE}")
        if joint is not None or (keys is not None and values is not None):
            found.append(joint if joint is not None else (keys or 0.0) + (values or 0.0))
    if not found:
        return None
    return sum(found) if "sliding window memory pool" in text.lower() else min(found)


def _warnings(text: str) -> tuple[str, ...]:
    if "sliding window memory pool" in text.lower():
        return ("sliding-window layers have a pool of their own: tokens are those of the full layers",)
    return ()
