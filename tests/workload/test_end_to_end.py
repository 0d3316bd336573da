"""A trace read, planned for its busiest minute at a percentile, and replayed on the plan."""

from pathlib import Path

import pytest
from tests.workload.generated import mooncake_rows, objects
from tests.workload.test_fit_and_files import traced

import sizing
from sizing.simulator import simulate
from sizing.workload import Empirical, Lognormal, OnOff, Workload, diurnal, read_trace

SLO = sizing.Slo(ttft_s=2.0, tpot_s=0.030, percentile=90)


def replayed(path: Path) -> tuple[int, float, float, float]:
    """Serving GPUs of the plan; goodput, share of refused requests and prefix hits of the replay on them."""
    trace = read_trace(path)
    best = sizing.plan(
        "Qwen/Qwen3-8B", workload=trace.to_workload(rate="peak-minute"), slo=SLO, gpus=("h100",)
    ).require()
    result = simulate(trace, best.deployment, replicas=best.serving_gpus, router="prefix-aware", slo=SLO, warm_up=0.0)
    found = {k: v.value for k, v in result.estimates.items()}
    refused = found["refused"] / len(trace)
    return best.serving_gpus, found["goodput"], refused, found["prefix_hit_share"]


def test_a_generated_log(tmp_path: Path) -> None:
    chat = Workload(
        request_rate_per_s=10.0,
        input_tokens=Lognormal(mean_tokens=1000, cv=1.0, most_tokens=16_000),
        output_tokens=Lognormal(mean_tokens=200, cv=1.0, most_tokens=2_000),
    )
    gpus, goodput, refused, _ = replayed(traced(tmp_path, chat, 4000))
    assert 1 <= gpus <= 4
    assert goodput > 0.9
    assert refused == 0


def test_generated_hashes_are_found_in_the_cache(tmp_path: Path) -> None:
    path = objects(tmp_path / "m.jsonl", mooncake_rows(100))
    ideal = read_trace(path).summary().reused_share
    _, goodput, _, hits = replayed(path)
    assert goodput > 0.9
    assert 0.5 * ideal < hits <= ideal + 1e-9


@pytest.mark.parametrize(
    "name",
    [
        "azure_llm_2023_code.csv",
        "azure_llm_2023_conv.csv",
        "mooncake_fast25_conversation.jsonl.gz",
        "mooncake_fast25_synthetic.jsonl.gz",
    ],
)
def test_a_published_trace(shared: Path, name: str) -> None:
    """The plan holds for the requests that the model's context takes; the rest are misses by right."""
    gpus, goodput, refused, hits = replayed(shared / "ecosystem" / "samples" / name)
    assert 1 <= gpus <= 24
    assert goodput > 0.88 * (1 - refused)
    assert refused < 0.10
    assert ("mooncake" in name) == (hits > 0)


@pytest.mark.parametrize("percentile", [None, 95])
def test_a_day_is_planned_for_its_peak(percentile: float | None) -> None:
    """A profile that is 1.6 times its mean at noon needs what a steady stream of 1.6 times the rate needs."""
    day = Workload(request_rate_per_s=20.0, input_tokens=2000, output_tokens=400, arrivals=diurnal(0.6, steps=24))
    steady = Workload(request_rate_per_s=day.peak_rate_per_s, input_tokens=2000, output_tokens=400)
    slo = sizing.Slo(ttft_s=1.0, tpot_s=0.020, percentile=percentile)
    of_day, of_peak = (sizing.plan("Qwen/Qwen3-8B", workload=w, slo=slo, gpus=("h100",)) for w in (day, steady))
    assert of_day.require().fleet == of_peak.require().fleet
    assert any("busiest time, 31.9 requests/s of 20 on average" in note for note in of_day.notes)
    assert not any("busiest" in note for note in of_peak.notes)


@pytest.mark.parametrize("percentile", [None, 95])
@pytest.mark.parametrize("on_s", [10.0, 600.0])
def test_busy_states_are_not_planned_for_as_a_poisson_stream(percentile: float | None, on_s: float) -> None:
    bursts = OnOff(on_s=on_s, off_s=3 * on_s, quiet_share=0.1)
    load = Workload(request_rate_per_s=10.0, input_tokens=2000, output_tokens=400, arrivals=bursts)
    slo = sizing.Slo(ttft_s=1.0, tpot_s=0.020, percentile=percentile)
    best = sizing.plan("Qwen/Qwen3-8B", workload=load, slo=slo, gpus=("h100",)).require()
    replayed = simulate(load, best.deployment, replicas=best.fleet.replicas, slo=slo, requests=30_000, seed=100)
    assert replayed.attained, replayed.judgement()


def test_requests_beyond_the_context_are_said() -> None:
    """Half of the requests have 50,000 tokens in, where the model takes 40,960."""
    mixed = Empirical(tokens=(1000.0, 50_000.0), weights=(1.0, 1.0))
    plans = [
        sizing.plan(
            "Qwen/Qwen3-8B", gpus=("h100",), slo=sizing.Slo(ttft_s=20.0, tpot_s=0.2),
            workload=Workload(request_rate_per_s=0.5, input_tokens=lengths, output_tokens=100),
        )
        for lengths in (mixed, 1000)
    ]  # fmt: skip
    (said,) = (note for note in plans[0].notes if "longer than 40,960 tokens" in note)
    assert 49 < float(said.split("%")[0]) < 51
    assert not any("longer than" in note for note in plans[1].notes)


def test_traffic_beyond_the_context_is_infeasible() -> None:
    plan = sizing.plan(
        "Qwen/Qwen3-8B", gpus=("h100",), slo=sizing.Slo(ttft_s=100.0, tpot_s=1.0),
        workload=Workload(request_rate_per_s=1.0, input_tokens=100_000, output_tokens=400),
    )  # fmt: skip
    assert plan.best is None
    (rejected,) = plan.rejected
    assert (rejected.limit, "100,400 tokens" in rejected.reason, "40,960" in rejected.reason) == ("context", True, True)
