"""A candidate that the closed form should not be relied on for, counted by simulation."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from sizing.answer import Evaluation, Interval
from sizing.cost import price_fleet
from sizing.fleet import Fleet, Targets
from sizing.workload import Slo, Workload

if TYPE_CHECKING:
    from sizing.simulator.count import FewestReplicas

Progress = Callable[[str, int], None]


def counted(
    evaluation: Evaluation, workload: Workload, slo: Slo, targets: Targets, progress: Progress | None = None
) -> tuple[Evaluation, str]:
    """The candidate with the number of replicas that simulation needs, and what is to be said of it.

    The headroom is the plan's: replicas hold the targets at the traffic over the target utilisation.

    Parameters
    ----------
    evaluation
        By the closed form.
    workload, slo, targets
        What was asked.
    progress
        Called with the GPU and each number of replicas before it is tried.
    """
    from sizing.simulator.count import fewest_replicas
    from sizing.simulator.replicamodel import replica_model

    model = replica_model(evaluation.deployment, steps=evaluation.steps, memory=evaluation.memory)
    name, guess = evaluation.deployment.gpu.id, evaluation.fleet.replicas

    def shown(n: int) -> None:
        if progress is not None:
            progress(name, n)

    busier = workload.at_rate(workload.request_rate_per_s / targets.utilization)
    found = fewest_replicas(busier, slo, model, guess, progress=shown)
    if found.replicas is None:
        tried = ", ".join(f"{n:,}" for n, _ in found.tried)
        return evaluation, (
            f"{name}: {evaluation.caution}; simulated, {tried} replicas do not hold the targets either; the count is "
            "the closed form's and not to be relied on"
        )
    return _with(evaluation, found, workload, slo, targets, model), _said(evaluation, found, name)


def _said(evaluation: Evaluation, found: "FewestReplicas", name: str) -> str:
    n, closed = found.replicas, evaluation.fleet.replicas
    same = "simulation agrees" if n == closed else f"simulation needs {n:,}, and the plan takes its count"
    open_end = "" if found.settled else f" (fewer than {n:,} but more than {found.too_few:,} were not tried in time)"
    return f"{name}: {evaluation.caution}; the closed form says {closed:,} replicas, {same}{open_end}"


def _with(
    evaluation: Evaluation, found: "FewestReplicas", workload: Workload, slo: Slo, targets: Targets, model: object
) -> Evaluation:
    """Everything that hangs on the number of replicas, with latencies as simulated at the planned traffic."""
    from sizing.simulator.count import RUNS, run_length
    from sizing.simulator.replicamodel import ReplicaModel
    from sizing.simulator.simulation import simulate

    assert isinstance(model, ReplicaModel)
    n, closed = found.replicas or evaluation.fleet.replicas, evaluation.fleet
    rate = workload.request_rate_per_s
    seen = simulate(workload, model, replicas=n, slo=slo, replications=RUNS, warm_up=0.2, requests=run_length(rate))
    ttft, tpot = (sum(getattr(a, x) for a in seen.attainment) / len(seen.attainment) for x in ("ttft_s", "tpot_s"))
    load = replace(evaluation.load, ttft_s=ttft, tpot_s=tpot, concurrency=seen["requests_present"].value / n)
    fleet = Fleet(replicas=n, exact_replicas=float(n), rate_per_replica_per_s=rate / n, utilization=targets.utilization)
    interval = None
    if evaluation.interval is not None:
        was, more = evaluation.interval, n / closed.replicas
        slower, longer = ttft / float(evaluation.load.ttft_s), tpot / float(evaluation.load.tpot_s)
        interval = Interval(
            replicas_low=max(round(was.replicas_low * more), 1), replicas_high=max(round(was.replicas_high * more), n),
            ttft_low_s=was.ttft_low_s * slower, ttft_high_s=was.ttft_high_s * slower,
            tpot_low_s=was.tpot_low_s * longer, tpot_high_s=was.tpot_high_s * longer,
        )  # fmt: skip
    gpus = (n + evaluation.spares.replicas) * evaluation.deployment.gpus
    return replace(
        evaluation, fleet=fleet, load=load, interval=interval, closed_form_replicas=closed.replicas,
        cost=price_fleet(gpus, evaluation.cost.usd_per_gpu_hour, workload),
    )  # fmt: skip
