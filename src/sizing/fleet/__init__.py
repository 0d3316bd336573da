"""From one replica to a fleet: replicas for the traffic, headroom, spares, failures, rollouts."""

from sizing.fleet.availability import at_least_up, availability, interruption_interval_s, spares_for
from sizing.fleet.rollout import Rollout, rollout
from sizing.fleet.size import Fleet, Spares, Targets, additive_replicas, size_fleet, size_spares

__all__ = [
    "Fleet", "Rollout", "Spares", "Targets", "additive_replicas", "at_least_up", "availability",
    "interruption_interval_s", "rollout", "size_fleet", "size_spares", "spares_for",
]  # fmt: skip
