"""What every point is checked for, whatever tool wrote it."""

import dataclasses
import math
from itertools import pairwise

from sizing.benchmarks.point import TPOT_DEFINITIONS, TRUSTED_DEFINITIONS, BenchPoint, Latency

ACHIEVED_SHARE = 0.97  # below this share of the requested rate the client was the bottleneck
SCHEDULE_DELAY_S = 0.050  # requests sent later than this (p99): the client was the bottleneck
TPOT_TOLERANCE = 0.10  # relative difference between the file's TPOT and the one from its means
CONCURRENCY_TOLERANCE = 0.15  # relative difference between asked and measured requests in flight
FAILED_SHARE = 0.05  # more failures than this and the load was not the one asked for
SHORTEST_TPOT_S, SHORTEST_TTFT_S = 2e-4, 1e-3  # below these no GPU serves a language model
FIRST_WAVE = 3.0  # fewer requests than this many times the concurrency: TTFT is the first wave's


def checked(point: BenchPoint) -> BenchPoint:
    """The point with TPOT recomputed from its means and every warning and refusal that applies."""
    point = _without_zero_ttft(point)
    point = dataclasses.replace(point, tpot_from_means_s=tpot_from_means_s(point))
    warnings = [*_tpot_warnings(point), *_order_warnings(point), *_load_warnings(point)]
    return point.warned(*warnings).refused(*_client_refusals(point), *_count_refusals(point))


def tpot_from_means_s(point: BenchPoint) -> float | None:
    """(mean end-to-end - mean TTFT) / (mean output tokens - 1) [s]; None where a mean is missing.

    Notes
    -----
    The ratio of means weighs long requests more than the mean of ratios that most tools print; the two
    are equal for fixed lengths.
    """
    ttft = point.ttft.mean_s if point.ttft else None
    e2e = point.e2e.mean_s if point.e2e else None
    tokens = point.output_tokens
    if ttft is None or e2e is None or tokens is None or tokens < 2.0 or e2e < ttft:
        return None
    return (e2e - ttft) / (tokens - 1.0)


def _without_zero_ttft(point: BenchPoint) -> BenchPoint:
    """Drop a TTFT of exactly 0 (responses were not streamed) and the TPOT that rests on it."""
    if point.ttft is None or point.ttft.centre[0] != 0.0:
        return point
    return dataclasses.replace(point, ttft=None, tpot=None, itl=None, tpot_definition="absent").warned(
        "TTFT is 0: the responses were not streamed; TTFT and TPOT are left out"
    )


def _tpot_warnings(point: BenchPoint) -> list[str]:
    derived, given = point.tpot_from_means_s, point.tpot.mean_s if point.tpot else None
    if point.tpot is not None and point.tpot_definition not in TRUSTED_DEFINITIONS:
        meaning = TPOT_DEFINITIONS[point.tpot_definition]
        use = "recomputed from the means" if derived is not None else "and the means to recompute it are missing"
        return [f"the file's TPOT is {meaning}: {use}"]
    if derived is None or not given:
        return []
    ratio = derived / given
    if abs(ratio - 1.0) <= TPOT_TOLERANCE:
        return []
    return [
        f"TPOT from the means is {derived * 1e3:.2f} ms, the file says {given * 1e3:.2f} ms "
        f"(x{ratio:.2f}): lengths vary widely, or the file counts tokens another way"
    ]


def _order_warnings(point: BenchPoint) -> list[str]:
    found = []
    for name in ("ttft", "tpot", "itl", "e2e"):
        latency: Latency | None = getattr(point, name)
        values = list(latency.percentiles_s.values()) if latency else []
        if any(b < a * (1.0 - 1e-9) for a, b in pairwise(values)):
            found.append(f"{name.upper()} percentiles do not rise: a statistic is mislabelled")
    if (point.tpot_s or 1.0) < SHORTEST_TPOT_S or (point.ttft_s or 1.0) < SHORTEST_TTFT_S:
        found.append("latencies are implausibly short for a GPU: the file's units are in doubt")
    if point.ttft_s is not None and point.e2e_s is not None and point.ttft_s > point.e2e_s * (1.0 + 1e-9):
        found.append("TTFT is longer than end-to-end latency: units are mixed")
    return found


def _load_warnings(point: BenchPoint) -> list[str]:
    found = []
    asked, closed = point.load.concurrency, point.load.kind == "closed"
    measured = requests_in_flight(point)
    if closed and asked and measured and abs(measured / asked - 1.0) > CONCURRENCY_TOLERANCE:
        found.append(
            f"{measured:.1f} requests were in flight on average, {asked:g} were asked for: "
            "a short run, or a client that could not keep up"
        )
    if closed and asked and point.completed is not None and 0 < point.completed < FIRST_WAVE * asked:
        found.append(
            f"{point.completed} requests at concurrency {asked:g}: the first wave, all prompts at once, "
            "carries much of the TTFT"
        )
    if point.failed:
        found.append(f"{point.failed} requests failed")
    return found


def requests_in_flight(point: BenchPoint) -> float | None:
    """Mean requests in flight by Little's law: requests per second times mean end-to-end latency."""
    if point.request_throughput_per_s is None or point.e2e is None or point.e2e.mean_s is None:
        return None
    return point.request_throughput_per_s * point.e2e.mean_s


def _client_refusals(point: BenchPoint) -> list[str]:
    """Reasons that the client or an overload, not the server at that load, set the numbers."""
    found = []
    load, delay = point.load, point.schedule_delay_p99_s
    if load.request_rate_per_s and load.achieved_rate_per_s is not None:
        share = load.achieved_rate_per_s / load.request_rate_per_s
        if share < ACHIEVED_SHARE:
            found.append(
                f"the client sent {load.achieved_rate_per_s:.4g} of {load.request_rate_per_s:.4g} requests/s "
                f"({share:.0%}, at least {ACHIEVED_SHARE:.0%} wanted): the client is the bottleneck"
            )
    if delay is not None and delay > SCHEDULE_DELAY_S:
        found.append(
            f"requests left {delay * 1e3:.0f} ms late (p99, at most {SCHEDULE_DELAY_S * 1e3:.0f} ms wanted): "
            "the client is the bottleneck"
        )
    return found or _overload_refusals(point)


def _overload_refusals(point: BenchPoint) -> list[str]:
    """Open loop that completed less than was offered, beyond the tail after the last arrival."""
    rate, done, e2e = point.load.request_rate_per_s, point.request_throughput_per_s, point.e2e_s
    if point.load.kind != "open" or not rate or not done or done >= ACHIEVED_SHARE * rate:
        return []
    if point.completed and e2e is not None:
        tail_s = (point.e2e.p99_s if point.e2e and point.e2e.p99_s else e2e) if e2e else 0.0
        expected = point.completed / (point.completed / rate + min(tail_s, 60.0))
        if done >= ACHIEVED_SHARE * expected and e2e * rate < point.completed / FIRST_WAVE:
            return []
    return [
        f"{done:.4g} requests/s completed of {rate:.4g} offered: the client fell behind or the queue grew, "
        "so TTFT tells the length of the run, not the server's answer"
    ]


def _count_refusals(point: BenchPoint) -> list[str]:
    found = []
    if point.load.kind in ("closed", "static") and not point.load.concurrency:
        found.append("the requests in flight are not recorded: give --concurrency")
    if point.completed == 0:
        found.append("no request completed")
    if point.failed and point.completed and point.failed > FAILED_SHARE * (point.failed + point.completed):
        found.append(
            f"{point.failed} of {point.failed + point.completed} requests failed (at most {FAILED_SHARE:.0%} allowed)"
        )
    shown = (
        point.ttft_s,
        point.tpot_s,
        point.e2e_s,
        point.output_tokens_per_s,
        point.request_throughput_per_s,
    )
    if not any(value is not None and math.isfinite(value) and value > 0.0 for value in shown):
        found.append("the file gives no latency and no throughput")
    return found
