"""How far predictions are from a user's own load test, point by point and metric by metric."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sizing.benchmarks.point import BenchPoint
from sizing.calibration import Calibration
from sizing.errors import InputError

METRICS = ("tpot_s", "ttft_s", "e2e_s", "output_tokens_per_s", "request_throughput_per_s")
LATENCIES = ("tpot_s", "ttft_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a run at a point's load should show; None where the prediction does not say.

    Parameters
    ----------
    tpot_s, ttft_s, e2e_s
        Mean latencies [s].
    output_tokens_per_s, request_throughput_per_s
        Rates over the whole deployment [1/s].
    starved
        KV room or an overload sets TTFT: it is a cliff that no mean predicts.
    """

    tpot_s: float | None = None
    ttft_s: float | None = None
    e2e_s: float | None = None
    output_tokens_per_s: float | None = None
    request_throughput_per_s: float | None = None
    starved: bool = False


Predictor = Callable[[Sequence[BenchPoint], Calibration], Sequence[Prediction]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One metric of one point, measured and predicted.

    Parameters
    ----------
    point, metric
        Which.
    measured, predicted
        In the metric's own unit.
    """

    point: BenchPoint
    metric: str
    measured: float
    predicted: float

    @property
    def ratio(self) -> float:
        """Predicted over measured [1]."""
        return self.predicted / self.measured

    @property
    def error(self) -> float:
        """Size of the relative error [1]."""
        return abs(self.ratio - 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Error of one metric over many points.

    Parameters
    ----------
    metric, count
        Which, and over how many points.
    median, mean, p90
        Of the relative error [1].
    bias
        Signed median: predicted over measured, less one [1].
    """

    metric: str
    count: int
    median: float
    mean: float
    p90: float
    bias: float


def measured_value(point: BenchPoint, metric: str) -> float | None:
    """A point's value of one metric, None when absent or zero."""
    value: float | None = getattr(point, metric)
    return value if value is not None and value > 0.0 else None


def compare(points: Sequence[BenchPoint], predictions: Sequence[Prediction]) -> tuple[Comparison, ...]:
    """Every metric that both the point and the prediction have."""
    if len(points) != len(predictions):
        raise InputError(f"compare: {len(points)} points but {len(predictions)} predictions; give one each")
    found = []
    for point, prediction in zip(points, predictions, strict=True):
        for metric in METRICS:
            measured, predicted = measured_value(point, metric), getattr(prediction, metric)
            skipped = metric == "ttft_s" and prediction.starved
            if measured is not None and predicted is not None and not skipped:
                found.append(Comparison(point=point, metric=metric, measured=measured, predicted=predicted))
    return tuple(found)


def summarise(comparisons: Iterable[Comparison]) -> tuple[Summary, ...]:
    """Error by metric, in the order of ``METRICS``."""
    rows = list(comparisons)
    found = []
    for metric in METRICS:
        ratios = np.array([row.ratio for row in rows if row.metric == metric])
        if ratios.size:
            error = np.abs(ratios - 1.0)
            found.append(
                Summary(
                    metric=metric,
                    count=int(ratios.size),
                    median=float(np.median(error)),
                    mean=float(np.mean(error)),
                    p90=float(np.percentile(error, 90)),
                    bias=float(np.median(ratios) - 1.0),
                )
            )
    return tuple(found)


def usable(points: Iterable[BenchPoint]) -> tuple[BenchPoint, ...]:
    """Points that may be scored; an input without any is refused, with the reasons."""
    found = list(points)
    kept = tuple(point for point in found if point.usable)
    if not kept:
        reasons = {reason for point in found for reason in point.refusals} or {"the file has no points"}
        raise InputError(f"no point of the benchmark can be used: {'; '.join(sorted(reasons))}")
    return kept


SHOWN = {
    "tpot_s": ("tpot", "ms", 1e3),
    "ttft_s": ("ttft", "ms", 1e3),
    "e2e_s": ("e2e", "ms", 1e3),
    "output_tokens_per_s": ("output", "tokens_per_s", 1.0),
    "request_throughput_per_s": ("requests", "per_s", 1.0),
}
"""Name, unit and factor of each metric in a table."""


def comparison_rows(comparisons: Sequence[Comparison]) -> list[dict[str, object]]:
    """One row a point: measured, predicted and their ratio, for every metric that any point has."""
    points = list(dict.fromkeys(id(row.point) for row in comparisons))
    metrics = _told(comparisons)
    held = {(id(row.point), row.metric): row for row in comparisons}
    by_id = {id(row.point): row.point for row in comparisons}
    contexts = any(point.context_tokens is not None for point in by_id.values())
    found = []
    for key in points:
        point = by_id[key]
        line: dict[str, object] = {
            "load": point.load.label,
            "input_tokens": _rounded(point.input_tokens),
            "output_tokens": _rounded(point.output_tokens),
        }
        if contexts:
            line["context_tokens"] = _rounded(point.context_tokens)
        for metric in metrics:
            name, unit, factor = SHOWN[metric]
            row = held.get((key, metric))
            line[f"{name}_{unit}"] = _digits(row.measured * factor) if row else None
            line[f"{name}_predicted_{unit}"] = _digits(row.predicted * factor) if row else None
            line[f"{name}_ratio"] = _digits(row.ratio) if row else None
        found.append(line)
    return found


def summary_notes(summaries: Sequence[Summary]) -> list[str]:
    """One line a metric: median error, bias, points."""
    return [
        f"{SHOWN[one.metric][0]}: median error {one.median:.1%}, bias {one.bias:+.1%}, p90 {one.p90:.1%}, "
        f"{one.count} {'point' if one.count == 1 else 'points'}"
        for one in summaries
    ]


def _told(comparisons: Sequence[Comparison]) -> list[str]:
    """Metrics that a table shows: end-to-end and requests only where TPOT and tokens are missing."""
    held = [metric for metric in METRICS if any(row.metric == metric for row in comparisons)]
    instead = {"e2e_s": "tpot_s", "request_throughput_per_s": "output_tokens_per_s"}
    return [metric for metric in held if instead.get(metric) not in held]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _digits(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")
