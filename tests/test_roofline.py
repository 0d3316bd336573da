"""Times of single operations: laws of the form, and golden values against measurements."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizing import roofline
from sizing.calibration import Calibration, calibration
from sizing.catalog import Gpu, gpu

GPUS = ("h100-sxm", "b200-hgx", "a100-80-sxm", "l40s", "mi300x")


def case(name: str, engine: str = "vllm") -> tuple[Gpu, Calibration]:
    chip = gpu(name)
    return chip, calibration("measured", chip, engine)


# AIConfigurator 0.12.0 tables (Apache-2.0), H100 SXM, microseconds as printed to three digits.
MEASURED = [
    ("vllm", "bf16", 4, 4096, 4096, 15.4),
    ("vllm", "bf16", 4, 12288, 4096, 39.0),
    ("vllm", "bf16", 256, 8192, 4096, 29.6),
    ("vllm", "bf16", 4, 1024, 1024, 3.9),
    ("vllm", "bf16", 256, 16384, 16384, 224.8),
]


@pytest.mark.parametrize(("engine", "weights", "m", "n", "k", "measured_us"), MEASURED)
def test_matrix_products_of_h100_are_within_a_fifth_of_single_measurements(
    engine: str, weights: str, m: int, n: int, k: int, measured_us: float
) -> None:
    chip, cal = case("h100-sxm", engine)
    assert float(roofline.gemm_s(m, n, k, weights, chip, cal)) * 1e6 == pytest.approx(measured_us, rel=0.20)


def test_rule_of_thumb_is_bytes_and_operations_over_shares_of_the_peaks() -> None:
    # Qwen3-8B's largest layer product by hand: 4096 x 12288 x 2 B over 0.7 x 3.35e12 B/s = 42.93 us.
    chip = gpu("h100-sxm")
    cal = calibration("rule-of-thumb", chip)
    assert float(roofline.gemm_s(1, 12288, 4096, "bf16", chip, cal)) == pytest.approx(42.926e-6, rel=1e-4)
    # and 2 x 8192 x 4096 x 12288 over 0.5 x 989.4e12 FLOP/s = 1.6670 ms
    assert float(roofline.gemm_s(8192, 12288, 4096, "bf16", chip, cal)) == pytest.approx(1.6670e-3, rel=1e-3)


@pytest.mark.parametrize("name", GPUS)
@settings(max_examples=40, deadline=None)
@given(m=st.integers(1, 20000), n=st.integers(64, 40000), k=st.integers(64, 40000))
def test_no_product_beats_the_peaks(name: str, m: int, n: int, k: int) -> None:
    chip, cal = case(name)
    time_s = float(roofline.gemm_s(m, n, k, "bf16", chip, cal))
    assert time_s >= n * k * 2.0 / chip.memory_bandwidth_bytes_per_s
    assert time_s >= 2.0 * m * n * k / chip.peak_flops_per_s["bf16"]


@pytest.mark.parametrize("weights", ["bf16", "fp8", "fp8_block", "nvfp4", "int8", "int4", "mxfp4", "int8_w8a16"])
@pytest.mark.parametrize("name", GPUS)
def test_every_format_runs_on_every_gpu_and_more_tokens_never_take_less_time_by_much(name: str, weights: str) -> None:
    chip, cal = case(name)
    m = np.array([1, 2, 8, 32, 128, 512, 2048, 8192, 32768.0])
    time_s = roofline.gemm_s(m, 8192, 4096, weights, chip, cal)
    assert np.all(np.isfinite(time_s))
    assert np.all(np.diff(time_s) > -0.02 * time_s[:-1])


def test_a_format_without_tensor_cores_runs_as_weight_only() -> None:
    a100, h100, b200 = gpu("a100-80-sxm"), gpu("h100-sxm"), gpu("b200-hgx")
    assert roofline.kernel_format("fp8", a100)[:2] == ("int8_weight", a100.peak_flops_per_s["bf16"])
    assert roofline.kernel_format("fp8", h100)[:2] == ("fp8", h100.peak_flops_per_s["fp8"])
    assert roofline.kernel_format("nvfp4", h100)[0] == "int4_weight"
    assert roofline.kernel_format("nvfp4", b200) == ("nvfp4", b200.peak_flops_per_s["fp4"], 0.5625)
    assert roofline.kernel_format("fp8_block", h100)[0] == "fp8_block"


@pytest.mark.parametrize(
    ("name", "engine", "weights"),
    [("h100-sxm", "vllm", "fp8"), ("b200-hgx", "vllm", "fp8"), ("b200-hgx", "trtllm", "nvfp4")],
)
def test_a_scale_a_tensor_lets_the_kernel_before_quantise(name: str, engine: str, weights: str) -> None:
    # What a table of single calls holds more: a fixed cost above the 16-bit kernel's, and the pass over the input.
    chip = gpu(name)
    cal = calibration("measured", chip, engine)
    kernel, m, k = roofline.kernel_format(weights, chip)[0], np.array([1.0, 32.0, 1024.0, 16384.0]), 8192
    cal = cal.with_constants(f"gemm.{kernel}", fixed_s=9e-6, quantise_row_s=2e-9, quantise_fraction=0.5, scale=1.1)
    cal = cal.with_constants("gemm.bf16", fixed_s=4e-6)
    alone = roofline.gemm_s(m, 4096, k, weights, chip, cal)
    served = roofline.gemm_s(m, 4096, k, weights, chip, cal, fused=True)
    pass_s = np.maximum(m * 2e-9, 3.0 * m * k / (0.5 * chip.memory_bandwidth_bytes_per_s))
    assert alone - served == pytest.approx(1.1 * (5e-6 + pass_s), rel=1e-9)
    cheap = cal.with_constants(f"gemm.{kernel}", fixed_s=3e-6)  # a kernel that starts sooner is not slowed down
    assert served - roofline.gemm_s(m, 4096, k, weights, chip, cheap, fused=True) == pytest.approx(1.1e-6, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "weights"),
    [("h100-sxm", x) for x in ("bf16", "fp8_block", "int8", "int4", "int8_w8a16", "mxfp4")] + [("b200-hgx", "nvfp4")],
)
def test_no_other_format_is_quantised_by_the_kernel_before(name: str, weights: str) -> None:
    # NVFP4 on B200 is vLLM's, which quantises in a kernel of its own.
    chip = gpu(name)
    cal = calibration("measured", chip, "vllm")
    m = np.array([1.0, 64.0, 4096.0])
    alone = roofline.gemm_s(m, 4096, 8192, weights, chip, cal)
    assert np.array_equal(roofline.gemm_s(m, 4096, 8192, weights, chip, cal, fused=True), alone)


@pytest.mark.parametrize("name", ["h100-sxm", "b200-hgx"])
def test_products_of_a_served_model_are_no_slower_in_half_the_bytes(name: str) -> None:
    chip, cal = case(name)
    m = np.array([1.0, 16.0, 256.0, 8192.0])
    narrow = roofline.gemm_s(m, 8192, 8192, "fp8", chip, cal, fused=True)
    assert np.all(narrow < roofline.gemm_s(m, 8192, 8192, "bf16", chip, cal))


def test_arrays_agree_with_scalars_and_broadcast() -> None:
    chip, cal = case("h100-sxm")
    m, n = np.array([1.0, 7.0, 300.0]), np.array([[1024.0], [4096.0]])
    both = roofline.gemm_s(m, n, 4096, "fp8", chip, cal)
    assert both.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            assert both[i, j] == pytest.approx(float(roofline.gemm_s(m[j], n[i, 0], 4096, "fp8", chip, cal)), rel=1e-12)


def test_draws_come_first_and_straddle_the_nominal_value() -> None:
    chip, cal = case("h100-sxm")
    drawn = cal.draws(400, seed=3)
    times = roofline.attention_decode_s([1.0, 64.0, 512.0], [2048.0, 131072.0, 1e6], 32, 8, 128, 2, chip, drawn)
    nominal = roofline.attention_decode_s([1.0, 64.0, 512.0], [2048.0, 131072.0, 1e6], 32, 8, 128, 2, chip, cal)
    assert times.shape == (400, 3)
    below = np.mean(times < nominal, axis=0)
    assert np.all((below > 0.3) & (below < 0.7))


@pytest.mark.parametrize("name", GPUS)
@settings(max_examples=40, deadline=None)
@given(batch=st.integers(1, 512), context=st.integers(1, 60000))
def test_decode_attention_reads_its_cache_no_faster_than_memory_allows(name: str, batch: int, context: int) -> None:
    chip, cal = case(name)
    time_s = float(roofline.attention_decode_s(batch, batch * context, 32, 8, 128, 2, chip, cal))
    assert time_s >= batch * context * 8 * 256 * 2 / chip.memory_bandwidth_bytes_per_s


def walking(name: str) -> tuple[Gpu, Calibration]:
    chip, cal = case(name, "trtllm")
    whole = replace(cal.decode("attention_decode"), whole=1.0)
    return chip, replace(cal, families={**cal.families, "attention_decode": whole})


# TPOT of one user of NIM (NVIDIA DLI course data, ids nimcsv-...), milliseconds at two contexts, Llama-3 in 16 bit.
@pytest.mark.parametrize(
    ("name", "heads", "kv_heads", "layers", "near", "far", "near_ms", "far_ms"),
    [("h100-sxm", 32, 8, 32, 700, 7500, 7.38, 9.17), ("h100-sxm", 8, 1, 80, 2100, 7500, 15.60, 19.11),
     ("a100-80-sxm", 32, 8, 32, 300, 3000, 12.08, 13.09), ("a100-80-sxm", 16, 2, 80, 2100, 7500, 31.61, 36.80)],
)  # fmt: skip
def test_one_block_walks_a_whole_cache_as_slowly_as_measured(
    name: str, heads: int, kv_heads: int, layers: int, near: int, far: int, near_ms: float, far_ms: float
) -> None:
    chip, cal = walking(name)
    near_s, far_s = (
        float(roofline.attention_decode_s(1, tokens, heads, kv_heads, 128, 2, chip, cal)) for tokens in (near, far)
    )
    assert layers * (far_s - near_s) * 1e3 == pytest.approx(far_ms - near_ms, rel=0.2)


def test_blocks_of_a_query_head_come_in_waves_until_enough_sequences_share() -> None:
    chip, cal = walking("h100-sxm")
    fits, over = (float(roofline.attention_decode_s(b, b * 4000, 32, 8, 128, 2, chip, cal)) for b in (4, 5))
    walk_s = 4000 * 256 / (2.2 * chip.memory_bandwidth_bytes_per_s / 132 / 2)
    assert over - fits == pytest.approx(walk_s, rel=1e-6)
    # a group of eight shares from a quarter of the multiprocessors on: 33 of 132
    _, plain = case("h100-sxm", "trtllm")
    for batch, shares in ((32, False), (33, True)):
        given_s, usual_s = (
            float(roofline.attention_decode_s(batch, batch * 4000, 8, 1, 128, 2, chip, c)) for c in (cal, plain)
        )
        assert (given_s == usual_s) == shares


def test_longer_contexts_and_larger_batches_take_longer() -> None:
    chip, cal = case("b200-hgx")
    context = np.geomspace(1, 131072, 60)
    assert np.all(np.diff(roofline.attention_decode_s(8, 8 * context, 32, 8, 128, 2, chip, cal)) >= 0)
    batch = np.arange(1, 600.0)
    assert np.all(np.diff(roofline.attention_decode_s(batch, batch * 900, 32, 8, 128, 2, chip, cal)) >= -1e-12)


# AIConfigurator 0.12.0 tables (Apache-2.0), microseconds; heads, KV heads, bytes of an element, batch, context.
DECODED = [
    ("a100-80-sxm", "vllm", 32, 8, 2, 16, 1024, 69.4),
    ("a100-80-sxm", "vllm", 32, 8, 2, 1, 64, 12.9),
    ("a100-80-sxm", "vllm", 8, 8, 2, 1, 8192, 198.3),
    ("h100-sxm", "trtllm", 32, 8, 2, 1024, 2, 298.2),
    ("h100-sxm", "trtllm", 32, 32, 2, 1024, 2, 354.5),
    ("h100-sxm", "trtllm", 32, 8, 1, 256, 1024, 187.9),
    ("b200-hgx", "trtllm", 64, 1, 2, 64, 4096, 1182.8),
    ("b200-hgx", "trtllm", 64, 64, 2, 16, 4096, 302.3),
]


@pytest.mark.parametrize(("name", "engine", "heads", "kv_heads", "size", "batch", "context", "measured_us"), DECODED)
def test_decode_kernels_of_each_kind_are_within_a_third_of_single_measurements(
    name: str, engine: str, heads: int, kv_heads: int, size: int, batch: int, context: int, measured_us: float
) -> None:
    chip, cal = case(name, engine)
    time_s = roofline.attention_decode_s(batch, batch * context, heads, kv_heads, 128, size, chip, cal, resident=True)
    if kv_heads == 1:  # 64 heads of one KV head: each reads for itself; the rate of L2 differs by chip
        assert 0.5 < float(time_s) * 1e6 / measured_us < 1.5
    else:
        assert float(time_s) * 1e6 == pytest.approx(measured_us, rel=0.34)


def test_heads_beyond_what_a_kernel_shares_read_the_cache_for_themselves() -> None:
    chip, cal = case("b200-hgx", "trtllm")
    assert cal.decode("attention_decode").shared_heads == 32.0
    shared = float(roofline.attention_decode_s(64, 64 * 4096, 32, 1, 128, 2, chip, cal))
    apart = float(roofline.attention_decode_s(64, 64 * 4096, 33, 1, 128, 2, chip, cal))
    assert apart > 10 * shared


def test_unpacking_a_one_byte_cache_bounds_the_rate_and_leaves_two_bytes_alone() -> None:
    chip, cal = case("h200-sxm")
    slow = cal.with_constants("attention_decode", element_s=1e-10)
    elements = 64 * 16384 * 8 * 256
    narrow = float(roofline.attention_decode_s(64, 64 * 16384, 32, 8, 128, 1, chip, slow))
    assert narrow >= elements * 1e-10 / chip.sm_count
    assert float(roofline.attention_decode_s(64, 64 * 16384, 32, 8, 128, 2, chip, slow)) == float(
        roofline.attention_decode_s(64, 64 * 16384, 32, 8, 128, 2, chip, cal)
    )


@pytest.mark.parametrize("engine", ["vllm", "trtllm"])
@pytest.mark.parametrize("name", ["a100-80-sxm", "h100-sxm", "h200-sxm", "l40s"])
def test_more_sequences_never_take_less_time_where_splitting_stops(name: str, engine: str) -> None:
    chip, cal = case(name, engine)
    batch = np.arange(1, 400.0)
    for kv_heads in (1, 2, 8):
        for context in (100, 500, 2000):
            time_s = roofline.attention_decode_s(batch, batch * context, 32, kv_heads, 128, 2, chip, cal)
            assert np.all(np.maximum.accumulate(time_s) - time_s <= 0.03 * time_s)


def test_quantising_for_a_one_byte_prefill_costs_its_traffic() -> None:
    chip, cal = case("h100-sxm", "trtllm")
    assert cal.prefill("mla_prefill").quantises == 1.0
    plain = cal.with_constants("mla_prefill", quantises=0.0)
    tokens, heads = 8192, 128
    at = (tokens, tokens * (tokens + 1) / 2, heads, 192, 128, chip)
    with_it = cal.with_constants("mla_prefill", narrow=1.0)
    more = float(roofline.mla_prefill_s(*at, with_it, kv_bytes=1)) - float(
        roofline.mla_prefill_s(*at, plain, kv_bytes=1)
    )
    # two bytes read and one written of 192 + 192 + 128 elements a token and head
    moved = 3 * tokens * heads * (192 + 192 + 128)
    assert more == pytest.approx(float(roofline.elementwise_s(moved, chip, cal)), rel=1e-3)
    assert float(roofline.mla_prefill_s(*at, cal)) == float(roofline.mla_prefill_s(*at, plain))


def test_half_the_cache_bytes_take_less_time_at_long_contexts() -> None:
    chip, cal = case("h100-sxm")
    wide = roofline.attention_decode_s(64, 64 * 16384, 32, 8, 128, 2, chip, cal)
    narrow = roofline.attention_decode_s(64, 64 * 16384, 32, 8, 128, 1, chip, cal)
    assert 0.45 < float(narrow / wide) < 0.65


@pytest.mark.parametrize("name", GPUS)
@settings(max_examples=40, deadline=None)
@given(tokens=st.integers(1, 16384), history=st.integers(0, 65536))
def test_prefill_attention_stays_below_the_peak_and_grows_with_history(name: str, tokens: int, history: int) -> None:
    chip, cal = case(name)
    pairs = tokens * history + tokens * (tokens + 1) / 2
    time_s = float(roofline.attention_prefill_s(tokens, pairs, 32, 8, 128, 2, chip, cal))
    assert time_s >= 2.0 * pairs * 32 * 256 / chip.peak_flops_per_s["bf16"]
    assert time_s >= float(roofline.attention_prefill_s(tokens, tokens * (tokens + 1) / 2, 32, 8, 128, 2, chip, cal))


def test_a_prompt_in_chunks_costs_about_the_same_attention_as_in_one_go() -> None:
    chip, cal = case("h100-sxm")
    whole = float(roofline.attention_prefill_s(16384, 16384 * 16385 / 2, 32, 8, 128, 2, chip, cal))
    start = np.arange(0, 16384, 2048.0)
    chunks = roofline.attention_prefill_s(2048, 2048 * start + 2048 * 2049 / 2, 32, 8, 128, 2, chip, cal)
    assert float(chunks.sum()) == pytest.approx(whole, rel=0.25)


def test_distinct_experts_follow_the_closed_form() -> None:
    # E (1 - (1 - k/E)^m): 8 of 128, 16 tokens: 128 (1 - (15/16)^16) = 82.415
    assert float(roofline.distinct_experts(16, 128, 8)) == pytest.approx(82.42, abs=0.01)
    assert float(roofline.distinct_experts(1, 256, 8)) == pytest.approx(8.0)
    assert float(roofline.distinct_experts(1e6, 8, 2)) == pytest.approx(8.0)


def drawn_experts(tokens: int, experts: int, top_k: int, spread: float, draws: int = 300) -> float:
    """Distinct experts when a token's are drawn one by one, without repetition, by lognormal popularity. [expert]"""
    rng = np.random.default_rng(7)
    seen = 0
    for _ in range(draws):
        popular = rng.normal(0.0, spread, experts)
        score = popular + rng.gumbel(size=(tokens, experts))  # the k largest are k draws without repetition
        seen += len(np.unique(np.argpartition(-score, top_k - 1, axis=1)[:, :top_k]))
    return seen / draws


@pytest.mark.parametrize(("experts", "top_k"), [(8, 2), (16, 1), (128, 8), (256, 8), (512, 10)])
def test_a_router_without_preferences_is_an_even_one(experts: int, top_k: int) -> None:
    tokens = np.geomspace(1, 4096, 13)
    even = roofline.distinct_experts(tokens, experts, top_k)
    assert roofline.routed_experts(tokens, experts, top_k, 0.0).tolist() == even.tolist()
    assert roofline.routed_experts(tokens, experts, top_k, 1e-3) == pytest.approx(even, rel=1e-4)


@pytest.mark.parametrize(("experts", "top_k"), [(8, 2), (16, 1), (128, 8), (256, 8), (128, 4), (512, 10)])
@pytest.mark.parametrize("spread", [0.5, 1.0, 1.5])
def test_preferred_experts_are_fewer_never_more_and_all_in_the_end(experts: int, top_k: int, spread: float) -> None:
    tokens = np.geomspace(1, 1e6, 40)
    found = roofline.routed_experts(tokens, experts, top_k, spread)
    assert np.all(np.diff(found) > -1e-9)
    assert np.all(found <= roofline.distinct_experts(tokens, experts, top_k) + 1e-9)
    assert np.all(found <= experts + 1e-9)
    assert found[-1] == pytest.approx(experts, rel=2e-3)
    wider = roofline.routed_experts(tokens, experts, top_k, spread + 0.3)
    assert np.all(wider <= found + 1e-9)
    assert float(roofline.routed_experts(0, experts, top_k, spread)) == 0.0


@pytest.mark.parametrize(("experts", "top_k"), [(8, 2), (16, 1), (128, 8), (256, 8), (128, 4), (512, 10)])
def test_one_token_goes_to_its_number_of_experts(experts: int, top_k: int) -> None:
    found = roofline.routed_experts(np.array([1.0, 2.0, 8.0]), experts, top_k, 1.0)
    assert found[0] == pytest.approx(top_k, rel=5e-3)
    assert np.all(found >= top_k * (1 - 5e-3))


@pytest.mark.parametrize(("experts", "top_k"), [(8, 2), (16, 1), (128, 8), (256, 8), (128, 4)])
def test_preferred_experts_are_as_many_as_drawn_one_by_one(experts: int, top_k: int) -> None:
    for tokens in (2, 8, 32, 128):
        found = float(roofline.routed_experts(tokens, experts, top_k, 1.0))
        assert found == pytest.approx(drawn_experts(tokens, experts, top_k, 1.0), rel=0.03), tokens


def test_expert_parallel_ranks_share_the_expert_bytes() -> None:
    chip, cal = case("h100-sxm", "trtllm")
    alone = roofline.moe_s(64, 7168, 2048, 256, 8, "fp8_block", chip, cal)
    eighth = roofline.moe_s(64, 7168, 2048, 256, 8, "fp8_block", chip, cal, local_experts=32)
    assert 0.10 < float(eighth / alone) < 0.25
    assert float(alone) >= float(roofline.distinct_experts(64, 256, 8)) * 3 * 7168 * 2048 / 3.35e12


@pytest.mark.parametrize("heads", [16, 128])
def test_latent_attention_in_absorbed_form_reads_one_cache_for_all_heads(heads: int) -> None:
    chip, cal = case("h200-sxm", "trtllm")
    long = float(roofline.mla_decode_s(32, 32 * 65536, heads, 512, 64, 2, chip, cal))
    assert long >= 32 * 65536 * 576 * 2 / chip.memory_bandwidth_bytes_per_s
    assert long < 3 * 32 * 65536 * 576 * 2 / chip.memory_bandwidth_bytes_per_s


def test_small_kernels_cost_their_traffic_and_their_calls() -> None:
    chip, cal = case("h100-sxm")
    one = float(roofline.elementwise_s(0.0, chip, cal))
    assert float(roofline.elementwise_s(0.0, chip, cal, calls=5)) == pytest.approx(5 * one)
    moved = float(roofline.elementwise_s(1e9, chip, cal)) - one
    assert moved == pytest.approx(1e9 / (cal.elementwise.memory_fraction * 3.35e12))
    assert float(roofline.elementwise_s(1e9, chip, calibration("rule-of-thumb", chip))) == 0.0
