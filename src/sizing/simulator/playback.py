"""Replay requests on a fleet and record what came of each."""

from collections.abc import Callable

import numpy as np

from sizing.simulator.packing import pack, unpack
from sizing.simulator.records import Records
from sizing.simulator.spec import FleetPlan, Scheduler
from sizing.steptable import StepTable
from sizing.workload.requests import Requests

PIECES = 64
"""Parts that progress is told in. [1]"""


def replay(
    requests: Requests, steps: StepTable, scheduler: Scheduler, fleet: FleetPlan | None = None, *,
    seed: int = 0, horizon_s: float | None = None, progress: Callable[[float], None] | None = None,
) -> Records:  # fmt: skip
    """Simulate, iteration by iteration, and record every request.

    Parameters
    ----------
    requests
        What arrives.
    steps
        Time of each step, by its composition.
    scheduler
        How the engine composes steps.
    fleet
        Replicas, router, events. None: one replica.
    seed
        Of the router's draws.
    horizon_s
        Stop here; who is not done is unfinished. None: until everybody is done. [s]
    progress
        Called with the share of requests that have arrived.
    """
    from sizing.simulator import fleetloop

    fleet = fleet or FleetPlan()
    if scheduler.batching == "static":
        from sizing.simulator.staticbatch import replay_static

        return replay_static(requests, steps, scheduler, fleet, seed=seed, horizon_s=horizon_s)
    p = pack(requests, steps, scheduler, fleet, seed=seed, horizon_s=horizon_s)
    arrivals = p.parameters["arrivals"]
    fleetloop.initialise(p.s, p.w)
    eventful = p.parameters["chained"] or p.parameters["events"] or fleet.down_at_start
    if eventful:
        from sizing.simulator import eventloop
    pieces = PIECES if progress is not None else 1
    for until in np.linspace(0, arrivals, pieces + 1).astype(np.int64)[1:]:
        if eventful:
            eventloop.run_events(p.s, p.w, p.q, p.t, p.f, p.e, int(until))
        else:
            fleetloop.run(p.s, p.w, p.q, p.t, p.f, int(until))
        if progress is not None:
            progress(float(until) / max(arrivals, 1))
    return unpack(p, requests, steps)
