"""One measured point of a load test, whatever tool wrote it: SI seconds, definitions stated."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from sizing.errors import InputError

LoadKind = Literal["closed", "open", "offline", "static", "prefill"]
TpotDefinition = Literal["after_first_token", "includes_ttft", "per_gap", "halved", "server_reported", "absent"]

# What each definition says, for messages and for the reference page.
TPOT_DEFINITIONS: Mapping[str, str] = MappingProxyType(
    {
        "after_first_token": "(end-to-end - TTFT) / (output tokens - 1), a request at a time",
        "includes_ttft": "end-to-end / output tokens: the first token's wait is in it",
        "per_gap": "gap between two streamed chunks; a chunk may carry several tokens",
        "halved": "decode time over about twice the output tokens (inference-perf builds of 2025)",
        "server_reported": "step time as a profiler of the server reports it",
        "absent": "the file has none",
    }
)
TRUSTED_DEFINITIONS = ("after_first_token", "server_reported")


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Statistics of one latency as the file gives them.

    Parameters
    ----------
    mean_s
        Mean [s]; None when the file has none.
    std_s
        Standard deviation [s].
    percentiles_s
        Percentile (50.0, 99.0, ...) to value [s].
    """

    mean_s: float | None = None
    std_s: float | None = None
    percentiles_s: Mapping[float, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "percentiles_s", MappingProxyType(dict(sorted(self.percentiles_s.items()))))

    def __reduce__(self) -> tuple[object, ...]:
        return _latency, (self.mean_s, self.std_s, dict(self.percentiles_s))

    @property
    def p50_s(self) -> float | None:
        """Median [s]."""
        return self.percentiles_s.get(50.0)

    @property
    def p99_s(self) -> float | None:
        """99th percentile [s]."""
        return self.percentiles_s.get(99.0)

    @property
    def centre(self) -> tuple[float | None, str]:
        """The value to compare a mean prediction with, and its name: the mean, else the median [s]."""
        if self.mean_s is not None:
            return self.mean_s, "mean"
        return (self.p50_s, "median") if self.p50_s is not None else (None, "absent")

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics present: mean, std, p50, p99, ..."""
        names = [n for n, v in (("mean", self.mean_s), ("std", self.std_s)) if v is not None]
        return (*names, *(f"p{p:g}" for p in self.percentiles_s))


def _latency(mean_s: float | None, std_s: float | None, percentiles_s: dict[float, float]) -> Latency:
    return Latency(mean_s=mean_s, std_s=std_s, percentiles_s=percentiles_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How the load was offered.

    Parameters
    ----------
    kind
        ``closed`` (a fixed number of requests in flight), ``open`` (a request rate), ``offline`` (all at
        once), ``static`` (a profiler's fixed batch), ``prefill`` (one prompt at a time, no decode).
    concurrency
        Requests in flight asked for; in an open loop the cap, when there was one.
    request_rate_per_s
        Requests per second asked for [1/s]; None when unlimited.
    achieved_rate_per_s
        Requests per second that the client really sent [1/s].
    burstiness
        Shape of the gamma gaps: 1 is Poisson, less is burstier.
    """

    kind: LoadKind
    concurrency: float | None = None
    request_rate_per_s: float | None = None
    achieved_rate_per_s: float | None = None
    burstiness: float | None = None

    @property
    def label(self) -> str:
        """Short text: ``concurrency 16``, ``20 requests/s``, ``all at once``."""
        if self.kind == "open":
            return f"{self.request_rate_per_s:g} requests/s"
        if self.kind == "offline":
            return "all at once"
        if self.kind == "prefill":
            return "one prompt"
        return f"concurrency {self.concurrency:g}" if self.concurrency is not None else self.kind


def load_of(
    concurrency: float | None,
    request_rate_per_s: float | None,
    *,
    achieved_rate_per_s: float | None = None,
    burstiness: float | None = None,
) -> Load:
    """Load from what a client was told: a finite rate is open, a cap alone closed, neither offline."""
    kind: LoadKind = "offline"
    if request_rate_per_s is not None:
        kind = "open"
    elif concurrency is not None:
        kind = "closed"
    return Load(
        kind=kind,
        concurrency=concurrency,
        request_rate_per_s=request_rate_per_s,
        achieved_rate_per_s=achieved_rate_per_s,
        burstiness=burstiness,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPoint:
    """One measured point: load, lengths, latencies in seconds, rates, what is known of the deployment.

    Parameters
    ----------
    format, format_version, source, sha256, index
        Which reader, which version of the format, file name, SHA-256 of the raw file, place in it.
    load
        How the load was offered.
    ttft, tpot, itl, e2e
        Latencies as the file gives them [s]; read ``tpot_s`` rather than ``tpot``.
    tpot_definition
        What the file's ``tpot`` means (``TPOT_DEFINITIONS``).
    tpot_from_means_s
        (mean end-to-end - mean TTFT) / (mean output tokens - 1), where the means are there [s].
    input_tokens, output_tokens
        Mean lengths of the requests that were served [tokens].
    length_range
        Lowest length over highest, when lengths were drawn uniformly: 1 is fixed.
    schedule_delay_p99_s
        How late the client sent its requests, 99th percentile [s].
    request_throughput_per_s, output_tokens_per_s, input_tokens_per_s
        Completed per second, over the whole deployment [1/s].
    completed, failed, duration_s
        Counts of requests, length of the run [s].
    model, engine, engine_version, gpu, gpus, tp, pp, ep, dp, weights, kv, replicas, disaggregated
        The deployment, as far as the file says; ``gpus`` counts all of them.
    context_tokens, kv_tokens
        Static points: tokens in cache per sequence, KV capacity of the engine [tokens].
    warnings, refusals
        What to know, and why the point must not be fitted or scored.
    """

    format: str
    source: str
    sha256: str
    load: Load
    format_version: str | None = None
    index: int = 0
    ttft: Latency | None = None
    tpot: Latency | None = None
    itl: Latency | None = None
    e2e: Latency | None = None
    tpot_definition: TpotDefinition = "absent"
    tpot_from_means_s: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    length_range: float | None = None
    schedule_delay_p99_s: float | None = None
    request_throughput_per_s: float | None = None
    output_tokens_per_s: float | None = None
    input_tokens_per_s: float | None = None
    completed: int | None = None
    failed: int | None = None
    duration_s: float | None = None
    model: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    gpu: str | None = None
    gpus: int | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dp: int | None = None
    weights: str | None = None
    kv: str | None = None
    replicas: int | None = None
    disaggregated: bool = False
    context_tokens: float | None = None
    kv_tokens: float | None = None
    warnings: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether the point may be scored and fitted."""
        return not self.refusals

    @property
    def tpot_s(self) -> float | None:
        """TPOT in this project's sense [s]: the file's where it means that, else from the means."""
        if self.tpot is not None and self.tpot_definition in TRUSTED_DEFINITIONS:
            return self.tpot.centre[0]
        return self.tpot_from_means_s

    @property
    def ttft_s(self) -> float | None:
        """Mean TTFT, else its median [s]."""
        return self.ttft.centre[0] if self.ttft is not None else None

    @property
    def e2e_s(self) -> float | None:
        """Mean end-to-end latency, else its median [s]."""
        return self.e2e.centre[0] if self.e2e is not None else None

    def warned(self, *messages: str) -> "BenchPoint":
        """The same point with further warnings."""
        return dataclasses.replace(self, warnings=(*self.warnings, *messages)) if messages else self

    def refused(self, *messages: str) -> "BenchPoint":
        """The same point with further reasons not to use it."""
        return dataclasses.replace(self, refusals=(*self.refusals, *messages)) if messages else self


FACTS = (
    "model", "engine", "engine_version", "gpu", "gpus", "tp", "pp", "ep", "dp", "weights", "kv", "replicas",
    "input_tokens", "output_tokens", "length_range", "concurrency",
)  # fmt: skip


def with_facts(point: BenchPoint, **facts: object) -> BenchPoint:
    """Fill in what the file does not say; a fact that contradicts the file is taken and warned of.

    Parameters
    ----------
    point
        A point as read.
    facts
        Fields of ``BenchPoint`` (``model``, ``gpu``, ``tp``, ``input_tokens``, ...); None is ignored.
    """
    unknown = set(facts) - set(FACTS)
    if unknown:
        raise InputError(f"benchmark point: no field {sorted(unknown)[0]!r}; allowed: {', '.join(FACTS)}")
    given = {name: value for name, value in facts.items() if value is not None}
    held = {name: point.load.concurrency if name == "concurrency" else getattr(point, name) for name in given}
    clashes = tuple(
        f"{name}: the file says {held[name]}, you say {value}; yours is used"
        for name, value in given.items()
        if held[name] is not None and _differs(held[name], value)
    )
    if "concurrency" in given:
        given["load"] = dataclasses.replace(point.load, concurrency=given.pop("concurrency"))  # type: ignore[arg-type]
    changed: BenchPoint = dataclasses.replace(point, **given)  # type: ignore[arg-type]
    return changed.warned(*clashes)


def _differs(held: object, given: object) -> bool:
    if isinstance(held, str) and isinstance(given, str):
        low, other = held.lower(), given.lower()
        return low not in other and other not in low
    return held != given
