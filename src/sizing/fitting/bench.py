r"""Constants of the engine that a user's own load test identifies, by least squares with priors.

The constants :math:`\theta` minimise

.. math:: \sum_i \left(\frac{\ln(\hat y_i(\theta) / y_i)}{\sigma_i}\right)^2
          + \sum_j \left(\frac{\theta_j - \theta_{0j}}{s_j}\right)^2

the negative log posterior with Gaussian errors :math:`\sigma_i` of a measured metric and priors
:math:`(\theta_{0j}, s_j)` from the shipped constants (maximum a posteriori; Gelman et al., Bayesian Data
Analysis, 3rd ed., section 4.1: the posterior's covariance is the inverse of the curvature there). A
constant whose posterior spread stays near its prior's was not identified by the run, and keeps its value.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from sizing.benchmarks.point import BenchPoint
from sizing.calibration import Calibration, EngineTime, Evidence
from sizing.errors import InputError
from sizing.fitting.bench_problem import CONSTANTS, Constant, FittedConstant, Problem
from sizing.validation.bench import Predictor, usable


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchFit:
    """Result of fitting to a load test.

    Parameters
    ----------
    calibration
        The shipped constants with the fitted ones in their place.
    constants
        Every constant that was free, identified or not.
    points
        Points that were fitted.
    error_before, error_after
        Median relative error over the fitted metrics [1].
    residual
        Log-sigma of what the fit leaves [1].
    """

    calibration: Calibration
    constants: tuple[FittedConstant, ...]
    points: tuple[BenchPoint, ...]
    error_before: float
    error_after: float
    residual: float

    @property
    def unidentified(self) -> tuple[str, ...]:
        """Names of the constants that the run could not tell."""
        return tuple(found.name for found in self.constants if not found.identified)


def fit_bench(
    points: Sequence[BenchPoint],
    predictor: Predictor,
    calibration: Calibration,
    *,
    constants: Sequence[str] | None = None,
    prior_width: float = 1.0,
) -> BenchFit:
    """Fit the engine's constants to measured points.

    Parameters
    ----------
    points
        Points of one deployment; refused ones are left out.
    predictor
        Predictions of points under a calibration.
    calibration
        Shipped constants: centre of the priors.
    constants
        Names of the free constants; None frees those that the predictions depend on.
    prior_width
        Factor on the spread of every prior [1].
    """
    kept = usable(points)
    chosen = _chosen(constants, calibration)
    problem = Problem(kept, predictor, calibration, chosen, prior_width)
    if constants is None:
        chosen = problem.told()
        problem = Problem(kept, predictor, calibration, chosen, prior_width)
    solution, spread, held_spread = problem.solve()
    fitted = problem.at(solution)
    before = problem.errors(calibration)
    return BenchFit(
        calibration=_recorded(fitted, kept, chosen, solution, held_spread, problem),
        constants=tuple(problem.described(n, solution[n], spread[n]) for n in range(len(chosen))),
        points=kept,
        error_before=float(np.median(before)),
        error_after=float(np.median(problem.errors(fitted))),
        residual=problem.left(fitted),
    )


Floats = NDArray[np.float64]
_ENGINE_FIELDS = frozenset(item.name for item in fields(EngineTime))


def _chosen(names: Sequence[str] | None, calibration: Calibration) -> tuple[Constant, ...]:
    """The constants asked for, or all: host work where the engine has it, beside the kernels or added to them."""
    known = {constant.name: constant for constant in CONSTANTS}
    if names is None:
        beside = float(np.max(calibration.engine_time.host_step_s)) > 0.0
        unused = ("step_s", "sequence_s") if beside else ("host_step_s", "host_sequence_s")
        return tuple(c for c in CONSTANTS if c.name in _ENGINE_FIELDS and c.name not in unused)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"constants: no {unknown[0]!r}; allowed are {', '.join(known)}")
    return tuple(known[name] for name in names)


def _recorded(
    fitted: Calibration,
    points: Sequence[BenchPoint],
    constants: Sequence[Constant],
    z: Floats,
    spread: Floats,
    problem: Problem,
) -> Calibration:
    """The calibration with the evidence of its engine constants brought up to date.

    Its spreads are those with the other constants held: of all independent draws, these are nearest to the
    joint posterior (Bishop, Pattern Recognition and Machine Learning, section 10.1.2).
    """
    sources = sorted({f"{point.source} (sha256 {point.sha256[:12]})" for point in points})
    shown = ", ".join(sources[:4]) + (f" and {len(sources) - 4} more" if len(sources) > 4 else "")
    spreads = dict(fitted.evidence["engine"].spreads) if "engine" in fitted.evidence else {}
    for n, constant in enumerate(constants):
        found = problem.described(n, float(z[n]), float(spread[n]))
        spreads[constant.name] = min(found.spread / found.after, 1.0) if found.after > 0.0 else 0.0
    evidence = Evidence(
        basis="fitted end to end",
        fitted_on=f"{len(points)} points of {shown}",
        date=datetime.now(tz=UTC).date().isoformat(),
        residual=problem.left(fitted),
        spreads=spreads,
    )
    return replace(fitted, evidence={**fitted.evidence, "engine": evidence})


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One constant alone as the reason for the difference.

    Parameters
    ----------
    constant
        The constant, before and after it alone was fitted.
    error_before, error_after
        Median relative error with the shipped constants, and with this one moved [1].
    """

    constant: FittedConstant
    error_before: float
    error_after: float


def explain(
    points: Sequence[BenchPoint],
    predictor: Predictor,
    calibration: Calibration,
    progress: Callable[[Sequence[Constant]], Sequence[Constant]] | None = None,
) -> tuple[Explanation, ...]:
    """Which single constant would explain the difference best; best first.

    Parameters
    ----------
    points, predictor, calibration
        As in :func:`fit_bench`.
    progress
        Wrapper of the list of constants, for a progress bar.
    """
    constants = Problem(usable(points), predictor, calibration, _chosen(None, calibration), 1.0).told()
    found = []
    for constant in progress(constants) if progress else constants:
        fit = fit_bench(points, predictor, calibration, constants=[constant.name], prior_width=3.0)
        found.append(
            Explanation(
                constant=fit.constants[0],
                error_before=fit.error_before,
                error_after=fit.error_after,
            )
        )
    return tuple(sorted(found, key=lambda one: one.error_after))


def constant_rows(constants: Sequence[FittedConstant]) -> list[dict[str, object]]:
    """One row a constant: before and after with spreads, and whether the run told it apart."""
    found = []
    for one in constants:
        factor, unit = (1e6, "us") if one.unit == "s" else (1.0, "x")
        found.append(
            {
                "constant": one.words,
                "name": one.name,
                "unit": unit,
                "shipped": _digits(one.before * factor),
                "shipped_spread": _digits(one.prior_spread * factor),
                "fitted": _digits(one.after * factor),
                "fitted_spread": _digits(one.spread * factor),
                "identified": "yes" if one.identified else "no",
            }
        )
    return found


def explanation_notes(explanations: Sequence[Explanation], most: int = 3) -> list[str]:
    """The constants that alone would explain the difference, in words, best first.

    Parameters
    ----------
    explanations
        Of :func:`explain`.
    most
        How many to tell [1].
    """
    found = []
    for one in explanations[:most]:
        constant = one.constant
        if one.error_after > one.error_before * 0.9:
            continue
        found.append(
            f"{constant.words} {_shown(constant, constant.before)} -> {_shown(constant, constant.after)} alone "
            f"would bring the median error from {one.error_before:.1%} to {one.error_after:.1%}"
        )
    return found or ["no single constant explains the difference"]


def _shown(constant: FittedConstant, value: float) -> str:
    if constant.unit != "s":
        return f"x{value:.2f}"
    return f"{value * 1e3:.3g} ms" if value >= 1e-4 else f"{value * 1e6:.3g} us"


def _digits(value: float) -> float:
    """Three significant digits."""
    return float(f"{value:.3g}")
