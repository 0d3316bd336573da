"""TensorRT-LLM start-up logs, PyTorch runtime and the older C++ one."""

from typing import ClassVar

from sizing.benchmarks.document import Document
from sizing.benchmarks.startup_log import (
    LOG_READERS,
    StartupLog,
    number,
    size_bytes,
    sizes_bytes,
    whole,
    word,
)

SIZE = r"([\d.]+)\s*(GiB|GB|MiB)"


@LOG_READERS.register("trtllm")
class TrtllmLog:
    """TensorRT-LLM, lines marked ``[TRT-LLM]`` or ``[TensorRT-LLM]``."""

    title: ClassVar[str] = "TensorRT-LLM start-up log"

    def recognises(self, text: str) -> bool:
        """Its own marks."""
        return "[TRT-LLM]" in text or "[TensorRT-LLM]" in text

    def read(self, document: Document, text: str) -> StartupLog:
        """What the log states."""
        peak = size_bytes(text, rf"Peak memory during memory usage profiling \(torch \+ non-torch\): {SIZE}")
        weights = size_bytes(
            text, rf"loading model weights \(inside torch\)[^:]*: {SIZE}", rf"Loaded engine size: {SIZE}"
        )
        outside = size_bytes(text, rf"loading model weights \(outside torch\)[^:]*: {SIZE}")
        block_size = whole(text, r"[Tt]okens per block[:=]?\s*(\d+)", r"tokens_per_block['\"]?\s*[=:]\s*(\d+)")
        blocks = number(text, r"blocks in KV cache primary pool: (\d+)")
        rest = peak - weights - (outside or 0.0) if peak is not None and weights is not None else None
        return StartupLog(
            engine="trtllm",
            source=document.name,
            sha256=document.sha256,
            version=word(text, r"TensorRT-LLM version:? v?([\w.]+)"),
            model=word(text, r"model=['\"]([^'\"]+)['\"]", r"trtllm-serve (?:serve )?([^\s-]\S*)"),
            tp=whole(text, r"tp_size['\"]?\s*[=:]\s*(\d+)", r"tensor_parallel_size['\"]?\s*[=:]\s*(\d+)"),
            pp=whole(text, r"pp_size['\"]?\s*[=:]\s*(\d+)", r"pipeline_parallel_size['\"]?\s*[=:]\s*(\d+)"),
            kv_format=word(text, r"kv_cache_dtype['\"]?\s*[=:]\s*['\"]?(\w+)"),
            utilization=number(text, r"fraction is set ([\d.]+)", r"free_gpu_memory_fraction['\"]?\s*[=:]\s*([\d.]+)"),
            max_model_len=whole(text, r"maxSequenceLen: (\d+)", r"max_seq_len['\"]?\s*[=:]\s*(\d+)"),
            max_num_batched_tokens=whole(text, r"maxNumTokens: (\d+)", r"max_num_tokens['\"]?\s*[=:]\s*(\d+)"),
            max_num_seqs=whole(text, r"maxNumSequences: (\d+)", r"max_batch_size['\"]?\s*[=:]\s*(\d+)"),
            block_size=block_size,
            total_bytes=size_bytes(text, rf"device total memory {SIZE}", rf"paged kv cache: total: {SIZE}"),
            weights_bytes=weights,
            non_torch_bytes=outside,
            activation_bytes=rest,
            kv_bytes=_kv_bytes(text),
            kv_tokens=number(text, r"max tokens in paged KV cache \((\d+)\)", r"Using (\d+) tokens in paged KV cache")
            or (blocks * block_size if blocks and block_size else None),
        )


def _kv_bytes(text: str) -> float | None:
    """The last allocation: the first one is the small cache that the profiling run used [bytes]."""
    allocated = sizes_bytes(text, rf"Allocated {SIZE} for max tokens in paged KV cache")
    if allocated:
        return allocated[-1]
    plain = number(text, r"Allocate (\d+) bytes for k/v cache")
    return plain if plain else size_bytes(text, rf"available KV cache memory when calculating max tokens: {SIZE}")
