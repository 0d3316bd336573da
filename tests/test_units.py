"""Quantities as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizing import units
from sizing.errors import UnitError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20ms", 0.02), ("1.5s", 1.5), ("2 min", 120), ("1h", 3600), ("300us", 3e-4), ("2", 2), (" 7 s ", 7)],
)
def test_durations(text: str, seconds: float) -> None:
    assert units.duration_s(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("20", 20), ("20/s", 20), ("1200/min", 20), ("72k/h", 20), ("20rps", 20), ("20 req/s", 20), (20, 20)],
)
def test_rates(text: str | float, rate: float) -> None:
    assert units.rate_per_s(text) == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80GB", 80e9),
        ("80GiB", 80 * 2**30),
        ("1.5 TB", 1.5e12),
        ("512MiB", 2**29),
        ("80gb", 80e9),
        ("8 Gb", 1e9),
    ],
)
def test_sizes_keep_gb_and_gib_and_gigabits_apart(text: str, size: float) -> None:
    assert units.size_bytes(text) == pytest.approx(size, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "value"), [("4k", 4000), ("4K", 4096), ("2,000", 2000), ("1m", 1e6), ("2000 tokens", 2000)]
)
def test_counts_follow_the_engines(text: str, value: float) -> None:
    assert units.count(text) == value


@pytest.mark.parametrize(("text", "value"), [("4.8 TB/s", 4.8e12), ("400 Gb/s", 50e9)])
def test_bandwidths(text: str, value: float) -> None:
    assert units.bandwidth_bytes_per_s(text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(("text", "value"), [("0.85", 0.85), ("85%", 0.85), ("1", 1.0)])
def test_fractions(text: str, value: float) -> None:
    assert units.fraction(text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("text", ["$4", "4", "4 USD/h", "4usd", "4/h"])
def test_prices(text: str) -> None:
    assert units.usd_per_hour(text) == 4.0


def test_a_bare_target_means_milliseconds_and_says_so() -> None:
    assert units.slo_s("20") == (0.02, True)
    assert units.slo_s("20ms") == (0.02, False)


READERS = (
    units.duration_s, units.rate_per_s, units.size_bytes, units.count, units.fraction, units.usd_per_hour,
    units.slo_s, units.bandwidth_bytes_per_s,
)  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "text", ["", "abc", "nan", "inf", "-inf", "1e999", "20 parsecs", "1/0", "5 $$", "()", "0x10", True]
)
def test_nonsense_is_refused_by_name(reader: object, text: str) -> None:
    with pytest.raises(UnitError, match="option"):
        reader(text, "option")  # type: ignore[operator]


@given(st.text(max_size=30))
def test_any_text_gives_a_number_or_a_unit_error(text: str) -> None:
    for reader in READERS:
        try:
            found = reader(text)
        except UnitError:
            continue
        assert isinstance(found, float | tuple)


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_milliseconds_and_seconds_agree(value: float) -> None:
    assert units.duration_s(f"{value!r}s") == pytest.approx(units.duration_s(f"{value * 1e3!r}ms"), rel=1e-12)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0182, "18.2 ms"), (1.35, "1.35 s"), (204.0, "3.4 min"), (3e-6, "3 us"), (float("inf"), "never")],
)
def test_durations_are_shown_as_people_read_them(seconds: float, text: str) -> None:
    assert units.format_duration(seconds) == text
