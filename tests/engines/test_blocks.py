"""The hybrid cache manager held against start-up logs (data/measured/memory.csv, by id) and config facts."""

import pytest

from sizing.architecture import model_from_config
from sizing.catalog import gpu
from sizing.deployment import Deployment, EngineSettings, NumberFormats, Parallelism
from sizing.engines.blocks import block_pools
from sizing.memory import memory_budget

GIB = 2**30
GPT_OSS_120B = {
    "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "hidden_size": 2880, "intermediate_size": 2880,
    "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
    "num_local_experts": 128, "num_experts_per_tok": 4, "sliding_window": 128, "vocab_size": 201088,
    "max_position_embeddings": 131072, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "layer_types": ["sliding_attention", "full_attention"] * 18,
}  # fmt: skip
QWEN35_9B = {
    "model_type": "qwen3_5", "architectures": ["Qwen3_5ForCausalLM"], "hidden_size": 4096, "vocab_size": 248320,
    "intermediate_size": 12288, "num_hidden_layers": 32, "num_attention_heads": 16, "num_key_value_heads": 4,
    "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "max_position_embeddings": 262144,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 8,
}  # fmt: skip


def gemma3(layers):
    return {
        "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "hidden_size": 2560, "head_dim": 256,
        "intermediate_size": 10240, "num_hidden_layers": layers, "num_attention_heads": 8, "num_key_value_heads": 4,
        "vocab_size": 262208, "max_position_embeddings": 131072, "sliding_window": 1024, "torch_dtype": "bfloat16",
        "sliding_window_pattern": 6,
    }  # fmt: skip


def rank_of(config, tp=1, kv="auto", **settings):
    deployment = Deployment(
        model=model_from_config(config, name="m"), gpu=gpu("a100-80-sxm"), parallelism=Parallelism(tp=tp),
        formats=NumberFormats(kv=kv), settings=EngineSettings(**settings),
    )  # fmt: skip
    return memory_budget(deployment).rank


def test_gpt_oss_windows_save_nothing_in_blocks_and_a_lot_in_concurrency():
    # DL01: TP4, 45.32 GiB -> 2,640,144 tokens printed, 284.25 requests of 16,384 with 2,048 tokens a step
    rank = rank_of(GPT_OSS_120B, tp=4, max_model_len=16384, max_num_batched_tokens=2048, version="0.10.1.1")
    (pool,) = block_pools(rank, 45.32 * GIB)
    assert pool.printed_tokens == pytest.approx(2_640_144, rel=1e-3)
    assert 45.32 * GIB / pool.printed_tokens == pytest.approx(73_728 / 4, rel=1e-3)
    assert float(pool.requests(16384)) == pytest.approx(284.25, rel=1e-3)
    assert pool.printed_tokens / 16384 == pytest.approx(161.1, rel=1e-3)  # what the token line suggests


def test_a_budget_as_long_as_the_request_saves_nothing():
    # a sliding group is charged min(length, window - 1 + tokens of a step), and one block more
    rank = rank_of(GPT_OSS_120B, max_model_len=8192, max_num_batched_tokens=8192, version="0.19.0")
    (pool,) = block_pools(rank, 60 * GIB)
    assert float(pool.blocks_per_request(8192)) == 2 * 512 + 1


def test_recurrent_layers_lengthen_attention_blocks_and_divide_the_printed_tokens():
    # IS085: Qwen3.5-9B, TP2, 15.06 GiB -> 246,576 tokens, 169.82 requests of 4,096
    rank = rank_of(QWEN35_9B, tp=2, max_model_len=4096)
    (pool,) = block_pools(rank, 15.06 * GIB)
    assert [group.block_tokens for group in pool.groups] == [528] * 4
    assert sorted(group.kind for group in pool.groups) == ["full", "state", "state", "state"]
    assert pool.printed_tokens == pytest.approx(246_576, rel=2e-3)
    assert float(pool.requests(4096)) == pytest.approx(169.82, rel=2e-3)


@pytest.mark.parametrize(("layers", "padded"), [(62, 70), (34, 35)])
def test_sliding_layers_are_padded_to_whole_groups(layers, padded):
    # "Add N padding layers": Gemma-3-27B 70/62, Gemma-3-4B 35/34
    (pool,) = block_pools(rank_of(gemma3(layers)), 20 * GIB)
    assert sum(group.layers for group in pool.groups) == padded


def test_pages_are_unified_where_layers_differ_in_bytes_a_token():
    # Gemma-4-31B: 10 full layers (4 heads x 512), 50 sliding (16 x 256): 60 x 8,192 instead of
    # 10 x 4,096 + 50 x 8,192 elements, a factor of 1.091
    config = gemma3(60) | {
        "model_type": "gemma4_text", "architectures": ["Gemma4ForCausalLM"], "num_attention_heads": 32,
        "num_key_value_heads": 16, "num_global_key_value_heads": 4, "global_head_dim": 512, "hidden_size": 5376,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 10, "attention_k_eq_v": True,
    }  # fmt: skip
    rank = rank_of(config)
    plain = rank.model.kv_bytes_per_token("bf16")
    (pool,) = block_pools(rank, 100 * GIB)
    assert 100 * GIB / pool.printed_tokens / plain == pytest.approx(1.091, rel=2e-3)


def test_without_the_hybrid_manager_windows_are_cached_in_full():
    # vLLM V0 cached every Gemma-3 layer in full
    (pool,) = block_pools(rank_of(gemma3(62)), 20 * GIB, hybrid=False)
    assert len(pool.groups) == 1
    assert pool.groups[0].layers == 62


def test_decode_context_parallel_divides_bytes_and_multiplies_tokens():
    config = {
        "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168,
        "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512,
        "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "first_k_dense_replace": 3, "vocab_size": 129280,
        "max_position_embeddings": 163840, "torch_dtype": "bfloat16",
    }  # fmt: skip
    model = model_from_config(config, name="deepseek")
    budgets = [
        memory_budget(Deployment(model=model, gpu=gpu("b200"), parallelism=Parallelism(tp=8, cp=cp),
                                 formats=NumberFormats(weights="fp8_block")))
        for cp in (1, 8)
    ]  # fmt: skip
    assert budgets[0].kv_bytes_per_token == 70_272
    assert budgets[1].kv_bytes_per_token == 70_272 / 8
    assert budgets[1].printed_tokens == 8 * budgets[0].printed_tokens
