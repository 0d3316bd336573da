"""Operations of a pass: shapes after sharding, counts, and the sums that published figures give."""

import numpy as np
import pytest

from sizing import roofline
from sizing.architecture import read_model
from sizing.calibration import calibration
from sizing.catalog import gpu
from sizing.deployment import Deployment, NumberFormats, Parallelism
from sizing.operations import Step, launches, operations, seconds, weight_bytes, work
from sizing.operations.times import seen_in_decode, seen_in_prefill


def deployment(name="Qwen/Qwen3-8B", chip="h100", weights=None, kv="auto", **layout):
    return Deployment(
        model=read_model(name), gpu=gpu(chip), parallelism=Parallelism(**layout),
        formats=NumberFormats(weights=weights, kv=kv),
    )  # fmt: skip


def step(batch=0.0, context=0.0, new=0.0, pairs=0.0, sequences=0.0):
    n, c, q, a, s = (np.array([float(x)]) for x in (batch, context, new, pairs, sequences))
    return Step(tokens=n + q, rows=n + s, batch=n, context=c, new=q, pairs=a, sequences=s)


def by_name(found):
    return {op.name: op for op in found}


def test_weights_of_qwen3_8b_are_6_95_billion_linear_parameters_and_a_head():
    # Qwen3-8B config: 36 layers of 4096 x (6144 + 4096) attention and 3 x 4096 x 12288 feed-forward.
    held = sum(weight_bytes(op) for op in operations(deployment()) if op.name != "head")
    assert held == 36 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 12288) * 2
    assert held / 2 == pytest.approx(6.946e9, rel=1e-3)


def test_prefill_of_the_seeds_costs_579_tflop_a_second():
    # 20 requests/s of 2,000 tokens: 579 TFLOP/s, head on sampled positions left out.
    s = step(new=2000, pairs=2000 * 2001 / 2, sequences=1)
    found = operations(deployment())
    flops = sum(float(work(op, s, gpu("h100"))[1][0]) for op in found if op.phase != "rows")
    assert 20 * flops / 1e12 == pytest.approx(579, rel=0.01)


def test_decode_reads_147456_bytes_a_cached_token():
    s = step(batch=1, context=1000)
    moved = sum(float(work(op, s, gpu("h100"))[0][0]) for op in operations(deployment()) if op.phase == "decode")
    assert moved == 147_456 * 1000


def test_tensor_parallel_splits_shapes_and_sums_twice_a_layer():
    found = by_name(operations(deployment(tp=2)))
    assert (found["attention.qkv"].n, found["attention.qkv"].k) == (3072, 4096)
    assert (found["attention.o_proj"].n, found["attention.o_proj"].k) == (4096, 2048)
    assert found["attention.all_reduce"].count == found["mlp.all_reduce"].count == 36
    assert found["attention.decode"].heads == 16
    assert found["attention.decode"].kv_heads == 4


def test_kv_heads_are_held_by_every_gpu_beyond_their_number():
    assert by_name(operations(deployment(tp=16)))["attention.decode"].kv_heads == 1


def test_one_gpu_exchanges_nothing():
    families = {op.family for op in operations(deployment())}
    assert not families & {"all_reduce", "all_gather", "all_to_all", "point_to_point"}


def test_expert_parallel_spreads_experts_and_data_parallel_attention_sends_tokens():
    found = by_name(operations(deployment("Qwen/Qwen3-30B-A3B", tp=1, dp=4, ep=4)))
    experts = found["mlp.experts"]
    assert (experts.experts, experts.local_experts, experts.top_k) == (128, 32, 8)
    assert experts.skew > 1
    assert "mlp.dispatch" in found
    assert "mlp.combine" in found
    assert found["attention.decode"].share == 0.25


@pytest.mark.parametrize(
    ("name", "layers"), [("MiniMaxAI/MiniMax-M2", 62), ("allenai/OLMo-2-1124-7B-Instruct", 32)]
)  # fmt: skip
def test_a_norm_over_all_heads_is_summed_over_the_ranks_once_a_layer(name, layers):
    """Queries and keys are normalised before attention: two sums of squares a token, FP32, over the TP group."""
    split, whole = (by_name(operations(deployment(name, tp=tp))) for tp in (4, 1))
    sums = [op for op in split.values() if op.family == "all_reduce" and op.name.startswith("attention")]
    assert {op.name: (op.count, op.gpus, op.share) for op in sums} == {
        "attention.norm_all_reduce": (layers, 4, 1.0), "attention.all_reduce": (layers, 4, 1.0),
    }  # fmt: skip
    assert split["attention.norm_all_reduce"].token_bytes == 2 * 4
    assert not {op.family for op in whole.values()} & {"all_reduce"}
    device = gpu("h100-sxm")
    took = float(
        seconds(split["attention.norm_all_reduce"], step(batch=16), device, calibration("measured", device))[0]
    )
    assert layers * 2e-6 < took < layers * 30e-6  # a start-up each


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "meta-llama/Llama-3.1-8B-Instruct"])
def test_a_norm_of_each_head_or_none_needs_no_sum(name):
    found = by_name(operations(deployment(name, tp=4)))
    assert "attention.norm_all_reduce" not in found
    assert sum(op.family == "all_reduce" and op.name.startswith("attention") for op in found.values()) == 1


def test_data_parallel_attention_has_its_heads_together():
    found = by_name(operations(deployment("MiniMaxAI/MiniMax-M2", "h200", tp=1, dp=8, ep=8)))
    assert not [op for op in found.values() if op.family == "all_reduce" and op.name.startswith("attention")]


def test_mla_reads_one_latent_a_token_whatever_the_heads():
    # DeepSeek-V3 report: 512 + 64 elements a token and layer, 61 layers: 70,272 bytes in 16 bits.
    found = operations(deployment("deepseek-ai/DeepSeek-V3", "h200", kv="bf16", tp=8))
    s = step(batch=1, context=1)
    moved = sum(float(work(op, s, gpu("h200"))[0][0]) for op in found if op.phase == "decode")
    assert moved == 576 * 2 * 61


def test_pipeline_hands_over_between_stages():
    found = by_name(operations(deployment(pp=2)))
    assert found["stages"].count == 1
    assert found["attention.qkv"].share == 0.5


@pytest.mark.parametrize(("start", "new", "window"), [(0, 300, 100), (50, 200, 100), (400, 64, 128), (0, 50, 100)])
def test_window_pairs_match_a_count_one_by_one(start, new, window):
    counted = sum(min(p, window) for p in range(start + 1, start + new + 1))
    pairs = new * start + new * (new + 1) / 2
    found = seen_in_prefill(np.array([new]), np.array([pairs]), np.array([1.0]), window)
    assert float(found[0]) == pytest.approx(counted, rel=0.02)


def test_window_caps_what_decode_reads():
    seen = seen_in_decode(np.array([4.0]), np.array([40_000.0]), 1024.0)
    assert float(seen[0]) == 4 * 1024


def test_launches_of_an_eager_token_are_the_seeds_2398():
    # Seeds, stop 4: 2,398 kernels for one token of Qwen3-8B (36 x 66 + 22).
    assert launches(read_model("Qwen/Qwen3-8B")) == 2398


@pytest.mark.parametrize(
    ("engine", "weights", "quantised"),
    [("vllm", "fp8", True), ("trtllm", "nvfp4", True), ("vllm", "nvfp4", False), ("vllm", "bf16", False)],
)
def test_products_of_a_served_model_take_their_input_quantised(engine, weights, quantised):
    chip = gpu("b200")
    cal = calibration("measured", chip, engine)
    op, s = by_name(operations(deployment(chip="b200", weights=weights)))["attention.qkv"], step(batch=512)
    size = (512.0, op.n, op.k, weights, chip, cal)
    found = float(seconds(op, s, chip, cal)[0]) / op.count
    assert found == pytest.approx(float(roofline.gemm_s(*size, fused=True)), rel=1e-12)
    assert (found < float(roofline.gemm_s(*size)) * (1.0 - 1e-9)) == quantised
