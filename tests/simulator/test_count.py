"""Where the closed form is out of its depth, simulation counts the replicas, and the plan says so."""

from dataclasses import replace

import pytest

import sizing
from sizing.simulator.count import fewest_replicas
from sizing.workload.arrivals import Gamma
from sizing.workload.shapes import shape

SLO = sizing.Slo(percentile=95.0, ttft_s=2.0, tpot_s=0.1)


def code(rate: float = 50.0) -> sizing.Workload:
    return replace(shape("code"), arrivals=Gamma(cv=4.85)).at_rate(rate)


def planned(workload: sizing.Workload, slo: sizing.Slo = SLO, **how: object) -> sizing.Plan:
    return sizing.plan("Qwen/Qwen3-8B", workload=workload, slo=slo, gpus=("h100", "h200"), **how)  # type: ignore[arg-type]


def test_the_search_finds_the_fewest_replicas_that_hold() -> None:
    best = planned(code(), verify=False).require()
    model = sizing.replica_model(best.deployment, steps=best.steps, memory=best.memory)
    asked: list[int] = []
    found = [fewest_replicas(code(), SLO, model, guess, progress=asked.append, patience_s=60.0) for guess in (1, 7, 20)]
    counts = {f.replicas for f in found}
    assert len(counts) == 1
    assert all(f.settled for f in found)
    (n,) = counts
    assert n is not None
    for f in found:
        assert dict(f.tried)[n]
        assert not dict(f.tried).get(n - 1, False)


def test_no_number_holds_a_target_below_one_step() -> None:
    best = planned(code(), verify=False).require()
    model = sizing.replica_model(best.deployment, steps=best.steps, memory=best.memory)
    found = fewest_replicas(code(), replace(SLO, tpot_s=1e-4), model, 2)
    assert found.replicas is None
    assert found.too_few == max(n for n, _ in found.tried)


def test_out_of_depth_simulation_answers_and_both_answers_are_said() -> None:
    closed, simulated = planned(code(), verify=False), planned(code())
    assert closed.require().caution
    assert closed.require().closed_form_replicas is None
    best = simulated.require()
    assert best.closed_form_replicas == next(
        e.fleet.replicas for e in closed.evaluations if e.deployment.gpu.id == best.deployment.gpu.id
    )
    said = next(n for n in simulated.notes if n.startswith(best.deployment.gpu.id))
    assert f"closed form says {best.closed_form_replicas:,}" in said
    assert "simulation" in said
    assert best.to_record()["replicas"] == best.fleet.replicas
    assert best.total_gpus == (best.fleet.replicas + best.spares.replicas) * best.deployment.gpus
    # the count holds at the planned traffic with the headroom asked for
    model = sizing.replica_model(best.deployment, steps=best.steps, memory=best.memory)
    replay = sizing.simulate(code(50.0 / 0.85), model, replicas=best.fleet.replicas, slo=SLO, seed=9, requests=20_000)
    assert replay["ttft_p95_s"].value <= 1.1 * SLO.ttft_s
    assert replay["tpot_p95_s"].value <= 1.1 * SLO.tpot_s


def test_in_depth_and_on_means_nothing_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("simulated")

    monkeypatch.setattr("sizing.planner.counted", never)
    chat = replace(shape("chat"), arrivals=Gamma(cv=2.0)).at_rate(60.0)
    answer = planned(chat, sizing.Slo(percentile=99.0, ttft_s=1.0, tpot_s=0.04))
    assert not answer.require().caution
    planned(code(), sizing.Slo(ttft_s=2.0, tpot_s=0.1))
    planned(code(), verify=False)
