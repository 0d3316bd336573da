r"""What fitted constants leave, as a smooth factor over the load: interpolated between the loads measured.

No set of constants reproduces a run exactly; the factor measured over predicted varies slowly with the load.
Its logarithm is a Gaussian process over :math:`\ln c` (requests in flight), zero where nothing was measured:

.. math:: \delta(c) = k(c, \mathbf c) (K + \sigma^2 I)^{-1} \mathbf r, \qquad
          k(c, c') = s^2 \exp\left(-\tfrac{1}{2} \left(\frac{\ln c - \ln c'}{\ell}\right)^2\right)

(Kennedy and O'Hagan, J. R. Statist. Soc. B 63 (2001), 425-464: calibration with a model discrepancy;
Rasmussen and Williams, Gaussian Processes for Machine Learning, eq. 2.25.) It belongs to one run and layout,
so it corrects that run's predictions and is never written into a calibration file.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sizing.benchmarks.point import BenchPoint
from sizing.calibration import Calibration
from sizing.validation.bench import LATENCIES, Prediction, Predictor, compare

Floats = NDArray[np.float64]
OCTAVES = 2.0
"""Length over which the factor changes, in doublings of the load: neighbours of a usual sweep."""

LENGTH = OCTAVES * float(np.log(2.0))
NOISE = {"tpot_s": 0.02, "ttft_s": 0.08}
"""Log-sigma of one measured mean, by metric."""

SIZE = {"tpot_s": 0.10, "ttft_s": 0.40}
"""Log-sigma of the factor, by metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """Smooth factor of one metric over the load.

    Parameters
    ----------
    metric
        Which.
    log_load
        Natural logarithm of the loads measured [1].
    weights
        ``(K + sigma^2 I)^-1 r`` [1].
    """

    metric: str
    log_load: Floats
    weights: Floats

    def at(self, load: float) -> float:
        """Factor at a load [1].

        Parameters
        ----------
        load
            Requests in flight, or requests per second: whichever the run was swept over.
        """
        near = np.exp(-0.5 * ((np.log(load) - self.log_load) / LENGTH) ** 2)
        return float(np.exp(SIZE[self.metric] ** 2 * near @ self.weights))


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrepancy:
    """Factors of one run; a metric without one is left alone."""

    factors: dict[str, Factor] = field(default_factory=dict)

    def corrected(self, points: Sequence[BenchPoint], predictions: Sequence[Prediction]) -> list[Prediction]:
        """Predictions with each latency times its factor at the point's load."""
        found = []
        for point, prediction in zip(points, predictions, strict=True):
            load = load_level(point)
            changes = {
                metric: value * factor.at(load)
                for metric, factor in self.factors.items()
                if load is not None and (value := getattr(prediction, metric)) is not None
            }
            found.append(replace(prediction, **changes))
        return found


def load_level(point: BenchPoint) -> float | None:
    """Number that a run is swept over: the requests in flight, else the request rate."""
    load = point.load
    return load.request_rate_per_s if load.kind == "open" else load.concurrency


def discrepancy(points: Sequence[BenchPoint], predictor: Predictor, calibration: Calibration) -> Discrepancy:
    """Factors that a calibration leaves on the points it was fitted to.

    Parameters
    ----------
    points
        The measured points.
    predictor, calibration
        As fitted.
    """
    rows = compare(points, predictor(points, calibration))
    factors = {}
    for metric in LATENCIES:
        known = [
            (np.log(load), -np.log(row.ratio))
            for row in rows
            if row.metric == metric and (load := load_level(row.point)) is not None
        ]
        if known:
            at, left = np.array(known).T
            covariance = SIZE[metric] ** 2 * np.exp(-0.5 * ((at[:, None] - at[None, :]) / LENGTH) ** 2)
            noise = NOISE[metric] ** 2 * np.eye(len(at))
            factors[metric] = Factor(metric=metric, log_load=at, weights=np.linalg.solve(covariance + noise, left))
    return Discrepancy(factors=factors)
