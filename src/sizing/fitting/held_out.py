"""Does a load test at a few loads predict the others? Fit on some points of a run, score the rest."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sizing.benchmarks.point import BenchPoint
from sizing.calibration import Calibration
from sizing.errors import InputError, SizingError
from sizing.fitting.bench import fit_bench
from sizing.fitting.discrepancy import discrepancy, load_level
from sizing.validation.bench import LATENCIES, Prediction, Predictor, compare

Errors = dict[str, tuple[float, ...]]
FOLDS = 5  # most parts that a user's run is cut into, each left out once
LEAST_LOADS = 3  # fewer loads leave nothing to fit on when some are left out
BEYOND = {"tpot_s": 0.13, "ttft_s": 0.29}
"""Least log-sigma that a fitted run leaves at loads it did not have: 80 % of the points of 306 public runs lay within
1.28 of it, above the three lowest concurrencies, which were fitted. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Points of one deployment and length pair at several concurrencies: one user's benchmark file.

    Parameters
    ----------
    name
        The deployment in words.
    points
        In order of concurrency, one a concurrency.
    """

    name: str
    points: tuple[BenchPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Errors on the points of one group that were not fitted.

    Parameters
    ----------
    group, engine, fitted, held_out
        Which, and how many points were fitted and scored.
    shipped, fitted_constants, with_remainder
        Relative errors by metric: with the shipped constants, with the fitted ones, and with the fitted ones
        and what they leave at the fitted points, interpolated (:mod:`sizing.fitting.discrepancy`) [1].
    """

    group: str
    engine: str
    fitted: int
    held_out: int
    shipped: Errors
    fitted_constants: Errors
    with_remainder: Errors


Chooser = Callable[[Group], tuple[Predictor, Calibration]]


def grouped(points: Iterable[BenchPoint], least: int = 4) -> tuple[Group, ...]:
    """Closed-loop points gathered by source, model, GPU, layout, formats, lengths and engine version.

    Parameters
    ----------
    points
        Points of any number of runs.
    least
        Concurrencies a group must have [1].
    """
    found: dict[tuple[object, ...], dict[float, BenchPoint]] = defaultdict(dict)
    for point in points:
        concurrency = point.load.concurrency
        wanted = point.load.kind == "closed" and concurrency and point.usable and point.tpot_s
        if wanted and not point.disaggregated:
            found[_key(point)].setdefault(float(concurrency or 0.0), point)
    groups = [
        Group(name=_name(key), points=tuple(by[c] for c in sorted(by))) for key, by in found.items() if len(by) >= least
    ]
    return tuple(groups)


def _key(point: BenchPoint) -> tuple[object, ...]:
    source = point.source.split("-", 1)[0] if point.format == "serving-table" else point.source
    lengths = point.input_tokens, point.output_tokens, point.length_range
    layout = point.gpus, point.tp, point.pp, point.ep, point.dp
    formats = point.weights, point.kv, any("speculative" in warning for warning in point.warnings)
    return point.model, point.gpu, layout, formats, lengths, point.engine, point.engine_version, source


def _name(key: tuple[object, ...]) -> str:
    model, gpu, layout, formats, lengths, engine, version, source = key
    tp, weights = layout[1] or 1, formats[0] or ""  # type: ignore[index]
    isl, osl = lengths[0] or 0.0, lengths[1] or 0.0  # type: ignore[index]
    short = str(model).rsplit("/", 1)[-1]
    return f"{short} {weights} {gpu} TP{tp} {isl:.0f}/{osl:.0f} {engine} {version or ''} ({source})"


def split(
    group: Group, fitted: int = 3, *, lowest: bool = False
) -> tuple[tuple[BenchPoint, ...], tuple[BenchPoint, ...]]:
    """Points to fit, spread evenly from the lowest to the highest concurrency, and the rest to score.

    Parameters
    ----------
    group
        Points in order of concurrency.
    fitted
        How many to fit [1].
    lowest
        Fit the lowest concurrencies instead, so that the others are extrapolated to.
    """
    count = len(group.points)
    if not 1 <= fitted < count:
        raise InputError(f"fitted: {fitted} of {count} points; give a number from 1 to {count - 1}")
    if lowest:
        return group.points[:fitted], group.points[fitted:]
    places = {int(np.floor(x + 0.5)) for x in np.linspace(0, count - 1, fitted)}
    inside = tuple(p for n, p in enumerate(group.points) if n in places)
    return inside, tuple(p for n, p in enumerate(group.points) if n not in places)


def held_out(groups: Iterable[Group], choose: Chooser, fitted: int = 3, *, lowest: bool = False) -> tuple[HeldOut, ...]:
    """Fit every group on some of its concurrencies and score the others.

    Parameters
    ----------
    groups
        As :func:`grouped` gives them.
    choose
        Predictor and shipped calibration of a group; a group it refuses is left out.
    fitted
        Points to fit in each [1].
    lowest
        Fit the lowest concurrencies, as in :func:`split`.
    """
    found = []
    for group in groups:
        try:
            predictor, shipped = choose(group)
            inside, outside = split(group, fitted, lowest=lowest)
            fit = fit_bench(inside, predictor, shipped)
        except SizingError:
            continue
        left = discrepancy(inside, predictor, fit.calibration)
        fitted_now = predictor(outside, fit.calibration)
        found.append(
            HeldOut(
                group=group.name,
                engine=group.points[0].engine or "",
                fitted=len(inside),
                held_out=len(outside),
                shipped=_errors(outside, predictor(outside, shipped)),
                fitted_constants=_errors(outside, fitted_now),
                with_remainder=_errors(outside, left.corrected(outside, fitted_now)),
            )
        )
    return tuple(found)


def _errors(points: Sequence[BenchPoint], predictions: Sequence[Prediction]) -> Errors:
    rows = compare(points, predictions)
    listed = {metric: tuple(row.error for row in rows if row.metric == metric) for metric in LATENCIES}
    return {metric: errors for metric, errors in listed.items() if errors}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Errors of a run's points, each while its load was left out of the fit.

    Parameters
    ----------
    shipped, fitted
        Relative errors by metric, with the shipped constants and with those fitted to the other loads [1].
    """

    shipped: Errors
    fitted: Errors

    def residuals(self) -> dict[str, float]:
        """Log-sigma that a prediction with the fitted constants deserves, by ``tpot`` and ``ttft`` [1].

        1.4826 times the median log error, a normal's sigma; never below what runs leave at loads they did not have.
        """
        sigma = {name: 1.4826 * float(np.median(np.log1p(errors))) for name, errors in self.fitted.items()}
        return {name.removesuffix("_s"): max(value, BEYOND[name]) for name, value in sigma.items()}


def left_out(
    points: Sequence[BenchPoint],
    predictor: Predictor,
    calibration: Calibration,
    constants: Sequence[str] | None = None,
) -> LeftOut | None:
    """Fit a run again and again with some of its loads left out, and score those; None with too few loads.

    Parameters
    ----------
    points, predictor, calibration, constants
        As for :func:`sizing.fitting.bench.fit_bench`.
    """
    kept = [point for point in points if point.usable]
    loads = sorted({load for point in kept if (load := load_level(point)) is not None})
    if len(loads) < LEAST_LOADS:
        return None
    shipped: dict[str, list[float]] = defaultdict(list)
    fitted: dict[str, list[float]] = defaultdict(list)
    for fold in range(min(FOLDS, len(loads))):
        gone = set(loads[fold::FOLDS])
        outside = [point for point in kept if load_level(point) in gone]
        fit = fit_bench([p for p in kept if load_level(p) not in gone], predictor, calibration, constants=constants)
        for found, held in ((shipped, calibration), (fitted, fit.calibration)):
            for metric, errors in _errors(outside, predictor(outside, held)).items():
                found[metric] += errors
    return LeftOut(shipped=_frozen(shipped), fitted=_frozen(fitted))


def _frozen(errors: dict[str, list[float]]) -> Errors:
    return {metric: tuple(values) for metric, values in errors.items()}


def by_engine(results: Iterable[HeldOut]) -> list[dict[str, object]]:
    """Rows of a table: per engine and metric, median errors on held-out points and their ratio to shipped."""
    pooled: dict[tuple[str, str], list[HeldOut]] = defaultdict(list)
    for result in results:
        for metric in result.shipped:
            pooled[(result.engine, metric)].append(result)
            pooled[("all", metric)].append(result)
    return [_row(engine, metric, held) for (engine, metric), held in sorted(pooled.items(), key=_order)]


def _row(engine: str, metric: str, held: Sequence[HeldOut]) -> dict[str, object]:
    medians = {
        name: float(np.median([error for one in held for error in getattr(one, name).get(metric, ())]))
        for name in ("shipped", "fitted_constants", "with_remainder")
    }
    base = max(medians["shipped"], 1e-12)
    return {
        "engine": engine,
        "metric": metric,
        "runs": len(held),
        "points": sum(len(one.shipped[metric]) for one in held),
        "shipped_median_error": medians["shipped"],
        "fitted_median_error": medians["fitted_constants"],
        "fitted_over_shipped": medians["fitted_constants"] / base,
        "with_remainder_median_error": medians["with_remainder"],
        "with_remainder_over_shipped": medians["with_remainder"] / base,
    }


def _order(entry: tuple[tuple[str, str], object]) -> tuple[bool, str, int]:
    (engine, metric), _ = entry
    return engine == "all", engine, LATENCIES.index(metric)
