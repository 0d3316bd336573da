"""The tabulated step against hand arithmetic."""

import numpy as np
import pytest

from sizing.errors import InputError
from sizing.steptable import StepTable


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
