"""Arrival processes: rate, burstiness, profiles, the same on every machine."""

import math

import numpy as np
import pytest

from sizing.errors import InputError
from sizing.workload import Arrivals, Gamma, OnOff, Poisson, Profile, diurnal, ramp, weekly
from sizing.workload.arrivals import DAY_S, arrivals_from_record
from sizing.workload.statistics import dispersion, gap_cv

PROCESSES = (
    Poisson(),
    Gamma(cv=2.0),
    Gamma(cv=0.3),
    OnOff(on_s=20.0, off_s=60.0, quiet_share=0.1),
    diurnal(0.5, cv=2.0),
    weekly(0.4, weekend=0.6),
    Profile(factors=(1.0, 3.0), step_s=100.0, stream=Gamma(cv=1.5)),
)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


@pytest.mark.parametrize("process", PROCESSES, ids=lambda p: p.record()["kind"])
def test_arrivals_are_sorted_and_at_the_rate_asked(process: Arrivals) -> None:
    rate = 500_000 / (7 * DAY_S)
    times = process.sample_s(generator(1), 500_000, rate)
    assert len(times) == 500_000
    assert times[0] >= 0
    assert np.all(np.diff(times) >= 0)
    assert len(times) / times[-1] == pytest.approx(rate, rel=0.03)


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.0, 3.5])
def test_gamma_gaps_have_their_cv(cv: float) -> None:
    times = Gamma(cv=cv).sample_s(generator(2), 400_000, 20.0)
    assert gap_cv(times) == pytest.approx(cv, rel=0.03)
    assert dispersion(times, 60.0) == pytest.approx(cv**2, rel=0.25)  # 333 windows: 8 % standard error


def test_poisson_counts_vary_as_their_mean() -> None:
    times = Poisson().sample_s(generator(3), 400_000, 20.0)
    assert dispersion(times, 1.0) == pytest.approx(1.0, abs=0.05)


def test_on_off_bursts_have_the_dispersion_of_the_formula() -> None:
    """Limit of the index of dispersion of an interrupted Poisson process: 1 + 2 r T_on (1-p)^2, by hand."""
    process = OnOff(on_s=2.0, off_s=6.0)
    busy, share = 10.0 * 4.0, 0.25
    assert process.peak_to_mean == 4.0
    by_hand = 1 + 2 * busy * 2.0 * (1 - share) ** 2
    assert process.dispersion(10.0) == pytest.approx(by_hand, rel=1e-12)
    times = process.sample_s(generator(4), 1_000_000, 10.0)
    assert dispersion(times, 400.0) == pytest.approx(by_hand, rel=0.2)


def test_a_day_peaks_where_it_should() -> None:
    """Factor 1 + A cos(...): at the peak hour 1.5, twelve hours away 0.5 (fleet/formulas: sinusoid)."""
    process = diurnal(0.5, peak_hour=15.0)
    times = process.sample_s(generator(5), 1_000_000, 1_000_000 / (10 * DAY_S))
    by_hour = np.histogram((times % DAY_S) / 3600, 24, (0, 24))[0] / len(times) * 24
    assert by_hour[14:16].mean() == pytest.approx(1.5, abs=0.02)
    assert by_hour[2:4].mean() == pytest.approx(0.5, abs=0.02)
    assert process.peak_to_mean == pytest.approx(1.5, abs=0.001)


def test_a_weekend_is_quieter() -> None:
    process = weekly(0.0, weekend=0.5)
    days = process.scaled.reshape(7, 24).mean(axis=1)
    assert days[5] / days[0] == pytest.approx(0.5)
    assert days.mean() == pytest.approx(1.0)


def test_a_ramp_rises_and_stays() -> None:
    times = ramp(1.0, 3.0, 1000.0).sample_s(generator(6), 100_000, 10.0)
    counts = np.histogram(times, [0, 100, 900, 1000, 2000])[0] / [100, 800, 100, 1000]
    assert counts == pytest.approx([11, 20, 29, 30], rel=0.08)


def test_the_same_seed_gives_the_same_arrivals() -> None:
    """Whole nanoseconds, so that no rounding of another processor shows; the first ones are recorded here."""
    times = Gamma(cv=2.0).sample_s(generator(7), 1000, 20.0)
    again = Gamma(cv=2.0).sample_s(generator(7), 1000, 20.0)
    assert np.array_equal(times, again)
    nanoseconds = times * 1e9
    assert np.allclose(nanoseconds, np.rint(nanoseconds), atol=1e-3)


@pytest.mark.parametrize("process", PROCESSES, ids=lambda p: p.record()["kind"])
def test_a_process_reads_back_the_same(process: Arrivals) -> None:
    assert arrivals_from_record(process.record()) == process


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Gamma(cv=0), "cv"),
        (lambda: Gamma(cv=math.nan), "cv"),
        (lambda: OnOff(on_s=0, off_s=1), "on_s"),
        (lambda: OnOff(on_s=1, off_s=1, quiet_share=1.0), "quiet_share"),
        (lambda: Profile(factors=(), step_s=1), "factors"),
        (lambda: Profile(factors=(0.0, 0.0), step_s=1), "factors"),
        (lambda: Profile(factors=(1.0,), step_s=0), "step_s"),
        (lambda: diurnal(1.5), "amplitude"),
        (lambda: arrivals_from_record({"kind": "gama", "cv": 2}), "gamma"),
        (lambda: arrivals_from_record({"kind": "gamma"}), "cv"),
        (lambda: arrivals_from_record("gamma"), "kind"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(make, names: str) -> None:
    with pytest.raises(InputError, match=names):
        make()
