"""Length distributions: moments against closed forms, samples against moments, refusals."""

import math

import numpy as np
import pytest

from sizing.errors import InputError
from sizing.workload import Empirical, Fixed, Length, Lognormal, Mixture, Pairs, Quantiles
from sizing.workload.mixture import length_from_record

KINDS = (
    Fixed(tokens=400),
    Lognormal(mean_tokens=2000, cv=1.0, most_tokens=16_000),
    Lognormal(mean_tokens=300, cv=2.5, least_tokens=10, most_tokens=4_000),
    Quantiles(shares=(0.0, 0.5, 0.9, 1.0), tokens=(10.0, 100.0, 1000.0, 5000.0)),
    Empirical(tokens=(5.0, 50.0, 500.0), weights=(1.0, 2.0, 1.0)),
    Mixture(parts=(Fixed(tokens=100), Lognormal(mean_tokens=1000, cv=1)), weights=(1.0, 3.0)),
)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


@pytest.mark.parametrize("length", KINDS, ids=lambda k: k.record()["kind"])
def test_samples_have_the_mean_and_spread_they_state(length: Length) -> None:
    n = 400_000
    drawn = length.sample(generator(), n)
    error = 4 * length.std / math.sqrt(n) + 0.51 / math.sqrt(12 * n) + 0.01
    assert drawn.mean() == pytest.approx(length.mean, abs=error)
    assert drawn.std() == pytest.approx(length.std, rel=0.02, abs=0.01)
    assert drawn.dtype == np.int64
    assert length.least <= drawn.min() <= drawn.max() <= math.ceil(length.most)


@pytest.mark.parametrize("length", KINDS, ids=lambda k: k.record()["kind"])
def test_quantiles_rise_and_integrate_to_the_mean(length: Length) -> None:
    nodes = length.nodes(20_000)
    assert np.all(np.diff(nodes) >= 0)
    assert nodes.mean() == pytest.approx(length.mean, rel=2e-3)


@pytest.mark.parametrize("length", KINDS, ids=lambda k: k.record()["kind"])
def test_ranks_of_normals_give_the_same_distribution(length: Length) -> None:
    drawn = length.from_normal(generator(5).standard_normal(200_000))
    assert drawn.mean() == pytest.approx(length.mean, rel=0.02)


@pytest.mark.parametrize("length", KINDS, ids=lambda k: k.record()["kind"])
def test_a_record_reads_back_the_same(length: Length) -> None:
    assert length_from_record(length.record()) == length


def test_lognormal_parameters_are_those_of_its_mean_and_cv() -> None:
    """sigma^2 = ln 2 and mu = ln 2000 - ln(2)/2 for mean 2,000 and CV 1: by hand."""
    length = Lognormal(mean_tokens=2000, cv=1.0)
    assert length.sigma == pytest.approx(math.sqrt(math.log(2)), rel=1e-14)
    assert length.mu == pytest.approx(math.log(2000) - math.log(2) / 2, rel=1e-14)
    assert length.quantile(0.5) == pytest.approx(2000 / math.sqrt(2), rel=1e-9)


def test_cutting_a_lognormal_is_in_its_mean() -> None:
    """Against the integral of the clipped quantile function, by the midpoint rule at a million points."""
    length = Lognormal(mean_tokens=300, cv=2.5, least_tokens=10, most_tokens=4_000)
    values = length.nodes(1_000_000)
    assert length.mean == pytest.approx(values.mean(), rel=1e-5)
    assert length.std == pytest.approx(values.std(), rel=1e-4)
    assert length.mean < 300


def test_median_and_mean_make_a_lognormal() -> None:
    """AIPerf's agentic manifest states mean 6,000, median 4,000, mu 8.294049640102028, sigma 0.9005166385005492."""
    length = Lognormal.of_median(mean=6000, median=4000)
    assert length.mu == pytest.approx(8.294049640102028, rel=1e-12)
    assert length.sigma == pytest.approx(0.9005166385005492, rel=1e-12)


def test_quantiles_of_samples_keep_the_measured_mean() -> None:
    measured = generator(3).lognormal(6, 1.2, 5_000).astype(int) + 1
    assert Quantiles.of(measured).mean == pytest.approx(measured.mean(), rel=1e-5)


def test_pairs_are_drawn_together() -> None:
    pairs = Pairs.of([10, 1000], [7, 70])
    inputs, outputs = pairs.sample(generator(), 1000)
    assert set(zip(inputs.tolist(), outputs.tolist(), strict=True)) == {(10, 7), (1000, 70)}
    first, second = pairs.marginals()
    assert (first.mean, second.mean) == (505.0, 38.5)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Fixed(tokens=-1), "tokens"),
        (lambda: Fixed(tokens=math.nan), "tokens"),
        (lambda: Lognormal(mean_tokens=0, cv=1), "mean_tokens"),
        (lambda: Lognormal(mean_tokens=10, cv=-1), "cv"),
        (lambda: Lognormal(mean_tokens=10, cv=1, least_tokens=9, most_tokens=3), "most_tokens"),
        (lambda: Quantiles(shares=(0.0, 0.5), tokens=(1.0, 2.0)), "shares"),
        (lambda: Quantiles(shares=(0.0, 1.0), tokens=(2.0, 1.0)), "tokens"),
        (lambda: Empirical(tokens=(), weights=()), "tokens"),
        (lambda: Empirical(tokens=(1.0,), weights=(0.0,)), "weights"),
        (lambda: Mixture(parts=(Fixed(tokens=1),), weights=(1.0, 2.0)), "weights"),
        (lambda: length_from_record({"kind": "lognormall"}), "lognormal"),
        (lambda: length_from_record({"kind": "lognormal", "mean_tokens": "many", "cv": 1}), "mean_tokens"),
        (lambda: length_from_record({"kind": "fixed", "tokens": 3, "colour": 4}), "colour"),
        (lambda: length_from_record({"kind": "fixed"}), "tokens"),
        (lambda: length_from_record([1, 2]), "kind"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(make, names: str) -> None:
    with pytest.raises(InputError, match=names):
        make()
