# ruff: noqa: E501 - log lines are as long as engines print them
"""Start-up logs of each engine: sizes, settings, ranks, and what must be refused."""

from pathlib import Path

import pytest

from sizing.benchmarks.startup_log import GIB, read_startup_log
from sizing.errors import InputError

VLLM_V1 = """
INFO 01-02 03:04:05 [api_server.py:1] vLLM API server version 0.19.0
INFO 01-02 03:04:05 [utils.py:1] non-default args: {'model': 'example/model-8b', 'gpu_memory_utilization': 0.95, 'max_model_len': 8192}
INFO 01-02 03:04:06 [scheduler.py:1] Chunked prefill is enabled with max_num_batched_tokens=8192.
INFO 01-02 03:04:07 [core.py:1] Initializing a V1 LLM engine (v0.19.0) with config: model='example/model-8b', dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1, quantization=None, kv_cache_dtype=auto
(Worker_TP0 pid=1) INFO 01-02 03:05:00 [gpu_model_runner.py:1] Model loading took 7.63 GiB memory and 12.1 seconds
(Worker_TP1 pid=2) INFO 01-02 03:05:00 [gpu_model_runner.py:1] Model loading took 7.64 GiB memory and 12.2 seconds
(Worker_TP0 pid=1) DEBUG 01-02 03:05:10 [gpu_worker.py:1] Memory profiling takes 5.00 seconds. Total non KV cache memory: 11.70GiB; torch peak memory increase: 2.00GiB; non-torch forward increase memory: 2.07GiB; weights memory: 7.63GiB.
(Worker_TP0 pid=1) DEBUG 01-02 03:05:10 [gpu_worker.py:1] Free memory on device (78.60/79.19 GiB) on startup. Desired GPU memory utilization is (0.95, 75.23 GiB). Actual usage is 7.63 GiB for weight, 2.0 GiB for peak activation, 2.07 GiB for non-torch memory, and 0.81 GiB for CUDAGraph memory.
(Worker_TP0 pid=1) INFO 01-02 03:05:10 [gpu_worker.py:1] Available KV cache memory: 63.53 GiB
(Worker_TP1 pid=2) INFO 01-02 03:05:10 [gpu_worker.py:1] Available KV cache memory: 63.51 GiB
(EngineCore pid=9) INFO 01-02 03:05:11 [kv_cache_utils.py:1] GPU KV cache size: 925,136 tokens
(EngineCore pid=9) INFO 01-02 03:05:11 [kv_cache_utils.py:1] Maximum concurrency for 8,192 tokens per request: 112.93x
(Worker_TP0 pid=1) INFO 01-02 03:05:30 [gpu_model_runner.py:1] Graph capturing finished in 15 secs, took 0.85 GiB
"""
VLLM_V0 = """
INFO 01-02 worker.py:1] Memory profiling takes 3.0 seconds the current vLLM instance can use total_gpu_memory (79.10GiB) x gpu_memory_utilization (0.90) = 71.19GiB model weights take 14.99GiB; non_torch_memory takes 0.15GiB; PyTorch activation peak memory takes 1.23GiB; the rest of the memory reserved for KV Cache is 54.82GiB.
INFO 01-02 executor_base.py:1] # cuda blocks: 28067, # CPU blocks: 2048
INFO 01-02 executor_base.py:1] Maximum concurrency for 8192 tokens per request: 54.82x
"""
SGLANG = """
[2026-01-02 03:04:05] server_args=ServerArgs(model_path='example/model-8b', tp_size=1, mem_fraction_static=0.88, kv_cache_dtype='auto', quantization=None)
[2026-01-02 03:04:06] Load weight begin. avail mem=78.50 GB
[2026-01-02 03:04:30] Load weight end. type=ExampleForCausalLM, dtype=torch.bfloat16, avail mem=63.20 GB, mem usage=15.30 GB.
[2026-01-02 03:04:31] KV Cache is allocated. #tokens: 367404, K size: 25.23 GB, V size: 25.23 GB
[2026-01-02 03:04:50] Capture cuda graph end. Time elapsed: 6.13 s. mem usage=0.90 GB. avail mem=7.77 GB.
[2026-01-02 03:04:51] max_total_num_tokens=367404, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, context_len=32768
"""
TRTLLM = """
[01/02/2026-03:04:05] [TRT-LLM] [I] TensorRT-LLM version: 1.0.0
[01/02/2026-03:04:30] [TRT-LLM] [I] Memory used after loading model weights (inside torch) in memory usage profiling: 15.00 GiB
[01/02/2026-03:04:30] [TRT-LLM] [I] Memory used after loading model weights (outside torch) in memory usage profiling: 0.80 GiB
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 1.00 GiB for max tokens in paged KV cache (8224).
[01/02/2026-03:04:40] [TRT-LLM] [I] Peak memory during memory usage profiling (torch + non-torch): 21.30 GiB, available KV cache memory when calculating max tokens: 53.00 GiB, fraction is set 0.9, kv size is 131072. device total memory 79.19 GiB, , tmp kv_mem 1.00 GiB
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 53.00 GiB for max tokens in paged KV cache (434176).
"""


def log(folder: Path, text: str) -> Path:
    file = folder / "engine.log"
    file.write_text(text)
    return file


def test_vllm_v1(tmp_path: Path) -> None:
    found = read_startup_log(log(tmp_path, VLLM_V1))
    assert (found.engine, found.version, found.model, found.tp) == ("vllm", "0.19.0", "example/model-8b", 2)
    assert (found.utilization, found.max_model_len, found.max_num_batched_tokens) == (0.95, 8192, 8192)
    assert found.total_bytes == pytest.approx(79.19 * GIB)
    assert found.weights_bytes == pytest.approx(7.63 * GIB)
    assert found.activation_bytes == pytest.approx(2.00 * GIB)
    assert found.non_torch_bytes == pytest.approx(2.07 * GIB)
    assert found.cuda_graph_bytes == pytest.approx(0.85 * GIB)
    assert found.kv_bytes == pytest.approx(63.51 * GIB)  # the smallest rank decides
    assert found.kv_tokens == 925136
    assert found.max_concurrency == 112.93
    budget = 79.19 * 0.95 - 7.63 - 2.00 - 2.07
    assert budget == pytest.approx(63.53, abs=0.05)  # the identity of vLLM V1 holds in this log


def test_vllm_v0_counts_blocks(tmp_path: Path) -> None:
    found = read_startup_log(log(tmp_path, VLLM_V0))
    assert found.kv_tokens == 28067 * 16
    assert found.utilization == 0.90
    assert found.kv_bytes == pytest.approx(54.82 * GIB)
    assert any("block size" in w for w in found.warnings)


def test_sglang(tmp_path: Path) -> None:
    found = read_startup_log(log(tmp_path, SGLANG))
    assert (found.engine, found.model, found.utilization, found.tp) == ("sglang", "example/model-8b", 0.88, 1)
    assert found.weights_bytes == pytest.approx(15.30 * GIB)
    assert found.kv_bytes == pytest.approx(50.46 * GIB)
    assert (found.kv_tokens, found.max_num_seqs, found.max_model_len) == (367404, 2048, 32768)
    assert found.kv_bytes_per_token == pytest.approx(50.46 * GIB / 367404)


def test_trtllm_takes_the_final_cache(tmp_path: Path) -> None:
    found = read_startup_log(log(tmp_path, TRTLLM))
    assert (found.engine, found.version, found.utilization) == ("trtllm", "1.0.0", 0.9)
    assert found.kv_bytes == pytest.approx(53.00 * GIB)
    assert found.total_bytes == pytest.approx(79.19 * GIB)
    identity = (79.19 - 21.30 + 1.00) * 0.9
    assert identity == pytest.approx(53.00, abs=0.01)


def test_what_is_not_a_log(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a start-up log of sglang, trtllm, vllm"):
        read_startup_log(log(tmp_path, "hello\n"))
    with pytest.raises(InputError, match="no line about memory"):
        read_startup_log(log(tmp_path, "INFO vLLM API server version 0.19.0\n"))
    binary = tmp_path / "core"
    binary.write_bytes(b"\x00\x01" * 100)
    with pytest.raises(InputError, match="not a text file"):
        read_startup_log(binary)
