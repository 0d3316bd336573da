"""How many GPUs: for this model, this traffic and these latency targets, at what cost, and how sure.

The public names, in the order of the data path. They load when first asked for.
"""

import importlib
from typing import Any

_HOMES: dict[str, tuple[str, ...]] = {
    "sizing.errors": (
        "CalibrationError", "CatalogError", "Infeasible", "InputError", "LawBroken", "SizingError", "UnitError",
        "UnknownFile", "UnknownGpu", "UnknownModel",
    ),
    "sizing.formats": ("kv_format", "weight_format"),
    "sizing.catalog": ("Gpu", "gpu", "gpus", "overlay", "price"),
    "sizing.architecture": ("Model", "model_from_config", "read_model"),
    "sizing.catalog.models": ("models",),
    "sizing.assumptions": ("Assumption",),
    "sizing.workload": (
        "Gamma", "Lognormal", "Requests", "Sessions", "SharedPrefix", "Slo", "Trace", "Workload", "diurnal",
        "read_trace", "read_workload", "shape",
    ),
    "sizing.deployment": ("Deployment", "EngineSettings", "NumberFormats", "Parallelism"),
    "sizing.calibration": ("Calibration", "rule_of_thumb"),
    "sizing.queueing": (
        "allen_cunneen_wait_s", "batch_service_s", "erlang_b", "erlang_c", "hayward_wait_s", "in_flight_quantile",
        "in_flight_quantile_peaky", "kingman_wait_s", "mmc_wait_quantile_s", "mmc_wait_s", "peakedness",
        "pollaczek_khinchine_wait_s", "processor_sharing_s",
    ),
    "sizing.memory": ("MemoryBudget", "memory_budget"),
    "sizing.steptime": ("StepModel", "step_model"),
    "sizing.batching": ("Batch", "largest_batch"),
    "sizing.replica.colocated": ("Load", "ReplicaCapacity", "load_at_rate", "replica_capacity"),
    "sizing.replica.loads": ("ClosedLoop", "Estimate", "Lengths", "Offline", "OpenLoop", "Room", "Run"),
    "sizing.replica.run": ("predict_run",),
    "sizing.simulator.rates": ("SustainableRate", "Verification", "sustainable_rate", "sweep_rates"),
    "sizing.simulator.replicamodel": ("ReplicaModel", "replica_model"),
    "sizing.simulator.simulation": ("SimulationResult", "simulate"),
    "sizing.simulator.spec": ("FleetEvent", "FleetPlan", "Scheduler"),
    "sizing.replica.transfer": ("exposed_transfer_s", "transfer_s"),
    "sizing.fleet": (
        "Fleet", "Rollout", "Spares", "Targets", "additive_replicas", "at_least_up", "availability",
        "interruption_interval_s", "rollout", "size_fleet", "size_spares", "spares_for",
    ),
    "sizing.cost": ("Cost", "price_fleet", "usd_per_million_tokens"),
    "sizing.answer": ("Evaluation", "Interval", "Plan", "Rejected"),
    "sizing.laws": ("broken_laws",),
    "sizing.planner": ("evaluate", "plan"),
    "sizing.reports": ("report",),
    "sizing.benchmarks": ("BenchPoint", "read_benchmark"),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}
#: Names that differ from the name in their module, since a module of the same name is in the way.
_RENAMED = {"load_calibration": ("sizing.calibration", "calibration")}

__version__ = "0.1.0"
__all__ = ["__version__", *_HOME, *_RENAMED]


def __getattr__(name: str) -> Any:
    """Load a public name from the module that defines it."""
    if name not in _HOME and name not in _RENAMED:
        raise AttributeError(f"module 'sizing' has no attribute {name!r}")
    home, inner = _RENAMED.get(name) or (_HOME[name], name)
    value = getattr(importlib.import_module(home), inner)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
