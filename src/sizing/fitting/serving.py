r"""An engine's own time from measured serving runs: robust least squares with priors, and what is left out.

The constants :math:`\theta` minimise :math:`\sum_i w_i\,\rho(\ln(\hat y_i(\theta)/y_i)/\sigma)` plus
:math:`\sum_j((\theta_j-\theta_{0j})/s_j)^2/2`, with :math:`\rho(x) = \ln(1+x^2)/2` (so that rows whose columns do
not say what ran have little pull) and :math:`w_i` such that a cell of GPU, model and
weight format weighs the square root of its number of rows. Log predictions are linear in the constants to good
accuracy, so each fit is solved on a linear model and predicted anew twice; leaving a model out is then one more
linear solve. Kernel times are held; what a kernel table can tell is not fitted here. None of the constants is keyed
by a model or by a row's source.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sizing.deployment import Deployment
from sizing.engines.timing import EngineTiming, engine_timing, engine_timings
from sizing.errors import InputError, SizingError, check_choice
from sizing.fitting.robust import Linear, solve
from sizing.operations import Step
from sizing.replica.run import ClosedLoop, Offline, Run
from sizing.steptime import StepModel, step_model
from sizing.validation.cases import Case, read_case
from sizing.validation.scores import truth
from sizing.validation.serving import calibrated, predict_with, settled

Floats = NDArray[np.float64]
SCALES = ("memory_scale", "compute_scale", "link_scale", "fixed_scale", "moe_scale")
"""Constants that change the time of kernels."""
METRICS = ("tpot", "ttft", "rate")
WEIGHTS = (1.0, 0.1, 1.0)
"""Pull of a row's TPOT, TTFT and offline throughput. TTFT holds more that no constant stands for. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is expected of a constant before any row is seen.

    Attributes
    ----------
    value, spread
        Middle and width, in the constant's unit.
    low
        Physical bound.
    """

    value: float
    spread: float
    low: float = 0.0


PRIORS: Mapping[str, Prior] = {
    "step_s": Prior(value=3e-4, spread=1.3e-4),
    "sequence_s": Prior(value=1.2e-5, spread=4.5e-6),
    "host_step_s": Prior(value=1e-3, spread=3e-4),
    "host_sequence_s": Prior(value=2e-5, spread=5e-6),
    "prefill_step_s": Prior(value=2e-3, spread=1.3e-3),
    "first_token_s": Prior(value=2e-2, spread=2e-2),
    "first_token_steps": Prior(value=3.0, spread=1.5),
    "memory_scale": Prior(value=1.0, spread=0.022, low=0.7),
    "compute_scale": Prior(value=1.0, spread=0.065, low=0.6),
    "link_scale": Prior(value=1.0, spread=0.09, low=0.3),
    "fixed_scale": Prior(value=0.8, spread=0.08, low=0.3),
    "moe_scale": Prior(value=0.75, spread=0.17, low=0.1),
}
"""Constants that may be fitted, all of them the engine's; ten an engine, see :func:`fitted_names`. The middles alone,
with kernel tables, predict runs of engines they were not fitted on within some 10-15 %; fits that stray further from
them do worse on models left out."""


BESIDE = {"step_s": "host_step_s", "sequence_s": "host_sequence_s"}
"""What the host's work is called where it is added to the kernels, and where it runs beside them."""
OTHER = BESIDE | {beside: added for added, beside in BESIDE.items()}


def fitted_names(timing: EngineTiming) -> tuple[str, ...]:
    """The ten constants of an engine that are fitted: host work beside the kernels where it overlaps them.

    Parameters
    ----------
    timing
        Its record.
    """
    unused = BESIDE.keys() if timing.overlaps else BESIDE.values()
    return tuple(name for name in PRIORS if name not in unused)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A row that the fit looks at."""

    case: Case
    tpot_s: float | None
    ttft_s: float | None
    rate: float | None
    cell: tuple[str, ...]

    @property
    def logs(self) -> tuple[float, float, float]:
        """Logarithm of what was measured, by :data:`METRICS`; not a number where it was not."""
        found = (self.tpot_s, self.ttft_s, self.rate)
        return tuple(np.log(x) if x else np.nan for x in found)  # type: ignore[return-value]

    @property
    def dense(self) -> bool:
        """Whether the model has no experts."""
        return not self.case.deployment.model.is_moe


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFit:
    """Constants of one engine before and after.

    Attributes
    ----------
    timing
        The fitted record.
    rows, cells
        How many rows, and cells of GPU, model and format, it was fitted on.
    errors
        Median error by metric, before and after. [%]
    """

    timing: EngineTiming
    rows: int
    cells: int
    errors: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def records(self, before: EngineTiming) -> list[dict[str, object]]:
        """One row a constant: before, after, spread."""
        return [
            {"constant": name, "before": before.values.get(name, 0.0), "after": value,
             "spread": self.timing.spreads.get(name, 0.0)}
            for name, value in self.timing.values.items()
        ]  # fmt: skip

    def toml(self) -> str:
        """The fitted constants as ``data/engines.toml`` writes them."""
        lines = [f"[{self.timing.name}]", f'basis = "{self.timing.basis}"']
        lines.append(f'source = "{self.rows} runs of {self.cells} cells of GPU, model and weight format"')
        for name, value in self.timing.values.items():
            lines.append(f"{name} = [{value:.4g}, {self.timing.spreads.get(name, 0.0):.2f}]")
        return "\n".join(lines) + "\n"


class RememberedSteps(StepModel):
    """A step model that computes each composition's kernels once; only the engine's time is refreshed."""

    def kernels_s(self, step: Step) -> Floats:
        """Kernel time of a step, remembered."""
        kept = self.__dict__.setdefault("_kept", {})
        key = (step.tokens.tobytes(), step.context.tobytes(), step.pairs.tobytes())
        if key not in kept:
            kept[key] = super().kernels_s(step)
        found: Floats = kept[key]
        return found


class Fitter:
    """Predictions of observations under candidate constants."""

    def __init__(self, observations: Sequence[Observation], name: str = "measured") -> None:
        self.observations = observations
        self.name = name
        self._kernels: dict[tuple[object, ...], RememberedSteps] = {}

    def predict(self, timing: EngineTiming) -> list[Run]:
        """Every observation's run under an engine's record."""
        return [self._run(o.case, timing) for o in self.observations]

    def logs(self, timing: EngineTiming) -> Floats:
        """Logarithm of TPOT, TTFT and tokens/s of every observation, shape (observations, 3); rows short of KV
        room have no say on TTFT.
        """
        found = [
            (run.tpot_s.value, np.nan if run.kv_short else run.ttft_s.value,
             run.output_tokens_per_s.value * o.case.replicas)
            for run, o in zip(self.predict(timing), self.observations, strict=True)
        ]  # fmt: skip
        logs: Floats = np.log(np.array(found))
        return logs

    def linear(self, timing: EngineTiming, names: Sequence[str]) -> Linear:
        """The log errors and their slopes over the constants, in spreads of the priors.

        Parameters
        ----------
        timing
            Where to linearise.
        names
            Constants, of :data:`PRIORS`.
        """
        measured = np.array([o.logs for o in self.observations])
        at = self.logs(timing)
        slopes = []
        for name in names:
            step = 0.5 * PRIORS[name].spread
            moved = {**timing.values, name: timing.values.get(name, 0.0) + step}
            slopes.append((self.logs(replace(timing, values=moved)) - at) / 0.5)
        cells = np.array(["|".join(o.cell) for o in self.observations])
        return Linear(errors=at - measured, slopes=np.stack(slopes, axis=-1), cells=cells, weights=WEIGHTS)

    def _run(self, case: Case, timing: EngineTiming) -> Run:
        changed = replace(case, timing=timing)
        return predict_with(changed, lambda d: self._steps(d, timing))

    def _steps(self, deployment: Deployment, timing: EngineTiming) -> StepModel:
        known = calibrated(deployment.gpu.id, timing, self.name)
        engine = known.engine_time
        key = (
            id(deployment),
            *(float(np.asarray(getattr(engine, x))) for x in SCALES),
        )
        if key not in self._kernels:
            made = step_model(deployment, known)
            self._kernels[key] = RememberedSteps(
                deployment=deployment, calibration=known, operations=made.operations,
                launch_s=made.launch_s, cache_copies=made.cache_copies,
            )  # fmt: skip
        kept = self._kernels[key]
        fresh = RememberedSteps(deployment=deployment, calibration=known, operations=kept.operations,
                                launch_s=kept.launch_s, cache_copies=kept.cache_copies)  # fmt: skip
        fresh.__dict__["_kept"] = kept.__dict__.setdefault("_kept", {})
        return fresh


def record_of(engine: str) -> EngineTiming:
    """The record of ``data/engines.toml`` that an engine's name stands for.

    Parameters
    ----------
    engine
        Name or alias.

    Raises
    ------
    InputError
        If no record has it: constants of the generic engine are nobody's to fit by mistake.
    """
    found = engine_timing(engine)
    if not found.known:
        check_choice("--engine", engine, engine_timings())
    return found


def observations(
    rows: Sequence[Mapping[str, str]],
    engine: str,
    configs: Path | None = None,
    most: int = 2000,
    seed: int = 0,
    wanted: Callable[[Mapping[str, str]], bool] = lambda row: True,
) -> list[Observation]:
    """Rows of one engine's record that the fit may look at: closed loops and offline, aggregated, no speculation.

    Parameters
    ----------
    rows
        Measured runs.
    engine
        Name of the record in ``data/engines.toml``.
    configs
        Folder of config files.
    most, seed
        At most so many, drawn evenly from the cells. [1]
    wanted
        Which rows to look at.
    """
    found = []
    for row in rows:
        if row.get("quality") == "C" or not wanted(row):
            continue
        try:
            case = settled(read_case(row, configs))
        except SizingError:
            continue
        plain = not (case.drafts or case.pools or case.guessed_lengths)
        if case.timing.name == engine and plain and isinstance(case.load, ClosedLoop | Offline):
            found.append(_observation(row, case))
    found = [o for o in found if not np.isnan(o.logs).all()]
    if not found:
        raise InputError(f"no row of engine {engine!r} can be fitted on; its closed-loop rows of quality A and B are")
    return _evenly(found, most, seed)


def _observation(row: Mapping[str, str], case: Case) -> Observation:
    tpot, ttft, rate = (truth(row, m) for m in ("tpot_ms", "ttft_ms", "output_tok_s"))
    cell = (case.deployment.gpu.id, case.deployment.model.name, row.get("weight_precision") or "")
    if isinstance(case.load, Offline):
        return Observation(case=case, tpot_s=None, ttft_s=None, rate=rate, cell=cell)
    return Observation(case=case, tpot_s=tpot and tpot / 1e3, ttft_s=ttft and ttft / 1e3,
                       rate=None if tpot or ttft else rate, cell=cell)  # fmt: skip


def _evenly(found: list[Observation], most: int, seed: int) -> list[Observation]:
    if len(found) <= most:
        return found
    _, where, size = np.unique(["|".join(o.cell) for o in found], return_inverse=True, return_counts=True)
    weight = 1.0 / size[where] ** 0.7
    chosen = np.random.default_rng(seed).choice(len(found), most, replace=False, p=weight / weight.sum())
    return [found[i] for i in sorted(chosen)]


def fit_engine(
    seen: Sequence[Observation],
    before: EngineTiming,
    names: Sequence[str] | None = None,
    calibration: str = "measured",
    rounds: int = 2,
) -> EngineFit:
    """Constants of an engine that its rows ask for.

    Parameters
    ----------
    seen
        Rows of that engine.
    before
        Its record so far, which gives what isn't fitted.
    names
        Constants to fit; None for all ten.
    calibration
        Kernel constants.
    rounds
        Times that predictions are made anew. [1]
    """
    names = names or fitted_names(before)
    fitter = Fitter(seen, calibration)
    timing = _with(before, names, np.zeros(len(names)))
    for _ in range(rounds):
        linear = fitter.linear(timing, names)
        z, spread = solve(linear, place_of(timing, names), lowest_of(names))
        timing = _with(before, names, z)
    width = {n: PRIORS[n].spread * s / max(abs(timing.values[n]), 1e-12) for n, s in zip(names, spread, strict=True)}
    spreads = {n: float(np.clip(width[n], 0.02, 0.7)) for n in names}
    after = replace(timing, spreads={**before.spreads, **spreads}, basis="fitted end to end")
    measured = np.array([o.logs for o in seen])
    errors = {}
    then, now = fitter.logs(before) - measured, fitter.logs(after) - measured
    for i, metric in enumerate(METRICS):
        if np.isfinite(now[:, i]).any():
            errors[metric] = (_median(then[:, i]), _median(now[:, i]))
    return EngineFit(timing=after, rows=len(seen), cells=len({o.cell for o in seen}), errors=errors)


def _median(logs: Floats) -> float:
    return round(float(np.nanmedian(np.abs(np.expm1(logs))) * 100.0), 1)


def place_of(timing: EngineTiming, names: Sequence[str]) -> Floats:
    """Where a record's constants are, in spreads of the priors from their middles."""
    return np.array([(timing.values.get(n, 0.0) - PRIORS[n].value) / PRIORS[n].spread for n in names])


def lowest_of(names: Sequence[str]) -> Floats:
    """Bounds of the constants, in spreads of the priors from their middles."""
    return np.array([(PRIORS[n].low - PRIORS[n].value) / PRIORS[n].spread for n in names])


def _with(before: EngineTiming, names: Sequence[str], z: Floats) -> EngineTiming:
    values = {n: float(PRIORS[n].value + PRIORS[n].spread * x) for n, x in zip(names, z, strict=True)}
    replaced = {*names, *(OTHER.get(n) for n in names)}
    kept = {n: v for n, v in before.values.items() if n not in replaced}
    return replace(before, values={**kept, **values})
