"""Rows as questions: published checkpoints, engines left unnamed, formats of the cache."""

import pytest

from sizing.validation.cases import read_case

ROW = {
    "id": "c", "engine": "vLLM", "engine_version": "0.11.0", "model": "Qwen/Qwen3-32B", "gpu": "H100-SXM-80GB",
    "num_gpus": "2", "tp": "2", "weight_precision": "fp8", "isl": "1024", "osl": "256", "load_kind": "concurrency",
    "load_value": "16", "len_dist": "fixed",
}  # fmt: skip


def served(**change):
    """Name of the model, and format of its weights as they are served."""
    found = read_case({**ROW, **change}).deployment
    return found.model.name, found.formats.weights or found.model.checkpoint.name


@pytest.mark.parametrize(
    ("change", "name", "weights"),
    [
        ({}, "Qwen/Qwen3-32B-FP8", "fp8_block"),  # its publisher's own, with a scale a block
        ({"model": "Qwen/Qwen3-30B-A3B"}, "Qwen/Qwen3-30B-A3B-FP8", "fp8_block"),
        ({"weight_precision": "bf16"}, "Qwen/Qwen3-32B", "bf16"),
        ({"weight_precision": "int4"}, "Qwen/Qwen3-32B", "int4"),
        ({"model": "meta-llama/Llama-3.1-8B-Instruct"}, "meta-llama/Llama-3.1-8B-Instruct", "fp8"),  # none of its own
        ({"model": "deepseek-ai/DeepSeek-R1", "tp": "8", "num_gpus": "8"}, "deepseek-ai/DeepSeek-R1", "fp8_block"),
        ({"model": "Qwen/Qwen3-8B"}, "Qwen/Qwen3-8B", "fp8"),  # a name alone tells nothing of scales
        # The vendor's NVFP4 checkpoint of experts leaves attention alone; dense models are taken as a whole.
        ({"model": "deepseek-ai/DeepSeek-R1", "gpu": "B200", "weight_precision": "fp4", "tp": "8", "num_gpus": "8"},
         "nvidia/DeepSeek-R1-NVFP4", "nvfp4"),
        ({"gpu": "B200", "weight_precision": "fp4"}, "Qwen/Qwen3-32B", "nvfp4"),
    ],
)  # fmt: skip
def test_a_publishers_own_checkpoint_stands_for_a_format(change, name, weights):
    assert served(**change) == (name, weights)


def test_the_published_checkpoint_is_of_the_same_shape():
    plain, own = (read_case({**ROW, "weight_precision": w}).deployment.model for w in ("bf16", "fp8"))
    assert own.name != plain.name
    assert (own.hidden_size, own.num_layers) == (plain.hidden_size, plain.num_layers)
    assert own.parameters == pytest.approx(plain.parameters, rel=1e-6)


# -- engines ---------------------------------------------------------------------------------------------

MLPERF = {**ROW, "engine": "", "engine_version": "", "model": "llama2-70b", "len_dist": "mlperf-openorca",
          "load_kind": "offline", "load_value": "inf", "isl": "", "osl": "", "tp": "", "num_gpus": "8"}  # fmt: skip


def test_mlperf_rows_that_name_no_engine_take_tensorrt_llm_on_nvidia():
    case = read_case(MLPERF)
    assert case.timing.name == "trtllm"
    assert any("TensorRT-LLM" in text for text in case.assumptions)


@pytest.mark.parametrize(
    ("change", "name"),
    [({"gpu": "MI300X"}, None), ({"engine": "vLLM"}, "vllm"), ({"len_dist": "fixed", "isl": "9", "osl": "9"}, None)],
)
def test_other_rows_do_not(change, name):
    case = read_case({**MLPERF, **change})
    assert not case.timing.name.startswith("trtllm")
    assert name in (None, case.timing.name)
    assert not any("TensorRT-LLM" in text for text in case.assumptions)


# -- cache -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "kv"),
    [
        ({"engine": "TensorRT-LLM"}, "fp8"), ({"engine": "TensorRT-LLM", "engine_version": "1.0"}, "fp8"),
        ({"engine": "ATOM", "engine_version": "", "gpu": "MI300X"}, "fp8"),
        ({"engine": "TensorRT-LLM", "weight_precision": "bf16"}, "auto"),
        ({"engine": "NVIDIA NIM (TensorRT-LLM)", "engine_version": ""}, "auto"), ({}, "auto"),
        ({"engine": "SGLang"}, "auto"),
        ({"engine": "NVIDIA NIM (TensorRT-LLM)", "engine_version": "", "kv_precision": "fp8"}, "fp8"),
        ({"engine": "TensorRT-LLM", "kv_precision": "bf16"}, "bf16"),
    ],
)  # fmt: skip
def test_cache_in_one_byte_where_the_recipes_set_it(change, kv):
    case = read_case({**ROW, **change})
    assert case.deployment.formats.kv == kv
    assumed = kv == "fp8" and "kv_precision" not in change
    assert any("KV cache in FP8" in text for text in case.assumptions) == assumed


def test_a_cache_left_alone_takes_two_bytes_an_element():
    nim = read_case({**ROW, "engine": "NVIDIA NIM (TensorRT-LLM)", "engine_version": ""}).deployment
    # Qwen3-32B: 64 layers of 8 KV heads of 128, keys and values
    assert nim.model.kv_bytes_per_token(nim.formats.kv) == 64 * 8 * 128 * 2 * 2
