"""The sum of squares that a fit to a load test minimises, and its minimum."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sizing.benchmarks.point import BenchPoint
from sizing.calibration import BOUNDS, Calibration
from sizing.errors import InputError
from sizing.validation.bench import Prediction, Predictor, measured_value

Floats = NDArray[np.float64]
SIGMA = {"tpot_s": 0.03, "ttft_s": 0.15, "e2e_s": 0.06, "output_tokens_per_s": 0.06}
"""Log-sigma of one measured metric: repeated runs of one configuration differ by 1-3 %, TTFT by far more."""

SHORTEST_S = 1e-9  # a fitted time is never quite 0, which would mean "not fitted"
LEAST_SCALE = 0.05
HUBER = 2.0  # residuals beyond this many sigmas pull with constant force
DIFFERENCE, STEPS = 0.05, 12  # step of the differences, in prior spreads; iterations at most
WIDEST = 3.0  # most that a metric's noise is widened by
IDENTIFIED = 0.7  # posterior spread below this share of the prior's


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A constant that a load test can move.

    Parameters
    ----------
    name
        Field of :class:`sizing.calibration.EngineTime`.
    kind
        ``time`` moves by addition [s, or steps], ``scale`` by multiplication [1].
    prior
        Least spread of the prior: in the constant's unit, or log-sigma.
    words
        What it is.
    """

    name: str
    kind: Literal["time", "scale"]
    prior: float
    words: str


# Widths: how far a machine's constants lie from the shipped medians. Half of them left a third more error on the
# held-out points of public runs; three times as much changed little. The two that only TTFT shows: shipped
# first_token_steps lie from 0.06 (ATOM in vLLM) to 12.5 (TensorRT-LLM); a wider start_scale (0.5) did no better
# between measured loads and far worse above them.
CONSTANTS: tuple[Constant, ...] = (
    Constant(name="step_s", kind="time", prior=3e-3, words="engine time per step"),
    Constant(name="sequence_s", kind="time", prior=1e-4, words="engine time per sequence and step"),
    Constant(name="host_step_s", kind="time", prior=3e-3, words="host work beside the kernels, per step"),
    Constant(name="host_sequence_s", kind="time", prior=1e-4, words="host work beside the kernels, per sequence"),
    Constant(name="prefill_step_s", kind="time", prior=1.2e-2, words="engine time per prefill step"),
    Constant(name="first_token_s", kind="time", prior=8e-2, words="time per request outside the steps"),
    Constant(name="first_token_steps", kind="time", prior=12.0, words="decode steps until a ready first token is sent"),
    Constant(name="start_scale", kind="scale", prior=0.30, words="wait and prefill before the first token, scale"),
    Constant(name="memory_scale", kind="scale", prior=0.25, words="decode (bandwidth) time scale"),
    Constant(name="compute_scale", kind="scale", prior=0.50, words="prefill (FLOP) time scale"),
    Constant(name="link_scale", kind="scale", prior=0.75, words="collective time scale"),
    Constant(name="fixed_scale", kind="scale", prior=0.50, words="fixed time of kernels, scale"),
    Constant(name="moe_scale", kind="scale", prior=0.75, words="fixed time of experts, scale"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedConstant:
    """One constant before and after.

    Parameters
    ----------
    name, words, unit
        Which constant, and its unit.
    before, prior_spread
        Shipped value and the spread that the prior gave it, in its unit.
    after, spread
        Fitted value and its posterior spread, in its unit.
    identified
        Whether the run told it apart: the posterior is clearly narrower than the prior.
    """

    name: str
    words: str
    unit: str
    before: float
    prior_spread: float
    after: float
    spread: float
    identified: bool


class Problem:
    """The sum of squares, in units of each prior's spread."""

    def __init__(
        self,
        points: tuple[BenchPoint, ...],
        predictor: Predictor,
        calibration: Calibration,
        constants: tuple[Constant, ...],
        prior_width: float,
    ) -> None:
        self.points, self.predictor, self.calibration = points, predictor, calibration
        self.constants = constants
        self.centre = np.array([float(getattr(calibration.engine_time, c.name)) for c in constants])
        self.width = np.array([_prior(calibration, c) * prior_width for c in constants])
        self.weight = np.ones(0)
        first = self._predict(calibration)
        self.rows = [(n, metric) for n, point in enumerate(points) for metric in _fitted_metrics(point, first[n])]
        if not self.rows:
            raise InputError("fit: no point has a TPOT, TTFT, end-to-end latency or token rate to fit to")
        self.weight = np.ones(len(self.rows))

    def _predict(self, calibration: Calibration) -> Sequence[Prediction]:
        return self.predictor(self.points, calibration)

    def at(self, z: Floats) -> Calibration:
        """Calibration with the constants at ``z`` prior spreads from their centres."""
        values = {}
        for constant, centre, width, shift in zip(self.constants, self.centre, self.width, z, strict=True):
            value = centre + width * shift if constant.kind == "time" else centre * np.exp(width * shift)
            low = max(BOUNDS[constant.name].low, SHORTEST_S)
            values[constant.name] = float(np.clip(value, low, BOUNDS[constant.name].high))
        return self.calibration.with_constants("engine", **values)

    def told(self) -> tuple[Constant, ...]:
        """Constants that a prediction depends on: a dense model has no experts, one GPU no collectives."""
        zero = np.zeros(len(self.constants))
        start = self.residuals(zero)
        slope = self._slope(zero, start, self._limits()[1])[: len(self.rows)]
        kept = tuple(c for c, column in zip(self.constants, slope.T, strict=True) if np.any(np.abs(column) > 1e-6))
        return kept or self.constants

    def log_ratios(self, calibration: Calibration) -> Floats:
        """ln(predicted / measured) of every fitted metric."""
        predictions = self._predict(calibration)
        found = []
        for n, metric in self.rows:
            predicted, measured = getattr(predictions[n], metric), measured_value(self.points[n], metric)
            good = predicted is not None and measured is not None and np.isfinite(predicted) and predicted > 0.0
            found.append(np.log(predicted / measured) if good else 2.0)
        return np.array(found)

    def errors(self, calibration: Calibration) -> Floats:
        """Relative errors of the fitted metrics."""
        return np.abs(np.exp(self.log_ratios(calibration)) - 1.0)

    def sigmas(self) -> Floats:
        """Log-sigma of every fitted metric."""
        return np.array([SIGMA[metric] for _, metric in self.rows])

    def left(self, calibration: Calibration) -> float:
        """Robust log-sigma of what is left of TPOT (or of everything, without one)."""
        ratios = self.log_ratios(calibration)
        mask = np.array([metric == "tpot_s" for _, metric in self.rows])
        chosen = ratios[mask] if mask.any() else ratios
        return float(max(1.4826 * np.median(np.abs(chosen)), 0.01))

    def residuals(self, z: Floats) -> Floats:
        """Weighted residuals of the measurements, then of the priors."""
        return np.concatenate([self.weight * self.log_ratios(self.at(z)) / self.sigmas(), z])

    def solve(self) -> tuple[Floats, Floats, Floats]:
        """Minimum, marginal spread and spread with the others held, all in prior spreads.

        Two passes: the second one has Huber weights, and noise of each metric widened to what the first left
        of it, so that a TTFT that no constant explains does not drag the TPOT along.
        """
        low, high = self._limits()
        z: Floats = np.clip(np.zeros(len(self.constants)), low, high)
        for _ in range(2):
            z = self._minimum(z, low, high)
            self.weight = self._weights(z)
        slope = self._slope(z, self.residuals(z), high)
        precision = slope.T @ slope
        return z, np.sqrt(np.diag(np.linalg.inv(precision))), 1.0 / np.sqrt(np.diag(precision))

    def _weights(self, z: Floats) -> Floats:
        """Weight of every row: Huber's, over the factor by which its metric scatters more than its sigma."""
        size = np.abs(self.log_ratios(self.at(z))) / self.sigmas()
        huber = np.sqrt(np.minimum(1.0, HUBER / np.maximum(size, 1e-9)))
        factor = np.ones(len(size))
        for metric in SIGMA:
            mask = np.array([metric == name for _, name in self.rows])
            if mask.any():
                scatter = float(np.sqrt(np.mean((huber[mask] * size[mask]) ** 2)))
                factor[mask] = min(max(scatter, 1.0), WIDEST)
        return np.asarray(huber / factor)

    def _minimum(self, z: Floats, low: Floats, high: Floats) -> Floats:
        """Levenberg-Marquardt with wide steps of difference, for a function that is only piecewise smooth.

        Marquardt, SIAM J. Appl. Math. 11 (1963), 431-441; a step that leaves the bounds is cut there.
        """
        fun, damping = self.residuals(z), 1e-2
        slope = self._slope(z, fun, high)
        for _ in range(STEPS):
            curvature = slope.T @ slope
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), -slope.T @ fun)
            trial = np.clip(z + step, low, high)
            after = self.residuals(trial)
            gain = float(fun @ fun - after @ after)
            if gain <= 0.0:
                damping *= 6.0
                if damping > 1e4 or np.max(np.abs(trial - z)) < 1e-3:
                    break
                continue
            z, fun, damping = trial, after, damping / 4.0
            slope = self._slope(z, fun, high)
            if gain < 1e-3 * float(fun @ fun) + 1e-9:
                break
        return z

    def _slope(self, z: Floats, fun: Floats, high: Floats) -> Floats:
        """Derivatives of the residuals, by forward differences (backward at the upper bound)."""
        columns = []
        for n in range(len(z)):
            step = DIFFERENCE if z[n] + DIFFERENCE <= high[n] else -DIFFERENCE
            moved = z.copy()
            moved[n] += step
            columns.append((self.residuals(moved) - fun) / step)
        return np.stack(columns, axis=1)

    def _limits(self) -> tuple[Floats, Floats]:
        low, high = [], []
        for constant, centre, width in zip(self.constants, self.centre, self.width, strict=True):
            bound = BOUNDS[constant.name]
            if constant.kind == "time":
                low.append((max(bound.low, SHORTEST_S) - centre) / width - 1e-9)
                high.append((bound.high - centre) / width)
            else:
                low.append(np.log(max(bound.low, LEAST_SCALE) / centre) / width)
                high.append(np.log(bound.high / centre) / width)
        return np.maximum(np.array(low), -6.0), np.minimum(np.array(high), 12.0)

    def described(self, n: int, shift: float, spread: float) -> FittedConstant:
        """One constant in its own unit."""
        constant, centre, width = self.constants[n], self.centre[n], self.width[n]
        scale = constant.kind == "scale"
        value = centre * np.exp(width * shift) if scale else max(centre + width * shift, 0.0)
        value = 0.0 if value < 2.0 * SHORTEST_S else value
        return FittedConstant(
            name=constant.name,
            words=constant.words,
            unit=BOUNDS[constant.name].unit,
            before=float(centre),
            prior_spread=float(centre * width if scale else width),
            after=float(value),
            spread=float(value * width * spread if scale else width * spread),
            identified=bool(spread < IDENTIFIED),
        )


def _prior(calibration: Calibration, constant: Constant) -> float:
    """Spread of the prior: the shipped one, never tighter than a machine's own distance from the medians."""
    stated = calibration.evidence["engine"].spreads.get(constant.name, 0.0) if "engine" in calibration.evidence else 0.0
    value = float(getattr(calibration.engine_time, constant.name))
    own = stated * value if constant.kind == "time" else stated
    return max(own, constant.prior)


def _fitted_metrics(point: BenchPoint, prediction: Prediction) -> list[str]:
    """TPOT and TTFT where there are any; else end-to-end latency; else the token rate."""
    have = [m for m in ("tpot_s", "ttft_s") if measured_value(point, m) and getattr(prediction, m) is not None]
    if prediction.starved:
        have = [m for m in have if m != "ttft_s"]
    if "tpot_s" in have:
        return have
    for metric in ("e2e_s", "output_tokens_per_s"):
        if measured_value(point, metric) and getattr(prediction, metric) is not None:
            return [*have, metric]
    return have
