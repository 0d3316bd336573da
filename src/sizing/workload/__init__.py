"""What is asked: request rate, lengths, arrivals, sessions, traces, and the latency targets."""

import importlib
from typing import TYPE_CHECKING, Any

from sizing.workload.slo import Attainment, Slo, evaluate, goodput
from sizing.workload.traffic import Workload

if TYPE_CHECKING:
    from sizing.workload.arrivals import Arrivals, Gamma, OnOff, Poisson, Profile, diurnal, ramp, weekly
    from sizing.workload.files import read_workload, workload_text
    from sizing.workload.fit import fit_lengths
    from sizing.workload.lengths import Fixed, Length, Lognormal
    from sizing.workload.measured import Empirical, Pairs, Quantiles
    from sizing.workload.mixture import Mixture
    from sizing.workload.requests import Requests
    from sizing.workload.sessions import Pauses, Sessions, SharedPrefix
    from sizing.workload.shapes import shape
    from sizing.workload.trace import Trace, read_trace, trace_kinds

_HOMES = {
    "arrivals": ("Arrivals", "Gamma", "OnOff", "Poisson", "Profile", "diurnal", "ramp", "weekly"),
    "files": ("read_workload", "workload_text"),
    "fit": ("fit_lengths",),
    "lengths": ("Fixed", "Length", "Lognormal"),
    "measured": ("Empirical", "Pairs", "Quantiles"),
    "mixture": ("Mixture",),
    "requests": ("Requests",),
    "sessions": ("Pauses", "Sessions", "SharedPrefix"),
    "shapes": ("shape",),
    "trace": ("Trace", "read_trace", "trace_kinds"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Arrivals", "Attainment", "Empirical", "Fixed", "Gamma", "Length", "Lognormal", "Mixture", "OnOff", "Pairs",
    "Pauses", "Poisson", "Profile", "Quantiles", "Requests", "Sessions", "SharedPrefix", "Slo", "Trace", "Workload",
    "diurnal", "evaluate", "fit_lengths", "goodput", "ramp", "read_trace", "read_workload", "shape", "trace_kinds",
    "weekly", "workload_text",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load a name from the module that defines it when it is first asked for."""
    if name not in _HOME:
        raise AttributeError(f"module 'sizing.workload' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"sizing.workload.{_HOME[name]}"), name)
    globals()[name] = value
    return value
