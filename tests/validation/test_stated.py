"""Settings that rows state in words: each spelling, what only looks like one, and where they go."""

from dataclasses import fields, replace

import pytest

from sizing.deployment import Parallelism
from sizing.replica.loads import ClosedLoop
from sizing.validation.cases import INPUTS, read_case
from sizing.validation.serving import budget_of, predict_case
from sizing.validation.stated import Stated, stated

ROW = {
    "id": "s", "engine": "vLLM", "engine_version": "0.11.0", "model": "Qwen/Qwen3-8B", "gpu": "H100-SXM-80GB",
    "num_gpus": "1", "tp": "1", "weight_precision": "bf16", "isl": "1024", "osl": "512", "load_kind": "concurrency",
    "load_value": "64", "len_dist": "fixed",
}  # fmt: skip
EXPERTS = {**ROW, "model": "Qwen/Qwen3-30B-A3B", "num_gpus": "8", "tp": "8"}
DEEPSEEK = {**ROW, "model": "deepseek-ai/DeepSeek-R1", "gpu": "H200-SXM-141GB", "weight_precision": "fp8"}


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("max_num_seqs=256", "max_num_seqs", 256), ("--max-num-seqs 128", "max_num_seqs", 128),
        ("saturating max_num_seqs=16; measured", "max_num_seqs", 16), ("max_num_seqs: 8,", "max_num_seqs", 8),
        ("--max-running-requests=512", "max_num_seqs", 512), ("--max_batch_size 64", "max_num_seqs", 64),
        ("--max-num-batched-tokens 16384", "max_num_batched_tokens", 16384),
        ("max_num_batched_tokens 20000; x", "max_num_batched_tokens", 20000),
        ("--chunked-prefill-size 8192", "max_num_batched_tokens", 8192),
        ("--max_num_tokens=16384", "max_num_batched_tokens", 16384),
        ("--tp 16 --dp 2", "dp", 2), ("--dp-size 8", "dp", 8), ("--dp=4", "dp", 4),
        ("--data-parallel-size 8", "dp", 8), ("--ep 8 --x", "ep", 8), ("--ep-size=4", "ep", 4),
        ("--expert-parallel-size 2", "ep", 2),
        ("--gpu-memory-utilization 0.85", "memory_utilization", 0.85),
        ("gpu util .25; KV", "memory_utilization", 0.25),
        ("--mem-fraction-static 0.8", "memory_utilization", 0.8),
        ("gpu_memory_utilization=0.9", "memory_utilization", 0.9),
        ("KV 12.02 GiB/GPU", "kv_bytes", 12.02 * 2**30), ("KV 5 GiB (93,872 t", "kv_bytes", 5 * 2**30),
        ("--kv-cache-dtype=fp8", "kv", "fp8"), ("--kv-cache-dtype fp8_e4m3", "kv", "fp8"),
        ("kv_cache_dtype: fp8", "kv", "fp8"),
        ("--enable-dp-attention", "attention_dp", True), ("DP attention; server", "attention_dp", True),
        ("DPA = DP-attention enabled", "attention_dp", True), ("enable_attention_dp used", "attention_dp", True),
        ("--enable-expert-parallel", "experts_spread", True), ("enable_expert_parallel=True", "experts_spread", True),
        ("MoE: --ep $ep_size", "experts_spread", True),
        ("VLLM_USE_V1=0 per manifest", "legacy", True), ("num_gpus=tp*pp*dp as the", "gpus_computed", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("column", ["notes", "deploy"])
def test_each_spelling_is_read_from_either_column(column, words, name, value):
    found = stated({column: words})
    spread = {"experts_spread"} if name == "ep" and words.startswith("--ep") else set()
    assert getattr(found, name) == pytest.approx(value)
    silent = Stated()
    others = {f.name for f in fields(Stated)} - {name} - spread
    assert {n: getattr(found, n) for n in others} == {n: getattr(silent, n) for n in others}


@pytest.mark.parametrize(
    "words",
    [
        "", "--model 8", "num_prompts=320", "--dp-attention", "--cuda-graph-max-batch-size 64",
        "load_value=max_num_seqs",
        "max_num_seqs=default", "--chunked-prefill-size -1", "chunked_prefill=FALSE", "max_num_seqs=1,024",
        "max_num_seqs=0",
        "dp 8", "ep=8", "--tdp 8", "--sep 8", "--max-model-len 8192", "KV fp8 per .github", "KV pool ~102-106 GB",
        "KV 1.2.3 GiB", "KV precision not in data", "gpu util 80", "gpu_memory_utilization=1",
        "--kv-cache-dtype auto", "fp8 weights", "VLLM_USE_V1=1", "--disable-expert-parallel", "expert parallel",
        "--no-enable-expert-parallel", "enable_expert_parallel=False", "dp data", "attention data",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_setting_is_left_alone(words):
    found = stated({"notes": words})
    if words == "--dp-attention":
        assert found == Stated(attention_dp=True)
    else:
        assert found == Stated()


@pytest.mark.parametrize("words", ["DP-attention off", "enable_attention_dp=false", "enable_attention_dp: False"])
def test_attention_that_is_said_not_to_be_data_parallel_is_not(words):
    assert stated({"notes": words}) == Stated()


@pytest.mark.parametrize("words", ["--ep 1", "--ep-size 1", "--tp 8 --ep=1"])
def test_one_rank_of_experts_is_no_spread(words):
    assert not stated({"deploy": words}).experts_spread
    assert read_case({**EXPERTS, "deploy": words}).deployment.parallelism.ep == 1


def test_a_row_that_says_nothing_has_nothing():
    for row in ({}, {"notes": "", "deploy": ""}, {"tp": "8", "model": "max_num_seqs=8"}):
        assert stated(row) == Stated()


def test_what_was_measured_is_not_read():
    assert stated({"ttft_mean_ms": "max_num_seqs=8", "id": "VLLM_USE_V1=0"}) == Stated()
    assert {"notes", "deploy"} <= set(INPUTS)


# -- where they go ---------------------------------------------------------------------------------------


def test_limits_reach_the_engines_settings():
    words = "max_num_seqs=48 --max-num-batched-tokens 4096 --gpu-memory-utilization 0.8"
    settings = read_case({**ROW, "deploy": words}).deployment.settings
    assert (settings.max_num_seqs, settings.max_num_batched_tokens, settings.memory_utilization) == (48, 4096, 0.8)
    silent = read_case(ROW).deployment.settings
    assert (silent.max_num_seqs, silent.max_num_batched_tokens, silent.memory_utilization) == (None, None, None)


def test_a_stated_cache_format_stands_in_for_the_column_and_gives_way_to_it():
    assert read_case({**ROW, "deploy": "--kv-cache-dtype=fp8"}).deployment.formats.kv == "fp8"
    both = read_case({**ROW, "deploy": "--kv-cache-dtype=fp8", "kv_precision": "bf16"})
    assert both.deployment.formats.kv == "bf16"


def test_the_first_engine_of_vllm_is_taken_where_the_row_asks_for_it():
    assert read_case(ROW).timing.name == "vllm"
    assert read_case({**ROW, "notes": "VLLM_USE_V1=0 per manifest"}).timing.name == "vllm-v0"


def test_ranks_in_the_command_line_lay_out_attention_and_experts():
    words = "--tp 8 --ep 8 --dp 8 --enable-dp-attention"
    case = read_case({**DEEPSEEK, "num_gpus": "8", "tp": "8", "deploy": words})
    assert (case.deployment.parallelism, case.replicas) == (Parallelism(tp=1, dp=8, ep=8), 1.0)
    two = read_case({**DEEPSEEK, "num_gpus": "16", "tp": "16", "deploy": "--tp 16 --dp 2 --enable-dp-attention"})
    assert (two.deployment.parallelism, two.replicas) == (Parallelism(tp=8, dp=2), 1.0)
    # ranks of data parallelism without data-parallel attention are copies, which the columns count
    assert read_case({**EXPERTS, "deploy": "--tp 8 --dp 2"}).deployment.parallelism == Parallelism(tp=8)


def test_experts_said_to_be_spread_are_so_over_all_ranks_of_a_mixture():
    words = {"deploy": "--enable-expert-parallel"}
    assert read_case({**EXPERTS, **words}).deployment.parallelism == Parallelism(tp=8, ep=8)
    assert read_case({**ROW, "tp": "2", "num_gpus": "2", **words}).deployment.parallelism == Parallelism(tp=2)
    assert read_case({**EXPERTS, "ep": "2", **words}).deployment.parallelism.ep == 2


def test_a_stated_room_replaces_what_the_rules_leave_and_its_share():
    stated_room = read_case({**ROW, "load_value": "500", "notes": "gpu util .5; KV 4.5 GiB (x"})
    assert stated_room.kv_bytes == 4.5 * 2**30
    assert stated_room.deployment.settings.memory_utilization is None
    # 36 layers of 8 KV heads of 128, keys and values of two bytes: 147,456 B a token, and a request holds
    # 1024 + 0.55 x 512 of them; blocks of 16 tokens leave a little over.
    held = 4.5 * 2**30 / (147_456 * (1024 + 0.55 * 512))
    assert predict_case(stated_room, draws=0).active == pytest.approx(held, rel=0.03)
    twice = predict_case(replace(stated_room, kv_bytes=9 * 2**30), draws=0)
    assert twice.active == pytest.approx(2 * predict_case(stated_room, draws=0).active, rel=1e-6)
    own = replace(stated_room, kv_bytes=budget_of(stated_room.deployment).kv_bytes)
    none = replace(stated_room, kv_bytes=None)
    assert predict_case(own, draws=0) == predict_case(none, draws=0)


def test_a_stated_limit_of_sequences_holds_against_users_and_the_default_does_not():
    row = {**ROW, "isl": "128", "osl": "128", "load_value": "900"}
    case = read_case({**row, "notes": "max_num_seqs=32"})
    assert case.load == ClosedLoop(users=900, requests=None)
    run = predict_case(case, draws=0)
    assert (run.active, run.waiting) == pytest.approx((32, 868))
    assert run.limited_by == "max_num_seqs"
    free = predict_case(read_case(row), draws=0)
    assert (free.active, free.waiting, free.limited_by) == (900, 0, "load")
