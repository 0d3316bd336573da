"""Names of models, forgiving but never silently wrong; every entry reads; a first load is quick."""

import subprocess
import sys
from pathlib import Path

import pytest

from sizing.architecture import read_model
from sizing.catalog.models import model_facts, models, resolve_model
from sizing.catalog.names import format_in_name, without_format
from sizing.catalog.overlay import forget_overlays, overlay
from sizing.catalog.tables import read_table, table_names
from sizing.errors import InputError, UnknownModel


@pytest.mark.parametrize(
    ("said", "means", "format"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", None),
        ("qwen3-8b", "Qwen/Qwen3-8B", None),
        ("QWEN3_8B", "Qwen/Qwen3-8B", None),
        ("qwen3:8b", "Qwen/Qwen3-8B", None),
        ("llama-3.3-70b", "meta-llama/Llama-3.3-70B-Instruct", None),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", None),
        ("llama-2-7b-chat-hf", "meta-llama/Llama-2-7b-hf", None),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1", None),
        ("Qwen3-235B-A22B-Instruct-2507", "Qwen/Qwen3-235B-A22B", None),
        ("gemma-2-27b", "google/gemma-2-27b-it", None),
        ("Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B", None),
        ("RedHatAI/Llama-3.3-70B-Instruct-fp8-dynamic", "meta-llama/Llama-3.3-70B-Instruct", "fp8_channel"),
        ("neuralmagic/Meta-Llama-3.1-70B-Instruct-quantized.w8a8", "meta-llama/Llama-3.1-70B-Instruct", "int8"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "meta-llama/Llama-3.1-8B-Instruct", "int4_g128_sym"),
        ("hugging-quants/Meta-Llama-3.1-405B-Instruct-AWQ-INT4", "meta-llama/Llama-3.1-405B-Instruct", "int4"),
        (
            "unsloth/Mistral-Small-24B-Instruct-2501-unsloth-bnb-4bit",
            "mistralai/Mistral-Small-24B-Instruct-2501",
            "nf4",
        ),
        ("Qwen/Qwen3-32B-FP8", "Qwen/Qwen3-32B-FP8", "fp8"),
        ("qwen3.5-122b-a10b-nvfp4", "nvidia/Qwen3.5-122B-A10B-NVFP4", "nvfp4"),
        ("Qwen3-8B-GGUF-Q4_K_M", "Qwen/Qwen3-8B", "q4_k_m"),
    ],
)
def test_names(said: str, means: str, format: str | None) -> None:
    facts = model_facts(said)
    assert (facts.id, facts.named_format) == (means, format)


@pytest.mark.parametrize(
    "said", ["Qwen3-9B", "llama-3.3-7b", "no-such-model", "Qwen/Qwen3-8B-A3B", "mixtral", "x" * 5_000]
)
def test_other_models_are_refused(said: str) -> None:
    with pytest.raises(UnknownModel, match="no model"):
        resolve_model(said)


def test_the_message_names_the_nearest() -> None:
    with pytest.raises(UnknownModel, match=r"meta-llama/Llama-3\.3-70B-Instruct"):
        resolve_model("llama-3.3-71b-instruct")


@pytest.mark.parametrize("said", ["", "   ", None, 7])
def test_no_name_is_refused(said: object) -> None:
    with pytest.raises(InputError):
        resolve_model(said)  # type: ignore[arg-type]


def test_what_a_name_was_taken_for_is_said() -> None:
    assert any("is taken for" in warning for warning in read_model("qwen3-8b-fp8").warnings)
    assert read_model("Qwen/Qwen3-8B").warnings == ()


@pytest.mark.parametrize(
    ("name", "format", "bare"),
    [
        ("x-FP8-block", "fp8_block", "x"), ("x-NVFP4A16", "nvfp4_w4a16", "x"), ("x-MXFP4", "mxfp4", "x"),
        ("x-GPTQ-Int8", "int8_w8a16", "x"), ("x-int4-awq", "int4", "x"), ("x-8bit", "int8_w8a16", "x"),
        ("gpt-oss-120b-BF16", None, "gpt-oss-120b"), ("x-Q5_K_S", "q5_k_s", "x"), ("awqward-7b", None, "awqward-7b"),
    ],
)  # fmt: skip
def test_formats_in_names(name: str, format: str | None, bare: str) -> None:
    assert (format_in_name(name), without_format(name)) == (format, bare)


def test_aliases_name_entries() -> None:
    aliases = read_table("model_aliases.toml", "aliases")
    assert aliases
    assert set(aliases.values()) <= set(models())


@pytest.mark.parametrize("name", models())
def test_every_entry_reads_and_has_a_source(name: str) -> None:
    facts = model_facts(name)
    assert facts.source
    assert facts.quality
    model = read_model(name)
    assert 1e7 < model.parameters < 5e12
    assert 0 < model.active_parameters <= model.parameters
    assert model.weights_bytes() <= model.checkpoint_bytes * 1.0001
    assert model.kv_bytes_per_token("fp8") <= model.kv_bytes_per_token("bf16")
    assert sum(layer.count for layer in model.layers) == model.num_layers == len(model.pattern)
    assert not any("not understood" in warning or "not known" in warning for warning in model.warnings)


@pytest.mark.parametrize("file", ["models.toml", "model_types.toml", "checkpoints.toml"])
def test_the_quick_reader_agrees_with_tomllib(file: str) -> None:
    import tomllib

    from sizing.catalog.files import data_file

    whole = tomllib.loads(data_file(file).read_text(encoding="utf-8"))
    assert list(whole) == list(table_names(file))
    assert all(read_table(file, name) == table for name, table in whole.items())


def test_a_users_own_model_adds_and_overrides(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[models."me/tiny"]\nmodel_type = "llama"\nhidden_size = 64\nnum_hidden_layers = 2\nnum_attention_heads = 4\n'
        'intermediate_size = 128\nvocab_size = 1000\n[models."Qwen/Qwen3-8B"]\nnum_hidden_layers = 18\n'
    )
    overlay(file)
    try:
        assert "me/tiny" in models()
        assert read_model("me/tiny").num_layers == 2
        assert read_model("Qwen/Qwen3-8B").num_layers == 18
        assert model_facts("me/tiny").source == str(file)
    finally:
        forget_overlays()
    assert read_model("Qwen/Qwen3-8B").num_layers == 36


CODE = "import time; a = time.process_time(); {}; print(time.process_time() - a)"


def seconds(code: str) -> float:
    run = [sys.executable, "-c", CODE.format(code)]
    return min(float(subprocess.run(run, capture_output=True, text=True, check=True).stdout) for _ in range(5))


@pytest.mark.benchmark
def test_a_first_load_is_quick() -> None:
    # 60 ms where importing numpy and pydantic takes about 90 ms (issue 1's machine)
    load = seconds("import sizing; sizing.read_model('Qwen/Qwen3-8B')")
    assert load < 60 / 90 * seconds("import numpy, pydantic")
