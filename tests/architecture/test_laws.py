"""What holds of every model of the catalogue, every kind of layer and every model type."""

import tomllib
from dataclasses import fields

import pytest

from sizing.architecture import model_from_config, read_model
from sizing.architecture.kinds import feed_forwards, mixers
from sizing.architecture.model import _stage_bytes
from sizing.architecture.traits import Traits, traits_of
from sizing.catalog.files import data_file
from sizing.catalog.models import models
from sizing.errors import InputError

TYPES = tomllib.loads(data_file("model_types.toml").read_text(encoding="utf-8"))
SOME = models()[::4]


@pytest.mark.parametrize("name", SOME)
def test_splitting_never_adds_to_one_gpu(name: str) -> None:
    model = read_model(name)
    for tp in (1, 2, 4):
        assert model.weights_bytes(tp=2 * tp) <= model.weights_bytes(tp=tp)
        assert model.kv_bytes_per_token(tp=2 * tp) <= model.kv_bytes_per_token(tp=tp)
        assert model.weights_bytes(pp=2 * tp) <= model.weights_bytes(pp=tp) * (1 + 1e-12)
    assert model.weights_bytes(tp=8, ep=8) <= model.weights_bytes()
    assert 8 * model.weights_bytes(tp=8) >= model.weights_bytes() * (1 - 1e-12)  # nothing is lost in the split


@pytest.mark.parametrize("name", SOME)
def test_fewer_bits_weigh_less(name: str) -> None:
    model = read_model(name)
    sizes = [model.weights_bytes(format) for format in ("bf16", "fp8", "int4", "nvfp4", "mxfp4")]
    assert sizes[0] == pytest.approx(2 * (model.parameters - model.checkpoint.missing_parameters), rel=1e-9)
    assert sizes[0] >= sizes[1] >= sizes[3] >= sizes[4]
    assert sizes[1] >= sizes[2]


@pytest.mark.parametrize("name", SOME)
def test_a_longer_request_never_takes_less(name: str) -> None:
    model = read_model(name)
    sizes = [model.kv_bytes(tokens) for tokens in (0, 1, 100, 4_096, 100_000)]
    assert sizes == sorted(sizes)
    assert sizes[0] == model.state_bytes()
    assert sizes[-1] <= 100_000 * model.kv_bytes_per_token() + model.state_bytes() + sum(
        layer.count * (layer.mixer.window or 0) * layer.mixer.kv_window_elements * 2 for layer in model.layers
    )


@pytest.mark.parametrize("name", SOME)
def test_parts_add_up(name: str) -> None:
    model = read_model(name)
    layers = sum(layer.count * layer.parameters for layer in model.layers)
    head = 0 if model.tied_embeddings or model.head is None else model.head.parameters
    assert model.text_parameters == layers + model.embedding.parameters + head + model.other_parameters
    assert model.flops_per_token(0) <= 2 * model.active_parameters + 4 * sum(
        layer.count * layer.mixer.state_elements for layer in model.layers
    )
    assert model.flops_per_token(10_000) >= model.flops_per_token(100)


def test_stages_share_out_all_layers() -> None:
    assert _stage_bytes([1.0] * 7, (10.0, 100.0), 2) == [14.0, 103.0]
    assert _stage_bytes([1.0] * 4, (0.0, 0.0), 4) == [1.0] * 4
    assert _stage_bytes([1.0], (1.0, 1.0), 8) == [3.0]


@pytest.mark.parametrize("name", TYPES)
def test_every_model_type_has_facts_that_are_known(name: str) -> None:
    table = TYPES[name]
    assert set(table) <= {entry.name for entry in fields(Traits)}
    assert table.get("like", "llama") in TYPES
    traits = traits_of(name)
    assert traits.known
    assert traits.mixer in {"", *mixers.names(), "linear", "hybrid"}
    assert traits.qk_norm.partition(":")[0] in {"", "head", "full", "heads", "head_bias"}


@pytest.mark.parametrize("name", TYPES)
def test_every_model_type_reads_a_small_config(name: str) -> None:
    config = {"model_type": name, "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
              "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 1024, "vocab_size": 1000}  # fmt: skip
    try:
        model = model_from_config(config, name)
    except InputError:
        pytest.skip("its layers need fields of their own")
    assert model.parameters > 512 * 1000
    assert model.num_layers >= 4


def test_kinds_register_themselves() -> None:
    assert {"attention", "sliding", "chunked", "mla", "sparse", "compressed", "mamba1", "mamba2", "gated_delta",
            "kimi_delta", "lightning", "short_conv", "searched", "none"} <= set(mixers.names())  # fmt: skip
    assert {"dense", "moe", "searched", "none"} <= set(feed_forwards.names())
