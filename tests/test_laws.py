"""Laws that hold for every GPU and model of the catalogue, whatever the numbers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sizing

GPUS = ("h100-sxm", "h200-sxm", "b200-hgx", "mi300x", "l40s", "a100-80-sxm", "l4", "a10g")
MODELS = (
    "Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", "meta-llama/Llama-3.1-70B-Instruct", "Qwen/Qwen3-30B-A3B",
    "deepseek-ai/DeepSeek-V2-Lite", "google/gemma-2-9b-it", "openai/gpt-oss-20b",
)  # fmt: skip
CALIBRATIONS = ("rule-of-thumb", "measured")
rates = st.floats(min_value=0.05, max_value=2_000)
lengths = st.integers(min_value=16, max_value=8_000)
slos = st.floats(min_value=0.004, max_value=0.2)
choices = {
    "model": st.sampled_from(MODELS), "gpu": st.sampled_from(GPUS), "calibration": st.sampled_from(CALIBRATIONS),
}  # fmt: skip


def total(
    model: str, gpu: str | sizing.Gpu, calibration: str, rate: float, isl: float, osl: float, tpot_s: float,
    ttft_s: float = 2.0, tp: int | None = None,
) -> float:  # fmt: skip
    """GPUs in total; infinite when infeasible."""
    answer = sizing.plan(
        model, workload=sizing.Workload(request_rate_per_s=rate, input_tokens=isl, output_tokens=osl),
        slo=sizing.Slo(ttft_s=ttft_s, tpot_s=tpot_s), gpus=(gpu,), calibration=calibration,
        parallelism=sizing.Parallelism(tp=tp) if tp else None,
    )  # fmt: skip
    return answer.best.total_gpus if answer.best else np.inf


@settings(max_examples=60, deadline=None)
@given(rate=rates, isl=lengths, osl=lengths, tpot=slos, more=st.floats(min_value=1.0, max_value=20.0), **choices)
def test_more_traffic_never_needs_fewer_gpus(
    model: str, gpu: str, calibration: str, rate: float, isl: int, osl: int, tpot: float, more: float
) -> None:
    assert total(model, gpu, calibration, rate * more, isl, osl, tpot) >= total(
        model, gpu, calibration, rate, isl, osl, tpot
    )


@settings(max_examples=60, deadline=None)
@given(
    rate=rates,
    isl=lengths,
    osl=lengths,
    tpot=slos,
    tighter=st.floats(min_value=0.1, max_value=1.0),
    **choices,
)
def test_a_tighter_tpot_never_needs_fewer_gpus(
    model: str, gpu: str, calibration: str, rate: float, isl: int, osl: int, tpot: float, tighter: float
) -> None:
    assert total(model, gpu, calibration, rate, isl, osl, tpot * tighter) >= total(
        model, gpu, calibration, rate, isl, osl, tpot
    )


@settings(max_examples=40, deadline=None)
@given(rate=rates, isl=lengths, osl=lengths, tpot=slos, ttft=st.floats(min_value=0.05, max_value=2.0), **choices)
def test_a_tighter_ttft_never_needs_fewer_gpus(
    model: str, gpu: str, calibration: str, rate: float, isl: int, osl: int, tpot: float, ttft: float
) -> None:
    tight = total(model, gpu, calibration, rate, isl, osl, tpot, ttft_s=ttft)
    assert tight >= total(model, gpu, calibration, rate, isl, osl, tpot, ttft_s=2.0)


@settings(max_examples=40, deadline=None)
@given(rate=rates, isl=lengths, osl=lengths, tpot=slos, faster=st.floats(min_value=1.0, max_value=4.0), **choices)
def test_more_bandwidth_never_needs_more_gpus(
    model: str, gpu: str, calibration: str, rate: float, isl: int, osl: int, tpot: float, faster: float
) -> None:
    slow = sizing.gpu(gpu)
    fast = replace(slow, memory_bandwidth_bytes_per_s=slow.memory_bandwidth_bytes_per_s * faster)
    assert total(model, fast, calibration, rate, isl, osl, tpot) <= total(
        model, slow, calibration, rate, isl, osl, tpot
    )


def test_a_curve_that_dips_breaks_no_law() -> None:
    # Found by the law above: this chip's rate falls between two batches, and Little's law refused the answer.
    slow = sizing.gpu("h100-sxm")
    fast = replace(slow, memory_bandwidth_bytes_per_s=3.5 * slow.memory_bandwidth_bytes_per_s)
    asked = ("measured", 51.0, 183, 802, 0.125)
    model = "meta-llama/Llama-3.1-70B-Instruct"
    assert total(model, fast, *asked) <= total(model, slow, *asked) < np.inf


@pytest.mark.parametrize("gpu", sizing.gpus())
def test_every_gpu_of_the_catalogue_gives_an_answer(gpu: str) -> None:
    answer = sizing.plan("Qwen/Qwen3-0.6B", gpus=(gpu,))
    assert answer.status in ("feasible", "infeasible")
    for evaluation in answer.evaluations:
        assert evaluation.serving_gpus + evaluation.spare_gpus == evaluation.total_gpus
        assert 0 < evaluation.fleet.utilization <= 1
        assert float(evaluation.load.tpot_s) <= answer.slo.tpot_s * (1 + 1e-9)
        assert float(evaluation.load.ttft_s) <= answer.slo.ttft_s * (1 + 1e-9)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_scalar_and_array_steps_agree(model: str, calibration: str) -> None:
    gpu = sizing.gpu("h100-sxm")
    deployment = sizing.Deployment(model=sizing.read_model(model), gpu=gpu)
    steps = sizing.step_model(deployment, sizing.load_calibration(calibration, gpu=gpu))
    batches = np.array([1.0, 7.0, 64.0, 300.0])
    together = steps.decode_s(batches, 2_000.0)
    assert together == pytest.approx([float(steps.decode_s(b, 2_000.0)) for b in batches], rel=1e-12)
    assert np.all(np.diff(together) >= 0)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("gpu", GPUS)
def test_the_parts_of_the_memory_budget_sum_to_the_total(model: str, gpu: str) -> None:
    budget = sizing.memory_budget(sizing.Deployment(model=sizing.read_model(model), gpu=sizing.gpu(gpu)))
    assert sum(line.bytes for line in budget.lines) == pytest.approx(budget.total_bytes, rel=1e-12)
    assert budget.kv_bytes >= 0


@pytest.mark.parametrize(
    ("rate", "isl", "osl", "tpot"),
    [(1.0, 810, 16, 0.1), (58.0, 16, 16, 0.125), (0.05, 16, 16, 0.004), (2_000.0, 16, 8_000, 0.2)],
)
def test_odd_shapes_on_a_card_without_links_give_an_answer(rate: float, isl: int, osl: int, tpot: float) -> None:
    answer = sizing.plan(
        "Qwen/Qwen3-8B", workload=sizing.Workload(request_rate_per_s=rate, input_tokens=isl, output_tokens=osl),
        slo=sizing.Slo(ttft_s=2.0, tpot_s=tpot), gpus=("l40s",),
    )  # fmt: skip
    assert all(r.limit != "law" for r in answer.rejected)
    assert len(answer.evaluations) + len(answer.rejected) == 1
