"""Reports on a load test, as rows: how far predictions are, what a fit changes, how it does on held-out points."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sizing.benchmarks.point import BenchPoint
from sizing.calibration import Calibration
from sizing.deployment import EngineSettings
from sizing.errors import InputError
from sizing.fitting.bench import BenchFit, constant_rows, explain, explanation_notes, fit_bench
from sizing.fitting.held_out import Group, LeftOut, by_engine, grouped, held_out, left_out
from sizing.validation.bench import SHOWN, Predictor, compare, comparison_rows, summarise, summary_notes, usable
from sizing.validation.bench_predictor import joint_predictor, predicted, ran_on, serving_predictor, shipped_calibration

Progress = Callable[[Iterable[Any], int, str], Iterable[Any]]
LEAST = 4  # concurrencies that a run must have to be split into fitted and held-out ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A table with its heading and the lines below it."""

    title: str
    rows: list[dict[str, object]]
    notes: tuple[str, ...]


def validation_report(
    points: Sequence[BenchPoint],
    settings: EngineSettings | None,
    calibration: str | Path,
    explained: bool,
    progress: Progress,
) -> Report:
    """How far predictions are from a run, by metric, and which constant would explain it.

    Parameters
    ----------
    points, settings, calibration
        What was measured, what the engine was told, which constants.
    explained
        Whether to look for the constant that explains the difference.
    progress
        Wrapper of a list for a progress bar.
    """
    kept, predictions, reasons = predicted(usable(points), settings, calibration)
    comparisons = compare(kept, predictions)
    if not comparisons:
        raise InputError("the benchmark has no metric that is predicted: TPOT, TTFT, end-to-end latency or a rate")
    notes = [*summary_notes(summarise(comparisons))]
    if any(prediction.starved for prediction in predictions):
        notes.append("TTFT is left out where requests queue for KV room or an overload is predicted: a cliff")
    if explained:
        notes += _explained(kept, settings, calibration, progress)
    ran = ran_on(kept[0], settings)
    notes += [f"assumed: {text}" for text in ran.assumptions]
    return Report(
        title=f"{_what(ran.deployment)}: {kept[0].format}, {len(kept)} points, calibration {calibration}",
        rows=comparison_rows(comparisons),
        notes=(*notes, *(f"not predicted: {reason}" for reason in reasons)),
    )


def _explained(
    points: Sequence[BenchPoint], settings: EngineSettings | None, name: str | Path, progress: Progress
) -> list[str]:
    try:
        predictor, ran = joint_predictor(points, settings)
    except InputError as error:
        return [f"not explained: {error}"]
    found = explain(
        points, predictor, shipped_calibration(ran, name), lambda items: list(progress(items, len(items), "explaining"))
    )
    return explanation_notes(found)


def _what(deployment: Any) -> str:
    return f"{deployment.model.name} on {deployment.gpus} x {deployment.gpu.id} ({deployment.settings.engine})"


def calibration_report(
    points: Sequence[BenchPoint],
    settings: EngineSettings | None,
    calibration: str | Path,
    constants: Sequence[str] | None,
) -> tuple[Report, str]:
    """Fit to a run: a table of constants, and the calibration file's text.

    Parameters
    ----------
    points, settings, calibration
        What was measured, what the engine was told, where the priors come from.
    constants
        Names of the constants to free; None for all.
    """
    from sizing.fitting.bench_file import bench_text

    kept = usable(points)
    predictor, ran = joint_predictor(kept, settings)
    shipped = shipped_calibration(ran, calibration)
    fit = fit_bench(kept, predictor, shipped, constants=constants)
    checked = left_out(kept, predictor, shipped, constants)
    notes = [
        f"median error over {len(fit.points)} points: {fit.error_before:.1%} shipped, {fit.error_after:.1%} fitted",
        *summary_notes(summarise(compare(kept, predictor(kept, fit.calibration)))),
        *left_out_notes(checked),
        *_told(fit),
        *(f"assumed: {text}" for text in ran.assumptions),
    ]
    report = Report(
        title=f"{_what(ran.deployment)}: constants fitted to {kept[0].source}",
        rows=constant_rows(fit.constants),
        notes=tuple(notes),
    )
    residuals = checked.residuals() if checked else {}
    return report, bench_text(fit, ran.deployment.gpu.id, ran.timing.name, str(calibration), residuals)


def left_out_notes(checked: LeftOut | None) -> list[str]:
    """What leaving loads out says, metric by metric; first of all where the fit does worse than none.

    Parameters
    ----------
    checked
        Of :func:`sizing.fitting.held_out.left_out`; None where the run had too few loads.
    """
    if checked is None:
        return ["not checked by leaving loads out: that needs three loads; intervals stay as wide as the shipped ones"]
    sigma = checked.residuals()
    worse = [
        f"{SHOWN[metric][0]} of loads left out is predicted worse than with the shipped constants: this run does not "
        "tell it; measure more loads, or the ones that you plan for"
        for metric, before in checked.shipped.items()
        if metric in checked.fitted and np.median(checked.fitted[metric]) > np.median(before)
    ]
    return worse + [
        f"every load left out of a fit once: {SHOWN[metric][0]} median error {np.median(before):.1%} shipped, "
        f"{np.median(checked.fitted[metric]):.1%} fitted; log-sigma for plans {sigma[metric.removesuffix('_s')]:.2f}"
        for metric, before in checked.shipped.items()
        if metric in checked.fitted
    ]


def _told(fit: BenchFit) -> list[str]:
    words = [c.words for c in fit.constants if not c.identified]
    if not words:
        return ["the run identified every constant"]
    return [
        f"not identified by this run (the spread stays near the prior's): {', '.join(words)}; "
        "more concurrencies and other lengths tell them apart"
    ]


def held_out_report(
    points: Sequence[BenchPoint],
    settings: EngineSettings | None,
    calibration: str | Path,
    fitted: int,
    most: int | None,
    progress: Progress,
    *,
    lowest: bool = False,
) -> Report:
    """Fit every run on some of its concurrencies, score the others, by engine.

    Parameters
    ----------
    points, settings, calibration
        Runs, what the engines were told, where the priors come from.
    fitted
        Concurrencies to fit in each run [1].
    most
        Runs to take at most, evenly through the list; None for all [1].
    progress
        Wrapper of a list for a progress bar.
    lowest
        Fit the lowest concurrencies, so that the others are extrapolated to.
    """
    every = grouped(points, least=max(LEAST, fitted + 1))
    groups = every[:: -(-len(every) // most)] if most else every

    def choose(group: Group) -> tuple[Predictor, Calibration]:
        ran = ran_on(group.points[0], settings)
        return serving_predictor(ran), shipped_calibration(ran, calibration)

    results = held_out(progress(groups, len(groups), "fitting"), choose, fitted, lowest=lowest)
    if not results:
        raise InputError(
            f"no run with {max(LEAST, fitted + 1)} or more concurrencies of a known model and GPU "
            f"among {len(points)} points"
        )
    which = f"the {fitted} lowest" if lowest else f"{fitted}"
    return Report(
        title=f"{len(results)} of {len(groups)} runs: fitted on {which} concurrencies, scored on the others",
        rows=[{k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()} for row in by_engine(results)],
        notes=(
            "fitted: the engine's constants alone; with_remainder: and what they leave, interpolated over the load",
        ),
    )
