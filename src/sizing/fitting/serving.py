r"""An engine's own time from measured serving runs, by robust least squares with priors.

The constants :math:`\theta` minimise :math:`\sum_i w_i\,\rho(\ln(\hat y_i(\theta)/y_i)/\sigma)` plus
:math:`\sum_j((\theta_j-\theta_{0j})/s_j)^2`, with :math:`\rho` the soft L1 loss and :math:`w_i` such that every
cell of GPU, model and weight format weighs the same whatever its number of rows. Kernel times are held; what a
kernel table can tell is not fitted here. None of the constants is keyed by a model or by a row's source.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sizing.engines.timing import EngineTiming
from sizing.errors import InputError, SizingError
from sizing.operations import Step
from sizing.replica.run import ClosedLoop, Run
from sizing.steptime import StepModel, step_model
from sizing.validation.cases import Case, read_case
from sizing.validation.scores import truth
from sizing.validation.serving import calibrated, predict_with

Floats = NDArray[np.float64]
SCALES = ("memory_scale", "compute_scale", "link_scale", "fixed_scale", "moe_scale")
"""Constants that change the time of kernels."""
SCALE = 0.15
"""Log error at which a row's pull stops growing. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is expected of a constant before any row is seen.

    Attributes
    ----------
    value, spread
        Middle and width, in the constant's unit.
    low, high
        Physical bounds.
    """

    value: float
    spread: float
    low: float = 0.0
    high: float = np.inf


PRIORS: Mapping[str, Prior] = {
    "step_s": Prior(value=1.5e-3, spread=1e-3, high=3e-2),
    "sequence_s": Prior(value=1.5e-5, spread=3e-5, high=1e-3),
    "prefill_step_s": Prior(value=2e-3, spread=5e-3, high=5e-2),
    "first_token_s": Prior(value=3e-2, spread=3e-2, high=1.0),
    "first_token_steps": Prior(value=2.0, spread=4.0, high=40.0),
    "memory_scale": Prior(value=1.0, spread=0.1, low=0.7, high=2.0),
    "compute_scale": Prior(value=1.0, spread=0.3, low=0.6, high=3.0),
    "link_scale": Prior(value=1.0, spread=0.3, low=0.3, high=3.0),
    "fixed_scale": Prior(value=0.9, spread=0.25, low=0.3, high=1.5),
    "moe_scale": Prior(value=0.7, spread=0.25, low=0.1, high=1.5),
}
"""Constants that may be fitted, all of them the engine's: ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A row that the fit looks at."""

    case: Case
    tpot_s: float | None
    ttft_s: float | None
    rate: float | None
    cell: tuple[str, ...]


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
        lines.append(f'source = "{self.rows} closed-loop runs of {self.cells} cells of GPU, model and weight format"')
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

    def _run(self, case: Case, timing: EngineTiming) -> Run:
        changed = replace(case, timing=timing)
        return predict_with(changed, lambda d: self._steps(d, timing))

    def _steps(self, deployment: object, timing: EngineTiming) -> StepModel:
        from sizing.deployment import Deployment

        assert isinstance(deployment, Deployment)
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


def observations(
    rows: Sequence[Mapping[str, str]],
    engine: str,
    configs: Path | None = None,
    most: int = 300,
    seed: int = 0,
    wanted: Callable[[Mapping[str, str]], bool] = lambda row: True,
) -> list[Observation]:
    """Rows of one engine's record that the fit may look at: closed loops, aggregated, no speculation.

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
            case = read_case(row, configs)
        except SizingError:
            continue
        plain = isinstance(case.load, ClosedLoop) and not case.drafts and not case.pools and not case.guessed_lengths
        if case.timing.name != engine or not plain:
            continue
        tpot, ttft, rate = (truth(row, m) for m in ("tpot_ms", "ttft_ms", "output_tok_s"))
        cell = (case.deployment.gpu.id, case.deployment.model.name, row.get("weight_precision") or "")
        found.append(
            Observation(
                case=case, tpot_s=tpot and tpot / 1e3, ttft_s=ttft and ttft / 1e3,
                rate=None if tpot or ttft else rate, cell=cell,
            )
        )  # fmt: skip
    if not found:
        raise InputError(f"no row of engine {engine!r} can be fitted on; its closed-loop rows of quality A and B are")
    return _evenly(found, most, seed)


def _evenly(found: list[Observation], most: int, seed: int) -> list[Observation]:
    if len(found) <= most:
        return found
    size = Counter(o.cell for o in found)
    weight = np.array([1.0 / size[o.cell] ** 0.7 for o in found])
    chosen = np.random.default_rng(seed).choice(len(found), most, replace=False, p=weight / weight.sum())
    return [found[i] for i in sorted(chosen)]


def residuals(runs: Sequence[Run], seen: Sequence[Observation]) -> tuple[Floats, Floats, list[str]]:
    """Log of predicted over measured, weights and metrics; rows short of KV room have no say on TTFT."""
    size = Counter(o.cell for o in seen)
    logs, weights, metrics = [], [], []
    for run, o in zip(runs, seen, strict=True):
        weight = 1.0 / size[o.cell] ** 0.5
        if o.tpot_s:
            logs.append(np.log(run.tpot_s.value / o.tpot_s))
            weights.append(weight)
            metrics.append("tpot")
        if o.ttft_s and not run.kv_short:
            logs.append(np.log(run.ttft_s.value / o.ttft_s))
            weights.append(0.4 * weight)
            metrics.append("ttft")
        if o.rate:
            tokens = run.output_tokens_per_s.value * o.case.replicas
            logs.append(-np.log(tokens / o.rate))
            weights.append(weight)
            metrics.append("rate")
    return np.array(logs), np.array(weights) / np.mean(weights), metrics


def fit_engine(
    seen: Sequence[Observation],
    before: EngineTiming,
    names: Sequence[str] = tuple(PRIORS),
    calibration: str = "measured",
    rounds: int = 8,
) -> EngineFit:
    """Constants of an engine that its rows ask for.

    Parameters
    ----------
    seen
        Rows of that engine.
    before
        Its record so far, which gives what isn't fitted.
    names
        Constants to fit.
    calibration
        Kernel constants.
    rounds
        Function evaluations of the solver, Jacobians apart. [1]
    """
    from scipy.optimize import least_squares

    fitter = Fitter(seen, calibration)
    priors = [PRIORS[name] for name in names]
    middle, spread = (np.array([getattr(p, x) for p in priors]) for x in ("value", "spread"))

    def record(z: Floats) -> EngineTiming:
        values = {**before.values, **dict(zip(names, (middle + spread * z).tolist(), strict=True))}
        return replace(before, values=values)

    def cost(z: Floats) -> Floats:
        logs, weights, _ = residuals(fitter.predict(record(z)), seen)
        x = np.clip(logs, -3, 3) / SCALE
        soft = np.sign(x) * np.sqrt(2.0 * weights * (np.sqrt(1.0 + x * x) - 1.0))
        return np.concatenate([soft, z])

    low = np.array([(p.low - p.value) / p.spread for p in priors])
    high = np.array([(p.high - p.value) / p.spread for p in priors])
    start = np.array([(before.values.get(n, p.value) - p.value) / p.spread for n, p in zip(names, priors, strict=True)])
    start = np.clip(start, low + 1e-3, high - 1e-3)
    solved = least_squares(cost, start, bounds=(low, high), diff_step=0.02, max_nfev=rounds)
    after = record(solved.x)
    covariance = np.linalg.pinv(solved.jac.T @ solved.jac)
    values = dict(zip(names, (middle + spread * solved.x).tolist(), strict=True))
    width = dict(zip(names, (spread * np.sqrt(np.diag(covariance))).tolist(), strict=True))
    spreads = {n: float(np.clip(width[n] / max(abs(values[n]), 1e-12), 0.02, 0.7)) for n in names}
    after = replace(after, spreads={**before.spreads, **spreads}, basis="fitted end to end")
    errors = {}
    then, _, metrics = residuals(fitter.predict(before), seen)
    now, _, metrics_now = residuals(fitter.predict(after), seen)
    for metric in sorted(set(metrics)):
        pair = []
        for logs, labels in ((then, metrics), (now, metrics_now)):
            chosen = np.array([m == metric for m in labels])
            pair.append(float(np.median(np.abs(np.expm1(logs[chosen]))) * 100.0))
        errors[metric] = (round(pair[0], 1), round(pair[1], 1))
    return EngineFit(timing=after, rows=len(seen), cells=len({o.cell for o in seen}), errors=errors)
