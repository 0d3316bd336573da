"""Caches and states of each kind of layer, worked out from the models' published sizes."""

import pytest

from sizing.architecture import model_from_config, read_model

# layers x what one layer keeps, from each model's own config
CACHE_ELEMENTS = [
    ("Qwen/Qwen3-8B", 36 * 2 * 8 * 128),
    ("tiiuae/falcon-7b", 32 * 2 * 1 * 64),  # multi_query: one KV head
    ("openai-community/gpt2", 12 * 2 * 12 * 64),
    ("deepseek-ai/DeepSeek-V2-Lite", 27 * (512 + 64)),
    ("moonshotai/Kimi-K2-Instruct", 61 * (512 + 64)),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", 12 * 2 * 2 * 256),
    ("Qwen/Qwen3.5-9B", 8 * 2 * 4 * 256),
    ("ai21labs/AI21-Jamba-Large-1.5", 9 * 2 * 8 * 128),
    ("ibm-granite/granite-4.0-h-tiny", 4 * 2 * 4 * 128),
    ("MiniMaxAI/MiniMax-M1-80k", 10 * 2 * 8 * 128),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 6 * 2 * 2 * 128),
    ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", 49 * 2 * 8 * 128),
    ("google/gemma-4-26B-A4B", 5 * 2 * 2 * 512 + 25 * 2 * 8 * 256),
    ("BAAI/bge-base-en-v1.5", 0),
]


@pytest.mark.parametrize(("name", "elements"), CACHE_ELEMENTS)
def test_cache_elements_a_token(name: str, elements: int) -> None:
    assert read_model(name).kv_bytes_per_token("fp8") == elements


# recurrent layers x (state + the convolution's last inputs)
STATE_ELEMENTS = [
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", 36 * (32 * 128 * 128 + 3 * (2 * 16 * 128 + 32 * 128))),
    ("ai21labs/AI21-Jamba-Large-1.5", 63 * 16_384 * (16 + 3)),
    ("ibm-granite/granite-4.0-h-micro", 36 * (64 * 64 * 128 + 3 * (64 * 64 + 2 * 128))),
    ("MiniMaxAI/MiniMax-M1-80k", 70 * 64 * 128 * 128),
    ("nvidia/Nemotron-H-56B-Base-8K", 54 * (256 * 64 * 256 + 3 * (256 * 64 + 2 * 8 * 256))),
    ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", 27 * (128 * 80 * 128 + 3 * (128 * 80 + 2 * 8 * 128))),
]


@pytest.mark.parametrize(("name", "elements"), STATE_ELEMENTS)
def test_state_elements_a_sequence(name: str, elements: int) -> None:
    model = read_model(name)
    found = sum(layer.count * (layer.mixer.state_elements + layer.mixer.conv_elements) for layer in model.layers)
    assert found == elements


WINDOWS = [
    ("google/gemma-2-27b-it", 23, 4096),
    ("google/gemma-3-27b-it", 52, 1024),
    ("google/gemma-3-1b-it", 22, 512),
    ("openai/gpt-oss-20b", 12, 128),
    ("CohereLabs/c4ai-command-r7b-12-2024", 24, 4096),
    ("mistralai/Mistral-7B-v0.1", 32, 4096),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 36, 8192),
    ("microsoft/Phi-3-mini-4k-instruct", 32, 2047),
    ("microsoft/Phi-4-mini-instruct", 0, None),  # a window longer than the context
    ("Qwen/Qwen2.5-7B", 0, None),  # printed but disabled
    ("mistralai/Mistral-7B-Instruct-v0.3", 0, None),
]


@pytest.mark.parametrize(("name", "layers", "window"), WINDOWS)
def test_windows(name: str, layers: int, window: int | None) -> None:
    model = read_model(name)
    windowed = [layer for layer in model.layers if layer.mixer.window is not None]
    assert sum(layer.count for layer in windowed) == layers
    assert {layer.mixer.window for layer in windowed} == ({window} if window else set())


def test_the_indexer_adds_132_bytes_a_token_and_layer() -> None:
    # memory.md: 1.115 of the BF16 cache, 1.229 of the FP8 cache
    model = read_model("deepseek-ai/DeepSeek-V3.2")
    assert model.kv_bytes_per_token("bf16") == 61 * (576 * 2 + 132)
    assert model.kv_bytes_per_token("bf16") / (61 * 576 * 2) == pytest.approx(1.115, abs=5e-4)
    assert model.kv_bytes_per_token("fp8") / (61 * 576) == pytest.approx(1.229, abs=5e-4)
    assert {layer.mixer.attended_tokens for layer in model.layers} == {2048}


def test_layers_that_share_an_indexer_cache_no_keys_for_it() -> None:
    model = read_model("zai-org/GLM-5.3")
    with_keys = sum(layer.count for layer in model.layers if layer.mixer.kv_extra_bytes_per_token)
    assert (model.num_layers, with_keys) == (78, 21)


def test_compressed_attention_of_deepseek_v4() -> None:
    model = read_model("deepseek-ai/DeepSeek-V4-Pro")
    ratios = [layer.mixer.kv_compression for layer in model.in_order()]
    assert (ratios.count(4), ratios.count(128)) == (30, 31)
    entries = 30 * 512 / 4 + 31 * 512 / 128
    assert model.kv_bytes_per_token("fp8") == pytest.approx(entries + 30 * 132 / 4)
    assert model.kv_bytes(1_000, "fp8") == pytest.approx(1_000 * (entries + 30 * 33) + 61 * 128 * 512)


def test_blocks_are_not_layers() -> None:
    model = read_model("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8")
    assert model.num_layers == 88
    assert all("none" in {layer.mixer.kind, layer.feed_forward.kind} for layer in model.layers)
    latent = {layer.feed_forward.latent_size for layer in model.layers if layer.feed_forward.experts}
    assert latent == {1024}


def test_keys_wider_than_values() -> None:
    # MiMo-V2: K 192, V 128; 4 KV heads where attention is full, 8 in the window
    config = {
        "model_type": "mimo_v2_flash", "hidden_size": 4096, "num_hidden_layers": 12, "num_attention_heads": 64,
        "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "swa_num_key_value_heads": 8,
        "swa_head_dim": 192, "swa_v_head_dim": 128, "sliding_window": 128, "intermediate_size": 16384,
        "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0], "vocab_size": 152576, "n_routed_experts": 256,
        "moe_layer_freq": [0] + [1] * 11, "moe_intermediate_size": 2048, "num_experts_per_tok": 8,
    }  # fmt: skip
    model = model_from_config(config)
    per_layer = {layer.mixer.kind: (layer.mixer.kv_elements_per_token, layer.count) for layer in model.layers[1:]}
    assert per_layer["sliding"] == (8 * (192 + 128), 9)
    assert sum(layer.count for layer in model.layers if layer.mixer.kv_elements_per_token == 4 * 320) == 3
    assert sum(layer.count for layer in model.layers if layer.feed_forward.experts) == 11


def test_layers_that_share_a_cache_keep_none() -> None:
    config = {
        "model_type": "gemma4_text", "hidden_size": 1536, "num_hidden_layers": 35, "num_attention_heads": 8,
        "num_key_value_heads": 1, "head_dim": 256, "global_head_dim": 512, "intermediate_size": 6144,
        "num_kv_shared_layers": 20, "use_double_wide_mlp": True, "sliding_window": 512, "vocab_size": 262144,
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7, "max_position_embeddings": 131072,
    }  # fmt: skip
    model = model_from_config(config)
    keeping = [layer for layer in model.in_order() if layer.mixer.kv_elements_per_token]
    assert len(keeping) == 15
    assert model.kv_bytes_per_token("fp8") == 12 * 2 * 256 + 3 * 2 * 512
    widths = [layer.feed_forward.linears[0].outputs for layer in model.in_order()]
    assert widths == [6144] * 15 + [12_288] * 20


def test_flops_of_a_dense_model_are_two_a_weight_and_the_attention() -> None:
    model = read_model("Qwen/Qwen3-8B")
    weights = model.parameters - model.embedding.parameters
    assert model.flops_per_token(0) == 2 * weights
    assert model.flops_per_token(1_000) - model.flops_per_token(0) == 4 * 36 * 32 * 128 * 1_000


def test_pipeline_stages_hold_whole_layers() -> None:
    model = read_model("Qwen/Qwen3-8B")
    layer = model.layers[0].weights_bytes(None, _bf16())
    assert model.weights_bytes(pp=4) == pytest.approx(9 * layer + 2 * model.embedding.parameters + 2 * 4096, rel=1e-9)
    assert model.kv_bytes_per_token("bf16", pp=4) == 9 * 4096


def _bf16():
    from sizing.formats import weight_format

    return weight_format("bf16")
