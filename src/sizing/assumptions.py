"""Numbers that a plan uses and the caller did not give: name, value, unit, basis, source."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One number that was assumed, with where it comes from.

    Attributes
    ----------
    name, value, unit
        What it is.
    basis
        ``datasheet``, ``measured``, ``fitted`` or ``assumed``.
    source
        Where the value comes from, or why it was chosen.
    """

    name: str
    value: object
    unit: str
    basis: str
    source: str


def _assumed(name: str, value: object, unit: str, source: str) -> Assumption:
    return Assumption(name=name, value=value, unit=unit, basis="assumed", source=source)


DEFAULT_MODEL = "Qwen/Qwen3-8B"
DEFAULT_GPUS = ("h100-sxm", "h200-sxm", "b200-hgx", "mi300x", "l40s")

DEFAULT_CALIBRATION = "measured"

#: Every default of the main job, by the name of its option.
DEFAULTS: dict[str, Assumption] = {
    a.name: a
    for a in (
        _assumed("model", DEFAULT_MODEL, "", "a common dense 8B; give --model"),
        _assumed("gpus", ", ".join(DEFAULT_GPUS), "", "GPUs that most clouds rent; give --gpu"),
        _assumed("rps", 20.0, "request/s", "the example of the documentation; give --rps or --trace"),
        _assumed("input", 2000.0, "token", "mean prompt of a chat with context; give --input or --trace"),
        _assumed("output", 400.0, "token", "mean answer of a chat; give --output or --trace"),
        _assumed("slo_ttft", 1.0, "s", "first token within a second; give --slo-ttft"),
        _assumed("slo_tpot", 0.020, "s", "50 tokens/s to each user; give --slo-tpot"),
        _assumed("percentile", "mean", "", "targets hold on average; give --percentile for a share of requests"),
        _assumed(
            "memory_utilization",
            0.9,
            "1",
            "share of GPU memory the engine may use; give --memory-utilization",
        ),
        _assumed(
            "utilization",
            0.85,
            "1",
            "share of capacity planned for, the rest is headroom; give --utilization",
        ),
        _assumed("spares", 2, "replica", "one for a failure and one for a rollout; give --spares"),
        _assumed("engine", "vllm", "", "the most used open engine; give --engine"),
        _assumed("calibration", "measured", "", "constants fitted on measured kernels and runs; give --calibration"),
    )
}
DEFAULTS["method_additive"] = _assumed("method", "additive", "", "prefill and decode seconds add up; give --method")
DEFAULTS["method_predicted"] = _assumed("method", "predicted", "", "the run is predicted at each rate; give --method")


def default(name: str) -> Assumption:
    """The default of an option, as the assumption it becomes when the caller leaves it out."""
    return DEFAULTS[name]
