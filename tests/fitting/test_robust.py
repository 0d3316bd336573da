"""Robust linear least squares: against a general minimiser, known constants, absurd rows, bounds, spreads."""

import numpy as np
import pytest
from scipy.optimize import minimize

from sizing.fitting.robust import SCALE, Linear, solve

FREE = -1e3
"""A bound that never holds."""


def made(seed: int, rows: int = 80, truth: tuple[float, ...] = (0.8, -0.6, 0.3), noise: float = 0.05, scale: float = 0.3
         ) -> tuple[Linear, np.ndarray]:  # fmt: skip
    """Rows of two metrics whose errors vanish at ``truth``, as seen from some other place."""
    rng = np.random.default_rng(seed)
    place = rng.normal(size=len(truth))
    slopes = scale * rng.normal(size=(rows, 2, len(truth)))
    errors = slopes @ (place - np.array(truth)) + noise * rng.normal(size=(rows, 2))
    errors[rng.random((rows, 2)) < 0.2] = np.nan
    cells = rng.choice(["a", "b", "c", "d", "e"], rows, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    return Linear(errors=errors, slopes=slopes, cells=cells, weights=(1.0, 0.1)), place


def objective(linear: Linear, place: np.ndarray, z: np.ndarray, scale: float) -> float:
    """Written out row by row: weights of metric over root of the cell's rows, one on average; Cauchy; half |z|^2."""
    size = {cell: int(np.sum(linear.cells == cell)) for cell in linear.cells}
    pulls, losses = [], []
    for i, cell in enumerate(linear.cells):
        for j, weight in enumerate(linear.weights):
            error = linear.errors[i, j] + float(np.dot(linear.slopes[i, j], z - place))
            if np.isfinite(error):
                pulls.append(weight / size[cell] ** 0.5)
                losses.append(np.log1p((error / scale) ** 2) / 2.0)
    return float(np.dot(pulls, losses) / np.mean(pulls) + np.dot(z, z) / 2.0)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("low", [FREE, -0.25])
def test_the_minimum_is_that_of_a_general_minimiser(seed, low):
    linear, place = made(seed, rows=40)
    lowest = np.full(3, low)
    z, _ = solve(linear, place, lowest)
    start = np.maximum(np.zeros(3), lowest)
    found = minimize(lambda x: objective(linear, place, x, SCALE), start, method="L-BFGS-B",
                     bounds=[(low, None)] * 3, options={"ftol": 1e-15, "gtol": 1e-9})  # fmt: skip
    assert z == pytest.approx(found.x, abs=1e-4)
    assert (low == FREE) == bool(np.all(z > low + 1e-9))


def test_a_constant_that_another_ones_bound_frees_is_not_held():
    # Least z C z / 2 - b z with C = [[1, -0.9], [-0.9, 1]] and b = (-0.91, 0.8) is at (-1, -0.1). Both are below 0, yet
    # with the first held there the second wants b_2 / C_22 = 0.8. Errors are small, so that the problem is quadratic.
    curvature, right = 100.0 * np.array([[1.0, -0.9], [-0.9, 1.0]]), 100.0 * 1e-4 * np.array([-0.91, 0.8])
    rows = SCALE * np.linalg.cholesky(curvature - np.eye(2)).T  # the prior gives the rest
    errors = -(SCALE**2) * np.linalg.solve(rows.T, right)
    linear = Linear(errors=errors[:, None], slopes=rows[:, None, :], cells=np.array(["a", "a"]), weights=(1.0,))
    assert solve(linear, np.zeros(2), np.full(2, FREE))[0] == pytest.approx([-1e-4, -1e-5], rel=1e-3)
    assert solve(linear, np.zeros(2), np.zeros(2))[0] == pytest.approx([0.0, 0.8e-4], rel=1e-3)


def test_known_constants_come_back_within_their_spread():
    truth = np.array([0.8, -0.6, 0.3])
    pull = []
    for seed in range(20):
        linear, place = made(seed, rows=200, noise=SCALE / 3.0)
        z, spread = solve(linear, place, np.full(3, FREE))
        assert np.all(spread < 0.1)
        pull.append((z - truth) / spread)
    assert np.abs(np.mean(pull)) < 0.4
    assert np.abs(pull).max() < 3.0


def test_a_few_absurd_rows_do_not_move_it():
    linear, place = made(4, rows=100)
    z, spread = solve(linear, place, np.full(3, FREE))
    errors = linear.errors.copy()
    errors[:5] = 4.0  # fifty times what was measured
    absurd = Linear(errors=errors, slopes=linear.slopes, cells=linear.cells, weights=linear.weights)
    moved, _ = solve(absurd, place, np.full(3, FREE))
    known, weight = absurd.pulls()
    root = np.sqrt(weight[known])[:, None]
    start = errors[known] - linear.slopes[known] @ place
    squares, *_ = np.linalg.lstsq(root * linear.slopes[known], -root[:, 0] * start, rcond=None)
    assert np.all(np.abs(moved - z) < spread)
    assert np.abs(squares - z).max() > 5.0 * spread.max()


def test_spread_is_that_of_the_normal_equations_where_errors_are_small():
    # (A' W A / scale^2 + 1)^-1, for errors far below the scale.
    linear, place = made(5, noise=1e-4)
    _, spread = solve(linear, place, np.full(3, FREE))
    known, weight = linear.pulls()
    rows = linear.slopes[known]
    expected = np.linalg.inv((rows * weight[known][:, None] / SCALE**2).T @ rows + np.eye(3))
    assert spread == pytest.approx(np.sqrt(np.diag(expected)), rel=0.01)


def test_without_rows_it_stays_at_the_prior():
    linear, place = made(6)
    nothing = Linear(errors=np.full_like(linear.errors, np.nan), slopes=linear.slopes, cells=linear.cells,
                     weights=linear.weights)  # fmt: skip
    z, spread = solve(nothing, place, np.array([FREE, 0.5, FREE]))
    assert z == pytest.approx([0.0, 0.5, 0.0])
    assert spread == pytest.approx(np.ones(3))


def test_a_cell_weighs_the_root_of_its_rows():
    linear = Linear(errors=np.zeros((5, 1)), slopes=np.ones((5, 1, 1)), cells=np.array(["a", "a", "a", "a", "b"]),
                    weights=(1.0,))  # fmt: skip
    known, weight = linear.pulls()
    assert known.all()
    assert weight[:4].sum() == pytest.approx(2.0 * weight[4, 0])
    assert weight.mean() == pytest.approx(1.0)


def test_rows_whose_slope_is_not_known_have_no_say():
    linear, place = made(7)
    slopes = linear.slopes.copy()
    slopes[3, 0, 1] = np.nan
    errors = linear.errors.copy()
    errors[3, 0] = 0.7
    odd = Linear(errors=errors, slopes=slopes, cells=linear.cells, weights=linear.weights)
    errors = errors.copy()
    errors[3, 0] = np.nan
    without = Linear(errors=errors, slopes=linear.slopes, cells=linear.cells, weights=linear.weights)
    assert solve(odd, place, np.full(3, FREE))[0] == pytest.approx(solve(without, place, np.full(3, FREE))[0])


def test_errors_move_along_their_slopes_and_parts_keep_their_rows():
    linear, _ = made(8, rows=6)
    moved = linear.at(np.array([1.0, 0.0, -2.0]))
    expected = linear.errors + linear.slopes[..., 0] - 2.0 * linear.slopes[..., 2]
    assert np.allclose(moved, expected, equal_nan=True)
    part = linear.part(np.array([True, False, True, False, False, True]))
    assert part.errors.shape == (3, 2)
    assert np.array_equal(part.slopes[1], linear.slopes[2])
    assert list(part.cells) == [linear.cells[i] for i in (0, 2, 5)]
