"""From one replica to a fleet: replicas for the traffic, headroom, spares."""

from sizing.fleet.size import Fleet, Spares, Targets, size_fleet, size_spares

__all__ = ["Fleet", "Spares", "Targets", "size_fleet", "size_spares"]
