"""vLLM start-up logs, V0 and V1."""

from typing import Any, ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.startup_log import LOG_READERS, StartupLog, number, size_bytes, whole, word

SIZE = r"([\d.,]+)\s*(GiB|GB|MiB)"
SETTING = r"{0}['\"]?\s*[=:]\s*['\"]?([\w./+:@-]+)"


def _setting(name: str) -> str:
    return SETTING.format(name)


@LOG_READERS.register("vllm")
class VllmLog:
    """vLLM, from ``Initializing a V1 LLM engine`` to ``Graph capturing finished``."""

    title: ClassVar[str] = "vLLM start-up log"

    def recognises(self, text: str) -> bool:
        """Lines that only vLLM prints."""
        marks = ("GPU KV cache size:", "# GPU blocks:", "Available KV cache memory", "gpu_memory_utilization")
        return any(mark in text for mark in marks) or "vLLM API server version" in text

    def read(self, document: Document, text: str) -> StartupLog:
        """What the log states."""
        block_size, blocks = (
            whole(text, _setting("block_size")),
            whole(text, r"# (?:GPU|cuda) blocks:\s*([\d,]+)"),
        )
        printed = number(text, r"GPU KV cache size:\s*([\d,]+) tokens")
        tokens = printed if printed is not None else (blocks or 0) * float(block_size or 16) or None
        quantised = word(text, _setting("quantization"))
        return StartupLog(
            engine="vllm",
            source=document.name,
            sha256=document.sha256,
            version=word(
                text,
                r"LLM engine \(v?([\w.+-]+)\)",
                r"vLLM API server version v?([\w.+-]+)",
                r"vLLM v([\d.]+)",
            ),
            model=word(text, r"model='([^']+)'", r"'model'\s*:\s*'([^']+)'", r"model_tag='([^']+)'"),
            tp=whole(text, r"tensor_parallel_size['\"]?\s*[=:]\s*(\d+)"),
            pp=whole(text, r"pipeline_parallel_size['\"]?\s*[=:]\s*(\d+)"),
            dp=whole(text, r"data_parallel_size['\"]?\s*[=:]\s*(\d+)"),
            weight_format=quantised or word(text, r"[( ]dtype=(?:torch\.)?(\w+)"),
            kv_format=word(text, _setting("kv_cache_dtype")),
            utilization=number(
                text,
                r"gpu_memory_utilization \(([\d.]+)\)",
                r"gpu_memory_utilization['\"]?\s*[=:]\s*([\d.]+)",
                r"Desired GPU memory utilization is \(([\d.]+),",
                r"Requested memory: ([\d.]+) \(util\)",
            ),
            max_model_len=whole(
                text, r"max_seq_len=(\d+)", r"max_model_len['\"]?\s*[=:]\s*(\d+)", r"max model len ([\d,]+)"
            ),
            max_num_batched_tokens=whole(text, r"max_num_batched_tokens['\"]?\s*[=:]\s*(\d+)"),
            max_num_seqs=whole(text, r"max_num_seqs['\"]?\s*[=:]\s*(\d+)"),
            block_size=block_size,
            kv_tokens=tokens,
            max_concurrency=number(text, r"Maximum concurrency for [\d,]+ tokens per request:\s*([\d.,]+)x"),
            warnings=_warnings(text, printed),
            **_budget(text),
        )


def _budget(text: str) -> dict[str, Any]:
    return {
        "total_bytes": size_bytes(
            text, rf"total_gpu_memory \({SIZE}\)", rf"Free memory on device (?:\w+:\d+ )?\([\d.]+/{SIZE}\)"
        ),
        "free_before_bytes": size_bytes(text, rf"Initial free memory:? {SIZE}", choose="min"),
        "weights_bytes": size_bytes(
            text,
            rf"model weights take {SIZE}",
            rf"weights memory: {SIZE}",
            rf"Model loading took {SIZE}",
            rf"Loading model weights took {SIZE}",
            rf"Actual usage is {SIZE} for weight",
        ),
        "activation_bytes": size_bytes(
            text,
            rf"activation peak memory takes {SIZE}",
            rf"torch peak memory increase: {SIZE}",
            rf"{SIZE} for peak activation",
        ),
        "non_torch_bytes": size_bytes(
            text,
            rf"non_torch_memory takes {SIZE}",
            rf"non-torch forward increase memory: {SIZE}",
            rf"{SIZE} for non-torch memory",
        ),
        "cuda_graph_bytes": size_bytes(
            text,
            rf"Graph capturing finished in [\d.]+ secs?, took {SIZE}",
            rf"CUDA graph pool memory: {SIZE} \(actual\)",
            rf"{SIZE} for CUDAGraph memory",
        ),
        "kv_bytes": size_bytes(
            text, rf"reserved for KV Cache is {SIZE}", rf"Available KV cache memory: {SIZE}", choose="min"
        ),
    }


def _warnings(text: str, printed: float | None) -> tuple[str, ...]:
    found = []
    if "hybrid" in text.lower() or "padding layers" in text:
        found.append("layers of several kinds: the printed KV cache size is not the capacity, use max concurrency")
    if printed is None and " blocks:" in text:
        found.append("tokens are blocks times the block size (16 where the log does not say)")
    return tuple(found)
