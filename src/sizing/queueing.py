r"""Closed forms of queueing theory: waits, losses, requests in flight.

Symbols, here only: :math:`\lambda` arrival rate, :math:`S` mean service time, :math:`c` servers, offered load
:math:`a = \lambda S`, utilisation :math:`\rho = a / c`, squared coefficients of variation :math:`c_a^2` of the gaps
between arrivals and :math:`c_s^2` of service. Scalars and arrays alike. A queue that is not stable has an infinite
wait, not an error.

Where to be careful: Allen-Cunneen halves the wait of bursty arrivals on many servers (simulated: a third to two
thirds too low for a CV of 2 to 3); Hayward holds there. None of them knows batching: a replica's service rate
depends on its batch, which is why percentiles of a plan are held against the simulator.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def _arrays(*values: ArrayLike) -> list[Floats]:
    return [np.array(x, dtype=np.float64) for x in np.broadcast_arrays(*values)]


def _plain(values: Floats) -> Any:
    """A float for scalar arguments, else the array."""
    return values[()] if values.ndim else float(values)


def erlang_b(servers: ArrayLike, offered_load: ArrayLike) -> Any:
    r"""Share of Poisson arrivals lost when all servers are busy. [1]

    :math:`B_k = a B_{k-1} / (k + a B_{k-1})` [1]_, begun at the fractional part of ``servers`` with
    :math:`B(f, a) = a^f e^{-a} / \Gamma(f + 1, a)`, so that servers need not be whole [2]_.

    Parameters
    ----------
    servers
        Servers, 0 or more, fractions allowed. [1]
    offered_load
        Arrival rate times mean service time. [erlang]

    .. [1] A. K. Erlang, "Solution of some problems in the theory of probabilities of significance in automatic
       telephone exchanges", 1917.
    .. [2] D. L. Jagerman, "Some properties of the Erlang loss function", BSTJ 53(3), 1974.
    """
    from scipy.special import gammaincc, gammaln

    c, a = _arrays(servers, offered_load)
    fraction = c - np.floor(c)
    large = np.maximum(a, 50.0)
    tail = 1 + fraction / large * (1 + (fraction - 1) / large * (1 + (fraction - 2) / large))
    small = np.clip(a, 1e-300, 50.0)
    exact = np.exp(fraction * np.log(small) - small - gammaln(fraction + 1)) / gammaincc(fraction + 1, small)
    blocked = np.where(a > 50, 1 / tail, exact)
    blocked = np.where(a > 0, blocked, np.where(c > 0, 0.0, 1.0))
    for k in range(1, int(np.max(np.floor(c), initial=0)) + 1):
        now = fraction + k
        blocked = np.where(now <= c, a * blocked / (now + a * blocked), blocked)
    return _plain(blocked)


def erlang_c(servers: ArrayLike, offered_load: ArrayLike) -> Any:
    r"""Probability that an arrival must wait in M/M/c. [1]

    :math:`C = c B / (c - a (1 - B))`; 1 when the load is at or above the servers.

    Parameters
    ----------
    servers
        Servers, fractions allowed. [1]
    offered_load
        Arrival rate times mean service time. [erlang]
    """
    c, a = _arrays(servers, offered_load)
    lost = np.asarray(erlang_b(c, a))
    stable = a < c
    waits = np.where(stable, c * lost / np.where(stable, c - a * (1 - lost), 1.0), 1.0)
    return _plain(waits)


def mmc_wait_s(servers: ArrayLike, offered_load: ArrayLike, service_s: ArrayLike) -> Any:
    r"""Mean wait in M/M/c, :math:`W_q = C S / (c - a)`. [s]

    Parameters
    ----------
    servers, offered_load
        Servers and load. [1], [erlang]
    service_s
        Mean service time. [s]
    """
    c, a, s = _arrays(servers, offered_load, service_s)
    room = np.where(a < c, c - a, 1.0)
    return _plain(np.where(a < c, np.asarray(erlang_c(c, a)) * s / room, np.inf))


def mmc_wait_quantile_s(servers: ArrayLike, offered_load: ArrayLike, service_s: ArrayLike, share: ArrayLike) -> Any:
    r"""Wait that a share of arrivals does not exceed in M/M/c: :math:`\ln(C / (1 - p)) S / (c - a)`, 0 or more. [s]

    Parameters
    ----------
    servers, offered_load, service_s
        As for :func:`mmc_wait_s`. [1], [erlang], [s]
    share
        Share of arrivals, below 1. [1]
    """
    c, a, s, p = _arrays(servers, offered_load, service_s, share)
    room = np.where(a < c, c - a, 1.0)
    waits = np.maximum(np.asarray(erlang_c(c, a)), 1e-300)
    return _plain(np.where(a < c, np.maximum(np.log(waits / (1 - p)), 0.0) * s / room, np.inf))


def allen_cunneen_wait_s(
    servers: ArrayLike, offered_load: ArrayLike, service_s: ArrayLike, arrival_scv: ArrayLike, service_scv: ArrayLike
) -> Any:
    r"""Mean wait in G/G/c, approximately: that of M/M/c times :math:`(c_a^2 + c_s^2) / 2` [1]_. [s]

    Good for arrivals no burstier than Poisson; a third to two thirds too low for many servers and a CV of 2 to 3:
    take :func:`hayward_wait_s` there.

    Parameters
    ----------
    servers, offered_load, service_s
        As for :func:`mmc_wait_s`. [1], [erlang], [s]
    arrival_scv, service_scv
        Squared coefficients of variation of gaps between arrivals and of service. [1]

    .. [1] A. O. Allen, "Probability, Statistics, and Queueing Theory", 2nd ed., 1990, section 5.3.
    """
    wait = np.asarray(mmc_wait_s(servers, offered_load, service_s))
    return _plain(np.asarray(wait * (np.asarray(arrival_scv) + np.asarray(service_scv)) / 2, dtype=np.float64))


def peakedness(arrival_scv: ArrayLike) -> Any:
    r"""Variance over mean of the requests in flight on unlimited exponential servers: :math:`1 + (c_a^2 - 1) / 2`. [1]

    The heavy-load limit for renewal arrivals (Eckberg, ITC 10, 1983).

    Parameters
    ----------
    arrival_scv
        Squared coefficient of variation of the gaps between arrivals. [1]
    """
    return _plain(np.asarray(1 + (np.asarray(arrival_scv, dtype=np.float64) - 1) / 2))


def hayward_wait_s(servers: ArrayLike, offered_load: ArrayLike, service_s: ArrayLike, arrival_scv: ArrayLike) -> Any:
    r"""Mean wait with bursty arrivals and exponential service: M/M/c with :math:`c/z` servers and load :math:`a/z`. [s]

    Hayward's equivalence (Fredericks, BSTJ 59(6), 1980), with the peakedness of :func:`peakedness`. Within 13 % of
    simulation for Gamma arrivals of CV 2 and 3 on 10 to 160 servers. Arrivals smoother than Poisson count as Poisson.

    Parameters
    ----------
    servers, offered_load, service_s
        As for :func:`mmc_wait_s`. [1], [erlang], [s]
    arrival_scv
        Squared coefficient of variation of the gaps between arrivals. [1]
    """
    z = np.maximum(np.asarray(peakedness(arrival_scv)), 1.0)
    return mmc_wait_s(np.asarray(servers) / z, np.asarray(offered_load) / z, service_s)


def hayward_wait_quantile_s(
    servers: ArrayLike, offered_load: ArrayLike, service_s: ArrayLike, arrival_scv: ArrayLike, share: ArrayLike
) -> Any:
    """Wait that a share of arrivals does not exceed, by the same equivalence. [s]

    Parameters
    ----------
    servers, offered_load, service_s, arrival_scv
        As for :func:`hayward_wait_s`. [1], [erlang], [s], [1]
    share
        Share of arrivals, below 1. [1]
    """
    z = np.maximum(np.asarray(peakedness(arrival_scv)), 1.0)
    return mmc_wait_quantile_s(np.asarray(servers) / z, np.asarray(offered_load) / z, service_s, share)


def kingman_wait_s(utilization: ArrayLike, service_s: ArrayLike, arrival_scv: ArrayLike, service_scv: ArrayLike) -> Any:
    r"""Mean wait in G/G/1 under heavy load, :math:`\rho / (1 - \rho) \cdot (c_a^2 + c_s^2) / 2 \cdot S` [1]_. [s]

    Parameters
    ----------
    utilization
        Load of the server. [1]
    service_s
        Mean service time. [s]
    arrival_scv, service_scv
        Squared coefficients of variation. [1]

    .. [1] J. F. C. Kingman, "The single server queue in heavy traffic", Math. Proc. Cambridge 57(4), 1961.
    """
    rho, s, ca2, cs2 = _arrays(utilization, service_s, arrival_scv, service_scv)
    room = np.where(rho < 1, 1 - rho, 1.0)
    return _plain(np.where(rho < 1, rho / room * (ca2 + cs2) / 2 * s, np.inf))


def pollaczek_khinchine_wait_s(utilization: ArrayLike, service_s: ArrayLike, service_scv: ArrayLike) -> Any:
    r"""Mean wait in M/G/1, exact: :math:`\rho S (1 + c_s^2) / (2 (1 - \rho))`. [s]

    Parameters
    ----------
    utilization, service_s, service_scv
        As for :func:`kingman_wait_s`. [1], [s], [1]
    """
    return kingman_wait_s(utilization, service_s, 1.0, service_scv)


def processor_sharing_s(utilization: ArrayLike, work_s: ArrayLike) -> Any:
    r"""Mean time in M/G/1 with processor sharing for a job of given work, :math:`x / (1 - \rho)`. [s]

    Holds for every service law (Kleinrock, "Queueing Systems" vol. 2, 1976, section 4.4).

    Parameters
    ----------
    utilization
        Load. [1]
    work_s
        Time that the job takes alone. [s]
    """
    rho, x = _arrays(utilization, work_s)
    return _plain(np.where(rho < 1, x / np.where(rho < 1, 1 - rho, 1.0), np.inf))


def batch_service_s(arrival_rate_per_s: ArrayLike, batch_s: ArrayLike, most: ArrayLike) -> Any:
    r"""Mean time in a queue served in batches of up to ``most`` with exponential batch times. [s]

    :math:`r` is the root below 1 of :math:`\mu r^{b+1} - (\lambda + \mu) r + \lambda = 0`; :math:`L = r / (1 - r)`
    (partial batches, late arrivals join while there is room: Gross and Harris, "Fundamentals of Queueing Theory",
    section 3.2). Stable while :math:`\lambda < b \mu`.

    Parameters
    ----------
    arrival_rate_per_s
        Arrival rate. [request/s]
    batch_s
        Mean time of a batch, whatever its size. [s]
    most
        Requests in a batch, at most. [request]
    """
    rate, s, b = _arrays(arrival_rate_per_s, batch_s, most)
    load = rate * s
    low, high = np.zeros_like(load), np.ones_like(load) * (1 - 1e-15)
    for _ in range(100):
        middle = (low + high) / 2
        above = middle ** (b + 1) - (load + 1) * middle + load > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return _plain(np.where(load < b, low / (1 - low) / rate, np.inf))


def in_flight_quantile(mean: ArrayLike, share: ArrayLike) -> Any:
    """Requests in flight that are not exceeded a share of the time, for Poisson arrivals. [request]

    M/G/infinity: the number in flight is Poisson whatever the service law (Little's law gives its mean).

    Parameters
    ----------
    mean
        Arrival rate times mean time in the system. [request]
    share
        Share of the time. [1]
    """
    from scipy.special import pdtr, pdtrik

    m, p = _arrays(mean, share)
    least = np.ceil(pdtrik(p, np.maximum(m, 1e-300)))
    before = np.maximum(least - 1, 0)
    least = np.where((least > 0) & (pdtr(before, m) >= p), before, least)
    return _plain(np.where(m > 0, least, 0.0))


def in_flight_quantile_peaky(mean: ArrayLike, share: ArrayLike, peak: ArrayLike) -> Any:
    r"""The same for bursty arrivals, by the normal law with variance :math:`z` times the mean. [request]

    Parameters
    ----------
    mean, share
        As for :func:`in_flight_quantile`. [request], [1]
    peak
        Peakedness, see :func:`peakedness`. [1]
    """
    from scipy.special import ndtri

    m, p, z = _arrays(mean, share, peak)
    return _plain(m + ndtri(p) * np.sqrt(m * z))


def kv_stable_rate_per_s(
    kv_tokens: ArrayLike, step_s: ArrayLike, input_tokens: ArrayLike, output_tokens: ArrayLike
) -> Any:
    r"""Largest request rate at which the KV cache keeps up: :math:`M / (b \sum_j (s + j))`. [request/s]

    A request holds :math:`s + j` tokens at its ``j``-th output token, so it takes
    :math:`s o + o (o + 1) / 2` token-steps (arXiv 2605.04595).

    Parameters
    ----------
    kv_tokens
        Tokens that the cache holds. [token]
    step_s
        Time of a step. [s]
    input_tokens, output_tokens
        Lengths. [token]
    """
    room, step, prompt, answer = _arrays(kv_tokens, step_s, input_tokens, output_tokens)
    return _plain(room / (step * (prompt * answer + answer * (answer + 1) / 2)))
