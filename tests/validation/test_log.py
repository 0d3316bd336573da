"""A start-up log beside the budget predicted for it."""

from pathlib import Path

import pytest

from sizing.benchmarks.startup_log import GIB, read_startup_log
from sizing.errors import InputError
from sizing.validation.log import compare_log

# A start-up of our own making, after the identity of vLLM V1 (total x utilisation - weights - activation -
# non-torch = KV room: 79.19 x 0.95 - 15.27 - 2.20 - 0.25 = 57.51 GiB) and 147,456 bytes per token:
# 2 x 36 layers x 8 KV heads x 128 x 2 bytes (Qwen3-8B).
QWEN3_8B = """
INFO vLLM API server version 0.19.0
INFO Initializing a V1 LLM engine (v0.19.0) with config: model='Qwen/Qwen3-8B', dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=1, pipeline_parallel_size=1, quantization=None, kv_cache_dtype=auto
INFO Chunked prefill is enabled with max_num_batched_tokens=8192.
INFO non-default args: {'gpu_memory_utilization': 0.95, 'max_model_len': 8192}
INFO Model loading took 15.27 GiB memory and 3.1 seconds
DEBUG Free memory on device (78.60/79.19 GiB) on startup. Desired GPU memory utilization is (0.95, 75.23 GiB). Actual usage is 15.27 GiB for weight, 2.2 GiB for peak activation, 0.25 GiB for non-torch memory, and 0.8 GiB for CUDAGraph memory.
INFO Available KV cache memory: 57.51 GiB
INFO GPU KV cache size: 418,768 tokens
INFO Maximum concurrency for 8,192 tokens per request: 51.12x
"""  # noqa: E501 - log lines are as long as engines print them


def comparison(tmp_path: Path, text: str, **facts: str):
    file = tmp_path / "vllm.log"
    file.write_text(text)
    return compare_log(read_startup_log(file), facts)


def test_lines_stand_beside_each_other(tmp_path: Path) -> None:
    found = comparison(tmp_path, QWEN3_8B)
    by_name = {line.name: line for line in found.lines}
    assert found.budget.deployment.gpu.id == "h100-sxm"  # from 79.19 GiB
    assert any("GPU taken from its memory of 79.19 GiB" in note for note in found.notes)
    assert by_name["weights"].logged == pytest.approx(15.27)
    assert by_name["weights"].predicted == pytest.approx(15.27, abs=0.1)
    assert by_name["KV room"].predicted == pytest.approx(57.51, rel=0.02)
    assert by_name["KV tokens"].predicted == pytest.approx(418768, rel=0.02)
    assert by_name["requests of the longest context"].logged == 51.12
    assert any(note.startswith("KV room predicted to") for note in found.notes)


def test_rows_show_the_difference(tmp_path: Path) -> None:
    rows = {row["line"]: row for row in comparison(tmp_path, QWEN3_8B).rows()}
    room = rows["KV room"]
    assert room["difference"] == pytest.approx(float(room["predicted"]) - float(room["log"]), abs=0.011)
    assert str(room["error"]).endswith("%")


def test_the_largest_difference_is_named(tmp_path: Path) -> None:
    heavier = QWEN3_8B.replace("15.27 GiB", "25.27 GiB").replace("57.51 GiB", "47.51 GiB")
    (cause,) = [n for n in comparison(tmp_path, heavier).notes if n.startswith("KV room")]
    assert "weights -10." in cause


def test_facts_come_before_the_log(tmp_path: Path) -> None:
    found = comparison(tmp_path, QWEN3_8B, gpu="h200", kv_format="fp8")
    deployment = found.budget.deployment
    assert (deployment.gpu.id, deployment.formats.kv) == ("h200-sxm", "fp8")


def test_what_is_missing_is_asked_for(tmp_path: Path) -> None:
    bare = "INFO Available KV cache memory: 57.51 GiB\nINFO GPU KV cache size: 418,768 tokens\n"
    with pytest.raises(InputError, match="give --model"):
        comparison(tmp_path, bare)
    with pytest.raises(InputError, match="give --gpu"):
        comparison(tmp_path, bare, model="Qwen/Qwen3-8B")
    odd = QWEN3_8B.replace("79.19", "55.55")
    with pytest.raises(InputError, match=r"no GPU of the catalogue has 55\.55 GiB"):
        comparison(tmp_path, odd)


def test_gib_is_binary() -> None:
    assert GIB == 1024**3
