"""The whole decoder against an FP32 one written for reading, and its operations against published counts."""

import dataclasses
import json

import pytest
import torch

from profilers.bench import open_bench
from profilers.decoder import layers as decoder_layers
from profilers.decoder import model as decoder_model
from profilers.decoder.model import Decoder
from profilers.decoder.reference import decoder_error
from profilers.kernel import Case, Kernel, Reading
from profilers.kernels import decoder as kernels_decoder
from profilers.operations import Step, step_operations
from profilers.plan import make_plan, plan_cases
from profilers.session import measure_case
from profilers.shapes import BadInput, read_shape, shape_from_config

DENSE, MOE, MLA = (read_shape(f"toy/{name}") for name in ("dense", "moe", "mla"))
VARIANTS = {
    "dense": DENSE,
    "biased": dataclasses.replace(DENSE, qkv_bias=True, qk_norm=False),
    "one KV head": dataclasses.replace(DENSE, kv_heads=1),
    "experts": MOE,
    "shared expert": dataclasses.replace(MOE, shared_intermediate=48),
    "latent": MLA,
    "latent queries too": dataclasses.replace(MLA, q_lora=24),
}


def _error(shape, **options):
    torch.manual_seed(7)
    with torch.inference_mode():
        decoder = Decoder(shape, open_bench("cpu", toy=True), sequences=1, capacity=4)
        return decoder_error(decoder, **options)


@pytest.mark.parametrize("name", VARIANTS)
def test_prompt_chunk_and_token_match_the_reference(name):
    assert _error(VARIANTS[name]) < 0.02


@pytest.mark.parametrize("name", ["dense", "biased", "one KV head"])
def test_plain_layers_match_the_reference(name):
    assert _error(VARIANTS[name], plain=True) < 0.02


@pytest.mark.parametrize(
    ("shape", "broken"),
    [
        (DENSE, {"rotate": lambda x, cosine, sine: x}),
        (DENSE, {"causal_lower_right": lambda q, k: torch.ones(q, k, dtype=torch.bool)}),
        (MOE, {"route": lambda logits, k: (torch.ones(len(logits), k) / k, torch.zeros(len(logits), k).long())}),
        (MLA, {"absorbed": lambda q, cache, latent, scale: cache[:, -1:, :latent].expand(-1, q.shape[1], -1)}),
    ],
)
def test_check_notices_a_wrong_kernel(shape, broken, monkeypatch):
    for name, function in broken.items():
        monkeypatch.setattr(decoder_layers, name, function)
    assert _error(shape) > 0.05


@pytest.mark.parametrize(
    ("model", "billions", "digits"),
    [
        # parameters as the model cards print them
        ("Qwen/Qwen3-8B", 8.2, 0.05),
        ("Qwen/Qwen3-32B", 32.8, 0.05),
        ("Qwen/Qwen3-30B-A3B", 30.5, 0.05),
        ("Qwen/Qwen2.5-7B", 7.61, 0.006),
        ("meta-llama/Llama-3.1-8B", 8.03, 0.005),
        ("deepseek-ai/DeepSeek-V2-Lite", 15.7, 0.05),
    ],
)
def test_weights_add_up_to_the_published_parameters(model, billions, digits):
    assert read_shape(model).weight_bytes / 2e9 == pytest.approx(billions, abs=digits)


def test_decode_step_of_qwen3_8b_reads_each_linear_weight_once():
    """6.946 billion linear weights and a head of 151,936 x 4,096 (config.json of Qwen3-8B)."""
    step = Step(sequences=1, new_tokens=1, history=100)
    products = [o for o in step_operations(read_shape("Qwen/Qwen3-8B"), step) if o.family == "gemm.bf16"]
    weights = sum(int(o.shape["n"]) * int(o.shape["k"]) * o.count for o in products)
    assert weights == 6_945_767_424 + 151_936 * 4_096


def test_kv_cache_of_a_token_is_what_the_configs_say():
    assert read_shape("Qwen/Qwen3-8B").kv_bytes_per_token == 147_456  # 36 x 2 x 8 x 128 x 2
    assert read_shape("deepseek-ai/DeepSeek-V2-Lite").kv_bytes_per_token == 31_104  # 27 x (512 + 64) x 2


def test_tensor_parallel_shapes_are_divided_and_kv_heads_repeated():
    eighth = read_shape("Qwen/Qwen3-8B").per_gpu(8)
    assert (eighth.heads, eighth.kv_heads, eighth.intermediate, eighth.hidden) == (4, 1, 1536, 4096)
    assert read_shape("Qwen/Qwen3-8B").per_gpu(16).kv_heads == 1
    with pytest.raises(BadInput, match="does not divide"):
        read_shape("Qwen/Qwen2.5-7B").per_gpu(8)


def test_model_folder_gives_shapes_and_cases(tmp_path):
    config = {
        "model_type": "llama", "num_hidden_layers": 3, "hidden_size": 96, "num_attention_heads": 6,
        "num_key_value_heads": 3, "intermediate_size": 160, "vocab_size": 200,
    }  # fmt: skip
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    plan = make_plan("model", [str(folder)], toy=True)
    assert plan.models[0].head_dim == 16
    cases = plan_cases(plan, ["decoder"])
    assert {c.shape["model"] for c in cases} == {"my-model"}
    assert read_shape("my-model") == plan.models[0]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "has no 'num_attention_heads'"),
        ({"num_attention_heads": "many"}, "is 'many', not a number"),
        ({"layer_types": ["linear_attention"]}, "recurrent layers"),
        ({"model_type": "mamba2"}, "recurrent layers"),
    ],
)
def test_config_that_is_no_plain_decoder_is_refused(config, reason):
    with pytest.raises(BadInput, match=reason):
        shape_from_config(config, "x")


def _held_cases():
    return [c for c in plan_cases(make_plan("default", toy=True)) if c.kernel.startswith(("decoder.", "scenario."))]


def test_one_decoder_serves_the_cases_of_a_model_in_a_row(monkeypatch):
    """Drawn anew only where the model changes; each case has a cache of its own size and is checked."""
    drawn = []
    plainly = Decoder.__init__
    monkeypatch.setattr(
        Decoder, "__init__", lambda self, shape, *a, **k: (drawn.append(shape.name), plainly(self, shape, *a, **k))[1]
    )
    bench = open_bench("cpu", toy=True)
    cases = [c for c in _held_cases() if "transformers" not in c.kernel]
    found = [measure_case(case, bench) for case in cases]
    assert {f["outcome"] for f in found} == {"measured"}
    assert all(f["error"] > 0 for f in found)  # BF16 against FP32 is never exact
    changes = [cases[0].shape["model"]]
    for case in cases:
        if case.shape["model"] != changes[-1]:
            changes.append(case.shape["model"])
    assert drawn == changes
    assert len(drawn) < len(cases) / 2
    assert bench.held is not None
    measure_case(Case(kernel="sampling.greedy", shape={"sequences": 2, "vocabulary": 16}), bench)
    assert bench.held is None  # kernels have all the memory


def test_held_decoder_gives_up_layers_that_a_larger_step_has_no_room_for(monkeypatch):
    bench, shape = open_bench("cpu", toy=True), read_shape("toy/dense")
    small, large = Step(sequences=1, new_tokens=1, history=7), Step(sequences=4, new_tokens=1, history=99)
    with torch.inference_mode():
        first = kernels_decoder.decoder_for(shape, bench, small)
        assert (first.shape.layers, first.caches[0][0].shape[2]) == (2, 8)
        monkeypatch.setattr(
            kernels_decoder, "fitting_layers", lambda shape, bench, step, held_bytes: 2 - step.sequences // 4
        )
        second = kernels_decoder.decoder_for(shape, bench, large)
        assert second is first
        assert (second.shape.layers, len(second.weights), len(second.caches)) == (1, 1, 1)
        assert second.caches[0][0].shape[:3] == (4, 2, 100)
        assert second.step(large)().shape == (4,)
        third = kernels_decoder.decoder_for(read_shape("toy/moe"), bench, small)
        assert third is not first


def test_memory_that_is_held_gives_way_to_a_case_that_lacks_it(monkeypatch):
    from profilers import kernel as registry

    bench, asked = open_bench("cpu", toy=True), []

    def hungry(case, bench):
        asked.append(bench.held)
        if bench.held is not None:
            raise torch.OutOfMemoryError("held")
        return Reading(samples={"time_s": [1.0]}, implementation="")

    made = Kernel(name="scenario.hungry", cases=lambda p: [], build=hungry)
    monkeypatch.setitem(registry._KERNELS, "scenario.hungry", made)
    bench.hold("a model", "weights")
    found = measure_case(Case(kernel="scenario.hungry", shape={}), bench)
    assert found["outcome"] == "measured"
    assert asked == [("a model", "weights"), None]


@pytest.mark.parametrize("name", ["dense", "experts", "latent"])
@pytest.mark.parametrize("tokens", [1, 8])
def test_layers_are_compiled_once_in_one_graph_for_all_of_their_kind(name, tokens, monkeypatch):
    """Six layers, one compilation; the single dense layer before experts is left as it is."""
    graphs = []

    def backend(graph, example):
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(
        decoder_model, "_compiled", lambda layer, _: torch.compile(layer, dynamic=False, backend=backend)
    )
    bench = open_bench("cpu", toy=True)
    step = Step(sequences=2, new_tokens=tokens, history=0 if tokens > 1 else 7)
    with torch.inference_mode():
        made = Decoder(dataclasses.replace(VARIANTS[name], layers=6), bench, sequences=2, capacity=8)
        torch.compiler.reset()
        made.step(step, compile_layers=True)()
    assert len(graphs) == 1
