"""Failures and rollouts against published and exactly computed values."""

import pytest

from sizing.errors import InputError
from sizing.fleet import at_least_up, availability, interruption_interval_s, rollout, spares_for


def test_four_of_six_at_99_percent() -> None:
    # sum of exact fractions, printed to 10 digits in the fleet formulas (k-of-n)
    assert at_least_up(4, 6, 0.99) == pytest.approx(0.9999804464, abs=5e-11)


def test_tp8_of_gpus_at_three_nines() -> None:
    # 0.999^8 = 0.992028 (six digits)
    assert at_least_up(8, 8, 0.999) == pytest.approx(0.992028, abs=5e-7)


@pytest.mark.parametrize(("target", "spares"), [(0.999, 4), (0.9999, 5)])
def test_spares_of_a_hundred_at_99_5_percent(target: float, spares: int) -> None:
    assert spares_for(100, 0.995, target) == spares  # exact binomial sums


def test_availability_from_llama_3_failures() -> None:
    # 50,677 GPU-hours between failures and a day to repair: 0.999527 (six digits)
    assert availability(50_677 * 3600, 24 * 3600) == pytest.approx(0.999527, abs=5e-7)


def test_interruption_interval_needs_positive_numbers() -> None:
    with pytest.raises(InputError, match="interruptions"):
        interruption_interval_s(0.0, 3)


@pytest.mark.parametrize(
    ("replicas", "unavailable", "surge", "expected"),
    [
        # Kubernetes ResolveFenceposts: surge rounds up, unavailable down, both zero makes one unavailable
        (8, 0.25, 0.25, (2, 2)),
        (1, 0.25, 0.25, (0, 1)),
        (10, 0.25, 0.25, (2, 3)),
        (3, 0.25, 0.25, (0, 1)),
        (2, 0.25, 0.0, (1, 0)),
    ],
)
def test_rollout_rounds_as_kubernetes_does(
    replicas: int, unavailable: float, surge: float, expected: tuple[int, int]
) -> None:
    got = rollout(replicas, unavailable, surge)
    assert (got.unavailable, got.surge) == expected
    assert got.least_serving == replicas - got.unavailable
