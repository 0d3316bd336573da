"""Laws that every answer must keep: an answer that breaks one is refused with the reason, never printed."""

from dataclasses import dataclass

from sizing.batching import Batch
from sizing.deployment import Deployment
from sizing.replica.colocated import Load
from sizing.steptime import StepModel
from sizing.workload import Workload

TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one replica is said to do at its planned rate.

    Attributes
    ----------
    rate_per_s
        Requests that it takes. [request/s]
    load
        TTFT, TPOT, concurrency said.
    """

    deployment: Deployment
    steps: StepModel
    batch: Batch
    workload: Workload
    rate_per_s: float
    load: Load


def broken_laws(answer: Answer) -> tuple[str, ...]:
    """Each law that an answer breaks, in words; empty for a sound one."""
    checks = (_prefill_floor, _decode_floor, _littles_law, _kv_capacity, _compute_capacity)
    return tuple(text for check in checks if (text := check(answer)))


def _prefill_floor(a: Answer) -> str:
    """TTFT is at least the prefill of one prompt at the data sheet's peaks."""
    tokens = a.workload.mean_input_tokens
    floor_s = float(a.steps.floor_s(0.0, 0.0, tokens, tokens * (tokens + 1) / 2))
    said_s = float(a.load.ttft_s)
    if said_s >= floor_s * (1 - TOLERANCE):
        return ""
    return f"TTFT {said_s * 1e3:.2f} ms is below the roofline floor of one prefill, {floor_s * 1e3:.2f} ms"


def _decode_floor(a: Answer) -> str:
    """TPOT is at least one decode step of the batch at the data sheet's peaks."""
    batch = max(float(a.load.concurrency), 1.0)
    floor_s = float(a.steps.floor_s(batch, batch * a.batch.mean_context_tokens))
    said_s = float(a.load.tpot_s)
    if said_s >= floor_s * (1 - TOLERANCE):
        return ""
    return f"TPOT {said_s * 1e3:.3f} ms is below the roofline floor of one step, {floor_s * 1e3:.3f} ms"


def _littles_law(a: Answer) -> str:
    """Requests decoding are at least rate x output x TPOT (Little, Operations Research 9(3), 1961)."""
    needed = a.rate_per_s * a.workload.mean_output_tokens * float(a.load.tpot_s)
    said = float(a.load.concurrency)
    if said >= needed * (1 - 1e-2) - 1e-2:
        return ""
    return f"{said:.2f} requests in flight are fewer than Little's law asks for, {needed:.2f}"


def _kv_capacity(a: Answer) -> str:
    """Requests in flight fit the KV cache."""
    said, room = float(a.load.concurrency), a.batch.kv_requests
    if said <= room * (1 + TOLERANCE):
        return ""
    return f"{said:.2f} requests in flight are more than the KV room holds, {room:.2f}"


def _compute_capacity(a: Answer) -> str:
    """The operations of the traffic fit into a second at the data sheet's peak."""
    tokens = a.workload.mean_input_tokens
    floor_s = a.rate_per_s * float(a.steps.floor_s(0.0, 0.0, tokens, tokens * (tokens + 1) / 2))
    if floor_s <= 1 + TOLERANCE:
        return ""
    return f"prefill of {a.rate_per_s:.3g} requests/s needs {floor_s:.2f} s of each second at peak"
