"""Laws that every answer must keep: an answer that breaks one is refused with the reason, never printed."""

from dataclasses import dataclass

import numpy as np

from sizing.batching import GRID
from sizing.prepared import Prepared
from sizing.replica.colocated import Load
from sizing.workload import Workload

TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one replica is said to do at a request rate.

    Attributes
    ----------
    prepared
        The replica, with its floors.
    rate_per_s
        Requests that it takes. [request/s]
    load
        TTFT, TPOT, concurrency said.
    """

    prepared: Prepared
    workload: Workload
    rate_per_s: float
    load: Load


def broken_laws(claim: Claim) -> tuple[str, ...]:
    """Each law that a claim breaks, in words; empty for a sound one."""
    checks = (_prefill_floor, _decode_floor, _littles_law, _kv_capacity, _compute_capacity)
    return tuple(text for check in checks if (text := check(claim)))


def _prefill_floor(c: Claim) -> str:
    """TTFT is at least the prefill of one prompt at the data sheet's peaks."""
    said_s, floor_s = float(c.load.ttft_s), c.prepared.prefill_floor_s
    if said_s >= floor_s * (1 - TOLERANCE):
        return ""
    return f"TTFT {said_s * 1e3:.2f} ms is below the roofline floor of one prefill, {floor_s * 1e3:.2f} ms"


def _decode_floor(c: Claim) -> str:
    """TPOT is at least one decode step of the batch at the data sheet's peaks."""
    said_s = float(c.load.tpot_s)
    floor_s = float(np.interp(float(c.load.concurrency), GRID, c.prepared.decode_floor_s))
    if said_s >= floor_s * (1 - 1e-3):
        return ""
    return f"TPOT {said_s * 1e3:.3f} ms is below the roofline floor of one step, {floor_s * 1e3:.3f} ms"


def _littles_law(c: Claim) -> str:
    """Requests decoding are at least rate x (output - 1) x TPOT (Little, Operations Research 9(3), 1961)."""
    needed = c.rate_per_s * (c.workload.mean_output_tokens - 1.0) * float(c.load.tpot_s)
    said = float(c.load.concurrency)
    if said >= needed * (1 - 1e-2) - 1e-2:
        return ""
    return f"{said:.2f} requests in flight are fewer than Little's law asks for, {needed:.2f}"


def _kv_capacity(c: Claim) -> str:
    """Tokens in cache of the requests decoding, each half way through its answer, fit the KV room."""
    isl, osl = c.workload.mean_input_tokens, c.workload.mean_output_tokens
    said, room = float(c.load.concurrency), c.prepared.kv_requests * (isl + osl) / (isl + osl / 2)
    if said <= room * (1 + 1e-2):
        return ""
    return f"{said:.2f} requests in flight are more than the KV room holds, {room:.2f}"


def _compute_capacity(c: Claim) -> str:
    """The operations of all prompts fit into a second at the data sheet's peak."""
    busy = c.rate_per_s * c.prepared.prefill_compute_s
    if busy <= 1 + TOLERANCE:
        return ""
    return f"prefill of {c.rate_per_s:.3g} requests/s needs {busy:.2f} s of each second at peak"
