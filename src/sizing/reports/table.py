"""A plan as a terminal table, with its assumptions and a verdict in words."""

from sizing.answer import Evaluation, Plan
from sizing.reports import REPORTS
from sizing.reports.tabular import aligned, shown
from sizing.units import format_duration, format_rate


def headline(plan: Plan) -> str:
    """What was asked, in one line."""
    work, slo = plan.workload, plan.slo
    return (
        f"{plan.model.name}: {format_rate(work.request_rate_per_s)}, {work.mean_input_tokens:,.0f} tokens in, "
        f"{work.mean_output_tokens:,.0f} out, TTFT <= {format_duration(slo.ttft_s)}, "
        f"TPOT <= {format_duration(slo.tpot_s)} ({statistic(plan)}), calibration {plan.calibration}"
    )


def statistic(plan: Plan) -> str:
    """Which statistic the targets are about."""
    ttft, tpot = plan.slo.ttft_at, plan.slo.tpot_at
    if ttft is None and tpot is None:
        return "mean over requests"
    if ttft == tpot:
        return f"p{ttft:g} of requests"
    named = ("mean" if at is None else f"p{at:g}" for at in (ttft, tpot))
    return "TTFT {}, TPOT {} of requests".format(*named)


def total(evaluation: Evaluation) -> str:
    """GPUs in total, with the 80 % interval where it is wider than one number: ``6 (5-7)``."""
    between = evaluation.total_between()
    if between is None:
        return f"{evaluation.total_gpus:,}"
    return f"{evaluation.total_gpus:,} ({between[0]:,}-{between[1]:,})"


def row(evaluation: Evaluation) -> dict[str, object]:
    """One candidate as the table shows it."""
    record = evaluation.to_record()
    usd, token_usd = record["usd_per_hour"], record["usd_per_million_output_tokens"]
    return {
        "GPU": record["gpu"],
        "replicas": f"{record['replicas']:,} x {record['gpus_per_replica']}",
        "serving": record["serving_gpus"],
        "spares": record["spare_gpus"],
        "total": total(evaluation),
        "TPOT": format_duration(float(record["tpot_s"])),  # type: ignore[arg-type]
        "TTFT": format_duration(float(record["ttft_s"])),  # type: ignore[arg-type]
        "utilization": f"{evaluation.fleet.utilization:.0%}",
        "limited by": record["limited_by"],
        "USD/hour": "-" if usd is None else f"{usd:,.2f}",
        "USD/M output tokens": "-" if token_usd is None else f"{token_usd:,.3f}",
    }


def verdict(plan: Plan) -> str:
    """The answer in words."""
    best = plan.best
    if best is None:
        lines = [f"No GPU asked for can serve this. {r.deployment.gpu.id}: {r.reason}; {r.remedy}."
                 for r in plan.rejected[:1]]  # fmt: skip
        return " ".join(lines) or "No GPU was asked for."
    cost = best.cost.usd_per_hour
    money = "no price known" if cost is None else (
        f"{cost:,.2f} USD/hour, {best.cost.usd_per_million_output_tokens:,.3f} USD per million output tokens"
    )  # fmt: skip
    return (
        f"{'Cheapest: ' if len(plan.evaluations) > 1 else ''}{best.total_gpus:,} {best.deployment.gpu.id} "
        f"({best.serving_gpus:,} serving + {best.spare_gpus:,} spare), {money}."
    )


def assumption_rows(plan: Plan) -> list[dict[str, object]]:
    """Assumptions as rows."""
    return [
        {"assumed": a.name, "value": f"{shown(a.value)} {a.unit if a.unit != '1' else ''}".strip(), "basis": a.basis,
         "why": a.source if len(a.source) <= 90 else a.source[:87] + "..."}
        for a in plan.assumptions
    ]  # fmt: skip


@REPORTS.register("table")
def table(plan: Plan) -> str:
    """Candidates, the cheapest first; rejected ones with their remedy; assumptions; the verdict."""
    lines = [headline(plan), ""]
    if plan.evaluations:
        lines += [*aligned([row(e) for e in plan.evaluations]), ""]
    for refused in plan.rejected:
        where = f"{refused.deployment.gpu.id} {refused.deployment.parallelism}"
        lines += [f"{where}: infeasible, {refused.reason}.", f"  Remedy: {refused.remedy}."]
    if plan.rejected:
        lines.append("")
    if plan.assumptions:
        lines += ["Assumed, since you did not say:", *aligned(assumption_rows(plan)), ""]
    if plan.verification is not None:
        lines += [f"Replayed in the simulator, {plan.evaluations[0].deployment.gpu.id}:"]
        lines += [*aligned(plan.verification.to_records()), ""]
    lines += [f"Note: {n}" for n in plan.notes]
    return "\n".join([*lines, verdict(plan)]) + "\n"
