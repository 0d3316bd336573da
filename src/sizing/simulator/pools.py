"""Prefill and decode on pools of their own, with the KV cache sent from one to the other.

The prefill pool does not depend on what happens after it, so the two are simulated one after the other: a
request arrives at the decode pool when its prefill has ended and its cache is there, and has its first token when
a decode replica takes it in: that is who answers the client. If a decode replica preempts it or fails, the prompt is
prefilled again where it is, as engines do.
"""

from dataclasses import dataclass, replace

import numpy as np

from sizing.errors import InputError
from sizing.simulator import layout as at
from sizing.simulator.packing import pack, to_ps, unpack
from sizing.simulator.records import DONE, REFUSED, UNFINISHED, Records
from sizing.simulator.replicamodel import ReplicaModel
from sizing.simulator.spec import FleetPlan
from sizing.steptable import delivery_share
from sizing.workload.requests import Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillPool:
    """Replicas that only prefill, and the way from them to the others.

    Attributes
    ----------
    model
        A prefill replica.
    fleet
        How many, and how requests are spread over them.
    transfer_s
        Time to send a cache apart from its size. [s]
    transfer_token_s
        Time per prompt token: KV bytes per token / link bandwidth. [s]
    """

    model: ReplicaModel
    fleet: FleetPlan
    transfer_s: float = 0.0
    transfer_token_s: float = 0.0


def replay_pools(
    requests: Requests, prefill: PrefillPool, decode: ReplicaModel, fleet: FleetPlan, *, seed: int = 0,
    horizon_s: float | None = None,
) -> tuple[Records, Records]:  # fmt: skip
    """Simulate both pools; records of whole requests, and those of the prefill pool.

    Parameters
    ----------
    requests
        What arrives; none may wait for another's completion.
    prefill
        Pool that prefills, with the transfer.
    decode, fleet
        A decode replica, and their fleet.
    seed, horizon_s
        As for :func:`replay`.
    """
    from sizing.simulator import fleetloop
    from sizing.simulator.playback import replay

    if requests.after is not None and np.any(requests.after >= 0):
        raise InputError("requests: a closed loop cannot be simulated on separate pools; give a request rate")
    only = replace(requests, output_tokens=np.ones_like(requests.output_tokens))
    first = replay(only, prefill.model.steps, prefill.model.scheduler, prefill.fleet, seed=seed, horizon_s=horizon_s)
    more = (first.status == DONE) & (requests.output_tokens > 1)
    records = first
    if np.any(more):
        sent_ps = to_ps(prefill.transfer_s + prefill.transfer_token_s * requests.input_tokens)
        kept = np.flatnonzero(more)
        ready_ps = first.finish_ps[kept] + sent_ps[kept]
        later = Requests(
            arrival_s=np.asarray(ready_ps * 1e-12, dtype=np.float64), input_tokens=requests.input_tokens[kept],
            output_tokens=requests.output_tokens[kept],
            priority=None if requests.priority is None else requests.priority[kept],
        )  # fmt: skip
        p = pack(later, decode.steps, decode.scheduler, fleet, seed=seed, horizon_s=horizon_s, ready=True)
        p.q[:, at.GENERATED] = 1
        p.t[:, at.FIRST] = first.first_token_ps[kept][p.order]
        fleetloop.initialise(p.s, p.w)
        if fleet.events or fleet.down_at_start:
            from sizing.simulator import eventloop

            eventloop.run_events(p.s, p.w, p.q, p.t, p.f, p.e, p.parameters["arrivals"])
        else:
            fleetloop.run(p.s, p.w, p.q, p.t, p.f, p.parameters["arrivals"])
        records = _joined(requests, first, unpack(p, later, decode.steps), kept, decode.steps.first_token_steps)
    return records, first


def _delivery_ps(second: Records, first_token_steps: float) -> at.Ints:
    """Delivery of first tokens, by the steps that the decode pool made for each request. [ps]"""
    decoding_ps = np.where(second.done, second.finish_ps - second.scheduled_ps, 0)
    replicas = max(int(second.replica.max(initial=0)) + 1, 1)
    running = decoding_ps.sum() / max(int(second.finish_ps.max(initial=0)), 1) / replicas
    steps = first_token_steps * delivery_share(running)
    return np.rint(steps * decoding_ps / (second.output_tokens - 1)).astype(np.int64)


def _joined(requests: Requests, first: Records, second: Records, kept: at.Ints, first_token_steps: float) -> Records:
    """Whole requests: scheduled by the prefill pool, the rest of the decode pool."""
    finish, replica, preempted = first.finish_ps.copy(), first.replica.copy(), first.preempted.copy()
    begun = first.first_token_ps.copy()
    begun[kept] = second.scheduled_ps
    status = first.status.copy()
    finish[kept], replica[kept], status[kept] = second.finish_ps, second.replica, second.status
    preempted[kept] += second.preempted
    delivery = first.delivery_ps.copy()
    delivery[kept] = _delivery_ps(second, first_token_steps)
    refused = np.zeros(len(requests), dtype=np.bool_)
    refused[kept] = second.status == REFUSED
    finish[(status == UNFINISHED) | refused] = -1
    return replace(
        second, arrival_ps=first.arrival_ps, scheduled_ps=first.scheduled_ps, first_token_ps=begun,
        finish_ps=finish, input_tokens=requests.input_tokens, output_tokens=requests.output_tokens, replica=replica,
        preempted=preempted, hit_tokens=first.hit_tokens, status=status, client_s=first.client_s,
        delivery_ps=delivery,
        end_s=max(first.end_s, second.end_s),
    )  # fmt: skip
