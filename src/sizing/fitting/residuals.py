r"""How wide an engine's error bars must be: the residual, by engine and GPU, that makes 80 % intervals hold.

A prediction's log error has two parts: what the draws of the constants explain, and a residual of log-sigma
:math:`s w`, with w what the deployment and the load make of it (:data:`sizing.engines.timing.WIDER`). For each engine
and GPU, s is the smallest for which ``share`` of the errors lie within :math:`1.28\sqrt{d^2 + (s w)^2}`; the errors are
those of the fit and, where there are, those under constants that were fitted without the row's group.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sizing.engines.timing import OPEN_QUESTION, times_wider
from sizing.errors import SizingError
from sizing.fitting.serving import METRICS
from sizing.replica.loads import QUANTILE_80, Estimate
from sizing.validation.cases import Case, read_case
from sizing.validation.scores import truth
from sizing.validation.serving import predict_case, settled, traits_of

Floats = NDArray[np.float64]
SHARE = 0.78
"""Share of the errors that intervals are made to hold: those left out are as many as those of the fit. [1]"""
LEAST_ROWS = 12
"""Rows from which an engine on a GPU has spreads of its own. [1]"""
LEAST, MOST = 0.02, 2.0
COLUMNS = {"tpot": "tpot_ms", "ttft": "ttft_ms", "rate": "output_tok_s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """One metric of one row.

    Attributes
    ----------
    engine, gpu, metric
        What it is an error of.
    errors
        Log of predicted over measured: under the fit, and under constants fitted without the row. [1]
    drawn, wider
        Log-sigma that the draws explain; how many times wider the residual is. [1]
    """

    engine: str
    gpu: str
    metric: str
    errors: tuple[float, ...]
    drawn: float
    wider: float


def misses(
    rows: Iterable[Mapping[str, str]], left_out: Mapping[str, Sequence[float]], configs: Path | None = None
) -> list[Miss]:
    """Errors of measured runs whose configuration and lengths are known.

    Parameters
    ----------
    rows
        Measured runs.
    left_out
        Log errors by row id and :data:`METRICS` under constants fitted without the row's group.
    configs
        Folder of config files.
    """
    found: list[Miss] = []
    for row in rows:
        if row.get("quality") not in ("A", "B"):
            continue
        try:
            case = settled(read_case(row, configs))
        except SizingError:
            continue
        if not case.guessed_lengths:
            found += _misses(row, case, left_out.get(case.id, ()))
    return found


def _misses(row: Mapping[str, str], case: Case, apart: Sequence[float]) -> list[Miss]:
    run = predict_case(case, spread={})
    traits = [*traits_of(case), *(["short of room"] if run.kv_short else [])]
    open_questions = 1.0 + OPEN_QUESTION * len(case.assumptions)
    values = {"tpot": run.tpot_s.times(1e3), "ttft": run.ttft_s.times(1e3),
              "rate": run.output_tokens_per_s.times(case.replicas)}  # fmt: skip
    found = []
    for i, (metric, value) in enumerate(values.items()):
        measured = truth(row, COLUMNS[metric])
        if not measured or not 0 < value.value < np.inf or (metric == "ttft" and run.kv_short):
            continue
        other = [apart[i]] if len(apart) > i and np.isfinite(apart[i]) else []
        own = float(np.log(value.value / measured))
        found.append(Miss(engine=case.timing.name, gpu=case.deployment.gpu.id, metric=metric, errors=(own, *other),
                          drawn=_sigma(value), wider=open_questions * times_wider(metric, traits)))  # fmt: skip
    return found


def _sigma(value: Estimate) -> float:
    return float(np.log(value.high / value.low) / 2.0 / QUANTILE_80)


def residual(found: Sequence[Miss], share: float = SHARE) -> float:
    """The smallest log-sigma for which a share of the errors lies within their intervals. [1]

    Parameters
    ----------
    found
        Errors of one metric.
    share
        That the intervals hold. [1]
    """
    error = np.array([abs(e) for miss in found for e in (miss.errors[0], miss.errors[-1])])
    drawn, wider = (np.repeat([getattr(m, name) for m in found], 2) for name in ("drawn", "wider"))
    needed = np.sqrt(np.maximum((error / QUANTILE_80) ** 2 - drawn**2, 0.0)) / wider
    at = np.sort(needed)[min(int(np.ceil(share * len(needed))), len(needed)) - 1]
    return float(np.clip(round(float(at), 3), LEAST, MOST))


def spreads(
    found: Sequence[Miss], share: float = SHARE
) -> dict[str, tuple[dict[str, float], dict[str, dict[str, float]]]]:
    """Residuals of each engine: over all GPUs, and by GPU; where there are enough runs.

    Parameters
    ----------
    found
        From :func:`misses`.
    share
        As for :func:`residual`.
    """
    answer: dict[str, tuple[dict[str, float], dict[str, dict[str, float]]]] = {}
    for engine in sorted({m.engine for m in found}):
        mine = [m for m in found if m.engine == engine]
        gpus = sorted({m.gpu for m in mine})
        by = {gpu: _each([m for m in mine if m.gpu == gpu], share) for gpu in gpus}
        answer[engine] = _each(mine, share), {gpu: values for gpu, values in by.items() if values}
    return answer


def _each(found: Sequence[Miss], share: float) -> dict[str, float]:
    parts: dict[str, list[Miss]] = {metric: [m for m in found if m.metric == metric] for metric in METRICS}
    return {metric: residual(part, share) for metric, part in parts.items() if len(part) >= LEAST_ROWS}
