"""Formats of real checkpoints: what each record of quantisation says of each matrix."""

import time

import pytest

from sizing.architecture import Model, model_from_config, read_model

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 4,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
MATRICES = 4 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
REST = 2 * 4096 * 128256 + 9 * 4096


def formats(model: Model) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for layer in model.layers:
        for linear in layer.linears:
            found.setdefault(linear.name.rsplit(".", 1)[-1], set()).add(linear.format)
    return found


def quantised(**record) -> Model:
    return model_from_config({**LLAMA, "quantization_config": record})


@pytest.mark.parametrize(
    ("record", "name", "bits"),
    [
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "fp8", 8),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block", 8 + 32 / 128**2),
        ({"quant_method": "fbgemm_fp8"}, "fp8_channel", 8),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "int4_g128", 4 + 20 / 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True}, "int4_g32", 4 + 20 / 32),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8_w8a16", 8),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}, "int4_g128_sym", 4.125),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4", 4 + 8.125 / 64),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bnb_int8", 8),
        ({"quant_method": "mxfp4"}, "mxfp4", 4.25),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 4.5),
        ({"quant_algo": "FP8", "kv_cache_scheme": "FP8"}, "fp8", 8),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}, "mxfp4_a4", 4.25),
        ({"quant_method": "hqq", "nbits": 3, "group_size": 64}, "int3_g64_sym", 3.25),
    ],
)
def test_records(record: dict, name: str, bits: float) -> None:
    model = quantised(**record)
    assert model.checkpoint.name == name
    assert model.checkpoint_bytes == pytest.approx(MATRICES * bits / 8 + REST * 2, rel=1e-3)
    assert model.parameters == MATRICES + REST


@pytest.mark.parametrize(
    ("weights", "activations", "name"),
    [
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, {"num_bits": 8}, "fp8_channel"),
        ({"num_bits": 8, "type": "float", "strategy": "tensor"}, {"num_bits": 8}, "fp8"),
        ({"num_bits": 8, "type": "float", "strategy": "block"}, {"num_bits": 8}, "fp8_block"),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, {"num_bits": 8}, "int8"),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, None, "int8_w8a16"),
        (
            {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True},
            None,
            "int4_g128_sym",
        ),
        ({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": False}, None, "int4_g32"),
        ({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}, {"num_bits": 4}, "nvfp4"),
        ({"num_bits": 4, "type": "float", "group_size": 16}, None, "nvfp4_w4a16"),
        ({"num_bits": 4, "type": "float", "group_size": 32}, None, "mxfp4"),
    ],
)
def test_compressed_tensors_groups(weights: dict, activations: dict | None, name: str) -> None:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    model = quantised(quant_method="compressed-tensors", config_groups={"group_0": group}, ignore=["lm_head"])
    assert model.checkpoint.name == name


@pytest.mark.parametrize(
    ("ignore", "alone"),
    [
        (["lm_head"], set()),
        (["re:.*self_attn.*"], {"q_proj", "k_proj", "v_proj", "o_proj"}),
        (["model.layers.*.mlp.down_proj"], {"down_proj"}),
        (["re:.*mlp\\.(gate|up)_proj.*"], {"gate_proj", "up_proj"}),
        ([f"model.layers.{i}.self_attn.o_proj" for i in range(4)], {"o_proj"}),
        (["*.q_proj", "k_proj"], {"q_proj", "k_proj"}),
        (["gate"], set()),  # the router's name, not a part of gate_proj
    ],
)
def test_modules_left_alone(ignore: list[str], alone: set[str]) -> None:
    found = formats(quantised(quant_method="fp8", modules_to_not_convert=ignore))
    assert {name for name, stored in found.items() if stored == {"bf16"}} == alone
    assert {name for name, stored in found.items() if stored == {"fp8"}} == set(found) - alone


def test_one_layer_left_alone_is_a_kind_of_its_own() -> None:
    model = quantised(quant_method="modelopt", quant_algo="NVFP4", ignore=["model.layers.0*", "lm_head"])
    assert [layer.count for layer in model.layers] == [1, 3]
    assert {linear.format for linear in model.layers[0].linears} == {"bf16"}


def test_mixed_precision_by_module() -> None:
    layers = {
        f"model.layers.{i}.mlp.{name}_proj": {"quant_algo": "W4A16_NVFP4"} for i in range(4) for name in ("up", "gate")
    }
    layers |= {f"model.layers.{i}.self_attn.o_proj": {"quant_algo": "FP8"} for i in range(4)}
    model = quantised(quant_method="modelopt", quant_algo="MIXED_PRECISION", quantized_layers=layers)
    found = formats(model)
    assert found["up_proj"] == {"nvfp4_w4a16"}
    assert found["o_proj"] == {"fp8"}
    assert found["q_proj"] == {"bf16"}


def test_real_mixtures_of_formats() -> None:
    oss = read_model("openai/gpt-oss-120b")
    assert {linear.format for linear in oss.layers[0].linears if linear.role == "expert"} == {"mxfp4"}
    assert {linear.format for linear in oss.layers[0].linears if linear.role != "expert"} == {"bf16"}
    kimi = read_model("moonshotai/Kimi-K2.5")
    routed = [linear for layer in kimi.layers for linear in layer.linears if linear.role == "expert"]
    assert {linear.format for linear in routed} == {"int4_g32_sym"}
    v4 = read_model("deepseek-ai/DeepSeek-V4-Pro")
    # the model card states 805.59 GiB of files
    assert v4.checkpoint_bytes / 2**30 == pytest.approx(805.59, rel=1e-3)
    assert read_model("nvidia/GLM-5.3-NVFP4").checkpoint.kv == "fp8"


@pytest.mark.parametrize(
    ("name", "total_bytes"),
    [
        ("mistralai/Mistral-Small-24B-Instruct-2501", 47_144_806_400),
        ("MiniMaxAI/MiniMax-M1-80k", 912_210_767_872),
        ("XiaomiMiMo/MiMo-7B-Base", 15_666_819_072),
        ("tiiuae/falcon-180B", 359_045_130_240),
        ("bigscience/bloom", 352_494_542_848),
        ("mistralai/Mixtral-8x22B-v0.1", 281_241_268_224),
        ("google/gemma-2b", 5_012_344_832),
        ("meta-llama/Llama-3.2-3B", 6_425_499_648),
        ("microsoft/Phi-3-mini-4k-instruct", 7_642_159_104),
        ("google/gemma-3-27b-it", 54_864_813_280),
    ],
)
def test_bytes_of_published_files(name: str, total_bytes: int) -> None:
    # metadata.total_size of model.safetensors.index.json, of the model or of a fine-tune of it
    assert read_model(name).checkpoint_bytes == pytest.approx(total_bytes, rel=1e-3)


def test_a_requested_format_leaves_embeddings_heads_routers_and_norms_in_16_bit() -> None:
    model = read_model("Qwen/Qwen3-30B-A3B")
    routers = 48 * 2048 * 128
    kept = 2 * 2048 * 151_936 + routers + sum(layer.other_parameters * layer.count for layer in model.layers) + 2048
    quantisable = model.parameters - kept
    assert model.weights_bytes("fp8") == pytest.approx(quantisable + 2 * kept, rel=1e-9)
    assert model.weights_bytes("nvfp4") == pytest.approx(quantisable * 9 / 16 + 2 * kept, rel=1e-9)


def test_mlx_quantises_embeddings_too() -> None:
    model = model_from_config({**LLAMA, "quantization": {"group_size": 64, "bits": 4}})
    assert model.embedding.format == model.layers[0].linears[0].format == "int4_g64"


def test_a_sibling_hf_quant_config_counts() -> None:
    record = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    sibling = {"producer": {"name": "modelopt"}, "quantization": record}
    model = model_from_config(LLAMA, sibling=sibling)
    assert (model.checkpoint.name, model.checkpoint.kv) == ("fp8", "fp8")


@pytest.mark.parametrize("record", [{"quant_method": "brand-new"}, {"quant_method": "modelopt", "quant_algo": "FP3"}])
def test_what_is_not_understood_is_named(record: dict) -> None:
    model = quantised(**record)
    assert any("brand-new" in warning or "FP3" in warning for warning in model.warnings)
    assert model.checkpoint.name == "bf16"


def test_a_pattern_that_would_backtrack_without_end_is_refused_by_name() -> None:
    begun = time.perf_counter()
    model = quantised(quant_method="fp8", ignore=["re:(a+)+$", "re:(.*)*b", "re:" + "(x|x)*" * 50, "re:["])
    assert time.perf_counter() - begun < 1.0
    assert sum("not understood" in warning for warning in model.warnings) == 4
    assert formats(model)["q_proj"] == {"fp8"}
