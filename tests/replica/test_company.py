"""The parts of the closed form against exact results and direct simulation of the same abstraction."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import gamma

import sizing
from sizing.engines.timing import Scheduling
from sizing.replica.company import gamma_below
from sizing.replica.prompts import GRID, REACH, WEIGHTS, left_behind, longest_wait_s, on_grid, prompts_of, waits
from sizing.replica.renewal import renewal


def wait_mass(work_s: float, rate: float, cv: float) -> tuple[np.ndarray, float]:
    """Distribution of the wait behind fixed work, and the spacing of its grid."""
    work = np.full((1, len(WEIGHTS)), work_s)
    longest = longest_wait_s(np.array([rate * work_s]), np.array([work_s]), cv**2, renewal(cv))
    grid = REACH * (longest + 4.0 * work_s) / GRID
    found = waits(np.fft.rfft(on_grid(work, grid), axis=1), np.array([work_s]), np.array([rate]), grid, renewal(cv))
    return np.fft.irfft(found, GRID, axis=1)[0, : GRID // 2], float(grid[0])


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
def test_wait_of_md1_is_pollaczek_and_khinchine(load: float) -> None:
    mass, grid = wait_mass(1.0, load, 1.0)
    assert mass[0] == pytest.approx(1.0 - load, abs=0.02)
    assert (mass * np.arange(len(mass))).sum() * grid == pytest.approx(load / (2.0 * (1.0 - load)), rel=0.03)


def test_wait_of_bursty_arrivals_decays_as_cramer_and_lundberg_say() -> None:
    cv, load = 3.0, 0.8
    # the root of E exp(r (work - gap)) = 1 for work of 1 and Gamma gaps of mean 1 / load
    rate = brentq(lambda r: r - np.log1p(r * cv**2 / load) / cv**2, 1e-3, 1.0)
    mass, grid = wait_mass(1.0, load, cv)
    at = np.interp([0.9, 0.99], np.cumsum(mass), np.arange(len(mass)) * grid)
    assert at[1] - at[0] == pytest.approx(np.log(10.0) / rate, rel=0.03)


@pytest.mark.parametrize("load", [0.2, 0.5])
def test_wait_of_bursty_arrivals_is_lindleys(load: float) -> None:
    cv, count = 3.0, 1_000_000
    gaps = np.random.default_rng(3).standard_gamma(1.0 / cv**2, count) * cv**2 / load
    walk = np.concatenate([[0.0], np.cumsum(1.0 - gaps)])
    waited = walk - np.minimum.accumulate(walk)  # Lindley 1952
    mass, grid = wait_mass(1.0, load, cv)
    for share in (0.9, 0.99):
        found = float(np.interp(share, np.cumsum(mass), np.arange(len(mass)) * grid))
        assert found == pytest.approx(float(np.quantile(waited, share)), rel=0.1)


@pytest.mark.parametrize("cv", [2.0, 3.0])
def test_renewal_counts_are_those_of_drawn_streams(cv: float) -> None:
    stream, rng = renewal(cv), np.random.default_rng(5)
    gaps = rng.standard_gamma(1.0 / cv**2, (20_000, 400)) * cv**2
    times = np.cumsum(gaps, axis=1)
    for window in (0.5, 3.0, 10.0):
        counts = (times <= window).sum(axis=1)
        assert float(stream.arrivals_after(np.array(window))) == pytest.approx(counts.mean(), rel=0.04)
        assert float(np.interp(window, stream.windows, stream.spread_after)) == pytest.approx(counts.var(), rel=0.06)


def test_dispersion_goes_from_one_to_the_squared_cv() -> None:
    stream = renewal(3.0)
    assert stream.dispersion(np.array([1e-6]))[0] == pytest.approx(9.0, rel=1e-3)
    assert np.all(np.diff(stream.dispersion(np.geomspace(1e-3, 1e3, 50))) < 0.0)
    assert np.all(renewal(1.0).dispersion(np.geomspace(1e-3, 1e3, 5)) == 1.0)


def test_tabulated_gamma_law() -> None:
    shape, ratio = np.meshgrid(np.geomspace(0.02, 2_000.0, 37), np.linspace(0.05, 4.0, 41))
    assert np.abs(gamma_below(shape, ratio) - gamma.cdf(ratio * shape, shape)).max() < 2e-3


def test_prompts_left_behind_are_those_of_drawn_bursts() -> None:
    rng, after = np.random.default_rng(7), 2.0
    ahead, behind = (rng.geometric(1.0 / (1.0 + after), 400_000) - 1 for _ in range(2))
    for together in (1, 3, 8):
        place = ahead % together
        left = np.maximum(behind - (together - 1 - place), 0).mean()
        assert float(left_behind(np.array(after), together)) * after == pytest.approx(left, rel=0.03)


@pytest.mark.parametrize("mean_tokens", [2_000.0, 2_050.0, 2_250.0, 2_500.0, 2_559.0, 2_570.0])
def test_time_that_prompts_share_does_not_hang_on_where_a_tile_fills(mean_tokens: float) -> None:
    token_s, tile, start_s = 2e-5, 512, 0.004

    class Tiled:
        """Steps of whole tiles, and a start."""

        def step_s(self, batch: np.ndarray, context: np.ndarray, new: np.ndarray, *_: np.ndarray) -> np.ndarray:
            return 0.01 + 1e-5 * batch + np.where(new > 0, start_s, 0.0) + token_s * tile * np.ceil(new / tile)

    asked = sizing.Workload(request_rate_per_s=1.0, input_tokens=mean_tokens, output_tokens=100)
    found = prompts_of(Tiled(), Scheduling(), asked, np.array([1.0, 8.0]), 1_000.0, 4.0)
    # a prompt of any length fills half a tile more than it has, on average over lengths
    assert found.fixed_s == pytest.approx(np.full(2, start_s + token_s * tile / 2), abs=token_s * tile / 4)
