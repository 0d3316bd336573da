"""Traps of config.json, and files that are none."""

import json
from pathlib import Path

import pytest

from sizing.architecture import model_from_config, read_model
from sizing.catalog.models import model_facts
from sizing.errors import InputError, UnknownFile, UnknownModel

TINY = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1000,
    "tie_word_embeddings": False,
}  # fmt: skip
LAYER = 64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64


def test_every_part_is_counted() -> None:
    assert model_from_config(TINY).parameters == 2 * LAYER + 2 * 64_000 + 64


def test_tied_embeddings_count_once() -> None:
    assert model_from_config({**TINY, "tie_word_embeddings": True}).parameters == 2 * LAYER + 64_000 + 64


@pytest.mark.parametrize(
    ("change", "elements"),
    [
        ({"head_dim": 32}, 2 * 2 * 32 * 2),  # differs from hidden / heads
        ({"num_key_value_heads": None}, 2 * 4 * 16 * 2),  # null: as many as query heads
        ({"model_type": "falcon", "multi_query": True, "num_key_value_heads": None}, 2 * 1 * 16 * 2),
        ({"num_key_value_heads": [1, 2]}, 2 * 16 * (1 + 2)),  # one a layer
        ({"model_type": "chatglm", "multi_query_attention": True, "multi_query_group_num": 2}, 2 * 2 * 16 * 2),
        ({"kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16}, 2 * (32 + 8)),
    ],
)
def test_cache_elements(change: dict, elements: int) -> None:
    assert model_from_config({**TINY, **change}).kv_bytes_per_token("fp8") == elements


@pytest.mark.parametrize("nested", ["text_config", "llm_config", "language_config"])
def test_nested_text_configs(nested: str) -> None:
    inner = {key: value for key, value in TINY.items() if key not in {"tie_word_embeddings", "architectures"}}
    model = model_from_config({"model_type": "outer", "tie_word_embeddings": False, nested: inner})
    assert model.parameters == model_from_config(TINY).parameters


@pytest.mark.parametrize(
    ("fields", "routed"),
    [
        ({"n_routed_experts": 4, "first_k_dense_replace": 1, "moe_intermediate_size": 32}, [1, 2, 3, 4, 5, 6, 7]),
        ({"num_experts": 4, "decoder_sparse_step": 2, "moe_intermediate_size": 32}, [1, 3, 5, 7]),
        ({"num_experts": 4, "mlp_only_layers": [0, 7], "moe_intermediate_size": 32}, [1, 2, 3, 4, 5, 6]),
        ({"num_local_experts": 4, "interleave_moe_layer_step": 4}, [3, 7]),
        ({"num_experts": 4, "expert_layer_period": 2, "expert_layer_offset": 1}, [1, 3, 5, 7]),
        (
            {"n_routed_experts": 4, "moe_layer_freq": [0, 1, 0, 1, 1, 1, 1, 1], "moe_intermediate_size": 32},
            [1, 3, 4, 5, 6, 7],
        ),
        ({"moe_num_experts": 4, "mlp_layer_types": ["dense"] * 7 + ["sparse"], "moe_intermediate_size": 32}, [7]),
        ({"num_experts": 4, "moe_layers_enum": "2,5", "moe_intermediate_size": 32}, [2, 5]),
        ({"num_experts": 4, "num_dense_layers": 6, "moe_intermediate_size": 32}, [6, 7]),
    ],
)
@pytest.mark.parametrize("top_k", ["num_experts_per_tok", "moe_topk", "experts_per_token", "moe_k"])
def test_which_layers_route(fields: dict, routed: list[int], top_k: str) -> None:
    model = model_from_config({**TINY, "num_hidden_layers": 8, **fields, top_k: 2})
    assert [index for index, layer in enumerate(model.in_order()) if layer.feed_forward.experts] == routed
    assert {layer.feed_forward.top_k for layer in model.layers if layer.feed_forward.experts} == {2}


@pytest.mark.parametrize(
    "fields",
    [
        {"n_shared_experts": 2, "moe_intermediate_size": 32},
        {"shared_expert_intermediate_size": 64, "moe_intermediate_size": 32},
        {"share_expert_dim": 64, "moe_intermediate_size": 32},
    ],
)
def test_shared_experts(fields: dict) -> None:
    model = model_from_config({**TINY, "num_experts": 4, "num_experts_per_tok": 1, **fields})
    shared = [linear for linear in model.layers[0].linears if linear.role == "shared_expert"]
    assert sum(linear.parameters for linear in shared) == 3 * 64 * 64


def test_class_defaults_stand_in_by_name() -> None:
    # Gemma-3-4B's own file leaves out heads and vocabulary
    config = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"],
              "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
                              "num_hidden_layers": 34, "sliding_window": 1024}}  # fmt: skip
    model = model_from_config(config)
    assert model.text_parameters == 3_880_263_168
    assert any("num_attention_heads 8" in warning for warning in model.warnings)


def test_an_embedding_class_has_no_head() -> None:
    assert model_from_config({**TINY, "architectures": ["MistralModel"]}).head is None
    assert model_from_config({**TINY, "architectures": ["LlamaForCausalLM"]}).head is not None


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"hidden_size": None}, "hidden_size"), ({"hidden_size": "64"}, "hidden_size"),
        ({"hidden_size": -64}, "hidden_size"),
        ({"hidden_size": 10**30}, "hidden_size"), ({"vocab_size": float("nan")}, "vocab_size"),
        ({"num_hidden_layers": float("inf")}, "num_hidden_layers"), ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_attention_heads": []}, "num_attention_heads"), ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        ({"layer_types": ["sideways", "up"]}, "layer_types"), ({"layer_types": 7}, "layer_types"),
        ({"hybrid_override_pattern": "-Z"}, "hybrid_override_pattern"),
        ({"block_configs": [1, 2]}, "block_configs"), ({"num_attention_heads": True}, "num_attention_heads"),
    ],
)  # fmt: skip
def test_impossible_fields_are_refused_by_name(change: dict, names: str) -> None:
    with pytest.raises(InputError, match=names):
        model_from_config({**TINY, **change})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not JSON"),
        (b"[1, 2]", "list"),
        (b"{", "not JSON"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"[" * 100_000, "not JSON"),
        (b'"text"', "str"),
        (b"{" + b'"a":{' * 5_000 + b"}" * 5_001, "not JSON"),
        (b'{"hidden_size": 1' + b"0" * 5_000 + b"}", "not JSON"),
    ],
)
def test_files_that_are_no_config(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=says):
        read_model(file)


def test_a_file_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sizing.architecture.reading.LARGEST_FILE_BYTES", 10)
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    with pytest.raises(InputError, match="at most 10"):
        read_model(tmp_path)


def test_folders_files_and_siblings(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    with pytest.raises(UnknownFile, match=r"config\.json"):
        read_model(folder)
    (folder / "config.json").write_text(json.dumps(TINY), encoding="utf-8-sig")
    assert read_model(folder).name == "my-model"
    assert read_model(str(folder / "config.json")).name == "my-model"
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "NVFP4"}}))
    assert read_model(folder).checkpoint.name == "nvfp4"
    single = tmp_path / "owner--name-FP8.json"
    single.write_text(json.dumps(TINY))
    model = read_model(single)
    assert (model.name, model.checkpoint.name) == ("owner/name-FP8", "fp8")


def test_code_in_a_model_folder_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**TINY, "auto_map": {"AutoConfig": "evil.Config"}}))
    (tmp_path / "evil.py").write_text("raise SystemExit('ran')")
    assert read_model(tmp_path).parameters > 0


def test_a_bare_infinity_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY)[:-1] + ', "time_step_limit": [0.0, Infinity]}')
    assert read_model(tmp_path).parameters > 0


def test_an_unknown_name_names_the_nearest() -> None:
    with pytest.raises(UnknownModel, match="Qwen/Qwen3-8B"):
        read_model("Qwen3-8C")


def test_a_catalogue_entry_equals_its_config() -> None:
    facts = model_facts("Qwen/Qwen3-8B")
    assert model_from_config(facts.config, "Qwen/Qwen3-8B").parameters == read_model("qwen3-8b").parameters


def test_searched_architectures_say_each_block() -> None:
    blocks = [
        {"attention": {"n_heads_in_group": 2, "no_op": False}, "ffn": {"ffn_mult": 3.0}},
        {"attention": {"no_op": True}, "ffn": {"no_op": True}},
    ]
    config = {**TINY, "model_type": "nemotron-nas", "num_key_value_heads": None, "intermediate_size": None,
              "block_configs": blocks, "hidden_size": 512}  # fmt: skip
    model = model_from_config(config)
    # ffn_mult 3: 2 x 3 x 512 / 3 = 1024, a multiple of 256
    assert [layer.feed_forward.kind for layer in model.in_order()] == ["dense", "none"]
    assert model.layers[0].feed_forward.linears[0].outputs == 1024
    assert model.kv_bytes_per_token("fp8") == 2 * 2 * 128


def test_a_type_that_cannot_be_read_is_refused_with_the_reason() -> None:
    with pytest.raises(InputError, match="shared transformer block"):
        model_from_config({**TINY, "model_type": "zamba2"})


def test_what_is_not_read_of_a_type_is_said() -> None:
    model = model_from_config({**TINY, "model_type": "jetmoe"})
    assert any("mixture of attention heads" in warning for warning in model.warnings)


def test_absent_fields_that_change_sizes_are_said() -> None:
    bare = {key: value for key, value in TINY.items() if key not in {"num_key_value_heads", "tie_word_embeddings"}}
    assert any("num_key_value_heads is absent" in warning for warning in model_from_config(bare).warnings)
    unknown = model_from_config({**bare, "model_type": "brand_new"}).warnings
    assert any("tie_word_embeddings is absent" in warning for warning in unknown)
