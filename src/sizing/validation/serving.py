"""Measured serving runs, predicted row by row through the planner's own path."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from sizing.calibration import Calibration, calibration
from sizing.catalog.files import data_file
from sizing.deployment import Deployment
from sizing.engines.timing import OPEN_QUESTION, EngineTiming
from sizing.errors import InputError, SizingError
from sizing.memory import MemoryBudget, memory_budget
from sizing.replica.pools import predict_pools
from sizing.replica.run import ClosedLoop, Estimate, OpenLoop, Room, Run, Targeted, kv_requests, predict_run
from sizing.steptime import StepModel, nominal_and_draws, step_model, with_engine
from sizing.validation.cases import INPUTS, Case, read_case, shared_load
from sizing.validation.rows import csv_rows
from sizing.validation.served_limits import served_limits

DRAWS = 32
"""Joint draws of the constants behind each error bar. [1]"""

METRICS = ("ttft_ms", "tpot_ms", "itl_ms", "output_tok_s")

CURATED = "measured/serving.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPrediction:
    """What a row is predicted to show, or why it isn't.

    Attributes
    ----------
    id
        Of the row.
    values
        Estimate by metric; empty when not answered.
    reason
        Why it is not answered.
    assumed_lengths
        Whether a length was guessed; such rows are scored apart.
    kv_short
        Whether the model itself flags the run as short of KV room.
    experts
        Whether the model is a mixture of experts, as opposed to a dense one.
    assumptions
        What the row left open.
    """

    id: str
    values: Mapping[str, Estimate] = field(default_factory=dict)
    reason: str = ""
    assumed_lengths: bool = False
    kv_short: bool = False
    experts: bool = False
    assumptions: tuple[str, ...] = ()

    def cells(self) -> dict[str, object]:
        """One row of the file that ``--out`` writes."""
        row: dict[str, object] = {"id": self.id}
        for metric in METRICS:
            found = self.values.get(metric)
            for suffix, value in zip(("", "_low", "_high"), _parts(found), strict=True):
                row[metric + suffix] = value
        row["reason"] = self.reason
        row["kv_short"] = "yes" if self.kv_short else ""
        row["assumed"] = "; ".join(self.assumptions)
        return row


def _parts(found: Estimate | None) -> tuple[str, str, str]:
    if found is None:
        return "", "", ""
    low, middle, high = (f"{x:.6g}" for x in (found.low, found.value, found.high))
    return middle, low, high


def read_rows(file: Path | None = None) -> list[dict[str, str]]:
    """Rows of a table of serving runs; the curated set when no file is named.

    Parameters
    ----------
    file
        CSV file with the columns of ``data/measured/serving.csv``.
    """
    path = file or data_file(CURATED)
    rows = csv_rows(path, "of serving runs")
    if rows and "id" not in rows[0]:
        raise InputError(f"{path}: no column 'id'; the columns read are {', '.join(INPUTS[:8])}, ...")
    return rows


@lru_cache(maxsize=512)
def _kernels(gpu_id: str, kernels: str, name: str) -> Calibration:
    from sizing.catalog import gpu

    return calibration(name, gpu(gpu_id), kernels)


def calibrated(gpu_id: str, timing: EngineTiming, name: str = "measured") -> Calibration:
    """Constants of a GPU with an engine's own time.

    Parameters
    ----------
    gpu_id
        In the catalogue.
    timing
        The engine's record.
    name
        Calibration.
    """
    return with_engine(_kernels(gpu_id, timing.kernels, name), timing)


@lru_cache(maxsize=512)
def _drawn(gpu_id: str, timing_name: str, name: str, draws: int) -> Calibration:
    from sizing.engines.timing import engine_timings

    known = calibrated(gpu_id, engine_timings()[timing_name], name)
    return nominal_and_draws(known, draws) if draws else known


_steps: dict[tuple[object, ...], StepModel] = {}
_budgets: dict[tuple[object, ...], MemoryBudget] = {}


def _key(deployment: Deployment) -> tuple[object, ...]:
    return (
        deployment.model.name, deployment.gpu.id, deployment.parallelism, deployment.formats, deployment.settings,
    )  # fmt: skip


def steps_of(deployment: Deployment, timing: EngineTiming, name: str, draws: int) -> StepModel:
    """Step model of a deployment with an engine's time and draws, remembered.

    Parameters
    ----------
    deployment, timing
        What runs.
    name
        Calibration.
    draws
        Joint draws behind the error bars; 0 for none. [1]
    """
    key = (*_key(deployment), timing.name, name, draws)
    if key not in _steps:
        if len(_steps) > 4096:
            _steps.clear()
        _steps[key] = step_model(deployment, _drawn(deployment.gpu.id, timing.name, name, draws))
    return _steps[key]


def budget_of(deployment: Deployment) -> MemoryBudget:
    """Memory budget of a deployment, remembered.

    Parameters
    ----------
    deployment
        What runs.
    """
    key = _key(deployment)
    if key not in _budgets:
        if len(_budgets) > 4096:
            _budgets.clear()
        _budgets[key] = memory_budget(deployment)
    return _budgets[key]


def predict_case(case: Case, name: str = "measured", draws: int = DRAWS, spread: dict[str, float] | None = None) -> Run:
    """The run that a case describes, on one of its replicas.

    Parameters
    ----------
    case
        The question.
    name
        Calibration.
    draws
        Joint draws behind the error bars. [1]
    spread
        Log-sigma of the residual by metric; None for the engine's own, see :func:`spreads_of`. [1]
    """
    return predict_with(case, lambda deployment: steps_of(deployment, case.timing, name, draws), spread)


def predict_with(
    case: Case, steps_for: Callable[[Deployment], StepModel], spread: dict[str, float] | None = None
) -> Run:
    """The run that a case describes, with step models from elsewhere.

    Parameters
    ----------
    case
        The question.
    steps_for
        Gives the step model of a deployment.
    spread
        As for :func:`predict_case`.
    """
    deployment = case.deployment
    settings = deployment.settings
    memory = budget_of(deployment)
    limit, budget = served_limits(memory)
    scheduling = case.timing.scheduling(budget, case.drafts, schedulers=memory.schedulers)
    spread = spreads_of(case) if spread is None else spread
    if case.pools:
        prefill = steps_for(replace(deployment, parallelism=case.pools.prefill))
        workers = (case.pools.prefill_workers, case.pools.decode_workers)
        return predict_pools(prefill, steps_for(deployment), workers, case.load, case.lengths, scheduling,
                             spread=spread)  # fmt: skip
    load = shared_load(case.load, case.replicas)
    fit = kv_requests(memory, case.lengths, scheduling)
    if case.kv_bytes and memory.kv_bytes:
        fit *= case.kv_bytes / memory.kv_bytes
    if isinstance(load, ClosedLoop) and settings.max_num_seqs is None:
        limit = max(limit, load.users)
    room = Room(kv_requests=max(fit, 1.0), max_num_seqs=limit)
    return predict_run(steps_for(deployment), room, load, case.lengths, scheduling, spread=spread)


def spreads_of(case: Case) -> dict[str, float]:
    """Log-sigma of measured over predicted for a case, by metric: wider for what is less certain or left open. [1]

    Parameters
    ----------
    case
        The question.
    """
    found = case.timing.residual_on(case.deployment.gpu.id, traits_of(case))
    return {metric: sigma * (1.0 + OPEN_QUESTION * len(case.assumptions)) for metric, sigma in found.items()}


def traits_of(case: Case) -> list[str]:
    """What of :data:`sizing.engines.timing.WIDER` a case has.

    Parameters
    ----------
    case
        The question.
    """
    known = {
        "experts": case.deployment.model.is_moe, "drafts": case.drafts > 0, "pools": case.pools is not None,
        "open loop": isinstance(case.load, OpenLoop | Targeted),
    }  # fmt: skip
    return [trait for trait, holds in known.items() if holds]


def settled(case: Case, name: str = "measured") -> Case:
    """The case with the layout that carries most, where the row leaves it open.

    Parameters
    ----------
    case
        The question.
    name
        Calibration.
    """
    if not case.choices:
        return case
    layouts = [(case.deployment.parallelism, case.replicas), *case.choices]
    cases = [
        replace(case, deployment=replace(case.deployment, parallelism=layout), replicas=copies, choices=())
        for layout, copies in layouts
    ]
    carried = [predict_case(each, name, 0).output_tokens_per_s.value * each.replicas for each in cases]
    best = carried.index(max(carried))
    if best == 0:
        return cases[0]
    said = f"TP{layouts[best][0].tp}: it carries more than TP{layouts[0][0].tp}"
    return replace(cases[best], assumptions=(*(a for a in case.assumptions if "smallest that holds" not in a), said))


def predict_row(
    row: Mapping[str, str], configs: Path | None = None, name: str = "measured", draws: int = DRAWS
) -> RowPrediction:
    """One row; a row that can't be answered says why.

    Parameters
    ----------
    row
        Cells by column; measured columns are not looked at.
    configs
        Folder of config files tried before the catalogue.
    name
        Calibration.
    draws
        Joint draws behind the error bars. [1]
    """
    try:
        case = settled(read_case(row, configs), name)
        run = predict_case(case, name, draws)
    except SizingError as error:
        return RowPrediction(id=row.get("id") or "", reason=str(error))
    if not 0 < run.tpot_s.value < float("inf"):
        return RowPrediction(id=case.id, reason="the weights do not fit these GPUs", assumptions=case.assumptions)
    values = {
        "ttft_ms": _times(run.ttft_s, 1e3),
        "tpot_ms": _times(run.tpot_s, 1e3),
        "itl_ms": _times(run.itl_s, 1e3),
        "output_tok_s": _times(run.output_tokens_per_s, case.replicas),
    }
    return RowPrediction(id=case.id, values=values, assumed_lengths=case.guessed_lengths, kv_short=run.kv_short,
                         experts=case.deployment.model.is_moe, assumptions=case.assumptions)  # fmt: skip


def _times(found: Estimate, factor: float) -> Estimate:
    return Estimate(value=found.value * factor, low=found.low * factor, high=found.high * factor)


def predict_rows(
    rows: Iterable[Mapping[str, str]], configs: Path | None = None, name: str = "measured", draws: int = DRAWS
) -> Iterator[RowPrediction]:
    """Every row in order; arguments as :func:`predict_row`."""
    for row in rows:
        yield predict_row(row, configs, name, draws)
