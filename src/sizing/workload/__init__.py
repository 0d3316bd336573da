"""What is asked: request rate, lengths, arrivals, sessions, and the latency targets."""

from sizing.workload.arrivals import Arrivals, Gamma, OnOff, Poisson, Profile, diurnal, ramp, weekly
from sizing.workload.lengths import Empirical, Fixed, Length, Lognormal, Mixture, Pairs, Quantiles
from sizing.workload.requests import Requests, requests
from sizing.workload.sessions import Pauses, Sessions, SharedPrefix
from sizing.workload.slo import Slo
from sizing.workload.traffic import Workload

__all__ = [
    "Arrivals", "Empirical", "Fixed", "Gamma", "Length", "Lognormal", "Mixture", "OnOff", "Pairs", "Pauses",
    "Poisson", "Profile", "Quantiles", "Requests", "Sessions", "SharedPrefix", "Slo", "Workload", "diurnal",
    "ramp", "requests", "weekly",
]  # fmt: skip
