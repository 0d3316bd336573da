"""What an engine's constants say of rows that their fit has not seen: a model, a GPU or a cell left out."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sizing.engines.timing import EngineTiming
from sizing.errors import InputError, check_choice
from sizing.fitting.robust import solve
from sizing.fitting.serving import (
    METRICS,
    EngineFit,
    Fitter,
    Floats,
    Observation,
    fit_engine,
    fitted_names,
    lowest_of,
    observations,
    place_of,
    record_of,
)
from sizing.validation.scores import error_figures

GROUPS: Mapping[str, Callable[[Observation], str]] = {
    "model": lambda o: o.cell[1],
    "cell": lambda o: "|".join(o.cell),
    "gpu": lambda o: o.cell[0],
}
"""What may be left out of a fit together."""


def check_group(by: str) -> None:
    """Refuse a group that nothing can be left out by.

    Parameters
    ----------
    by
        Name of the group.

    Raises
    ------
    InputError
        If it isn't one of :data:`GROUPS`.
    """
    check_choice("--leave-out", by, GROUPS)


def left_out_errors(
    seen: Sequence[Observation],
    timing: EngineTiming,
    by: str = "cell",
    names: Sequence[str] | None = None,
    calibration: str = "measured",
) -> Floats:
    """Log of predicted over measured where each group's constants were fitted without it, shape (observations, 3).

    Parameters
    ----------
    seen
        Rows of one engine.
    timing
        Its fitted record, around which predictions are taken as linear.
    by
        Group that is left out: ``model``, ``cell`` (GPU, model and weight format) or ``gpu``.
    names, calibration
        As for :func:`fit_engine`.

    Raises
    ------
    InputError
        If there is no such group.
    """
    check_group(by)
    names = names or fitted_names(timing)
    linear = Fitter(seen, calibration).linear(timing, names)
    place, lowest = place_of(timing, names), lowest_of(names)
    group = np.array([GROUPS[by](o) for o in seen])
    found = np.full(linear.errors.shape, np.nan)
    for name in np.unique(group):
        out = group == name
        z, _ = solve(linear.part(~out), place, lowest)
        found[out] = linear.at(z - place)[out]
    return found


def left_out(seen: Sequence[Observation], timing: EngineTiming, by: str = "cell") -> list[dict[str, object]]:
    """Errors on what was left out of the fit, over all rows, dense models, and each group; in per cent.

    Parameters
    ----------
    seen, timing, by
        As for :func:`left_out_errors`.
    """
    errors = left_out_errors(seen, timing, by)
    group = np.array([GROUPS[by](o) for o in seen])
    dense = np.array([o.dense for o in seen])
    parts = {"all": np.ones(len(seen), dtype=bool), "dense models": dense}
    parts |= {str(name): group == name for name in np.unique(group)}
    return [
        {"group": name, "metric": metric, **_figures(errors[part, i])}
        for i, metric in enumerate(METRICS) for name, part in parts.items() if np.isfinite(errors[part, i]).any()
    ]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class EveryFit:
    """Fits of every engine that has rows, and what is left when a group is left out.

    Attributes
    ----------
    fits
        By engine.
    left_out
        Errors over all engines together and by engine; empty when nothing was left out.
    """

    fits: tuple[EngineFit, ...]
    left_out: tuple[dict[str, object], ...]

    def records(self) -> list[dict[str, object]]:
        """One row an engine and metric: rows, cells, median error before and after."""
        return [
            {"engine": fit.timing.name, "rows": fit.rows, "cells": fit.cells, "metric": metric,
             "before": then, "after": now}
            for fit in self.fits for metric, (then, now) in fit.errors.items()
        ]  # fmt: skip


LEAST_ROWS = 40
"""Rows below which an engine is not fitted when all are asked for. [1]"""


def fit_every(
    rows: Sequence[Mapping[str, str]], engines: Sequence[str], configs: Path | None = None, by: str | None = None,
    most: int = 2000, shown: Callable[[Sequence[str]], Iterable[str]] = iter,
) -> EveryFit:  # fmt: skip
    """Every engine's constants, and their errors on groups that were left out.

    Parameters
    ----------
    rows, configs, most
        As for :func:`observations`.
    engines
        Names of records.
    by
        Group that is left out, see :func:`left_out_errors`; None for none.
    shown
        Wraps the engines, to show progress.
    """
    fits, errors, dense = [], {}, {}
    for engine in shown(engines):
        try:
            seen = observations(rows, engine, configs, most)
        except InputError:
            continue
        if len(seen) < LEAST_ROWS:
            continue
        fits.append(fit_engine(seen, record_of(engine)))
        if by is not None:
            errors[engine] = left_out_errors(seen, fits[-1].timing, by)
            dense[engine] = np.array([o.dense for o in seen])
    return EveryFit(fits=tuple(fits), left_out=tuple(_together(errors, dense)))


def _together(errors: Mapping[str, Floats], dense: Mapping[str, NDArray[np.bool_]]) -> Iterator[dict[str, object]]:
    if not errors:
        return
    every, kinds = np.concatenate(list(errors.values())), np.concatenate(list(dense.values()))
    parts = {"all": every, "dense models": every[kinds], **errors}
    parts |= {f"{name}, dense models": found[dense[name]] for name, found in errors.items()}
    for i, metric in enumerate(METRICS):
        for name, found in parts.items():
            if np.isfinite(found[:, i]).any():
                yield {"group": name, "metric": metric, **_figures(found[:, i])}


def _figures(logs: Floats) -> dict[str, object]:
    return error_figures(np.exp(logs[np.isfinite(logs)]))
