"""The arithmetic of one candidate, line by line: each a formula with its numbers and units."""

from sizing.answer import Evaluation, Plan
from sizing.reports.table import headline, verdict
from sizing.units import format_bytes, format_count


def explain(plan: Plan) -> str:
    """The arithmetic of the cheapest candidate, or the reason of the first rejected one."""
    if plan.best is None:
        return f"{headline(plan)}\n\n{verdict(plan)}\n"
    return explain_evaluation(plan, plan.best)


def explain_evaluation(plan: Plan, evaluation: Evaluation) -> str:
    """Numbered steps from weights to cost, so that a reader can redo them with a pocket calculator."""
    sections = (
        ("Memory of one GPU", _memory(plan, evaluation)),
        ("Decode", _decode(plan, evaluation)),
        ("Prefill", _prefill(plan, evaluation)),
        ("One replica", _replica(plan, evaluation)),
        ("The fleet", _fleet(plan, evaluation)),
        ("Cost", _cost(plan, evaluation)),
    )
    lines = [headline(plan), f"{evaluation.deployment.gpu.id}, {evaluation.deployment.parallelism}", ""]
    number = 0
    for title, steps in sections:
        lines.append(title)
        for step in steps:
            number += 1
            lines.append(f"  {number:2d}. {step}")
        lines.append("")
    return "\n".join([*lines, verdict(plan)]) + "\n"


def _memory(plan: Plan, e: Evaluation) -> list[str]:
    memory, model, tp = e.memory, e.deployment.model, e.deployment.parallelism.tp
    per_request = plan.workload.mean_input_tokens + plan.workload.mean_output_tokens
    lines = [
        f"parameters = {format_count(model.parameters)}",
        *(f"{line.name} = {line.formula} = {format_bytes(line.bytes)}" for line in memory.lines),
        f"KV bytes per token on each GPU = {format_count(memory.kv_bytes_per_token)} B ({model.name}, TP {tp})",
        f"requests that fit = {format_count(memory.kv_tokens)} tokens / {per_request:,.0f} tokens a request = "
        f"{memory.max_requests(per_request):,.1f}",
    ]
    return lines


def _decode(plan: Plan, e: Evaluation) -> list[str]:
    batch, work = e.batch, plan.workload
    lines = [
        f"mean context = input + output / 2 = {work.mean_input_tokens:,.0f} + {work.mean_output_tokens:,.0f} / 2 = "
        f"{batch.mean_context_tokens:,.0f} tokens",
        *_decode_step(e),
        f"largest batch = least of {batch.tpot_requests:,.1f} (step <= TPOT {plan.slo.tpot_s * 1e3:.3g} ms), "
        f"{batch.kv_requests:,.1f} (KV room), {batch.engine_requests:,.0f} (the engine's limit) = "
        f"{batch.max_requests:,.1f} requests; its step takes {batch.step_s * 1e3:.3f} ms",
    ]
    return lines


def _decode_step(e: Evaluation) -> list[str]:
    """The decode step at the largest batch: one roofline when constants are shares, else operation by operation."""
    batch, context, steps = e.batch.max_requests, e.batch.mean_context_tokens, e.steps
    gpu = e.deployment.gpu
    if not steps.calibration.ideal:
        return _operations(steps.breakdown(batch, batch * context), "decode step")
    read = steps.moved_bytes(batch, 0.0)
    share = float(steps.calibration.gemm("bf16").memory_fraction)
    rate = gpu.memory_bandwidth_bytes_per_s
    return [
        f"weights read in each step = {format_bytes(read)} (all matrices and the head once, not the embedding table)",
        f"decode step = (weights + batch x context x KV per token) / (bandwidth x MBU) = ({format_bytes(read)} + "
        f"{batch:,.1f} x {context:,.0f} x {format_count(e.memory.kv_bytes_per_token)} B) / "
        f"({rate / 1e12:.4g} TB/s x {share:.3g}) = {float(steps.decode_s(batch, context)) * 1e3:.3f} ms",
    ]


def _prefill_step(plan: Plan, e: Evaluation) -> list[str]:
    """Prefill of one prompt, the same way."""
    tokens, steps, gpu = plan.workload.mean_input_tokens, e.steps, e.deployment.gpu
    pairs = tokens * (tokens + 1) / 2
    if not steps.calibration.ideal:
        return _operations(steps.breakdown(0.0, 0.0, tokens, pairs), "prefill")
    flops = steps.flops(0.0, 0.0, tokens, pairs)
    attention = flops - steps.flops(0.0, 0.0, tokens, 0.0)
    share = float(steps.calibration.gemm("bf16").compute_fraction)
    peak = flops / float(steps.floor_s(0.0, 0.0, tokens, pairs))
    return [
        f"operations of one prompt = 2 x matrix weights x {tokens:,.0f} + causal attention = "
        f"{(flops - attention) / 1e12:.3f} + {attention / 1e12:.3f} TFLOP",
        f"prefill = {flops / 1e12:.3f} TFLOP / ({peak / 1e12:.4g} TFLOP/s of {gpu.id} x MFU {share:.3g})",
    ]


def _operations(found: list[tuple[str, float, str]], what: str, most: int = 8) -> list[str]:
    """The longest operations of a step, then the sum of all."""
    shown = [f"{name}: {time_s * 1e3:.3f} ms, bound by {bound}" for name, time_s, bound in found[:most]]
    rest = sum(time_s for _, time_s, _ in found[most:])
    total = sum(time_s for _, time_s, _ in found)
    return [
        *shown,
        f"{what} = sum of these + {rest * 1e3:.3f} ms of {len(found[most:])} smaller = {total * 1e3:.3f} ms",
    ]


def _prefill(plan: Plan, e: Evaluation) -> list[str]:
    return [
        *_prefill_step(plan, e),
        f"prefill of one prompt = {e.replica.prefill_s * 1e3:.3f} ms",
    ]


def _replica(plan: Plan, e: Evaluation) -> list[str]:
    replica, batch, osl = e.replica, e.batch, plan.workload.mean_output_tokens
    lines = [
        f"decode seconds of one request = output x step / batch = {osl:,.0f} x {batch.step_s * 1e3:.3f} ms / "
        f"{batch.max_requests:,.1f} = {replica.decode_gpu_s * 1e3:.3f} ms",
    ]
    added = (
        f"1 / (prefill + decode) = 1 / ({replica.prefill_s * 1e3:.3f} ms + {replica.decode_gpu_s * 1e3:.3f} ms) = "
        f"{1.0 / (replica.prefill_s + replica.decode_gpu_s):.3f}/s"
    )
    if replica.method == "additive":
        lines.append(f"requests a second of one replica = {added}")
    elif replica.method == "time-share":
        lines.append(
            f"requests a second of one replica within TTFT and TPOT = {replica.request_rate_per_s:.3f}/s; its queue "
            f"grows without end from {replica.saturated_rate_per_s:.3f}/s"
        )
    else:
        lines += [
            f"to hold against the next line, the plain sum: {added}",
            f"requests a second of one replica within TTFT and TPOT, prompts and answers sharing steps = "
            f"{replica.request_rate_per_s:.3f}/s (TPOT = step / (1 - prefill share), rate = decoding / ((output - 1) "
            f"x TPOT))",
        ]
    return [*lines, f"limited by {replica.limited_by}"]


def _fleet(plan: Plan, e: Evaluation) -> list[str]:
    fleet, work, replica = e.fleet, plan.workload, e.replica
    rate, rho = work.request_rate_per_s, plan.targets.utilization
    in_flight = rate * work.mean_output_tokens * plan.slo.tpot_s
    lines = [
        f"requests in flight at the TPOT target = rate x output x TPOT = {rate:g}/s x {work.mean_output_tokens:,.0f} x "
        f"{plan.slo.tpot_s * 1e3:.3g} ms = {in_flight:,.0f} (Little's law)",
        f"prefill GPUs' worth of replicas = rate x prefill = {rate:g}/s x {replica.prefill_s * 1e3:.3f} ms = "
        f"{rate * replica.prefill_s:.3f}",
        f"decode GPUs' worth of replicas = rate x decode = {rate:g}/s x {replica.decode_gpu_s * 1e3:.3f} ms = "
        f"{rate * replica.decode_gpu_s:.3f}",
    ]
    planned = replica.planned_rate_per_s(rho)
    lines += [
        f"planned rate of one replica, headroom off = {planned:.3f}/s (target utilisation {rho:g})",
        f"replicas = {rate:g}/s / {planned:.3f}/s = {fleet.exact_replicas:.3f}, rounded up = {fleet.replicas:,}",
        f"at {fleet.rate_per_replica_per_s:.3f}/s each: TPOT {float(e.load.tpot_s) * 1e3:.2f} ms, TTFT "
        f"{float(e.load.ttft_s) * 1e3:.1f} ms, {float(e.load.concurrency):,.1f} requests decoding, utilisation "
        f"{fleet.utilization:.0%}",
        f"total GPUs = ({fleet.replicas:,} + {e.spares.replicas:,} spares) x {e.deployment.gpus} = {e.total_gpus:,}",
    ]
    return lines


def _cost(plan: Plan, e: Evaluation) -> list[str]:
    usd, cost = e.cost.usd_per_gpu_hour, e.cost
    if usd is None or cost.usd_per_hour is None:
        return ["no price is known for this GPU; give --price"]
    tokens = plan.workload.request_rate_per_s * plan.workload.mean_output_tokens
    return [
        f"USD per hour = {e.total_gpus:,} GPUs x {usd:.4g} = {cost.usd_per_hour:,.2f}",
        f"USD per million output tokens = 10^6 x {cost.usd_per_hour:,.2f} / (3600 x {tokens:,.0f} tokens/s) = "
        f"{cost.usd_per_million_output_tokens:,.3f}",
    ]
