"""How many GPUs: for this model, this traffic and these latency targets, at what cost, and how sure.

The public names, in the order of the data path. They load when first asked for.
"""

import importlib
from typing import TYPE_CHECKING, Any

_HOMES: dict[str, tuple[str, ...]] = {
    "sizing.errors": (
        "CalibrationError", "CatalogError", "Infeasible", "InputError", "LawBroken", "SizingError", "UnitError",
        "UnknownFile", "UnknownGpu", "UnknownModel",
    ),
    "sizing.workload": ("Slo", "Workload"),
    "sizing.catalog": ("Gpu", "gpu", "gpus", "price"),
    "sizing.architecture": ("Model", "model_from_config", "read_model"),
    "sizing.deployment": ("Deployment", "EngineSettings", "NumberFormats", "Parallelism"),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    """Load a public name from the module that defines it."""
    if name not in _HOME:
        raise AttributeError(f"module 'sizing' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if TYPE_CHECKING:
    from sizing.architecture import Model, model_from_config, read_model
    from sizing.catalog import Gpu, gpu, gpus, price
    from sizing.deployment import Deployment, EngineSettings, NumberFormats, Parallelism
    from sizing.errors import (
        CalibrationError,
        CatalogError,
        Infeasible,
        InputError,
        LawBroken,
        SizingError,
        UnitError,
        UnknownFile,
        UnknownGpu,
        UnknownModel,
    )
    from sizing.workload import Slo, Workload
