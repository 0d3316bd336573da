"""Simulation of replicas and fleets, iteration by iteration: same workload, same step model."""

import importlib
from typing import Any

_HOMES = {
    "estimates": ("Estimate",),
    "pools": ("PrefillPool", "replay_pools"),
    "rates": ("SustainableRate", "Verification", "sustainable_rate", "sweep_rates", "verify"),
    "records": ("Records",),
    "playback": ("replay",),
    "replicamodel": ("ReplicaModel", "replica_model"),
    "simulation": ("SimulationResult", "simulate"),
    "spec": ("FleetEvent", "FleetPlan", "Scheduler", "closed_loop"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """Load a name from the module that defines it when it is first asked for."""
    if name not in _HOME:
        raise AttributeError(f"module 'sizing.simulator' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"sizing.simulator.{_HOME[name]}"), name)
    globals()[name] = value
    return value
