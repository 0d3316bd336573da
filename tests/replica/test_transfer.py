"""KV transfer."""

import numpy as np
import pytest

from sizing.replica.transfer import exposed_transfer_s, transfer_s


def test_exposed_transfer_of_28_layers() -> None:
    # 150 ms transfer behind a 960 ms prefill of 28 layers leaves 5.357 ms (fleet formulas, section 8)
    assert float(exposed_transfer_s(0.150, 0.960, 28)) == pytest.approx(5.357e-3, abs=5e-7)


def test_transfer_takes_arrays() -> None:
    got = transfer_s(np.array([1e9, 2e9]), 50e9, 1e-3)
    assert got == pytest.approx([0.021, 0.041], rel=1e-12)
