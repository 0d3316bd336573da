"""Kernels that only move data."""

import numpy as np
from numpy.typing import ArrayLike

from sizing.calibration import Calibration
from sizing.catalog import Gpu
from sizing.roofline.smooth import Seconds


def elementwise_s(traffic_bytes: ArrayLike, gpu: Gpu, cal: Calibration, *, calls: ArrayLike = 1) -> Seconds:
    """Time of kernels that only move data: norms, activation, rotary embedding, quantise, sampling.

    Parameters
    ----------
    traffic_bytes
        Bytes read and written [B].
    gpu, cal
        The accelerator and its constants.
    calls
        Kernels launched [1].

    Returns
    -------
    numpy.ndarray
        Time [s]; zero under an ideal calibration.
    """
    traffic = np.asarray(traffic_bytes, dtype=float)
    if cal.ideal:
        return np.zeros_like(traffic)
    c = cal.elementwise
    moved = traffic / (c.memory_fraction * gpu.memory_bandwidth_bytes_per_s)
    return np.asarray(c.scale * (np.asarray(calls, dtype=float) * c.fixed_s + moved))
