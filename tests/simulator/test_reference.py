"""The kernels against the plain-Python simulator: the same answer for every request."""

import numpy as np
import pytest
from tests.simulator.cases import case

from sizing.simulator.packing import to_ps
from sizing.simulator.playback import replay
from sizing.simulator.reference import Fleet


def differences(seed: int) -> tuple[list[str], int, int, int]:
    """What differs, and how many preemptions, hits and failures the case had."""
    arguments = case(seed)
    fleet = Fleet(
        arguments["requests"], arguments["steps"], arguments["scheduler"], arguments["fleet"], arguments["seed"]
    )
    horizon = arguments["horizon_s"]
    expected = fleet.run(None if horizon is None else int(to_ps(horizon)))
    records = replay(**arguments)
    wrong = []
    for name, values in {
        "scheduled_ps": records.scheduled_ps, "first_ps": records.first_token_ps, "finish_ps": records.finish_ps,
        "delivery_ps": records.delivery_ps,
        "replica": records.replica, "preempted": records.preempted, "hit": records.hit_tokens,
    }.items():  # fmt: skip
        reference = np.array([getattr(sequence, name) for sequence in expected])
        if not np.array_equal(reference, values):
            at = int(np.flatnonzero(reference != values)[0])
            wrong.append(f"{name}[{at}]: {values[at]} instead of {reference[at]}")
    for name in ("steps", "preemptions"):
        totals = [getattr(replica, name) for replica in fleet.replicas]
        if totals != getattr(records, name).tolist():
            wrong.append(f"{name}: {getattr(records, name)} instead of {totals}")
    hits = int((records.hit_tokens > 0).sum())
    return wrong, int(records.preempted.sum()), hits, len(arguments["fleet"].events)


def assert_equal_to_the_reference(seeds: range) -> None:
    found = {seed: differences(seed) for seed in seeds}
    assert {seed: result[0] for seed, result in found.items() if result[0]} == {}
    preemptions, hits, events = (sum(result[k] for result in found.values()) for k in (1, 2, 3))
    assert preemptions > 2 * len(seeds)
    assert hits > 2 * len(seeds)
    assert events > 0.2 * len(seeds)


def test_equal_to_the_reference_request_by_request() -> None:
    assert_equal_to_the_reference(range(60))


@pytest.mark.slow
def test_equal_to_the_reference_on_a_thousand_cases() -> None:
    assert_equal_to_the_reference(range(1000, 2000))
