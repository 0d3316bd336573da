"""Simulate a fleet, iteration by iteration."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sizing import units
from sizing.cli._options import (
    AttentionRanks,
    Cv,
    ExpertRanks,
    Format,
    OutFile,
    Output,
    Percentile,
    Rps,
    Shape,
    Stages,
    Text,
    TpotPercentile,
    TtftPercentile,
    option,
)
from sizing.cli.arguments import PlanOptions, positive_rate
from sizing.cli.output import emit
from sizing.errors import InputError

if TYPE_CHECKING:
    from sizing.cli._simulation import Question

Found = tuple[list[dict[str, object]], list[str], dict[str, object]]
"""Rows, notes, sections of the document."""
LINK_BYTES_PER_S = 5e10
"""One 400 Gb/s network card a replica, as the closed form of separate pools takes it. [byte/s]"""


def command(
    model: Annotated[Text, option("Catalogue name, Hugging Face id, folder or config.json.", "--model", "-m")] = None,
    gpu: Annotated[Text, option("GPU.", "--gpu", "-g")] = None,
    rps: Rps = None,
    input: Annotated[Text, option("Mean input tokens.")] = None,
    output: Output = None,
    shape: Shape = None,
    cv: Cv = None,
    trace: Annotated[
        Text, option("Traffic trace, replayed as it is, or a workload file; - for standard input.")
    ] = None,
    config: Annotated[
        Path | None, option("Plan file with any of the main job's options; - for standard input.")
    ] = None,
    concurrency: Annotated[
        Text, option("Users that each wait for their answer, in place of a rate; several: 1,8,64.")
    ] = None,
    pause: Annotated[str, typer.Option(help="Time between an answer and the same user's next request.")] = "0s",
    rates: Annotated[Text, option("Simulate each of these request rates: 1,2,4,8.")] = None,
    sustainable: Annotated[
        bool, typer.Option("--sustainable", help="Search the largest rate at which the targets hold.")
    ] = False,
    goodput: Annotated[
        Text, option("Search the largest rate at which this share of requests is within the targets: 99%.")
    ] = None,
    compare_policies: Annotated[
        bool, typer.Option("--compare-policies", help="Search that rate for each way to batch and to keep the cache.")
    ] = False,
    replicas: Annotated[int | None, option("Replicas that take requests.")] = None,
    prefill_replicas: Annotated[int, typer.Option(help="Separate prefill replicas; 0: none.")] = 0,
    kv_link: Annotated[Text, option("Link that caches go over, 400Gb/s; 50 GB/s if left out.")] = None,
    router: Annotated[
        str, typer.Option(help="random, round-robin, least-loaded, prefix-aware, sticky.")
    ] = "least-loaded",
    event: Annotated[
        list[str] | None, option("fail, start or drain a replica: 300s,fail,0; repeat for several.")
    ] = None,
    tp: Annotated[Text, option("Tensor parallel GPUs of a replica.")] = None,
    pp: Stages = None,
    dp: AttentionRanks = None,
    ep: ExpertRanks = None,
    weights: Annotated[Text, option("Weight format; the checkpoint's own if left out.")] = None,
    kv: Annotated[Text, option("Format of the KV cache.")] = None,
    engine: Annotated[Text, option("vllm, sglang, trtllm.")] = None,
    calibration: Annotated[Text, option("measured, rule-of-thumb, or a TOML file.")] = None,
    max_num_seqs: Annotated[Text, option("Requests in one step at most; the engine's own if left out.")] = None,
    max_num_batched_tokens: Annotated[Text, option("Tokens in one step at most.")] = None,
    max_model_len: Annotated[Text, option("Longest context; longer requests are refused.")] = None,
    chunked_prefill: Annotated[
        bool, typer.Option(help="Whether long prompts are split and share steps with sequences that decode.")
    ] = True,
    batching: Annotated[str, typer.Option(help="continuous or static.")] = "continuous",
    kv_reservation: Annotated[
        Text,
        option(
            "paged, answer (room for all of it) or longest (for the longest request); the engine's own if left out."
        ),
    ] = None,
    slo_ttft: Annotated[Text, option("Time to first token.")] = None,
    slo_tpot: Annotated[Text, option("Time per output token.")] = None,
    percentile: Percentile = None,
    ttft_percentile: TtftPercentile = None,
    tpot_percentile: TpotPercentile = None,
    statistic: Annotated[
        str, typer.Option(help="What the TPOT target is for: request (each one's TPOT) or itl (all gaps pooled).")
    ] = "request",
    window: Annotated[Text, option("Targets hold in every window of this length: 1min; the whole run.")] = None,
    requests: Annotated[int | None, option("Requests of one replication.")] = None,
    duration: Annotated[Text, option("Length of one replication: 10min.")] = None,
    horizon: Annotated[Text, option("End of a replication; who is not done then is a miss.")] = None,
    replications: Annotated[int | None, option("Independent runs.")] = None,
    warm_up: Annotated[float, typer.Option(help="Share of the time left out at the begin.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the first replication.")] = 0,
    format: Format = "table",
    out: OutFile = None,
) -> None:
    """Replay traffic on replicas and report latency percentiles and goodput."""
    from sizing.cli import _simulation as asking

    options = PlanOptions(
        model=model, gpu=[gpu] if gpu else None, rps=rps, input=input, output=output, trace=trace, shape=shape, cv=cv,
        slo_ttft=slo_ttft, slo_tpot=slo_tpot, percentile=percentile, ttft_percentile=ttft_percentile,
        tpot_percentile=tpot_percentile, weights=weights, kv=kv, tp=tp, pp=pp, dp=dp, ep=ep, calibration=calibration,
        engine=engine,
    )  # fmt: skip
    settings = {"max_num_seqs": max_num_seqs, "max_num_batched_tokens": max_num_batched_tokens,
                "max_model_len": max_model_len}  # fmt: skip
    policies = {"batching": batching} | ({} if kv_reservation is None else {"kv_reservation": kv_reservation})
    judged = {"statistic": statistic, "window_s": _seconds(window, "--window")}
    merged = options.with_file(config) if config else options
    asked = asking.question(merged, settings, chunked_prefill, policies, judged)
    if rates is not None or concurrency is not None:
        asked.assumptions[:] = [a for a in asked.assumptions if a.name != "rps"]
    if replicas is None:
        asked.assumptions.append(asking.REPLICAS)
        replicas = int(str(asking.REPLICAS.value))
    link = _link_bytes_per_s(kv_link)
    fleet = {"replicas": replicas, "prefill_replicas": prefill_replicas, "router": router, "events": event or [],
             "kv_link_bytes_per_s": link if prefill_replicas else None}  # fmt: skip
    runs = {"requests": requests, "replications": replications, "warm_up": warm_up, "seed": seed,
            "duration_s": _seconds(duration, "--duration"), "horizon_s": _seconds(horizon, "--horizon")}  # fmt: skip
    how = {**runs, "fleet": _fleet(replicas, router, event or []),
           "prefill": _prefill(asked, prefill_replicas, router, link), "slo": asked.slo}  # fmt: skip
    mode = Mode(concurrency=concurrency, pause=pause, rates=rates, sustainable=sustainable, goodput=goodput,
                compare_policies=compare_policies)  # fmt: skip
    _print(asked, fleet, runs, mode.run(asked, how), format, out)


def _link_bytes_per_s(text: str | None) -> float:
    if text is None:
        return LINK_BYTES_PER_S
    return units.positive(units.bandwidth_bytes_per_s(text, "--kv-link"), "--kv-link", "a bandwidth: 50GB/s")


def _seconds(text: str | None, what: str) -> float | None:
    return None if text is None else units.duration_s(text, what)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """What is asked of the replicas: one run, a sweep of loads, or a search; attributes as the options."""

    concurrency: str | None = None
    pause: str = "0s"
    rates: str | None = None
    sustainable: bool = False
    goodput: str | None = None
    compare_policies: bool = False

    @property
    def given(self) -> list[str]:
        """The modes asked for, by option."""
        searched = self.sustainable or (self.goodput is not None and not self.compare_policies)
        modes = {"--compare-policies": self.compare_policies, "--sustainable": searched,
                 "--rates": self.rates is not None, "--concurrency": self.concurrency is not None}  # fmt: skip
        return [option for option, asked_for in modes.items() if asked_for]

    def run(self, asked: "Question", how: dict[str, Any]) -> Found:
        """Simulate: one mode at a time, and those that change the rate need a workload."""
        given = self.given
        if len(given) > 1:
            raise InputError(f"{' and '.join(sorted(given))}: give one of them")
        mode = given[0] if given else ""
        if asked.fixes_no_rate and mode not in ("", "--concurrency"):
            raise InputError(f"{mode}: a trace has its own rate; fit a workload file: size-inference workload --fit")
        if mode in ("--compare-policies", "--sustainable"):
            share = None if self.goodput is None else units.fraction(self.goodput, "--goodput")
            return (_policies if mode == "--compare-policies" else _sustainable)(asked, how, share)
        if mode == "--rates":
            return _sweep(asked, how, rates=[positive_rate(x, "--rates") for x in str(self.rates).split(",")])
        return self._users(asked, how) if mode else _once(asked, how)

    def _users(self, asked: "Question", how: dict[str, Any]) -> Found:
        users = [units.whole(x, "--concurrency", 1, 1 << 24) for x in str(self.concurrency).split(",")]
        return _sweep(asked, {**how, "pause_s": units.duration_s(self.pause, "--pause")}, users=users)


def _fleet(replicas: int, router: str, events: list[str]) -> Any:
    from sizing.simulator import FleetEvent, FleetPlan

    found = []
    for text in events:
        parts = [part.strip() for part in text.split(",")]
        if len(parts) != 3:
            raise InputError(f"--event: {text!r} is not allowed; write time,kind,replica such as 300s,fail,0")
        kind: Any = parts[1]
        when_s, number = units.duration_s(parts[0], "--event"), units.whole(parts[2], "--event", 0)
        found.append(FleetEvent(time_s=when_s, replica=number, kind=kind))
    return FleetPlan(replicas=replicas, router=router, events=tuple(found))


def _prefill(asked: "Question", replicas: int, router: str, link_bytes_per_s: float) -> Any:
    if replicas == 0:
        return None
    from sizing.replica.transfer import transfer_s
    from sizing.simulator import FleetPlan, PrefillPool

    token_bytes = asked.deployment.model.kv_bytes_per_token(asked.deployment.formats.kv)
    return PrefillPool(
        model=asked.replica, fleet=FleetPlan(replicas=replicas, router=router),
        transfer_token_s=float(transfer_s(token_bytes, link_bytes_per_s)),
    )  # fmt: skip


def _once(asked: "Question", how: dict[str, Any]) -> Found:
    from sizing.cli._simulation import answer_of, telling
    from sizing.simulator import simulate

    with telling() as report:
        result = simulate(asked.traffic, asked.replica, progress=report, **how)
    return result.to_records(), [result.judgement(), *result.notes], answer_of(result)


def _sweep(
    asked: "Question", how: dict[str, Any], rates: list[float] | None = None, users: list[int] | None = None
) -> Found:
    """A line a load; a single number of users is told in full."""
    from sizing.cli._simulation import answer_of, row_of
    from sizing.simulator import simulate, sweep_rates

    found: list[tuple[dict[str, object], Any]]
    if rates is not None:
        swept = sweep_rates(asked.traffic, asked.replica, rates, **how)
        found = [({"request_rate_per_s": rate}, result) for rate, result in swept]
    else:
        runs = ((n, simulate(asked.traffic, asked.replica, concurrency=n, **how)) for n in users or [])
        found = [({"concurrency": n}, result) for n, result in runs]
    load, result = found[0]
    if len(found) == 1:
        return result.to_records(), [result.judgement(), *result.notes], {"load": load, **answer_of(result)}
    notes = [*result.notes[:1], f"the requests of the first {how['warm_up']:.0%} of the time are left out: warm-up"]
    rows = [row_of(result, **load) for load, result in found]
    return rows, [*notes, asked.slo.describe()], {"runs": [{**load, **answer_of(result)} for load, result in found]}


def _sustainable(asked: "Question", how: dict[str, Any], share: float | None) -> Found:
    """The rates tried, and the largest that holds, by simulation and by the closed form."""
    from sizing.cli._simulation import answer_of, closed_form
    from sizing.simulator import sustainable_rate

    found = sustainable_rate(asked.traffic, asked.replica, asked.slo, share=share, **_without(how, "slo"))
    claimed = closed_form(asked, how["fleet"].replicas, share) if how["prefill"] is None else None
    rows: list[dict[str, object]] = [
        {"requests_per_s": rate, "goodput": kept, "holds": rate <= found.request_rate_per_s}
        for rate, kept in found.tried
    ]
    notes = [f"largest rate that holds: {found.request_rate_per_s:.3g} requests/s"]
    if claimed is not None:
        rate, limit = claimed["request_rate_per_s"], claimed["limited_by"]
        notes.append(f"by the closed form {rate:.3g} requests/s, limited by {limit}")
    wanted = asked.slo.describe() if share is None else f"{share:.4g} of requests within both targets"
    section = {"request_rate_per_s": found.request_rate_per_s, "too_much_per_s": found.too_much_per_s,
               "saturated_per_s": found.saturated_per_s, "goodput_share": share, "closed_form": claimed,
               "tried": rows}  # fmt: skip
    at_rate = {} if found.at_rate is None else answer_of(found.at_rate)
    return rows, [*notes, wanted], {"sustainable": section, **at_rate}


def _policies(asked: "Question", how: dict[str, Any], share: float | None) -> Found:
    """The largest rate under each policy, over that of the first."""
    from sizing.cli._simulation import POLICIES
    from sizing.simulator import sustainable_rate

    rows: list[dict[str, object]] = []
    best = 0.0
    for policy in POLICIES:
        replica = asked.replica.with_scheduler(**policy)
        found = sustainable_rate(asked.traffic, replica, asked.slo, share=share, **_without(how, "slo"))
        best = best or found.request_rate_per_s
        over = found.request_rate_per_s / best if best else None
        rows.append({**policy, "requests_per_s": found.request_rate_per_s, "over_first": over})
    longest = asked.replica.scheduler.longest_request_tokens
    note = f"'longest' keeps room for {longest:,} tokens a request (--max-model-len); static batches end together"
    return rows, [asked.slo.describe() if share is None else f"goodput {share:.4g}", note], {"policies": rows}


def _without(how: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in how.items() if key != name}


def _print(asked: "Question", fleet: dict[str, Any], runs: dict[str, Any], found: Found, format: str, out: Path | None
           ) -> None:  # fmt: skip
    from sizing.cli._simulation import document
    from sizing.reports.tabular import json_text, render_rows, shown

    rows, notes, sections = found
    notes = [*asked.notes, *notes]
    if format == "json":
        emit(json_text(document(asked, fleet, runs, **{**sections, "notes": notes})), out)
        return
    one = asked.deployment
    title = f"{fleet['replicas']} x {one.model.name} on {one.gpus} x {one.gpu.id}, {fleet['router']}"
    if asked.assumptions:
        notes.append("assumed: " + ", ".join(f"{a.name} {shown(a.value)} {a.unit}".strip() for a in asked.assumptions))
    emit(render_rows(rows, format=format, title=title, notes=notes), out)
