"""What is asked: request rate, lengths, arrivals, and the latency targets."""

from sizing.workload.slo import Slo
from sizing.workload.traffic import Workload

__all__ = ["Slo", "Workload"]
