"""The budget by engines' rules; figures from public start-up logs and from other tools' wrong answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizing.architecture import model_from_config, read_model
from sizing.calibration import calibration
from sizing.catalog import gpu, gpus
from sizing.deployment import Deployment, EngineSettings, NumberFormats, Parallelism
from sizing.engines import engine, engines
from sizing.errors import InputError
from sizing.memory import GIB, budget_notes, budget_rows, memory_budget
from sizing.prepared import prepare
from sizing.simulator import replica_model
from sizing.workload import Workload

LLAMA_70B = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "intermediate_size": 28672,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_8B = LLAMA_70B | {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
}  # fmt: skip
QWEN2_7B = LLAMA_8B | {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "intermediate_size": 18944,
    "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    "max_position_embeddings": 32768,
}  # fmt: skip
MODELS = {name: model_from_config(config, name=name) for name, config in
          {"70b": LLAMA_70B, "8b": LLAMA_8B, "qwen2-7b": QWEN2_7B}.items()}  # fmt: skip


def budget(model="8b", chip="h100-sxm", tp=1, pp=1, weights=None, kv="auto", rule="usable", tokens=None, **settings):
    return memory_budget(
        Deployment(
            model=MODELS.get(model) or read_model(model), gpu=gpu(chip), parallelism=Parallelism(tp=tp, pp=pp),
            formats=NumberFormats(weights=weights, kv=kv), settings=EngineSettings(**settings),
        ),
        request_tokens=tokens, memory_rule=rule,
    )  # fmt: skip


# -- laws -----------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    chip=st.sampled_from(gpus()),
    name=st.sampled_from(sorted(MODELS)),
    served_by=st.sampled_from(engines()),
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 3]),
    share=st.floats(0.05, 1.0),
)
def test_lines_sum_to_the_total_and_nothing_is_negative(chip, name, served_by, tp, pp, share):
    b = budget(name, chip, tp, pp, engine=served_by, memory_utilization=share)
    assert sum(line.bytes for line in b.lines) == pytest.approx(b.total_bytes, rel=1e-12)
    assert min(b.kv_bytes, b.shortfall_bytes, b.kv_tokens, b.weights_bytes) >= 0
    assert b.kv_bytes == 0 or b.shortfall_bytes == 0
    assert b.kv_bytes <= b.total_bytes
    assert all(line.bytes >= 0 for line in b.lines[:-1])


@settings(max_examples=40, deadline=None)
@given(share=st.floats(0.3, 0.9), more=st.floats(0.0, 0.1), tokens=st.integers(1, 100_000))
def test_more_memory_never_holds_fewer_requests_and_longer_ones_never_more(share, more, tokens):
    little, much = (budget(memory_utilization=u) for u in (share, share + more))
    assert little.max_requests(tokens) <= much.max_requests(tokens)
    assert much.max_requests(tokens + 16) <= much.max_requests(tokens)


def test_scalars_and_arrays_agree():
    b = budget("70b", tp=4)
    lengths = np.array([1.0, 100, 2400, 16_384, 1e9])
    together = b.max_requests(lengths)
    assert together.tolist() == [b.max_requests(float(n)) for n in lengths]
    assert together[-1] == 0.0


def test_a_model_that_does_not_fit_is_an_answer():
    b = budget("70b", "l4")
    assert b.kv_bytes == b.max_requests(100) == b.kv_tokens == 0
    assert b.shortfall_bytes > 100 * GIB
    assert "does not fit" in b.lines[-1].formula
    assert any("does not fit" in note for note in budget_notes(b))


def test_an_unknown_rule_or_engine_is_refused():
    with pytest.raises(InputError, match="sheet"):
        budget(rule="sheet")
    with pytest.raises(InputError, match="vlm"):
        budget(engine="vlm")


def test_rows_end_with_the_total():
    b = budget()
    rows = budget_rows(b)
    assert sum(row["bytes"] for row in rows[:-1]) == pytest.approx(b.total_bytes, abs=len(rows))
    assert rows[-1] == {"line": "total", "gib": 79.19, "bytes": 85029615042, "basis": "", "formula": ""}


def test_one_budget_takes_a_fraction_of_a_millisecond():
    import time

    chip, model = gpu("h100-sxm"), MODELS["8b"]
    deployment = Deployment(model=model, gpu=chip)
    memory_budget(deployment)
    best = 1.0
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(20):
            memory_budget(deployment)
        best = min(best, (time.perf_counter() - begun) / 20)
    assert best < 2e-3


# -- engines' identities --------------------------------------------------------------------------------


def test_vllm_room_is_share_minus_weights_activation_and_non_torch():
    b = budget(version="0.19.0", memory_utilization=0.95)
    taken = b.weights_bytes + b.activation_bytes + b.non_torch_bytes
    assert b.kv_bytes == pytest.approx(0.95 * b.total_bytes - taken)
    assert b.cuda_graph_bytes > 0  # captured, but out of the headroom


def test_graphs_are_charged_from_0_20_on():
    old, new = (budget(version=v, memory_utilization=0.9) for v in ("0.19.0", "0.20.0"))
    assert old.kv_bytes - new.kv_bytes == pytest.approx(new.cuda_graph_bytes)


def test_sglang_room_is_what_is_free_after_loading_minus_the_rest_of_what_was_free_before():
    # H200, Llama-3-8B, mem_fraction_static 0.871796: 106.36 GiB (data/measured/memory.csv, IS106)
    b = budget(chip="h200-sxm", engine="sglang", memory_utilization=0.871796)
    before = b.total_bytes - b.overhead.context_bytes
    after = before - b.weights_bytes
    assert b.kv_bytes == pytest.approx(after - before * (1 - 0.871796))
    assert b.kv_bytes / GIB == pytest.approx(106.36, rel=5e-3)


def test_trtllm_takes_its_share_of_what_is_left():
    b = budget(engine="trtllm")
    left = b.total_bytes - b.weights_bytes - b.activation_bytes - b.non_torch_bytes
    assert b.kv_bytes == pytest.approx(0.9 * left)


@pytest.mark.parametrize(
    ("version", "share"),
    [("0.8.5", 0.9), ("v0.18.0", 0.9), ("0.20.0", 0.92), (None, 0.92)],
)
def test_utilisation_defaults_by_version(version, share):
    assert budget(version=version).utilization == share


@pytest.mark.parametrize(
    ("text", "number", "legacy"),
    [
        ("v0.19.0", (0, 19, 0), None), ("0.8.3 (V0)", (0, 8, 3), True), ("0.8.3 (V1)", (0, 8, 3), False),
        ("0.13.1.dev8+g2841a84ac", (0, 13, 1), None), ("(V1, 2025-04)", (0, 8), False), ("", (), None),
        ("0.26", (0, 26, 0), None), ("(2023-12)", (0, 1), None),
    ],
)  # fmt: skip
def test_versions_as_logs_print_them(text, number, legacy):
    version = engine("vllm", text).version
    assert (version.number, version.legacy) == (number, legacy)


# -- public start-up logs (data/measured/memory.csv, by id) ---------------------------------------------


@pytest.mark.parametrize(
    ("tp", "share", "weights", "room", "tokens", "concurrency"),
    [
        (1, 0.25, 14.2488, 5.01, 93_872, 5.73),  # DL02
        (1, 0.50, 14.2488, 24.83, 464_848, 28.37),  # DL03
        (2, 0.25, 7.1217, 12.02, 450_192, 27.48),  # DL05
        (2, 0.50, 7.1217, 31.83, 1_192_160, 72.76),  # DL06
    ],
)
def test_qwen2_7b_on_a100(tp, share, weights, room, tokens, concurrency):
    b = budget("qwen2-7b", "a100-80-sxm", tp, version="0.10.1.1", memory_utilization=share, max_model_len=16384)
    assert b.weights_bytes / GIB == pytest.approx(weights, rel=5e-3)
    assert b.kv_bytes / GIB == pytest.approx(room, rel=2e-2)
    assert b.printed_tokens == pytest.approx(tokens, rel=2e-2)
    assert b.printed_concurrency == pytest.approx(concurrency, rel=2e-2)


def test_wording_is_the_engines_own():
    b = budget("qwen2-7b", "a100-80-sxm", version="0.10.1.1", memory_utilization=0.5, max_model_len=16384)
    assert b.wording[1] == f"GPU KV cache size: {b.printed_tokens:,} tokens"
    assert b.wording[2].startswith("Maximum concurrency for 16,384 tokens per request: 28.")


def test_a_pipeline_prints_its_first_stage_and_the_tokens_of_its_last():
    # reference/memory.md, point 7: tokens follow the smallest rank, 1-3 % lower than the printed room says
    b = budget(pp=2, version="0.19.0", memory_utilization=0.95)
    assert b.printed is not b
    per_token = b.printed_kv_bytes / b.printed_tokens
    assert 1.005 < per_token / 65_536 < 1.03


# -- wrong answers that other tools shipped, with the right value (reference/peers.md) -------------------


def test_kv_is_divided_by_tp():
    # Llama-70B TP8 on H100: a tool said 181,648 tokens; right about 1.45 million
    b = budget("70b", tp=8, version="0.19.0", memory_utilization=0.95)
    assert b.printed_tokens == pytest.approx(1.45e6, rel=0.03)
    assert b.kv_bytes_per_token == 2 * 80 * 1 * 128 * 2


def test_kv_heads_are_replicated_beyond_their_number():
    assert budget("qwen2-7b", tp=8).kv_bytes_per_token == budget("qwen2-7b", tp=4).kv_bytes_per_token


def test_head_dim_is_not_hidden_over_heads():
    # Qwen3-235B: 96,256 bytes a token was said; right 192,512
    config = LLAMA_70B | {
        "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 4096, "head_dim": 128,
        "num_hidden_layers": 94, "num_key_value_heads": 4, "num_experts": 128, "num_experts_per_tok": 8,
        "moe_intermediate_size": 1536, "intermediate_size": 12288, "vocab_size": 151936,
    }  # fmt: skip
    b = memory_budget(Deployment(model=model_from_config(config, name="q"), gpu=gpu("b200"),
                                 parallelism=Parallelism(tp=1), formats=NumberFormats(weights="nvfp4")))  # fmt: skip
    assert b.kv_bytes_per_token == 192_512


def test_a_whole_context_of_a_small_model():
    # Qwen3-0.6B at 40,960 tokens: 2.19 GiB was said; right 4.38
    config = LLAMA_8B | {
        "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "head_dim": 128,
        "num_hidden_layers": 28, "num_attention_heads": 16, "intermediate_size": 3072, "vocab_size": 151936,
        "tie_word_embeddings": True, "max_position_embeddings": 40960,
    }  # fmt: skip
    b = memory_budget(Deployment(model=model_from_config(config, name="q"), gpu=gpu("h100")))
    assert b.kv_bytes_per_token * 40_960 / GIB == pytest.approx(4.38, abs=0.005)


def test_dp_attention_does_not_multiply_gpus():
    # tp 8 with dp 8 attention was counted as 64 GPUs; right 8
    assert Deployment(model=MODELS["8b"], gpu=gpu("h100"), parallelism=Parallelism(tp=1, dp=8, ep=8)).gpus == 8


def test_data_parallel_attention_holds_as_many_times_the_requests():
    one, eight = (
        memory_budget(Deployment(model=MODELS["8b"], gpu=gpu("h100"), parallelism=Parallelism(dp=dp))) for dp in (1, 8)
    )
    assert eight.max_requests(2048) == pytest.approx(8 * one.max_requests(2048))


@pytest.mark.parametrize(
    ("served_by", "schedulers"), [("vllm", 8), ("trtllm", 8), ("sglang", 1)]
)  # fmt: skip
def test_limits_of_a_step_are_each_ranks_but_in_sglang(served_by, schedulers):
    """SGLang divides chunked_prefill_size and max_running_requests among its ranks."""
    stated = EngineSettings(engine=served_by, max_num_seqs=100, max_num_batched_tokens=4096)
    one, eight = (
        memory_budget(
            Deployment(
                model=read_model("Qwen/Qwen3-30B-A3B"), gpu=gpu("h200"), parallelism=Parallelism(dp=dp, ep=dp),
                settings=stated,
            )
        )
        for dp in (1, 8)
    )  # fmt: skip
    assert (one.schedulers, one.limits) == (1, (100, 4096))
    assert (eight.schedulers, eight.limits) == (schedulers, (100 * schedulers, 4096 * schedulers))
    tensor = budget("8b", tp=8, engine=served_by, max_num_seqs=100, max_num_batched_tokens=4096)
    assert tensor.limits == (100, 4096)


@pytest.mark.parametrize("served_by", ["vllm", "trtllm", "sglang"])
def test_limits_left_open_are_the_engines_own(served_by):
    b = budget("8b", engine=served_by)
    assert b.limits == (b.defaults.max_num_seqs, b.defaults.max_num_batched_tokens)


@pytest.mark.parametrize(("served_by", "times"), [("vllm", 4), ("sglang", 1)])
def test_plans_and_the_simulator_take_the_limits_of_all_ranks(served_by, times):
    deployment = Deployment(
        model=read_model("Qwen/Qwen3-30B-A3B"), gpu=gpu("h200"), parallelism=Parallelism(dp=4, ep=4),
        settings=EngineSettings(engine=served_by, max_num_seqs=10, max_num_batched_tokens=2048),
    )  # fmt: skip
    scheduler = replica_model(deployment).scheduler
    assert (scheduler.max_num_seqs, scheduler.max_num_batched_tokens) == (10 * times, 2048 * times)
    load = Workload(request_rate_per_s=1.0, input_tokens=500, output_tokens=100)
    found = prepare(deployment, load, calibration("measured", deployment.gpu, served_by), predicted=False)
    assert (found.max_num_seqs, found.budget) == (10 * times, 2048 * times)


def test_experts_all_take_memory():
    # Mixtures counted from active parameters gave 33 GB; all 47e9 parameters of Mixtral-8x7B take 93 GB in BF16
    b = budget("mistralai/Mixtral-8x7B-v0.1", tp=2)
    assert 2 * b.rank.weights_bytes == pytest.approx(2 * 46.7e9, rel=2e-3)


def test_the_datasheet_rule_is_the_back_of_an_envelope():
    b = budget("70b", tp=4, rule="datasheet", memory_utilization=0.9)
    assert b.total_bytes == 80e9
    assert b.kv_bytes == pytest.approx(0.9 * 80e9 - b.rank.weights_bytes)
    assert sum(line.bytes for line in b.lines) == pytest.approx(80e9)


@pytest.mark.parametrize("chip", ["rtx4090", "a10", "l4", "l40s", "h100-sxm"])
def test_an_engine_that_would_not_start_says_with_what_it_would(chip: str) -> None:
    """8B in 16 bits: 24 GB cards hold 30,000 to 40,000 of the model's 131,072 tokens, and vLLM wants room for all."""
    said = budget("8b", chip).refusal
    assert bool(said) == (budget("8b", chip).printed_tokens < 131_072)
    if not said:
        return
    assert said.startswith("vllm refuses to start with a context of 131,072 tokens")
    advised = int(said.split("--max-model-len ")[1].split()[0])
    assert 25_000 < advised <= budget("8b", chip).printed_tokens
    assert budget("8b", chip, max_model_len=advised).refusal == ""
    assert budget("8b", chip, engine="sglang").refusal == ""  # which cuts its longest request instead


def test_the_budget_says_that_an_engine_would_not_start() -> None:
    assert any("refuses to start" in note for note in budget_notes(budget("8b", "rtx4090"), ""))
    assert not any("refuses to start" in note for note in budget_notes(budget("8b", "h100-sxm"), ""))
