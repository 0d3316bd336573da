"""Latency targets."""

from dataclasses import dataclass

from sizing.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Latency targets of a service.

    Attributes
    ----------
    ttft_s
        Time to first token, at most. [s]
    tpot_s
        Mean gap between the tokens after the first, at most. [s]
    percentile
        Share of requests that must meet each target, in percent; None means the mean. [%]
    """

    ttft_s: float = 1.0
    tpot_s: float = 0.020
    percentile: float | None = None

    def __post_init__(self) -> None:
        for name in ("ttft_s", "tpot_s"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise InputError(f"{name}: {value!r} is not allowed; give a positive number of seconds")
        if self.percentile is not None and not 0 < self.percentile < 100:
            raise InputError(
                f"percentile: {self.percentile!r} is not allowed; give a number between 0 and 100"
            )
