"""Rules by version and chip, held against public start-up logs (data/measured/memory.csv, by id)."""

from dataclasses import replace

import pytest

from sizing.architecture import read_model
from sizing.catalog import gpu
from sizing.deployment import Deployment, EngineSettings, NumberFormats, Parallelism
from sizing.engines import engine, engines
from sizing.memory import GIB, memory_budget


def budget(model, chip, tp=1, weights=None, **settings):
    return memory_budget(
        Deployment(model=read_model(model), gpu=gpu(chip), parallelism=Parallelism(tp=tp),
                   formats=NumberFormats(weights=weights), settings=EngineSettings(**settings))
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "chip", "tp", "version", "weights_gib"),
    [
        ("openai/gpt-oss-20b", "a100-80-sxm", 1, "0.19.0", 13.72),  # IS067, Marlin's tiles
        ("openai/gpt-oss-120b", "a100-80-sxm", 4, "0.10.1.1", 17.2217),  # DL01
        ("openai/gpt-oss-120b", "h100-sxm", 1, "v0.14.1", 64.38),  # IS061, Triton's tiles
    ],
)
def test_mxfp4_experts_are_padded_to_the_kernels_tiles(model, chip, tp, version, weights_gib):
    found = budget(model, chip, tp, weights="mxfp4", version=version)
    assert found.weights_bytes / GIB == pytest.approx(weights_gib, rel=0.015)


def test_mxfp4_converts_experts_only():
    as_asked = budget("openai/gpt-oss-20b", "h100", weights="mxfp4").rank
    # 24 layers of attention at 26.5e6, embedding and head of 201,088 x 2,880, in 16 bit
    assert as_asked.weights_bytes > 2 * (24 * 26.5e6 + 2 * 201_088 * 2880) + 19.1e9 * 4.25 / 8


@pytest.mark.parametrize(
    ("version", "sorts"),
    [("0.8.5", True), ("0.10.1", False), ("0.11.0", False), ("0.11.2", True), ("0.16.0", True), ("0.18.0", False)],
)
def test_sampling_sorts_in_some_versions(version, sorts):
    found = budget("Qwen/Qwen3-8B", "h100", version=version)
    per_entry = found.activation_bytes / (1024 * 151_936)
    assert per_entry == pytest.approx(38 if sorts else 14.5, abs=1.5)


def test_small_cards_profile_fewer_tokens_and_sequences():
    large, small = (budget("Qwen/Qwen3-8B", chip, version="0.19.0").rank for chip in ("h100", "l40s"))
    assert (large.max_num_seqs, large.max_num_batched_tokens) == (1024, 8192)
    assert (small.max_num_seqs, small.max_num_batched_tokens) == (256, 2048)
    a100 = budget("Qwen/Qwen3-8B", "a100", version="0.19.0").rank
    assert a100.max_num_seqs == 256


def test_fused_experts_keep_workspaces_from_0_14_on():
    before, after = (budget("Qwen/Qwen3-30B-A3B", "h200", version=v) for v in ("0.13.0", "0.14.1"))
    # 8,192 tokens x 8 experts x (2,048 + 2,048) elements of 2 bytes = 0.5 GiB
    assert (after.activation_bytes - before.activation_bytes) / GIB == pytest.approx(0.5, abs=0.01)


def test_several_gpus_take_communication_buffers():
    one, two = (budget("Qwen/Qwen3-8B", "h100", tp, version="0.19.0").non_torch_bytes / GIB for tp in (1, 2))
    assert (one, two) == (pytest.approx(0.25), pytest.approx(2.05))


def test_sglang_sizes_pools_for_full_and_sliding_layers():
    found = budget("openai/gpt-oss-20b", "h100", engine="sglang", memory_utilization=0.85, max_model_len=32768)
    kinds = {pool.groups[0].kind: pool for pool in found.pools}
    assert set(kinds) == {"full", "sliding"}
    assert kinds["sliding"].blocks / kinds["full"].blocks == pytest.approx(0.8, rel=1e-3)
    used = sum(pool.blocks * pool.block_bytes for pool in found.pools)
    assert used == pytest.approx(found.kv_bytes, rel=1e-3)
    # windows of 128 never bind: full layers decide
    assert found.max_requests(32_768) == pytest.approx(kinds["full"].blocks / 32_768)


def test_sglang_keeps_states_apart():
    found = budget("Qwen/Qwen3-Next-80B-A3B-Instruct", "h200", 4, engine="sglang")
    kinds = {pool.groups[0].kind: pool for pool in found.pools}
    assert set(kinds) == {"state", "full"}
    assert kinds["state"].blocks * kinds["state"].block_bytes == pytest.approx(found.kv_bytes * 0.9 / 1.9, rel=1e-2)


@pytest.mark.parametrize("name", engines())
def test_every_engine_answers_for_every_layout(name):
    for tp, pp in ((1, 1), (4, 1), (2, 2)):
        deployment = Deployment(
            model=read_model("Qwen/Qwen3-8B"), gpu=gpu("h100"), parallelism=Parallelism(tp=tp, pp=pp),
            settings=EngineSettings(engine=name),
        )  # fmt: skip
        found = memory_budget(deployment, request_tokens=2400)
        assert found.kv_bytes > 0
        assert found.max_requests(2400) > 10
        assert found.wording
        assert engine(name).rule() in {line.formula for line in found.lines} or name == "vllm"


def test_graphs_off_take_nothing():
    base = Deployment(model=read_model("Qwen/Qwen3-8B"), gpu=gpu("h100"))
    off = replace(base, settings=EngineSettings(cuda_graphs=False))
    assert memory_budget(off).cuda_graph_bytes == 0
    assert memory_budget(off).kv_bytes > memory_budget(base).kv_bytes


def test_the_printed_tokens_of_hybrids_are_too_low_by_their_groups():
    # factor 4.00 for Qwen3-Next, 5.00 for Nemotron-3-Nano, 6.0 for Nemotron-3-Super (reference/memory.md)
    for model, tp, factor in (
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 4, 4.00),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 1, 5.00),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", 2, 6.0),
    ):
        found = budget(model, "h200", tp, version="0.19.0", max_model_len=8192)
        printed = found.printed_kv_bytes / found.printed_tokens
        assert printed / found.rank.model.kv_bytes_per_token(tp=tp) == pytest.approx(factor, rel=5e-3)
