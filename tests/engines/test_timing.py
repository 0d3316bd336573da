"""Records of an engine's own time: which release has which, and how each forms its steps."""

import pytest

from sizing.engines.timing import CONSTANTS, engine_timing, engine_timings


@pytest.mark.parametrize(
    ("version", "record"),
    [
        (None, "trtllm"), ("0.14.0", "trtllm-session"), ("0.18.2", "trtllm-session"), ("0.19", "trtllm"),
        ("0.20.0rc3", "trtllm"), ("1.0", "trtllm-v1"), ("v1.0.0rc3", "trtllm-v1"), ("1.0.1", "trtllm-v1"),
        ("1.1.0rc2.post2", "trtllm"), ("1.1-1.2", "trtllm"), ("1.2.0rc6", "trtllm"), ("10.11", "trtllm"),
        ("TensorRT 10.11, CUDA 12.9 MLPerf v5.1", "trtllm"), ("MLPerf v6.0", "trtllm"), ("2025-11-17", "trtllm"),
    ],
)  # fmt: skip
def test_releases_of_tensorrt_llm(version, record):
    assert engine_timing("TensorRT-LLM", version).name == record


def test_a_releases_record_is_that_engines_alone():
    for name in ("vllm", "sglang", "NVIDIA NIM (TensorRT-LLM)", "ATOM"):
        assert not engine_timing(name, "1.0").name.startswith("trtllm")


def test_records_of_releases_do_not_overlap():
    older = [r for r in engine_timings().values() if r.of == "trtllm"]
    for number in [(0, n) for n in range(8, 30)] + [(1, 0), (1, 1), (1, 2)]:
        assert sum(r.since <= number < r.until for r in older) <= 1, number


def test_only_tensorrt_llm_1_0_leaves_a_slot_idle():
    idle = {name: r.scheduling(8192).idle_slots for name, r in engine_timings().items()}
    assert idle.pop("trtllm-v1") == 0.5
    assert set(idle.values()) == {0.0}


def test_a_records_token_budget_comes_before_the_deployments():
    nim = engine_timing("NVIDIA NIM (TensorRT-LLM)")
    assert nim.name == "nim"
    assert (nim.scheduling(8192).token_budget, nim.scheduling(1e6).token_budget) == (32768.0, 32768.0)
    assert nim.scheduling(8192).mixed
    others = [r for name, r in engine_timings().items() if name != "nim"]
    assert {r.scheduling(1234.0).token_budget for r in others} == {1234.0}


def test_older_tensorrt_llm_sums_by_nccl_and_its_first_kernels_walk_whole_caches():
    library = {name for name, record in engine_timings().items() if record.library_all_reduce}
    whole = {name for name, record in engine_timings().items() if not record.splits_context}
    assert (library, whole) == ({"nim", "trtllm-session", "trtllm-v1"}, {"nim"})


@pytest.mark.parametrize("name", engine_timings())
def test_constants_of_a_record_are_known_and_few(name):
    record = engine_timings()[name]
    assert set(record.values) <= set(CONSTANTS)
    assert len(record.values) <= 10
    assert all(v > 0.0 for v in record.values.values())
    assert all(0.0 <= s <= 0.8 for s in record.spreads.values())
    assert record.basis in ("fitted end to end", "fitted", "assumed", "measured")
    assert set(record.residual) == {"tpot", "ttft", "rate"}


def test_an_engine_that_is_not_known_says_so():
    found = engine_timing("some server")
    assert (found.name, found.known) == ("generic", False)
    assert engine_timing("vllm").known


def test_only_built_engines_of_tensorrt_llm_look_past_a_models_windows():
    assert [timing.name for timing in engine_timings().values() if not timing.windows] == ["trtllm-session"]
