"""Errors of predictions against what was measured, by group, with the coverage of the intervals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sizing.validation.layouts import number
from sizing.validation.serving import RowPrediction

TRUTH = {
    "ttft_ms": ("ttft_mean_ms", "ttft_unspec_ms", "ttft_p50_ms"),
    "tpot_ms": ("tpot_mean_ms", "tpot_unspec_ms", "tpot_p50_ms", "itl_mean_ms"),
    "itl_ms": ("itl_mean_ms", "itl_p50_ms"),
    "output_tok_s": ("output_tok_s",),
}
"""Columns that hold a row's truth, the first that is filled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One metric of one row.

    Attributes
    ----------
    ratio
        Predicted over measured. [1]
    inside
        Whether the 80 % interval holds what was measured.
    half_width
        Half of the interval over the prediction. [1]
    """

    id: str
    metric: str
    ratio: float
    inside: bool
    half_width: float
    kv_short: bool
    assumed: bool
    experts: bool
    labels: Mapping[str, str]


def truth(row: Mapping[str, str], metric: str, columns: Mapping[str, tuple[str, ...]] = TRUTH) -> float | None:
    """What was measured: the mean, else the statistic that isn't named, else the median, else mean ITL.

    Parameters
    ----------
    row
        Cells by column.
    metric
        ``ttft_ms``, ``tpot_ms``, ``itl_ms`` or ``output_tok_s``.
    columns
        Where the truth of each metric is.
    """
    for column in columns.get(metric, ()):
        value = number(row, column)
        if value is not None and value > 0:
            return value
    if metric == "output_tok_s":
        each, gpus = number(row, "output_tok_s_per_gpu"), number(row, "num_gpus")
        if each and gpus:
            return each * gpus
    return None


def scores(
    rows: Sequence[Mapping[str, str]],
    predictions: Sequence[RowPrediction],
    columns: Mapping[str, tuple[str, ...]] = TRUTH,
) -> list[Score]:
    """Every metric that was both measured and predicted.

    Parameters
    ----------
    rows, predictions
        In the same order.
    columns
        Where the truth of each metric is.
    """
    found = []
    for row, prediction in zip(rows, predictions, strict=True):
        for metric, value in prediction.values.items():
            measured = truth(row, metric, columns)
            if measured is None or not np.isfinite(value.value) or value.value <= 0:
                continue
            found.append(
                Score(
                    id=prediction.id, metric=metric, ratio=value.value / measured,
                    inside=value.low <= measured <= value.high,
                    half_width=(value.high - value.low) / 2.0 / value.value,
                    kv_short=prediction.kv_short, assumed=prediction.assumed_lengths,
                    experts=prediction.experts, labels=row,
                )
            )  # fmt: skip
    return found


def error_figures(ratio: NDArray[np.float64]) -> dict[str, object]:
    """Count, median, mean, 90th percentile and bias of the relative error, in per cent.

    Parameters
    ----------
    ratio
        Predicted over measured, shape (rows,). [1]
    """
    error = np.abs(ratio - 1.0) * 100.0
    return {
        "rows": len(ratio), "median": round(float(np.median(error)), 1), "mean": round(float(np.mean(error)), 1),
        "p90": round(float(np.percentile(error, 90)), 1), "bias": round(float(np.median(ratio) - 1.0) * 100.0, 1),
    }  # fmt: skip


def summary(group: str, metric: str, found: Iterable[Score]) -> dict[str, object]:
    """Median, mean, 90th percentile and bias of the relative error, coverage and width, in per cent.

    Parameters
    ----------
    group, metric
        What the rows are.
    found
        Scores of that metric.
    """
    chosen = list(found)
    return {
        "group": group, "metric": metric, **error_figures(np.array([s.ratio for s in chosen])),
        "coverage": round(float(np.mean([s.inside for s in chosen])) * 100.0, 1),
        "half_width": round(float(np.median([s.half_width for s in chosen])) * 100.0, 1),
    }  # fmt: skip


def _known(found: Sequence[Score]) -> dict[str, list[Score]]:
    """Runs whose configuration is known (quality A and B), dense models and kinds of load apart."""
    known = [s for s in found if s.labels.get("quality") in ("A", "B")]
    dense = [s for s in known if not s.experts]
    kinds = {"closed loop": "concurrency", "offline": "offline", "request rate": "request_rate"}
    parts = {"quality A and B": known, "quality A and B, dense models": dense}
    loops = [s for s in dense if s.labels.get("load_kind") == "concurrency"]
    for name, kind in kinds.items():
        parts[f"quality A and B, {name}"] = [s for s in known if s.labels.get("load_kind") == kind]
    return {**parts, "quality A and B, closed loop, dense models": loops}


LEAST_PAIR = 12
"""Runs of an engine on a GPU from which their errors are shown apart. [1]"""


def _pairs(found: Sequence[Score]) -> dict[str, list[Score]]:
    """Runs of quality A and B by engine and GPU, where there are enough."""
    parts: dict[str, list[Score]] = {}
    for score in found:
        if score.labels.get("quality") in ("A", "B"):
            name = f"{score.labels.get('engine') or 'not stated'} on {score.labels.get('gpu')}"
            parts.setdefault(f"quality A and B, {name}", []).append(score)
    return {name: part for name, part in sorted(parts.items()) if len(part) >= LEAST_PAIR}


def table(
    found: Sequence[Score], by: Sequence[str] = ("engine", "gpu", "model_family", "quality")
) -> list[dict[str, object]]:
    """Errors over all rows, then by each label; TTFT of rows short of KV room, and guessed lengths, apart.

    Parameters
    ----------
    found
        From :func:`scores`.
    by
        Columns to group by.
    """
    rows: list[dict[str, object]] = []
    present = {s.metric for s in found}
    order = ("tpot_ms", "ttft_ms", "output_tok_s", "itl_ms", "e2e_ms", "tok_s")
    for metric in [m for m in order if m in present]:
        mine = [s for s in found if s.metric == metric]
        short = metric == "ttft_ms"
        plain = [s for s in mine if not s.assumed and not (short and s.kv_short)]
        parts = {
            "all": plain,
            **_known(plain),
            "short of KV room or overloaded": [s for s in mine if short and s.kv_short and not s.assumed],
            "lengths guessed": [s for s in mine if s.assumed],
        }
        rows += [summary(name, metric, part) for name, part in parts.items() if part]
        for column in by:
            names = sorted({s.labels.get(column) or "not stated" for s in plain})
            for name in names:
                part = [s for s in plain if (s.labels.get(column) or "not stated") == name]
                rows.append(summary(f"{column}: {name}", metric, part))
        rows += [summary(name, metric, part) for name, part in _pairs(plain).items()]
    return rows


def report(
    rows: Sequence[Mapping[str, str]], predictions: Sequence[RowPrediction]
) -> tuple[str, list[dict[str, object]], list[str]]:
    """Title, error table, and one line for every reason why rows aren't answered, with their ids.

    Parameters
    ----------
    rows, predictions
        In the same order.
    """
    unanswered = [p for p in predictions if p.reason]
    guessed = sum(p.assumed_lengths for p in predictions if not p.reason)
    known = len(rows) - guessed
    answered = len(rows) - len(unanswered) - guessed
    share = 100.0 * answered / known if known else 0.0
    title = (
        f"{len(rows)} rows: {answered} of {known} with known lengths answered ({share:.1f} %), "
        f"{guessed} with guessed lengths apart; errors in per cent of what was measured"
    )
    return title, table(scores(rows, predictions)), _reasons(unanswered)


def _reasons(unanswered: Sequence[RowPrediction]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for prediction in unanswered:
        by_reason.setdefault(prediction.reason, []).append(prediction.id)
    return [f"{', '.join(ids)}: {reason}" for reason, ids in by_reason.items()]
