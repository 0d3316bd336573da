"""What a fleet costs: USD per hour and per million tokens."""

from dataclasses import dataclass

from sizing.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Money.

    Attributes
    ----------
    usd_per_gpu_hour
        Price of one GPU; None when the catalogue has none. [USD/h]
    usd_per_hour
        All GPUs, spares included. [USD/h]
    usd_per_million_output_tokens
        Fleet cost over the tokens it answers at the planned rate. [USD]
    """

    usd_per_gpu_hour: float | None
    usd_per_hour: float | None
    usd_per_million_output_tokens: float | None


def usd_per_million_tokens(usd_per_hour: float, tokens_per_s: float) -> float:
    """Cost of a million tokens: 10^6 x USD/h / (3600 x tokens/s). [USD]"""
    return 1e6 * usd_per_hour / (3600.0 * tokens_per_s)


def price_fleet(total_gpus: int, usd_per_gpu_hour: float | None, workload: Workload) -> Cost:
    """Cost of a fleet at a price per GPU and hour; all blank without a price."""
    if usd_per_gpu_hour is None or total_gpus <= 0:
        return Cost(usd_per_gpu_hour=usd_per_gpu_hour, usd_per_hour=None, usd_per_million_output_tokens=None)
    per_hour = total_gpus * usd_per_gpu_hour
    tokens_per_s = workload.request_rate_per_s * workload.mean_output_tokens
    return Cost(usd_per_gpu_hour=usd_per_gpu_hour, usd_per_hour=per_hour,
                usd_per_million_output_tokens=usd_per_million_tokens(per_hour, tokens_per_s))  # fmt: skip
