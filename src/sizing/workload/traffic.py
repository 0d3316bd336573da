"""The traffic a service carries."""

from dataclasses import dataclass

from sizing.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests a second and their mean lengths.

    Attributes
    ----------
    request_rate_per_s
        Mean arrival rate over the interval that is planned for. [request/s]
    input_tokens
        Mean prompt length (ISL). [token]
    output_tokens
        Mean answer length (OSL). [token]
    """

    request_rate_per_s: float
    input_tokens: float
    output_tokens: float

    def __post_init__(self) -> None:
        for name, least in (("request_rate_per_s", 0.0), ("input_tokens", 0.0), ("output_tokens", 0.0)):
            value = getattr(self, name)
            if not least < value < float("inf"):
                raise InputError(f"{name}: {value!r} is not allowed; give a positive number")

    @property
    def mean_input_tokens(self) -> float:
        """Mean prompt length. [token]"""
        return self.input_tokens

    @property
    def mean_output_tokens(self) -> float:
        """Mean answer length. [token]"""
        return self.output_tokens
