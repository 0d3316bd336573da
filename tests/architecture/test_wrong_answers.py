"""Wrong answers that other tools shipped about parameters and caches, each with the right value.

The right values are those of issue 2's list of shipped errors; each is also worked out here by hand from the
model's published sizes.
"""

import pytest

from sizing.architecture import model_from_config, read_model

GIB, MIB = 2**30, 2**20


def test_the_cache_of_a_70b_is_divided_by_tensor_parallelism() -> None:
    model = read_model("meta-llama/Llama-3.3-70B-Instruct")
    # 80 layers x 8 KV heads x 128 x (K and V) x 2 bytes, one of eight KV heads a GPU
    assert model.kv_bytes_per_token("bf16", tp=8) == 80 * 8 * 128 * 2 * 2 / 8 == 40_960
    room = 0.9 * 85.5e9 - model.weights_bytes(tp=8)
    assert 1.40e6 < room / 40_960 < 1.50e6  # right about 1.45 million, shipped 181,648


@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [
        ("Qwen/Qwen3-235B-A22B", 192_512),  # head_dim 128, not 4096 / 64 (96,256)
        ("deepseek-ai/DeepSeek-V3", 70_272),  # latent, not MHA (1,748,992), nor 124,928
        ("openai/gpt-oss-120b", 73_728),  # as vLLM's allocator has it: every layer
        ("nvidia/Nemotron-H-56B-Base-8K", 40_960),  # 10 attention blocks of 118, not all of them
    ],
)
def test_bytes_a_token(name: str, bytes_per_token: float) -> None:
    assert read_model(name).kv_bytes_per_token("bf16") == bytes_per_token


def test_gpt_oss_by_architecture_alone() -> None:
    model = read_model("openai/gpt-oss-120b")
    full = sum(layer.count * layer.mixer.kv_bytes_per_token() for layer in model.layers if layer.mixer.window is None)
    assert full == 36_864


def test_embeddings_and_head_count() -> None:
    assert read_model("meta-llama/Meta-Llama-3-8B").parameters == 8_030_261_248  # shipped 6.98B


# Model cards: parameters; recurrent, MLP and attention blocks.
@pytest.mark.parametrize(
    ("name", "billions", "blocks"),
    [("nvidia/NVIDIA-Nemotron-Nano-9B-v2", 8.89, {27, 25, 4}),
     ("nvidia/NVIDIA-Nemotron-Nano-12B-v2", 12.31, {28, 6})],
)  # fmt: skip
def test_hybrids_count_each_kind_of_block(name: str, billions: float, blocks: set[int]) -> None:
    model = read_model(name)
    assert round(model.parameters / 1e9, 2) == billions
    assert {layer.count for layer in model.layers} == blocks
    attention = min(blocks)
    assert model.kv_bytes_per_token("bf16") == attention * 8 * 128 * 2 * 2


def test_swiglu_has_three_matrices() -> None:
    layer = read_model("meta-llama/Meta-Llama-3-8B").layers[0]
    assert sum(linear.parameters for linear in layer.feed_forward.linears) == 3 * 4096 * 14_336


@pytest.mark.parametrize(
    ("name", "mib"),
    [("google/gemma-3-27b-it", 2_976), ("Qwen/Qwen3-Next-80B-A3B-Instruct", 768)],
)
def test_cache_at_32k(name: str, mib: float) -> None:
    model = read_model(name)
    assert model.kv_bytes(32_768, "bf16") - model.state_bytes() == mib * MIB


@pytest.mark.parametrize(
    ("name", "tokens", "gib"),
    [
        ("google/gemma-3-27b-it", 131_072, 10.4),  # shipped 81.4
        ("deepseek-ai/DeepSeek-V3", 163_840, 10.72),  # V3.1 has the same sizes; shipped 2.08
        ("Qwen/Qwen3-0.6B", 40_960, 4.38),  # shipped 2.19
    ],
)
def test_cache_at_full_context(name: str, tokens: int, gib: float) -> None:
    places = 1 if gib == 10.4 else 2
    assert round(read_model(name).kv_bytes(tokens, "bf16") / GIB, places) == gib


def test_awq_is_four_bits_a_weight_and_not_packed_integers() -> None:
    # peers.md: int32 packing read as one weight an element gave 7.1 GB for a checkpoint of about 40
    model = read_model("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4")
    assert 39e9 < model.checkpoint_bytes < 41e9
    assert model.parameters == 70_553_706_496


def test_memory_of_a_mixture_is_that_of_all_experts() -> None:
    model = read_model("Qwen/Qwen3.5-35B-A3B")
    assert 70e9 < model.weights_bytes() < 75e9
    assert model.active_parameters < 4e9


def test_llama_4_interleaves_dense_and_routed_layers() -> None:
    maverick, scout = read_model("llama-4-maverick-17b-128e-instruct"), read_model("llama-4-scout-17b-16e-instruct")
    assert sum(layer.count for layer in maverick.layers if layer.feed_forward.experts) == 24
    assert sum(layer.count for layer in scout.layers if layer.feed_forward.experts) == 48


def test_data_parallel_attention_holds_a_full_copy() -> None:
    model = read_model("Qwen/Qwen3-235B-A22B")
    attention = sum(layer.count * sum(x.bytes() for x in layer.mixer.linears) for layer in model.layers)
    split, whole = model.weights_bytes(tp=8, ep=8), model.weights_bytes(tp=8, ep=8, attention_tp=1)
    assert whole - split == pytest.approx(attention * 7 / 8, rel=0.05)  # K and V heads are replicated already


def test_key_value_heads_are_replicated_beyond_their_number() -> None:
    model = read_model("Qwen/Qwen3-30B-A3B")  # 4 KV heads
    assert model.kv_bytes_per_token("bf16", tp=8) == model.kv_bytes_per_token("bf16", tp=4)
    assert model.kv_bytes_per_token("bf16", tp=4) == model.kv_bytes_per_token("bf16", tp=1) / 4


def test_a_latent_cache_is_not_divided() -> None:
    model = read_model("deepseek-ai/DeepSeek-V3")
    assert model.kv_bytes_per_token("bf16", tp=8) == model.kv_bytes_per_token("bf16", tp=1)


def test_an_unknown_type_is_named_and_not_passed_over() -> None:
    config = {"model_type": "brand_new", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
              "intermediate_size": 128, "vocab_size": 1000}  # fmt: skip
    assert any("brand_new" in warning for warning in model_from_config(config).warnings)
