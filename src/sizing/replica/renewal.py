"""Arrivals as a renewal stream with Gamma gaps: how bursty it is, seen over any time and by any request.

Time is counted in mean gaps throughout, so a stream is described by the CV of its gaps alone.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
MOST_ARRIVALS = 600
"""Arrivals that counts are summed up to. [1]"""
LONGEST = 40.0
"""Window in which counts are tabulated; beyond it the stream is as its long-run dispersion. [gap]"""


@dataclass(frozen=True, slots=True)
class Renewal:
    """A renewal stream with Gamma gaps.

    Attributes
    ----------
    gap_cv
        Standard deviation over mean of the gaps. [1]
    windows
        Windows of the tables below, ascending from 0. [gap]
    after
        Arrivals expected within a window that an arrival opens: sum over k of P(k gaps fit). [1]
    spread_after, spread
        Variance of the arrivals in a window that an arrival opens, and in one opened at random. [1]
    """

    gap_cv: float
    windows: Values
    after: Values
    spread_after: Values
    spread: Values

    @property
    def bursty(self) -> bool:
        """Whether it is burstier than a Poisson stream."""
        return self.gap_cv > 1.0

    @property
    def burst(self) -> float:
        """Arrivals of a burst, as a compound Poisson stream of geometric bursts with this dispersion has it. [1]

        Dispersion 2 b - 1 = c^2 (the index of dispersion of a renewal process; Cox and Lewis 1966, section 4.5).
        """
        return max((self.gap_cv**2 + 1.0) / 2.0, 1.0)

    def dispersion(self, frequency: Values) -> Values:
        """Spectrum of the arrivals over that of a Poisson stream: Re (1 + phi) / (1 - phi). [1]

        phi is the characteristic function of a gap (Bartlett, J. Roy. Stat. Soc. B 25(2), 1963).

        Parameters
        ----------
        frequency
            Angular. [1/gap]
        """
        if self.gap_cv == 1.0:
            return np.ones_like(frequency)
        squared = max(self.gap_cv, 0.1) ** 2
        at = frequency * squared
        phi = np.exp(-(0.5 * np.log1p(at * at) + 1j * np.arctan(at)) / squared)
        return np.asarray(((1.0 + phi) / (1.0 - phi)).real)

    def arrivals_after(self, window: Values) -> Values:
        """Arrivals expected in a window that an arrival opens. [1]"""
        beyond = np.maximum(window - LONGEST, 0.0)
        return np.asarray(np.interp(window, self.windows, self.after) + beyond)

    def spread_share(self, window: Values) -> Values:
        """Variance of the arrivals in a window that an arrival opens over that in one opened at random. [1]"""
        return np.asarray(np.interp(window, self.windows[1:], self.spread_after[1:] / self.spread[1:], right=1.0))

    def short_of(self, length: Values) -> Values:
        """By how much gaps fall short of a length on average, E max(length - gap, 0). [gap]

        Parameters
        ----------
        length
            In mean gaps. [gap]
        """
        from scipy.special import gammainc

        shape = 1.0 / max(self.gap_cv, 0.1) ** 2
        return np.asarray(length * gammainc(shape, shape * length) - gammainc(shape + 1.0, shape * length))


@lru_cache(maxsize=64)
def renewal(gap_cv: float) -> Renewal:
    """The stream of a CV, its tables computed once.

    Parameters
    ----------
    gap_cv
        Standard deviation over mean of the gaps. [1]
    """
    from scipy.special import gammainc

    windows = np.concatenate([[0.0], np.geomspace(1e-4, LONGEST, 120)])
    if gap_cv == 1.0:
        return Renewal(gap_cv, windows, windows, windows, windows)
    shape = 1.0 / max(gap_cv, 0.1) ** 2
    count = np.arange(1, MOST_ARRIVALS)
    fit = gammainc(shape * count, shape * windows[:, None])
    after = fit.sum(axis=1)
    spread_after = np.maximum(((2.0 * count - 1.0) * fit).sum(axis=1) - after**2, 0.0)
    whole = np.concatenate([[0.0], np.cumsum(np.diff(windows) * (after[1:] + after[:-1]) / 2.0)])
    spread = np.maximum(windows + 2.0 * whole - windows**2, 1e-12)
    return Renewal(gap_cv, windows, after, spread_after, spread)
