"""Does a load test at a few concurrencies predict the others? Fit on some points of a run, score the rest."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sizing.benchmarks.point import BenchPoint
from sizing.calibration import Calibration
from sizing.errors import InputError, SizingError
from sizing.fitting.bench import fit_bench
from sizing.validation.bench import LATENCIES, Predictor, compare


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
    before, after
        Median relative error by metric with the shipped and with the fitted constants [1].
    errors_before, errors_after
        Every error, by metric [1].
    """

    group: str
    engine: str
    fitted: int
    held_out: int
    before: dict[str, float]
    after: dict[str, float]
    errors_before: dict[str, tuple[float, ...]]
    errors_after: dict[str, tuple[float, ...]]


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


def split(group: Group, fitted: int = 3) -> tuple[tuple[BenchPoint, ...], tuple[BenchPoint, ...]]:
    """Points to fit, spread evenly from the lowest to the highest concurrency, and the rest to score.

    Parameters
    ----------
    group
        Points in order of concurrency.
    fitted
        How many to fit [1].
    """
    count = len(group.points)
    if not 1 <= fitted < count:
        raise InputError(f"fitted: {fitted} of {count} points; give a number from 1 to {count - 1}")
    places = {int(np.floor(x + 0.5)) for x in np.linspace(0, count - 1, fitted)}
    inside = tuple(p for n, p in enumerate(group.points) if n in places)
    return inside, tuple(p for n, p in enumerate(group.points) if n not in places)


def held_out(groups: Iterable[Group], choose: Chooser, fitted: int = 3) -> tuple[HeldOut, ...]:
    """Fit every group on some of its concurrencies and score the others.

    Parameters
    ----------
    groups
        As :func:`grouped` gives them.
    choose
        Predictor and shipped calibration of a group; a group it refuses is left out.
    fitted
        Points to fit in each [1].
    """
    found = []
    for group in groups:
        try:
            predictor, shipped = choose(group)
            inside, outside = split(group, fitted)
            fit = fit_bench(inside, predictor, shipped)
        except SizingError:
            continue
        before, after = _errors(outside, predictor, shipped), _errors(outside, predictor, fit.calibration)
        found.append(
            HeldOut(
                group=group.name,
                engine=group.points[0].engine or "",
                fitted=len(inside),
                held_out=len(outside),
                before={m: float(np.median(e)) for m, e in before.items()},
                after={m: float(np.median(e)) for m, e in after.items()},
                errors_before=before,
                errors_after=after,
            )
        )
    return tuple(found)


def _errors(
    points: Sequence[BenchPoint], predictor: Predictor, calibration: Calibration
) -> dict[str, tuple[float, ...]]:
    rows = compare(points, predictor(points, calibration))
    listed = {metric: tuple(row.error for row in rows if row.metric == metric) for metric in LATENCIES}
    return {metric: errors for metric, errors in listed.items() if errors}


def by_engine(results: Iterable[HeldOut]) -> list[dict[str, object]]:
    """Rows of a table: per engine and metric, median error on held-out points before and after."""
    pooled: dict[tuple[str, str], tuple[list[float], list[float], set[str]]] = {}
    for result in results:
        for engine in (result.engine, "all"):
            for metric in result.errors_before:
                before, after, names = pooled.setdefault((engine, metric), ([], [], set()))
                before.extend(result.errors_before[metric])
                after.extend(result.errors_after.get(metric, ()))
                names.add(result.group)
    return [
        {
            "engine": engine,
            "metric": metric,
            "groups": len(names),
            "points": len(after),
            "median_error_shipped": float(np.median(before)),
            "median_error_calibrated": float(np.median(after)),
            "ratio": float(np.median(after) / max(float(np.median(before)), 1e-12)),
        }
        for (engine, metric), (before, after, names) in sorted(pooled.items(), key=_order)
    ]


def _order(entry: tuple[tuple[str, str], object]) -> tuple[bool, str, int]:
    (engine, metric), _ = entry
    return engine == "all", engine, LATENCIES.index(metric)
