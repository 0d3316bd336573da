"""The way of the data in one function: from traffic and targets to replicas, spares and cost."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from sizing.answer import Evaluation, Interval, Plan, Rejected
from sizing.architecture import Model, read_model
from sizing.assumptions import DEFAULT_CALIBRATION, DEFAULT_GPUS, DEFAULT_MODEL, Assumption, default
from sizing.batching import Batch
from sizing.calibration import Calibration
from sizing.calibration import calibration as load_calibration
from sizing.catalog import Gpu, price, resolve_gpu
from sizing.catalog import gpu as catalog_gpu
from sizing.catalog.overlay import on_change
from sizing.checked import Progress, counted
from sizing.cost import price_fleet
from sizing.deployment import Deployment, EngineSettings, NumberFormats, Parallelism
from sizing.engines.timing import engine_timing
from sizing.errors import InputError, check_choice
from sizing.fleet import Targets, size_fleet, size_spares
from sizing.fleet.size import replicas_between, replicas_for
from sizing.formats import weight_format
from sizing.laws import Claim, broken_laws
from sizing.prepared import Prepared, prepare
from sizing.remarks import context_tokens, remarks
from sizing.replica.colocated import METHODS, Load, ReplicaCapacity, load_at_rate, replica_capacity
from sizing.replica.percentile import as_seen, out_of_depth, over_mean, rate_within
from sizing.replica.predicted import at_rate, spread_of_rate
from sizing.workload import OnOff, Slo, Workload

if TYPE_CHECKING:
    from sizing.simulator.rates import Verification

#: GPUs of a replica that are tried, smallest first: tensor parallel inside a node, then pipeline stages.
LAYOUTS = tuple(Parallelism(tp=tp, pp=pp) for tp, pp in ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (8, 4), (8, 8)))

MOST_SIMULATED = 3
"""Candidates that simulation counts, as one after the other leads. [1]"""
REMEDIES = {
    "weights_do_not_fit": "put a replica on more GPUs (--tp),{fewer_bits} or take a GPU with more memory",
    "kv_room": "shorten the context, store the KV cache in FP8 (--kv fp8), or put a replica on more GPUs (--tp)",
    "tpot": "relax --slo-tpot, put a replica on more GPUs (--tp),{fewer_bits} or take a GPU with more memory bandwidth",
    "ttft": "relax --slo-ttft, shorten the prompt, put a replica on more GPUs (--tp), or take a GPU with more compute",
    "context": "shorten the prompt, take a model with a longer context, or set max_model_len if the model is extended",
    "law": "this is a fault of the calibration or of the library: check --calibration, or report it",
    "layout": "choose a tensor parallel size that divides the attention heads and fits the node",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of every candidate alike."""

    workload: Workload
    slo: Slo
    targets: Targets
    method: str


def capacity(prepared: Prepared, question: Question, seen: Workload | None = None) -> tuple[Batch, ReplicaCapacity]:
    """Largest batch of a replica and the request rate it carries of the stream it sees, by the method asked for."""
    workload, slo = seen or question.workload, question.slo
    batch = prepared.largest_batch(slo)
    within = None if prepared.prediction is None else rate_within(prepared.prediction, workload, slo)
    replica = replica_capacity(
        workload, slo, batch, prepared.steps, method=question.method, within=within, prefill_s=prepared.prefill_s
    )
    return batch, replica


def evaluate(prepared: Prepared, question: Question, usd_per_gpu_hour: float | None) -> Evaluation | Rejected:
    """One deployment against the targets, top to bottom: batch, replica, fleet, spares, load, cost."""
    workload, targets, deployment = question.workload, question.targets, prepared.deployment
    tokens, most = workload.mean_input_tokens + workload.mean_output_tokens, context_tokens(deployment)
    if most and tokens > most:
        reason = f"a request has {tokens:,.0f} tokens on average, and the context ends at {most:,}"
        return Rejected(deployment=deployment, limit="context", reason=reason, remedy=REMEDIES["context"])
    seen, sharers = _stream(prepared, question)
    batch, replica = capacity(prepared, question, seen)
    if replica.request_rate_per_s <= 0:
        return rejected(prepared, batch, replica, question.slo)
    fleet = size_fleet(workload, replica, targets, sharers)
    spares = size_spares(fleet, targets)
    load, mean, interval = _planned(prepared, batch, replica, fleet.rate_per_replica_per_s, question, seen)
    broken = broken_laws(
        Claim(prepared=prepared, workload=workload, rate_per_s=fleet.rate_per_replica_per_s, load=mean)
    )
    if broken:
        return Rejected(deployment=deployment, limit="law", reason="; ".join(broken), remedy=REMEDIES["law"])
    gpus = (fleet.replicas + spares.replicas) * deployment.gpus
    return Evaluation(
        deployment=deployment, memory=prepared.memory, steps=prepared.steps, batch=batch, replica=replica, fleet=fleet,
        spares=spares, load=load, interval=interval, cost=price_fleet(gpus, usd_per_gpu_hour, workload),
        caution=_caution(prepared, question, fleet.rate_per_replica_per_s, seen),
    )  # fmt: skip


def _stream(prepared: Prepared, question: Question) -> tuple[Workload, int]:
    """The workload as one replica sees it, and how many replicas share it at least."""
    if prepared.prediction is None:
        return question.workload, 1
    return as_seen(prepared.prediction, question.workload, question.slo, question.targets.utilization)


def _caution(prepared: Prepared, question: Question, rate_per_s: float, seen: Workload) -> str:
    """Why the closed form should not be relied on for this replica; empty when it may be."""
    if prepared.prediction is None or question.method != "predicted":
        return ""
    if isinstance(question.workload.arrivals, OnOff):
        return "arrivals that jump between a busy and a quiet state are a Poisson stream to the closed form"
    return out_of_depth(prepared.prediction, seen, rate_per_s, question.slo)


def _planned(
    prepared: Prepared, batch: Batch, replica: ReplicaCapacity, rate_per_s: float, question: Question, seen: Workload
) -> tuple[Load, Load, Interval | None]:
    """Latency at the planned rate in the targets' statistic, and its mean; bounds where constants have spreads."""
    workload = question.workload
    if prepared.prediction is None:
        load = load_at_rate(rate_per_s, batch, workload, replica.prefill_s, method=question.method)
        return load, load, None
    found = at_rate(prepared.prediction, prepared.spreads, rate_per_s)
    stretch_ttft, stretch_tpot = over_mean(prepared.prediction, seen, question.slo, rate_per_s)
    ttft, tpot = found["ttft_s"].times(stretch_ttft), found["tpot_s"].times(stretch_tpot)
    mean = Load(ttft_s=found["ttft_s"].value, tpot_s=found["tpot_s"].value, concurrency=found["decoding"].value,
                prefill_share=rate_per_s * replica.prefill_s)  # fmt: skip
    load = replace(mean, ttft_s=ttft.value, tpot_s=tpot.value)
    width = spread_of_rate(prepared.spreads, replica.request_rate_per_s, replica.limited_by)
    low, high = replicas_between(workload, replica, question.targets, width)
    return load, mean, Interval(replicas_low=low, replicas_high=high, ttft_low_s=ttft.low, ttft_high_s=ttft.high,
                          tpot_low_s=tpot.low, tpot_high_s=tpot.high)  # fmt: skip


def choose(
    candidates: Sequence[Deployment],
    question: Question,
    efficiency: Calibration,
    usd_per_gpu_hour: float | None,
) -> Evaluation | Rejected:
    """The candidate with the fewest GPUs; a larger layout is tried only where it could win."""
    best: Prepared | None = None
    fewest = inf
    for deployment in candidates:
        illegal = _illegal(deployment)
        if illegal:
            return Rejected(deployment=deployment, limit="layout", reason=illegal, remedy=REMEDIES["layout"])
        if best is not None and _settled(best, fewest, deployment, question.targets):
            break
        prepared = prepare(deployment, question.workload, efficiency, question.method == "predicted")
        total = _total_gpus(prepared, question)
        if best is None or total < fewest or fewest == inf:
            best, fewest = prepared, total
    if best is None:
        raise InputError("no layout to try; give --tp")
    return evaluate(best, question, usd_per_gpu_hour)


def _illegal(deployment: Deployment) -> str:
    """Why engines would refuse this layout; empty when they would not."""
    tp, heads = deployment.parallelism.tp, _heads(deployment.model)
    odd = sorted(h for h in heads if h % tp)
    if odd:
        return f"{odd[0]} attention heads can't be split over {tp} tensor parallel GPUs"
    if deployment.parallelism.pp > deployment.model.num_layers:
        return f"{deployment.model.num_layers} layers can't be split into {deployment.parallelism.pp} pipeline stages"
    return ""


def _heads(model: Model) -> set[int]:
    return {m.heads for m in (layer.mixer for layer in model.layers) if m is not None and m.heads}


def _total_gpus(prepared: Prepared, question: Question) -> float:
    """GPUs in total, spares included; infinite when the targets can't be met. [gpu]"""
    workload, targets = question.workload, question.targets
    sharers = 1
    if prepared.prediction is not None:
        seen, sharers = _stream(prepared, question)
        planned = rate_within(prepared.prediction, seen, question.slo)[0] * targets.utilization
    else:
        planned = capacity(prepared, question)[1].planned_rate_per_s(targets.utilization)
    if planned <= 0:
        return inf
    replicas = max(replicas_for(workload.request_rate_per_s / planned), sharers)
    return (replicas + targets.spares) * prepared.deployment.gpus


def _settled(best: Prepared, fewest: float, larger: Deployment, targets: Targets) -> bool:
    """Whether a larger layout can't win: one such replica and its spares are as many GPUs already."""
    if larger.parallelism.pp > 1 and (fewest < inf or best.kv_requests >= 1.0):
        return True
    return fewest <= larger.gpus * (1 + targets.spares)


def rejected(prepared: Prepared, batch: Batch, replica: ReplicaCapacity, slo: Slo) -> Rejected:
    """Why this deployment can't serve the workload, and the nearest change that would."""
    limit = replica.limited_by
    short = prepared.memory.shortfall_bytes
    if limit in ("weights_do_not_fit", "kv_room"):
        limit = "weights_do_not_fit" if short > 0 else "kv_room"
        reason = (
            f"weights and overhead need {short / 1e9:.1f} GB more per GPU than there is"
            if short > 0
            else "not one request of this length fits the KV room"
        )
    elif limit == "ttft":
        reason = f"prefill of one prompt takes {replica.prefill_s * 1e3:.0f} ms, above TTFT {slo.ttft_s * 1e3:.0f} ms"
    else:
        least = float(batch.grid_step_s[0]) * 1e3
        reason = f"one request alone decodes in {least:.1f} ms a token, above TPOT {slo.tpot_s * 1e3:.1f} ms"
    remedy = REMEDIES.get(limit, REMEDIES["tpot"]).format(fewer_bits=_fewer_bits(prepared.deployment))
    return Rejected(deployment=prepared.deployment, limit=limit, reason=reason, remedy=remedy)


def _fewer_bits(deployment: Deployment) -> str:
    """Advice on weights in fewer bits: FP8 on every GPU (unpacked where it must be), FP4 where it computes in it."""
    stored = weight_format(deployment.formats.weights or deployment.model.checkpoint.name).element_bits
    if stored > 8:
        return " store weights in fewer bits (--weights fp8),"
    fp4 = stored > 4 and "fp4" in deployment.gpu.peak_flops_per_s
    return " store weights in fewer bits (--weights nvfp4)," if fp4 else ""


def layouts(model: Model, gpu: Gpu) -> tuple[Parallelism, ...]:
    """Layouts worth trying: tensor parallel sizes that divide the heads and stay inside a node."""
    node = max(gpu.gpus_per_node, 1)
    heads = _heads(model)
    fits = [p for p in LAYOUTS if p.tp <= node and all(h % p.tp == 0 for h in heads)]
    return tuple(fits) or (Parallelism(),)


def plan(
    model: str | Model | None = None,
    *,
    workload: Workload | None = None,
    slo: Slo | None = None,
    gpus: Sequence[str | Gpu] | None = None,
    parallelism: Parallelism | None = None,
    formats: NumberFormats | None = None,
    settings: EngineSettings | None = None,
    targets: Targets | None = None,
    prices: Mapping[str, float] | float | None = None,
    calibration: str | Calibration | None = None,
    method: str | None = None,
    verify: bool | None = None,
    progress: Progress | None = None,
    assumed: Sequence[Assumption] = (),
) -> Plan:
    """Which GPUs, how many, configured how, at what cost, for this model, traffic and latency targets.

    Parameters
    ----------
    model
        Catalogue name, folder with config.json, config.json, or a :class:`sizing.Model`.
    workload
        Request rate and lengths; a rate that moves with the clock is planned for at its busiest. [request/s], [token]
    slo
        TTFT and TPOT targets. [s]
    gpus
        Catalogue names (short names are resolved and noted), or :class:`sizing.Gpu` records.
    parallelism
        Layout of a replica; None tries TP 1 to 8 and takes the cheapest.
    formats, settings
        Number formats, engine and its settings.
    targets
        Target utilisation and spare replicas.
    prices
        USD per GPU and hour, one for all or by GPU name; None takes the catalogue's. [USD/h]
    calibration
        Name or file of efficiency constants.
    method
        ``additive`` or ``time-share``, see :func:`sizing.replica_capacity`.
    verify
        None: where the closed form of a percentile is out of its depth for the cheapest candidate, simulation counts
        its replicas. True: the cheapest candidate is also replayed with one replica less and one more. False: nothing
        is simulated, and a note says where the closed form is out of its depth.
    progress
        Called with the GPU and each number of replicas before it is simulated.
    assumed
        Assumptions that the caller already made, to be listed with those made here.

    Raises
    ------
    InputError
        An argument is out of range.
    UnknownModel, UnknownGpu
        A name is not in the catalogue.
    """
    listed = list(assumed)

    def use(name: str, value: object, fallback: object) -> object:
        if value is None:
            listed.append(default(name))
        return fallback if value is None else value

    the_model = model if isinstance(model, Model) else _named_model(str(use("model", model, DEFAULT_MODEL)))
    the_workload = workload if workload is not None else _default_workload(listed)
    the_slo = slo if slo is not None else _default_slo(listed)
    if gpus is None:
        listed.append(default("gpus"))
    names: tuple[str | Gpu, ...] = DEFAULT_GPUS if gpus is None else tuple(gpus)
    the_targets = targets if targets is not None else _default_targets(listed)
    the_settings = settings if settings is not None else EngineSettings()
    if the_settings.memory_utilization is None:
        listed.append(default("memory_utilization"))
        the_settings = _with_utilization(the_settings)
    calibration_name = calibration.name if isinstance(calibration, Calibration) else str(
        use("calibration", calibration, DEFAULT_CALIBRATION)
    )  # fmt: skip
    question = Question(
        workload=the_workload.at_peak(),
        slo=the_slo,
        targets=the_targets,
        method=_method(method, calibration_name, calibration, the_slo, listed),
    )
    listed += _own_formats(the_model, formats)
    devices, notes = _resolve(names)
    if question.workload.request_rate_per_s > the_workload.request_rate_per_s:
        notes = (
            *notes,
            f"planned for the busiest time, {question.workload.request_rate_per_s:.3g} requests/s of "
            f"{the_workload.request_rate_per_s:.3g} on average; USD per token are at the busiest too",
        )
    kernels = engine_timing(the_settings.engine).kernels
    answers = []
    for gpu in devices:
        constants = (
            calibration
            if isinstance(calibration, Calibration)
            else load_calibration(calibration_name, gpu=gpu, engine=kernels)
        )
        candidates = [
            Deployment(model=the_model, gpu=gpu, parallelism=layout, formats=formats or NumberFormats(),
                       settings=the_settings)
            for layout in ((parallelism,) if parallelism else layouts(the_model, gpu))
        ]  # fmt: skip
        answers.append(choose(candidates, question, constants, _price(gpu.id, prices, listed)))
    return _plan(the_model, question, calibration_name, answers, listed, notes, verify, progress)


def _plan(
    model: Model,
    question: Question,
    calibration: str,
    answers: Sequence[Evaluation | Rejected],
    listed: Sequence[Assumption],
    notes: tuple[str, ...],
    verify: bool | None,
    progress: Progress | None,
) -> Plan:
    """The answers ranked, with what is to be said about them."""
    ranked = sorted((a for a in answers if isinstance(a, Evaluation)), key=_rank)
    said: dict[str, str] = {}
    bursts = isinstance(question.workload.arrivals, OnOff)  # of which a mean is as far off as a percentile
    if verify is not False and (bursts or not question.slo.on_means):
        ranked, said = _settled_by_simulation(ranked, question, progress)
    cautions = (said.get(e.deployment.gpu.id, f"{e.deployment.gpu.id}: {e.caution}") for e in ranked if e.caution)
    notes = (*notes, *cautions, *(remark for best in ranked[:1] for remark in remarks(best, question.workload)))
    checked = verify_evaluation(ranked[0], question) if verify and ranked else None
    if checked is not None:
        notes = (*notes, f"{ranked[0].deployment.gpu.id}: {checked.verdict()}")
    return Plan(
        model=model, workload=question.workload, slo=question.slo, targets=question.targets, calibration=calibration,
        evaluations=tuple(ranked), rejected=tuple(a for a in answers if isinstance(a, Rejected)),
        assumptions=tuple(listed), notes=(*notes, *model.warnings), verification=checked,
    )  # fmt: skip


def _settled_by_simulation(
    ranked: list[Evaluation], question: Question, progress: Progress | None
) -> tuple[list[Evaluation], dict[str, str]]:
    """Candidates with those counted by simulation that lead and that the closed form is out of its depth for."""
    said: dict[str, str] = {}
    while ranked and ranked[0].caution and ranked[0].deployment.gpu.id not in said and len(said) < MOST_SIMULATED:
        name = ranked[0].deployment.gpu.id
        ranked[0], said[name] = counted(ranked[0], question.workload, question.slo, question.targets, progress)
        ranked = sorted(ranked, key=_rank)
    return ranked, said


def verify_evaluation(evaluation: Evaluation, question: Question, seed: int = 0) -> "Verification":
    """Replay a candidate, one replica less and one more, and hold both answers side by side.

    Parameters
    ----------
    evaluation, question
        The candidate and what was asked of it.
    seed
        Of the replications.
    """
    from sizing.simulator.rates import verify
    from sizing.simulator.replicamodel import replica_model

    model = replica_model(evaluation.deployment, steps=evaluation.steps, memory=evaluation.memory)
    return verify(
        question.workload, question.slo, model, evaluation.fleet.replicas, seed=seed,
        claimed_ttft_s=float(evaluation.load.ttft_s), claimed_tpot_s=float(evaluation.load.tpot_s),
    )  # fmt: skip


def _own_formats(model: Model, formats: NumberFormats | None) -> list[Assumption]:
    """Formats that the caller left to the checkpoint and the engine."""
    found = []
    if formats is None or formats.weights is None:
        found.append(Assumption(name="weights", value=model.checkpoint.name, unit="", basis="config.json",
                                source="the checkpoint's own format; give --weights"))  # fmt: skip
    if formats is None or formats.kv == "auto":
        found.append(Assumption(name="kv", value=model.checkpoint.kv or "bf16", unit="", basis="assumed",
                                source="the engine's default for this checkpoint; give --kv"))  # fmt: skip
    return found


def _method(given: str | None, name: str, constants: object, slo: Slo, listed: list[Assumption]) -> str:
    """The caller's method; else the seeds' sum for plain shares, and the predicted run for fitted constants."""
    if slo.statistic != "request" or slo.window_s is not None:
        what = "statistic: 'itl' (gaps pooled)" if slo.statistic != "request" else f"window_s: {slo.window_s:g}"
        raise InputError(f"{what} is judged by simulation only; use simulate, or plan for requests over the whole run")
    ideal = constants.ideal if isinstance(constants, Calibration) else name == "rule-of-thumb"
    if given is None:
        chosen = "additive" if ideal and slo.on_means else "predicted"
        listed.append(default(f"method_{chosen}"))
        return chosen
    check_choice("method", given, METHODS)
    if given != "predicted" and not slo.on_means:
        raise InputError(f"method: {given!r} knows only means; choose predicted, or leave --percentile out")
    return given


def _rank(evaluation: Evaluation) -> tuple[float, int]:
    usd = evaluation.cost.usd_per_hour
    return (float("inf") if usd is None else usd, evaluation.total_gpus)


@lru_cache(maxsize=64)
def _catalog_model(name: str) -> Model:
    return read_model(name)


def _named_model(name: str) -> Model:
    """A model of the catalogue is read once; a file is read each time, since it may have changed."""
    return read_model(name) if Path(name).exists() else _catalog_model(name)


on_change(_catalog_model.cache_clear)


def _default_workload(listed: list[Assumption]) -> Workload:
    rate, isl, osl = (default(n) for n in ("rps", "input", "output"))
    listed += [rate, isl, osl]
    return Workload(request_rate_per_s=rate.value, input_tokens=isl.value, output_tokens=osl.value)  # type: ignore[arg-type]


def _default_slo(listed: list[Assumption]) -> Slo:
    listed += [default("slo_ttft"), default("slo_tpot"), default("percentile")]
    return Slo()


def _default_targets(listed: list[Assumption]) -> Targets:
    listed += [default("utilization"), default("spares")]
    return Targets()


def _with_utilization(settings: EngineSettings) -> EngineSettings:
    return replace(settings, memory_utilization=default("memory_utilization").value)  # type: ignore[arg-type]


def _resolve(names: Iterable[str | Gpu]) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """GPUs by name or as records, each once, and notes on what short names were taken for."""
    devices: dict[str, Gpu] = {}
    notes: list[str] = []
    for name in names:
        if isinstance(name, Gpu):
            devices.setdefault(name.id, name)
            continue
        found, note = resolve_gpu(name)
        devices.setdefault(found, catalog_gpu(found))
        notes += [note] if note else []
    return tuple(devices.values()), tuple(notes)


def _price(name: str, prices: Mapping[str, float] | float | None, listed: list[Assumption]) -> float | None:
    """Price of one GPU: the caller's, else the catalogue's, listed as an assumption."""
    if isinstance(prices, int | float):
        return float(prices)
    if prices is not None:
        for key, usd in prices.items():
            if resolve_gpu(key)[0] == name:
                return float(usd)
    fact = price(name)
    if fact is None:
        return None
    listed.append(Assumption(name=f"price {name}", value=fact.value, unit=fact.unit, basis=fact.basis,
                             source=fact.source))  # fmt: skip
    return float(fact.value)  # type: ignore[arg-type]
