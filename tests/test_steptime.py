"""Step times: the seeds' rooflines, golden ranges of measured kernels, additivity, draws, tables."""

from dataclasses import replace

import numpy as np
import pytest

from sizing.architecture import read_model
from sizing.calibration import calibration
from sizing.catalog import gpu
from sizing.deployment import Deployment, EngineSettings, NumberFormats, Parallelism
from sizing.engines.timing import engine_timing, engine_timings
from sizing.replica.run import ClosedLoop, Lengths, Room, predict_run
from sizing.steptime import nominal_and_draws, step_model, with_engine


def steps(name="Qwen/Qwen3-8B", chip="h100", cal="measured", engine="vllm", **layout):
    device = chip if not isinstance(chip, str) else gpu(chip)
    where = Deployment(
        model=read_model(name), gpu=device, parallelism=Parallelism(**layout), settings=EngineSettings(engine=engine)
    )
    return step_model(where, calibration(cal, device, engine))


def test_rule_of_thumb_decode_is_weights_and_cache_over_a_share_of_the_bandwidth():
    # Weights with the head, without the embedding table: (8.19e9 - 0.622e9) x 2 bytes; 147,456 bytes a token.
    weights = 2 * (36 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 12288) + 151_936 * 4096)
    expected = (weights + 64 * 2200 * 147_456) / (0.70 * 3.35e12)
    assert float(steps(cal="rule-of-thumb").decode_s(64, 2200)) == pytest.approx(expected, rel=1e-3)


def test_rule_of_thumb_prefill_is_linear_and_causal_attention_over_half_the_peak():
    linear = 2 * 2000 * 6_945_767_424 + 2 * 151_936 * 4096
    attention = 36 * 32 * 4 * 128 * 2000 * 2001 / 2
    expected = (linear + attention) / (0.50 * 989.4e12)
    assert float(steps(cal="rule-of-thumb").prefill_s(2000)) == pytest.approx(expected, rel=2e-3)


def test_measured_constants_stay_above_the_floor():
    s = steps()
    batch = np.array([1.0, 16, 128, 512])
    assert np.all(s.decode_s(batch, 2000) > s.floor_s(batch, batch * 2000))


def test_step_grows_with_batch_context_and_prompt():
    s = steps()
    assert np.all(np.diff(s.decode_s(np.array([1.0, 8, 64, 256]), 1000)) > 0)
    assert np.all(np.diff(s.decode_s(32, np.array([100.0, 1000, 10_000]))) > 0)
    assert np.all(np.diff(s.prefill_s(np.array([256.0, 1024, 4096, 16_384]))) > 0)


def test_nothing_to_do_takes_no_time():
    assert float(steps().step_s(0, 0)) == 0.0


def test_breakdown_adds_up_to_the_step_and_names_what_binds():
    s = steps()
    parts = s.breakdown(16, 16 * 1000)
    assert sum(time_s for _, time_s, _ in parts) == pytest.approx(float(s.step_s(16, 16_000)), rel=0.03)
    assert s.bound(16, 16_000) == "memory"
    assert s.bound(0, 0, 8192, 8192 * 8193 / 2) == "compute"


def test_draws_come_first_and_the_nominal_value_leads():
    known = with_engine(calibration("measured", gpu("h100")), engine_timing("vllm"))
    where = Deployment(model=read_model("Qwen/Qwen3-8B"), gpu=gpu("h100"))
    drawn = step_model(where, nominal_and_draws(known, 16)).decode_s(np.array([1.0, 64]), 2000.0)
    assert drawn.shape == (17, 2)
    assert drawn[0] == pytest.approx(step_model(where, known).decode_s(np.array([1.0, 64]), 2000.0), rel=1e-9)
    assert np.all(np.std(np.log(drawn[1:]), axis=0) > 0.002)


def test_table_agrees_with_the_model():
    s = steps()
    table = s.table(max_tokens=8192, max_batch=256, max_context=16_384)
    for batch, context, new in ((1, 500, 0), (64, 3000, 0), (200, 2000, 0), (32, 1000, 2048)):
        pairs = new * (new + 1) / 2
        ours = float(s.step_s(batch, batch * context, new, pairs))
        assert table.time_s(batch, batch * context, new, pairs) == pytest.approx(ours, rel=0.06)


COMPOSITIONS = ((1, 500, 0), (8, 4000, 0), (64, 3000, 0), (200, 2000, 0), (32, 1000, 2048), (0, 0, 4096))


@pytest.mark.parametrize("engine", ["trtllm", "sglang"])
@pytest.mark.parametrize(("name", "tp"), [("Qwen/Qwen3-8B", 1), ("Qwen/Qwen3-30B-A3B", 4)])
def test_tables_of_engines_that_work_ahead_agree_with_the_model(engine, name, tp):
    assert engine_timing(engine).overlaps
    s = steps(name, engine=engine, tp=tp)
    table = s.table(max_tokens=8192, max_batch=256, max_context=16_384)
    assert table.host_step_s == float(np.mean(s.engine.host_step_s)) > 0.0
    for batch, context, new in COMPOSITIONS:
        pairs = new * (new + 1) / 2
        ours = float(s.step_s(batch, batch * context, new, pairs))
        assert table.time_s(batch, batch * context, new, pairs) == pytest.approx(ours, rel=0.06), (batch, new)


def test_a_step_is_kernels_and_host_side_by_side_and_a_prefills_own_time_after():
    s = steps()
    own = replace(
        s.engine, scale=1.0, step_s=2e-4, sequence_s=3e-6, host_step_s=1e-3, host_sequence_s=2e-5, prefill_step_s=3e-3,
        prefill_token_s=1e-7, first_token_s=0.0,
    )  # fmt: skip
    s = s.with_calibration(replace(s.calibration, families={**s.calibration.families, "engine": own}))
    for batch, context, new in COMPOSITIONS:
        pairs = new * (new + 1) / 2
        one = s._step(batch, batch * context, new, pairs, None)
        kernels = float(s.kernels_s(one)) + 2e-4 + 3e-6 * batch + 1e-7 * new
        host = 1e-3 + 2e-5 * batch
        expected = (kernels**4 + host**4) ** 0.25 + (3e-3 if new else 0.0)
        assert float(s.step_s(batch, batch * context, new, pairs)) == pytest.approx(expected, rel=1e-9)


def test_engines_that_work_ahead_have_host_time_and_no_other_and_the_rest_the_other_way_round():
    for timing in engine_timings().values():
        beside, after = ({"host_step_s", "host_sequence_s"} & set(timing.values), {"step_s"} & set(timing.values))
        assert bool(beside) == timing.overlaps, timing.name
        assert not (beside and after), timing.name


def test_tensor_parallel_is_faster_but_less_than_its_gpus():
    one, four = (float(steps("meta-llama/Llama-3.1-8B-Instruct", tp=t).decode_s(8, 1000)) for t in (1, 4))
    assert one / 4 < four < one


def test_seed_stop_13_wave_of_16_on_one_h100():
    # 0.23 s to the first token and 6.8 ms a token; an independent configurator has 0.242 s and 6.66 ms.
    where = steps()
    run = predict_run(
        where, Room(kv_requests=300), ClosedLoop(users=16, requests=16), Lengths(input_tokens=1024, output_tokens=128),
        replace(engine_timing("vllm").scheduling(8192), lockstep=True),
    )  # fmt: skip
    assert 0.18 < run.ttft_s.value < 0.34
    assert 6e-3 < float(where.decode_s(1, 1000)) < 9e-3


def test_seed_stop_14_prefill_of_16k_tokens():
    # 0.5 s without a cache hit; an independent configurator has 0.449 s.
    assert 0.40 < float(steps().prefill_s(16_384)) < 0.56


def test_seed_stop_10_long_prompt_in_an_eager_engine():
    # Qwen2.5-7B: 32k at once 1.5 s (0.65 s at peak), the last chunk of 512 tokens 111 ms (13.5 ms at peak).
    s = steps("Qwen/Qwen2.5-7B", engine="transformers")
    assert 0.7 < float(s.prefill_s(32_768)) < 1.6
    assert 0.07 < float(s.prefill_s(512, 32_768 - 512)) < 0.16


def test_seed_stop_7_copying_a_growing_cache():
    # SmolLM2-135M at 32k on 273 GB/s: 18 ms with a copy of the 755 MB cache every step, 12.6 ms without.
    laptop = replace(
        gpu("h100"), id="laptop", memory_bandwidth_bytes_per_s=273e9, peak_flops_per_s={"fp16": 17e12, "bf16": 17e12}
    )
    s = steps("HuggingFaceTB/SmolLM2-135M-Instruct", laptop, engine="transformers")
    copied = float(s.decode_s(1, 32_768))
    kept = float(replace(s, cache_copies=0.0).decode_s(1, 32_768))
    assert 0.010 < kept < 0.016
    assert 0.004 < copied - kept < 0.009


def test_engines_have_at_most_ten_fitted_numbers():
    from sizing.engines.timing import engine_timings

    assert all(len(record.values) <= 10 for record in engine_timings().values())


def test_narrow_weights_are_faster_in_decode():
    where = Deployment(model=read_model("Qwen/Qwen3-8B"), gpu=gpu("b200"))
    wide = step_model(where, calibration("measured", gpu("b200"))).decode_s(4, 500)
    for weights in ("fp8", "nvfp4"):
        narrow = replace(where, formats=NumberFormats(weights=weights))
        assert float(step_model(narrow, calibration("measured", gpu("b200"))).decode_s(4, 500)) < float(wide)


def test_each_rank_of_data_parallel_attention_schedules_its_own_sequences():
    # DeepSeek-R1 on GB200 NVL72, 4,300 users on 16 decode ranks: 33 ms a token measured (id ix-03002), of which a host
    # that streamed all of them at 20 us each would take 86
    own = engine_timing("trtllm").values["host_sequence_s"]
    found = {}
    for dp in (1, 8):
        layout = Parallelism(tp=8 // dp, dp=dp, ep=8)
        where = Deployment(model=read_model("deepseek-ai/DeepSeek-R1"), gpu=gpu("gb200"), parallelism=layout,
                           settings=EngineSettings(engine="trtllm"))  # fmt: skip
        model = step_model(where, calibration("measured", gpu("gb200"), "trtllm"))
        silent = replace(model.engine, host_step_s=0.0, host_sequence_s=0.0)
        families = {**model.calibration.families, "engine": silent}
        quiet = model.with_calibration(replace(model.calibration, families=families))
        kernels, whole = (float(m.decode_s(4096, 1000)) for m in (quiet, model))
        found[dp] = (whole**4 - kernels**4) ** 0.25 - model.engine.host_step_s
        assert model.table().host_sequence_s == pytest.approx(own / dp)
    assert found == pytest.approx({1: 4096 * own, 8: 512 * own}, rel=1e-3)
