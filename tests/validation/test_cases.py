"""Rows as questions: published checkpoints, engines left unnamed, formats of the cache."""

import csv
import re

import pytest

from sizing.replica.loads import Offline, OpenLoop, Targeted
from sizing.validation.cases import read_case, shared_load
from sizing.validation.serving import predict_row

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


# MLPerf v5.1 on Blackwell names FP8 for Mixtral (ids mlp-..., RTX PRO 6000) and FP4 for the Llamas.
@pytest.mark.parametrize(
    ("data_set", "model", "card", "weights"),
    [("mlperf-openorca", "llama2-70b", "B200", "nvfp4"), ("mlperf-openorca", "llama2-70b", "H200", "fp8"),
     ("mlperf-openorca+gsm8k+mbxp", "mixtral-8x7b", "B200", "fp8")],
)  # fmt: skip
def test_mlperf_rows_that_name_no_format_take_the_one_that_others_name(data_set, model, card, weights):
    case = read_case({**MLPERF, "len_dist": data_set, "model": model, "gpu": card, "weight_precision": ""})
    assert (case.deployment.formats.weights or case.deployment.model.checkpoint.name).startswith(weights)


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
        ({"engine": "NVIDIA NIM (TensorRT-LLM)", "engine_version": ""}, "fp8"), ({}, "auto"),
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
    sglang = read_case({**ROW, "engine": "SGLang", "engine_version": ""}).deployment
    # Qwen3-32B: 64 layers of 8 KV heads of 128, keys and values
    assert sglang.model.kv_bytes_per_token(sglang.formats.kv) == 64 * 8 * 128 * 2 * 2


# -- rates that are the result ---------------------------------------------------------------------------

SOUGHT = {**MLPERF, "load_kind": "request_rate", "load_value": ""}
MEANT = {
    "mlperf-openorca": "llama2-70b", "mlperf-openorca+gsm8k+mbxp": "mixtral-8x7b",
    "mlperf-longdata-mix": "llama3.1-405b",
    "mlperf-cnn_dailymail": "llama3.1-8b", "mlperf-reasoning-mix": "deepseek-r1", "mlperf-gptoss": "gpt-oss-120b",
}  # fmt: skip


# MLCommons: mlcommons/inference, loadgen/mlperf.conf at 001712e (ttft_latency, tpot_latency of Server and of
# *-interactive.Server); gpt-oss-120b: tools/submission/submission_checker/constants.py, LLM_LATENCY_LIMITS. [ms]
@pytest.mark.parametrize(
    ("data", "notes", "ttft_ms", "tpot_ms"),
    [
        ("mlperf-openorca", "llama2-70b-99.9 server", 2000, 200),
        ("mlperf-openorca", "llama2-70b-interactive-99 server interactive", 450, 40),
        ("mlperf-openorca+gsm8k+mbxp", "mixtral-8x7b server", 2000, 200),
        ("mlperf-longdata-mix", "llama3.1-405b server", 6000, 175),
        ("mlperf-longdata-mix", "llama3.1-405b interactive", 4500, 80),
        ("mlperf-cnn_dailymail", "llama3.1-8b server", 2000, 100),
        ("mlperf-cnn_dailymail", "llama3.1-8b interactive", 500, 30),
        ("mlperf-reasoning-mix", "deepseek-r1 server", 2000, 80),
        ("mlperf-reasoning-mix", "deepseek-r1 interactive", 1500, 15),
        ("mlperf-gptoss", "gpt-oss-120b server", 3000, 80),
    ],
)
def test_a_rate_that_is_the_result_is_sought_within_its_scenarios_targets(data, notes, ttft_ms, tpot_ms):
    case = read_case({**SOUGHT, "len_dist": data, "model": MEANT[data], "notes": f"MLPerf Inference closed {notes}; x"})
    assert isinstance(case.load, Targeted)
    assert (1e3 * case.load.ttft_s, 1e3 * case.load.tpot_s) == pytest.approx((ttft_ms, tpot_ms))
    said = f"the largest rate within {ttft_ms / 1e3:g} s to the first token and {tpot_ms / 1e3:g} s a token"
    assert said in case.assumptions


def test_a_rate_that_is_stated_is_not_sought_and_other_data_has_no_targets():
    assert read_case({**SOUGHT, "load_value": "51"}).load == OpenLoop(request_rate_per_s=51, sustained=True)
    other = read_case({**SOUGHT, "len_dist": "fixed", "isl": "512", "osl": "128", "num_prompts": "300"})
    assert other.load == Offline(requests=300)
    # mixtral-8x7b has no interactive scenario
    none = read_case({**SOUGHT, "len_dist": "mlperf-openorca+gsm8k", "model": "mixtral-8x7b", "notes": "interactive"})
    assert isinstance(none.load, Offline)


def test_targets_are_those_that_measured_rows_state(shared):
    with (shared / "measured" / "serving_dev.csv").open(encoding="utf-8-sig", newline="") as handle:
        rows = [r for r in csv.DictReader(handle) if "constraints p99 TTFT<=" in r["notes"]]
    rows = [r for r in rows if r["len_dist"].startswith("mlperf")]
    assert len(rows) > 100
    for row in rows:
        ttft, tpot = re.search(r"TTFT<=(\d+)ms TPOT<=(\d+)ms", row["notes"]).groups()
        load = read_case({**row, "load_kind": "request_rate", "load_value": ""}).load
        assert (1e3 * load.ttft_s, 1e3 * load.tpot_s) == pytest.approx((float(ttft), float(tpot))), row["id"]


def test_every_copy_seeks_its_own_largest_rate():
    load = read_case(SOUGHT).load
    assert shared_load(load, 4.0) == load
    eight, four = (predict_row({**SOUGHT, "tp": "4", "num_gpus": n}, draws=0) for n in ("8", "4"))
    assert eight.values["output_tok_s"].value == pytest.approx(2 * four.values["output_tok_s"].value, rel=1e-9)


# -- windows ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "tokens"), [("0.14.0", 10_000), ("1.1.0", 4_096)])
def test_built_engines_look_back_past_a_window(version, tokens):
    """Mistral 7B v0.1 (config.json): 32 layers of 8 KV heads of 128, window 4,096; K and V of 2 bytes an element."""
    change = {"engine": "TensorRT-LLM", "engine_version": version, "model": "mistralai/Mistral-7B-v0.1",
              "weight_precision": "fp16", "tp": "1", "num_gpus": "1"}  # fmt: skip
    model = read_case({**ROW, **change}).deployment.model
    assert model.kv_bytes(10_000) == tokens * 2 * 32 * 8 * 128 * 2
    assert model.parameters == 7_241_732_096  # a window has no weights
