"""The batching curve: what more users cost each of them, and what they save."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sizing.catalog import price
from sizing.memory import MemoryBudget
from sizing.replica.loads import Values, estimate
from sizing.steptime import StepModel


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One number of users.

    Attributes
    ----------
    users
        Requests that decode together. [request]
    tpot_s, tpot_low_s, tpot_high_s
        Time per output token, and the bounds that the spread of the constants gives it. [s]
    tokens_per_s
        Output of the replica. [token/s]
    usd_per_million_tokens
        Of output, all GPUs of the replica paid; None without a price. [USD]
    bound
        What most of a step waits for: memory, compute, latency, links, engine.
    fits
        Whether that many caches fit the KV room.
    """

    users: int
    tpot_s: float
    tpot_low_s: float
    tpot_high_s: float
    tokens_per_s: float
    usd_per_million_tokens: float | None
    bound: str
    fits: bool

    def to_record(self) -> dict[str, object]:
        """One flat row with the unit in each key."""
        cost = self.usd_per_million_tokens
        return {
            "users": self.users, "tpot_ms": round(self.tpot_s * 1e3, 3),
            "tpot_low_ms": round(self.tpot_low_s * 1e3, 3), "tpot_high_ms": round(self.tpot_high_s * 1e3, 3),
            "tokens_per_s": round(self.tokens_per_s, 1),
            "usd_per_million_tokens": None if cost is None else round(cost, 4),
            "bound_by": self.bound, "fits": "yes" if self.fits else "no",
        }  # fmt: skip


def doublings(most: int) -> list[int]:
    """1, 2, 4, ... and ``most`` itself. [request]

    Parameters
    ----------
    most
        The largest number of users. [request]
    """
    found = [1 << k for k in range(most.bit_length()) if 1 << k < most]
    return [*found, most]


def batching_curve(
    steps: StepModel,
    context_tokens: float,
    users: Sequence[int],
    memory: MemoryBudget,
    usd_per_gpu_hour: float | None = None,
) -> list[CurvePoint]:
    """TPOT, tokens per second, cost and bound over numbers of users that decode together.

    Parameters
    ----------
    steps
        Step times; constants with the nominal value first and draws after it give bounds.
    context_tokens
        Tokens in the cache of each user. [token]
    users
        Numbers of users. [request]
    memory
        KV room.
    usd_per_gpu_hour
        None takes the catalogue's median of current on-demand prices. [USD/h]
    """
    gpu = steps.deployment.gpu
    known = price(gpu.id) if usd_per_gpu_hour is None else None
    hourly = usd_per_gpu_hour if usd_per_gpu_hour is not None else (float(known.value) if known else None)
    batch = np.array(users, dtype=float)
    step_s: Values = np.atleast_2d(steps.decode_s(batch, context_tokens))
    room = memory.max_requests(context_tokens)
    points = []
    for i, count in enumerate(users):
        tpot = estimate(step_s[:, i], 0.0)
        rate = count / tpot.value
        usd = None if hourly is None else hourly * steps.deployment.gpus / rate / 3600.0 * 1e6
        points.append(
            CurvePoint(
                users=count, tpot_s=tpot.value, tpot_low_s=tpot.low, tpot_high_s=tpot.high, tokens_per_s=rate,
                usd_per_million_tokens=usd, bound=steps.bound(count, count * context_tokens), fits=count <= room,
            )
        )  # fmt: skip
    return points


def plot(points: Sequence[CurvePoint], width: int = 60) -> str:
    """Bars of tokens per second (filled) and, beside them, TPOT, for a terminal.

    Parameters
    ----------
    points
        Of the curve.
    width
        Of the longest bar. [character]
    """
    most = max(p.tokens_per_s for p in points)
    lines = ["", "users  tokens/s"]
    for p in points:
        bar = "#" * max(round(width * p.tokens_per_s / most), 1)
        lines.append(f"{p.users:>5}  {bar} {p.tokens_per_s:,.0f} at {p.tpot_s * 1e3:.1f} ms")
    return "\n".join(lines) + "\n"
