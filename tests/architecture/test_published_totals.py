"""Parameter totals that models' authors publish, from the fields of their config.json: types of every age.

Each total is the element count of the model's safetensors files on the Hugging Face hub (tied copies once).
"""

import pytest

from sizing.architecture import model_from_config

MAMBA_4 = {"mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4,
           "mamba_expand": 2, "mamba_conv_bias": True}  # fmt: skip
CASES = {
    "THUDM/chatglm3-6b": (6_243_584_000, {
        "model_type": "chatglm", "hidden_size": 4096, "ffn_hidden_size": 13696, "num_layers": 28,
        "num_attention_heads": 32, "kv_channels": 128, "multi_query_attention": True, "multi_query_group_num": 2,
        "padded_vocab_size": 65024, "add_bias_linear": False, "add_qkv_bias": True, "tie_word_embeddings": False}),
    "baichuan-inc/Baichuan2-7B-Chat": (7_505_973_248, {
        "model_type": "baichuan", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "vocab_size": 125696, "tie_word_embeddings": False}),
    "Qwen/Qwen-72B": (72_287_920_128, {
        "model_type": "qwen", "hidden_size": 8192, "intermediate_size": 49152, "num_attention_heads": 64,
        "num_hidden_layers": 80, "vocab_size": 152064, "kv_channels": 128, "tie_word_embeddings": False}),
    "databricks/dbrx-instruct": (131_596_523_520, {
        "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352,
        "tie_word_embeddings": False, "attn_config": {"kv_n_heads": 8},
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}}),
    "mosaicml/mpt-7b": (6_649_286_656, {
        "model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "expansion_ratio": 4, "vocab_size": 50432,
        "no_bias": True, "attn_config": {"alibi": True}}),
    "facebook/opt-13b": (12_853_473_280, {
        "model_type": "opt", "hidden_size": 5120, "ffn_dim": 20480, "num_hidden_layers": 40,
        "num_attention_heads": 40, "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 5120}),
    "tiiuae/falcon-40b": (41_303_293_952, {
        "model_type": "RefinedWeb", "hidden_size": 8192, "n_head": 128, "n_layer": 60, "n_head_kv": 8, "bias": False,
        "vocab_size": 65024}),
    "EleutherAI/pythia-6.9b": (6_857_302_016, {
        "model_type": "gpt_neox", "hidden_size": 4096, "intermediate_size": 16384, "num_attention_heads": 32,
        "num_hidden_layers": 32, "vocab_size": 50432, "tie_word_embeddings": False}),
    "bigcode/starcoder": (15_517_456_384, {
        "model_type": "gpt_bigcode", "n_embd": 6144, "n_head": 48, "n_layer": 40, "n_inner": 24576,
        "multi_query": True, "vocab_size": 49152, "n_positions": 8192}),
    "stabilityai/stablelm-2-1_6b": (1_644_515_328, {
        "model_type": "stablelm", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 100352, "use_qkv_bias": True,
        "tie_word_embeddings": False}),
    "tencent/Hunyuan-A13B-Instruct": (80_393_183_232, {
        "model_type": "hunyuan_v1_moe", "hidden_size": 4096, "intermediate_size": 3072,
        "moe_intermediate_size": [3072] * 32, "num_experts": 64, "moe_topk": [8] * 32, "num_shared_expert": [1] * 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 32,
        "vocab_size": 128167, "tie_word_embeddings": True, "use_qk_norm": True}),
    "ibm-granite/granite-4.0-h-small": (32_207_337_984, {
        "model_type": "granitemoehybrid", "hidden_size": 4096, "intermediate_size": 768,
        "shared_intermediate_size": 1536, "num_local_experts": 72, "num_experts_per_tok": 10,
        "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 40, "vocab_size": 100352,
        "layer_types": (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4, "tie_word_embeddings": True, **MAMBA_4}),
    "ibm-ai-platform/Bamba-9B-v2": (9_780_149_632, {
        "model_type": "bamba", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "attn_layer_indices": [9, 18, 27],
        "vocab_size": 128256, "tie_word_embeddings": False, **MAMBA_4}),
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": (49_122_681_728, {
        "model_type": "kimi_linear", "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 27,
        "num_attention_heads": 32, "num_key_value_heads": 32, "kv_lora_rank": 512, "q_lora_rank": None,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "num_experts": 256,
        "num_experts_per_token": 8, "num_shared_experts": 1, "moe_intermediate_size": 1024,
        "first_k_dense_replace": 1, "vocab_size": 163840, "tie_word_embeddings": False,
        "linear_attn_config": {"full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128, "num_heads": 32,
                               "short_conv_kernel_size": 4}}),
    "OpenGVLab/InternVL2_5-8B": (8_075_365_376, {
        "model_type": "internvl_chat", "architectures": ["InternVLChatModel"],
        "llm_config": {"model_type": "internlm2", "hidden_size": 4096, "intermediate_size": 14336,
                       "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
                       "vocab_size": 92553, "bias": False, "tie_word_embeddings": False},
        "vision_config": {"model_type": "intern_vit_6b", "hidden_size": 1024, "intermediate_size": 4096,
                          "num_hidden_layers": 24, "image_size": 448, "patch_size": 14, "qkv_bias": True}}),
    "llava-hf/llava-1.5-7b-hf": (7_063_427_072, {
        "model_type": "llava", "architectures": ["LlavaForConditionalGeneration"],
        "text_config": {"model_type": "llama", "vocab_size": 32064},
        "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336,
                          "intermediate_size": 4096, "num_hidden_layers": 24, "patch_size": 14}}),
    "openai/whisper-large-v3-turbo": (808_878_080, {
        "model_type": "whisper", "d_model": 1280, "encoder_layers": 32, "decoder_layers": 4,
        "encoder_attention_heads": 20, "decoder_attention_heads": 20, "decoder_ffn_dim": 5120,
        "encoder_ffn_dim": 5120, "num_mel_bins": 128, "max_source_positions": 1500, "max_target_positions": 448,
        "vocab_size": 51866, "num_hidden_layers": 32}),
    "nomic-ai/nomic-embed-text-v1.5": (136_731_648, {
        "model_type": "nomic_bert", "architectures": ["NomicBertModel"], "n_embd": 768, "n_head": 12, "n_layer": 12,
        "n_inner": 3072, "vocab_size": 30528, "type_vocab_size": 2, "qkv_proj_bias": False, "mlp_fc1_bias": False}),
    "BAAI/bge-m3": (567_754_752, {
        "model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"], "hidden_size": 1024,
        "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 250002,
        "max_position_embeddings": 8194, "type_vocab_size": 1}),
    "poolside/Laguna-S-2.1": (218.861 * 2**30 / 2, {
        "model_type": "laguna", "vocab_size": 100352, "hidden_size": 3072, "intermediate_size": 12288,
        "num_hidden_layers": 48, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128,
        "num_experts": 256, "num_experts_per_tok": 10, "moe_intermediate_size": 1024, "sliding_window": 512,
        "shared_expert_intermediate_size": 1024, "tie_word_embeddings": False, "gating": "per-head",
        "layer_types": ["full_attention", *["sliding_attention"] * 3] * 12,
        "mlp_layer_types": ["dense"] + ["sparse"] * 47, "num_attention_heads_per_layer": [48, 72, 72, 72] * 12}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_total(name: str) -> None:
    total, config = CASES[name]
    assert model_from_config(config, name).parameters == pytest.approx(total, rel=6e-4)


def test_heads_that_differ_by_layer() -> None:
    _, config = CASES["poolside/Laguna-S-2.1"]
    model = model_from_config(config)
    assert [layer.mixer.heads for layer in model.in_order()][:5] == [48, 72, 72, 72, 48]
