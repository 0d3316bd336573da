"""Closed forms of queueing theory. Only here are the symbols lambda, mu, rho, a and c used.

Scalars or arrays alike. Each function names its source and where it stops to hold; reference values are in
``tests/test_queueing.py``.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sizing.errors import InputError

Values = NDArray[np.float64]


def _checked(name: str, value: ArrayLike, least: float = 0.0) -> Values:
    array = np.asarray(value, dtype=float)
    if np.any(~np.isfinite(array)) or np.any(array < least):
        raise InputError(f"{name}: {value!r} is not allowed; give finite numbers of at least {least:g}")
    return array


def erlang_b(servers: ArrayLike, offered_load: ArrayLike) -> Values:
    """Share of arrivals that find every server busy and leave, M/G/c/c. [1]

    Parameters
    ----------
    servers
        c, at least 0; a number that is not whole is continued by Jagerman's integral. [server]
    offered_load
        a = lambda / mu. [erlang]

    Notes
    -----
    B(c) = a B(c-1) / (c + a B(c-1)), B(0) = 1 (Erlang 1917). Insensitive to the service distribution. The
    continuation is 1 / B = a int_0^inf exp(-a t) (1 + t)^c dt (Jagerman, Bell System Technical Journal 53(3), 1974,
    eq. 4), here as the incomplete gamma function: 1 / B = exp(a) a^-c Gamma(c + 1, a).
    """
    from scipy.special import gammaincc, gammaln

    c, a = np.broadcast_arrays(_checked("servers", servers), _checked("offered_load", offered_load))
    with np.errstate(divide="ignore"):
        log_inverse = np.where(
            a > 0, a - c * np.log(np.maximum(a, 1e-300)) + gammaln(c + 1.0) + np.log(gammaincc(c + 1.0, a)), np.inf
        )
    return np.asarray(np.where((a == 0) & (c == 0), 1.0, np.exp(-np.maximum(log_inverse, 0.0))))


def erlang_c(servers: ArrayLike, offered_load: ArrayLike) -> Values:
    """Share of arrivals that wait, M/M/c; 1 when the load is not below the servers. [1]

    C = c B / (c - a (1 - B)) (Erlang 1917). Parameters as :func:`erlang_b`.
    """
    c, a = np.broadcast_arrays(_checked("servers", servers), _checked("offered_load", offered_load))
    blocked = erlang_b(c, a)
    stable = a < c
    below = np.where(stable, c - a * (1.0 - blocked), 1.0)
    return np.asarray(np.where(stable, c * blocked / below, 1.0))


def wait_s(servers: ArrayLike, rate_per_s: ArrayLike, service_s: ArrayLike) -> Values:
    """Mean wait of M/M/c: C / (c mu - lambda); infinite when unstable. [s]

    Parameters
    ----------
    servers, rate_per_s, service_s
        c, lambda, 1 / mu. [server], [1/s], [s]
    """
    c, lam, s = (_checked(n, v) for n, v in (("servers", servers), ("rate", rate_per_s), ("service_s", service_s)))
    spare = c / s - lam
    return np.asarray(np.where(spare > 0, erlang_c(c, lam * s) / np.where(spare > 0, spare, 1.0), np.inf))


def wait_quantile_s(share: ArrayLike, servers: ArrayLike, rate_per_s: ArrayLike, service_s: ArrayLike) -> Values:
    """Wait that a share of the arrivals of M/M/c does not exceed: ln(C / (1 - q)) / (c mu - lambda). [s]

    Parameters
    ----------
    share
        q, between 0 and 1. [1]
    servers, rate_per_s, service_s
        As :func:`wait_s`.
    """
    c, lam, s = np.asarray(servers, float), np.asarray(rate_per_s, float), np.asarray(service_s, float)
    spare = c / s - lam
    waiting = erlang_c(c, lam * s)
    tail = np.log(np.maximum(waiting / (1.0 - np.asarray(share, float)), 1.0))
    return np.asarray(np.where(spare > 0, tail / np.where(spare > 0, spare, 1.0), np.inf))


def allen_cunneen_s(
    servers: ArrayLike, rate_per_s: ArrayLike, service_s: ArrayLike, arrival_cv: ArrayLike, service_cv: ArrayLike
) -> Values:
    """Mean wait of G/G/c: that of M/M/c times (c_a^2 + c_s^2) / 2. [s]

    Parameters
    ----------
    servers, rate_per_s, service_s
        As :func:`wait_s`.
    arrival_cv, service_cv
        Standard deviation over mean of gaps and of service times. [1]

    Notes
    -----
    Allen, Probability, Statistics and Queueing Theory, 1990, section 5.3. Low by a third to two thirds for bursty
    arrivals at many servers: use :func:`hayward_s` when c_a exceeds 1.
    """
    burst = (np.asarray(arrival_cv, float) ** 2 + np.asarray(service_cv, float) ** 2) / 2.0
    return np.asarray(wait_s(servers, rate_per_s, service_s) * burst)


def peakedness(arrival_cv: ArrayLike) -> Values:
    """Variance over mean of the busy servers when there are endless ones: 1 + (c_a^2 - 1) / 2. [1]

    For exponential service (Eckberg, Bell System Technical Journal 62(9), 1983).
    """
    return np.asarray(1.0 + (np.asarray(arrival_cv, float) ** 2 - 1.0) / 2.0)


def hayward_s(servers: ArrayLike, rate_per_s: ArrayLike, service_s: ArrayLike, arrival_cv: ArrayLike) -> Values:
    """Mean wait of G/M/c with bursty arrivals: M/M with c / z servers and load a / z. [s]

    Parameters
    ----------
    servers, rate_per_s, service_s, arrival_cv
        As :func:`allen_cunneen_s`.

    Notes
    -----
    Hayward's equivalence (Fredericks, Bell System Technical Journal 59(6), 1980), z from :func:`peakedness`. Holds
    for c_a of 1 and above; within some 15 % of simulation where Allen-Cunneen is off by half.
    """
    z = peakedness(arrival_cv)
    c, lam = np.asarray(servers, float) / z, np.asarray(rate_per_s, float) / z
    return np.asarray(wait_s(c, lam, service_s))


def kingman_s(utilization: ArrayLike, service_s: ArrayLike, arrival_cv: ArrayLike, service_cv: ArrayLike) -> Values:
    """Upper bound of the mean wait of G/G/1: rho / (1 - rho) (c_a^2 + c_s^2) / 2 S. [s]

    Parameters
    ----------
    utilization
        rho; infinite wait from 1 on. [1]
    service_s, arrival_cv, service_cv
        Mean service, and variation of gaps and service. [s], [1], [1]

    Notes
    -----
    Kingman, Mathematical Proceedings of the Cambridge Philosophical Society 57, 1961; tight in heavy traffic, exact
    for M/G/1.
    """
    rho = _checked("utilization", utilization)
    burst = (np.asarray(arrival_cv, float) ** 2 + np.asarray(service_cv, float) ** 2) / 2.0
    busy = np.where(rho < 1, rho / np.where(rho < 1, 1.0 - rho, 1.0), np.inf)
    return np.asarray(busy * burst * np.asarray(service_s, float))


def pollaczek_khinchine_s(rate_per_s: ArrayLike, service_s: ArrayLike, service_cv: ArrayLike) -> Values:
    """Mean wait of M/G/1: rho S (1 + c_s^2) / (2 (1 - rho)). [s]

    Parameters
    ----------
    rate_per_s, service_s, service_cv
        lambda, mean service, its variation. [1/s], [s], [1]
    """
    rho = np.asarray(rate_per_s, float) * np.asarray(service_s, float)
    return kingman_s(rho, service_s, 1.0, service_cv)


def processor_sharing_s(utilization: ArrayLike, work_s: ArrayLike) -> Values:
    """Mean time in M/G/1 processor sharing of a request of given work: x / (1 - rho). [s]

    Insensitive to the distribution of work (Kleinrock, Queueing Systems II, 1976, section 4.4).

    Parameters
    ----------
    utilization
        rho. [1]
    work_s
        Time of the request alone. [s]
    """
    rho = _checked("utilization", utilization)
    return np.asarray(np.where(rho < 1, np.asarray(work_s, float) / np.where(rho < 1, 1.0 - rho, 1.0), np.inf))


def batch_service_rate_per_s(batch: ArrayLike, fixed_s: float, each_s: float) -> Values:
    """Largest rate of a server that takes up to a batch at once in fixed + each x batch: b / (f + e b). [1/s]

    Bailey, Journal of the Royal Statistical Society B 16(1), 1954: a bulk queue is stable below its full batch's
    rate.

    Parameters
    ----------
    batch
        b, the most that are served together. [request]
    fixed_s, each_s
        Time of a batch, and more for each in it. [s]
    """
    b = _checked("batch", batch, 1.0)
    return np.asarray(b / (fixed_s + each_s * b))


def in_flight_quantile(share: ArrayLike, mean: ArrayLike, arrival_cv: ArrayLike = 1.0) -> Values:
    """Requests in flight that are not exceeded for a share of the time, no limit on them. [request]

    Poisson with that mean for Poisson arrivals, whatever the service (M/G/inf); for bursty arrivals normal with
    variance z x mean, z from :func:`peakedness`.

    Parameters
    ----------
    share
        q, between 0 and 1. [1]
    mean
        rate x time in service (Little's law). [request]
    arrival_cv
        Variation of gaps; 1 is Poisson. [1]
    """
    from scipy.stats import norm, poisson

    q, m, z = np.asarray(share, float), np.asarray(mean, float), peakedness(arrival_cv)
    return np.asarray(np.where(z <= 1.0, poisson.ppf(q, m), m + norm.ppf(q) * np.sqrt(np.maximum(z, 1.0) * m)))
