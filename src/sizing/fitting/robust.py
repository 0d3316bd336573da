"""Robust linear least squares with priors and lower bounds."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SCALE = 0.15
"""Log error at which a row's pull is largest; beyond, it falls. [1]"""
ROUNDS = 30
"""Reweightings, at most. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """Log errors that are linear in some constants.

    Attributes
    ----------
    errors
        Log of predicted over measured, shape (rows, metrics); not a number where there is none.
    slopes
        Their derivatives, shape (rows, metrics, constants).
    cells
        Which rows belong together, shape (rows,); a cell weighs the square root of its number of rows.
    weights
        Pull of each metric.
    """

    errors: Floats
    slopes: Floats
    cells: NDArray[np.str_]
    weights: tuple[float, ...]

    def part(self, wanted: NDArray[np.bool_]) -> "Linear":
        """Some of the rows."""
        return replace(self, errors=self.errors[wanted], slopes=self.slopes[wanted], cells=self.cells[wanted])

    def at(self, moved: Floats) -> Floats:
        """Errors after the constants have moved."""
        return self.errors + self.slopes @ moved

    def pulls(self) -> tuple[NDArray[np.bool_], Floats]:
        """Where there is an error, and the weight of each, one on average."""
        known = np.isfinite(self.errors) & np.isfinite(self.slopes).all(axis=-1)
        _, where, size = np.unique(self.cells, return_inverse=True, return_counts=True)
        weight = np.array(self.weights) / np.sqrt(size[where])[:, None]
        return known, weight / (weight[known].mean() if known.any() else 1.0)


def solve(linear: Linear, place: Floats, lowest: Floats, scale: float = SCALE) -> tuple[Floats, Floats]:
    """Constants, in spreads of their priors, that minimise robust errors plus half the squared distance from 0.

    Iteratively reweighted least squares for Cauchy's ``ln(1 + (r / scale)^2) / 2`` (Huber and Ronchetti, Robust
    Statistics, 2nd ed., sections 4.8 and 7.8), whose pull falls beyond ``scale``; it starts where the priors are.
    Each of the weighted problems is solved within the bounds.

    Parameters
    ----------
    linear
        Errors around ``place``.
    place
        Constants at which they were taken, shape (constants,).
    lowest
        Bounds, shape (constants,).
    scale
        Log error at which a row's pull is largest. [1]

    Returns
    -------
    tuple
        The constants and their posterior spread, both shape (constants,).
    """
    known, weight = linear.pulls()
    rows, start, weight = linear.slopes[known], linear.errors[known] - linear.slopes[known] @ place, weight[known]
    z = np.maximum(np.zeros_like(place), lowest)
    for _ in range(ROUNDS):
        error = start + rows @ z
        pull = weight / (1.0 + (error / scale) ** 2) / scale**2
        curvature = (rows * pull[:, None]).T @ rows + np.eye(len(z))
        moved = _bounded(curvature, -(rows * pull[:, None]).T @ start, lowest)
        if np.abs(moved - z).max() < 1e-6:
            break
        z = moved
    return z, np.sqrt(np.diag(np.linalg.inv(curvature)))


def _bounded(curvature: Floats, right: Floats, lowest: Floats) -> Floats:
    """Where ``z C z / 2 - b z`` is least above the bounds: least squares without negative parts.

    With ``C = L L'`` and ``z = lowest + y`` it is the least ``|L' y - L^-1 (b - C lowest)|``, ``y >= 0`` (Lawson and
    Hanson, Solving Least Squares Problems, ch. 23).
    """
    from scipy.optimize import nnls

    root = np.linalg.cholesky(curvature)
    above, _ = nnls(root.T, np.linalg.solve(root, right - curvature @ lowest))
    return np.asarray(lowest + above)
