"""The tabulated step against hand arithmetic."""

from dataclasses import replace

import numpy as np
import pytest

from sizing.errors import InputError
from sizing.steptable import StepTable, delivery_share


def test_affine_step_is_the_sum_of_its_parts() -> None:
    table = StepTable.affine(
        step_s=1e-3,
        token_s=2e-6,
        sequence_s=3e-6,
        context_token_s=5e-9,
        attention_s=7e-12,
        prefill_step_s=4e-3,
    )
    # 10 decoding with 20,000 tokens, a chunk of 500 behind 1,000: attention 500 x 1,000 + 500 x 501 / 2.
    by_hand = 1e-3 + 2e-6 * 510 + 3e-6 * 10 + 5e-9 * 20_000 + 7e-12 * 625_250 + 4e-3
    assert table.time_s(10, 20_000, 500, 625_250) == pytest.approx(by_hand, rel=1e-12)


def test_scalar_and_array_calls_agree_and_an_empty_step_is_free() -> None:
    table = StepTable.affine(step_s=1e-3, token_s=2e-6)
    many = table.time_s(np.arange(5), np.arange(5) * 100)
    assert many.tolist() == [float(table.time_s(n, n * 100)) for n in range(5)]
    assert many[0] == 0.0


def test_knots_are_hit_exactly_and_the_last_slope_goes_on() -> None:
    axis, zero = np.array([0.0, 64.0, 128.0]), np.zeros((2, 2))
    two = np.array([0.0, 1.0])
    table = StepTable(
        tokens=axis, linear_s=np.array([0.0, 1.0, 3.0]),
        decode_batch=two, decode_context=two, decode_attention_s=zero,
        prefill_tokens=two, prefill_context=two, prefill_attention_s=zero,
    )  # fmt: skip
    assert table.time_s(np.array([64, 96, 128, 192]), 0).tolist() == [1.0, 2.0, 3.0, 5.0]


def test_malformed_tables_are_refused() -> None:
    good = StepTable.affine(token_s=1.0)
    with pytest.raises(InputError, match="tokens: give two or more ascending"):
        StepTable(**{**{k: getattr(good, k) for k in StepTable.__slots__}, "tokens": [1.0, 2.0]})
    with pytest.raises(InputError, match="linear_s"):
        StepTable(**{**{k: getattr(good, k) for k in StepTable.__slots__}, "linear_s": [0.0, -1.0]})


def test_host_work_is_side_by_side_and_a_prefill_steps_own_time_comes_after() -> None:
    plain = StepTable.affine(step_s=1e-3, token_s=2e-5, prefill_step_s=4e-3)
    table = replace(plain, host_step_s=1.2e-3, host_sequence_s=3e-5)
    # 100 decoding: kernels 1 + 2 = 3 ms, host 1.2 + 3 = 4.2 ms; 500 prompt tokens with 100: 13 ms beside 4.2, then 4
    assert table.time_s(100, 0) == pytest.approx((3e-3**4 + 4.2e-3**4) ** 0.25, rel=1e-12)
    assert table.time_s(100, 0, 500, 0) == pytest.approx((13e-3**4 + 4.2e-3**4) ** 0.25 + 4e-3, rel=1e-12)
    assert table.time_s(0, 0, 500, 0) == pytest.approx((11e-3**4 + 1.2e-3**4) ** 0.25 + 4e-3, rel=1e-12)
    assert table.time_s(0, 0) == 0.0


def test_the_host_shows_only_where_it_is_as_long_as_the_kernels() -> None:
    plain = StepTable.affine(token_s=1e-5)
    beside = replace(plain, host_step_s=1e-3)
    assert beside.time_s(1, 0) == pytest.approx(1e-3, rel=1e-4)  # kernels a hundredth of it
    assert beside.time_s(300, 0) == pytest.approx(3e-3, rel=0.004)  # a third of the kernels: a third of a per cent
    assert beside.time_s(100, 0) == pytest.approx(2**0.25 * 1e-3)
    batch = np.arange(1, 2000)
    assert np.all(beside.time_s(batch, 0) >= np.maximum(plain.time_s(batch, 0), 1e-3) * (1 - 1e-12))
    assert np.all(beside.time_s(batch, 0) <= plain.time_s(batch, 0) + 1e-3)


@pytest.mark.parametrize(("running", "share"), [(0, 0.0), (1, 1 / 33), (32, 0.5), (96, 0.75), (1e9, 1.0)])
def test_a_first_token_shares_its_way_with_those_that_run(running: float, share: float) -> None:
    assert delivery_share(running) == pytest.approx(share)


def test_delivery_grows_with_those_that_run_and_takes_arrays() -> None:
    shares = delivery_share(np.arange(500.0))
    assert np.all(np.diff(shares) > 0)
    assert shares[-1] < 1.0
