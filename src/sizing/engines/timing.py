"""What an engine spends besides kernels, and how it forms its steps: at most ten fitted numbers an engine."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import Any

CONSTANTS = (
    "step_s", "sequence_s", "prefill_step_s", "prefill_token_s", "first_token_s",
    "memory_scale", "compute_scale", "link_scale", "fixed_scale", "moe_scale",
    "scale", "launch_s", "cache_copies", "first_token_steps", "host_step_s", "host_sequence_s",
)  # fmt: skip
"""Names that a table of ``data/engines.toml`` may give: value and spread (log-sigma)."""


ACCEPTANCE = 0.6
"""Chance that a draft is accepted, given that the one before was (assumed: over 97 measured runs with drafts the one
without bias lies between 0.5 and 0.6; text that a draft model knows is nearer 0.8). [1]"""


WIDER: Mapping[str, Mapping[str, float]] = {
    "experts": {"tpot": 1.3, "ttft": 1.3, "rate": 2.0},
    "drafts": {"tpot": 3.0, "ttft": 2.0, "rate": 2.0},
    "pools": {"tpot": 1.3, "ttft": 1.2},
    "open loop": {"tpot": 6.0, "ttft": 2.5},
    "short of room": {"tpot": 1.6, "rate": 1.6},
}
"""How many times wider the residual is for what is less certain: experts, acceptance of drafts, separate pools, a rate
or a burst of a data set whose lengths are known by their mean, requests that wait for KV room. From the medians and the
80th percentiles of the errors of 2,400 measured runs with and without each, engine by engine. [1]"""
WIDEST: Mapping[str, float] = {"tpot": 1.0, "ttft": 2.0, "rate": 1.0}
"""Residual that an engine's traits do not exceed: 80 % of runs lie within a factor of 3.6, and 13 in TTFT. What a
description leaves open, and queues for room, come on top. [1]"""
OPEN_QUESTION = 0.1
"""What each thing that a description leaves open adds to the residual's width. [1]"""


def times_wider(metric: str, traits: Iterable[str]) -> float:
    """How many times wider a residual is made by what a deployment or a load has. [1]

    Parameters
    ----------
    metric
        ``tpot``, ``ttft`` or ``rate``.
    traits
        Of :data:`WIDER`.
    """
    return prod(WIDER[trait].get(metric, 1.0) for trait in traits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """How an engine forms its steps.

    Attributes
    ----------
    token_budget
        Tokens of one step, at most. [token]
    mixed
        Whether prompts share a step with sequences that decode; otherwise prefill steps come between.
    chunked
        Whether a prompt longer than the budget is split.
    reserves_output
        Whether a request is admitted only when its longest answer fits the KV room.
    lockstep
        Whether equal requests stay in step with each other, wave after wave, or drift apart.
    drafts, accepted
        Tokens drafted a step by speculative decoding, and tokens that a step yields. [token]
    idle_slots
        Of an engine started for as many sequences as a closed loop has users, those that stay empty: a new
        request waits until the next one ends. [sequence]
    """

    token_budget: float = 8192.0
    mixed: bool = True
    chunked: bool = True
    reserves_output: bool = False
    lockstep: bool = False
    drafts: float = 0.0
    accepted: float = 1.0
    idle_slots: float = 0.0

    @property
    def step_tokens(self) -> float:
        """Prompt tokens that a step takes, at most: the budget, and no fewer than one block of 16. [token]"""
        return max(self.token_budget, 16.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTiming:
    """One engine's own time.

    Attributes
    ----------
    name
        Of the table.
    memory, kernels
        Engines whose memory rules and whose kernel constants stand for it.
    values, spreads
        Constants and their log-sigma. [unit in the name], [1]
    residual, residual_by_gpu
        Log-sigma of measured over predicted: ``tpot``, ``ttft``, ``rate``; on GPUs with enough rows their own. [1]
    overlaps
        Whether the host prepares the next step while the GPU computes, so that its work shows only where it is
        as long as the kernels'.
    windows
        Whether attention looks back no further than a model's window; built engines of TensorRT-LLM do only with
        ``max_attention_window_size``.
    splits_context
        Whether a long context is read by several blocks at once where sequences are few; the decode kernels of
        TensorRT-LLM did not in 2024, unless ``multi_block_mode`` was set.
    library_all_reduce
        Whether tensors are summed by NCCL and not by a kernel of the engine's own, which takes a third of the time
        for a decode step's small messages.
    idle_slots, token_budget
        See :class:`Scheduling`; a budget that differs from the engine's default. [sequence], [token]
    of, since, until
        Of a record that stands for older releases of another engine: from one version, and below another.
    """

    name: str
    memory: str = "vllm"
    kernels: str = "vllm"
    values: Mapping[str, float] = field(default_factory=dict)
    spreads: Mapping[str, float] = field(default_factory=dict)
    residual: Mapping[str, float] = field(default_factory=dict)
    residual_by_gpu: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    mixed: bool = True
    chunked: bool = True
    reserves_output: bool = False
    lockstep: bool = False
    overlaps: bool = False
    windows: bool = True
    splits_context: bool = True
    library_all_reduce: bool = False
    idle_slots: float = 0.0
    token_budget: float | None = None
    of: str = ""
    since: tuple[int, ...] = ()
    until: tuple[int, ...] = ()
    basis: str = "assumed"
    source: str = ""
    known: bool = True

    def residual_on(self, gpu_id: str, traits: Iterable[str] = ()) -> dict[str, float]:
        """Log-sigma of measured over predicted on a GPU. [1]

        Parameters
        ----------
        gpu_id
            In the catalogue.
        traits
            Of :data:`WIDER`, that the deployment or the load has.
        """
        found, held = {**self.residual, **self.residual_by_gpu.get(gpu_id, {})}, tuple(traits)
        wide = {metric: sigma * times_wider(metric, held) for metric, sigma in found.items()}
        return {metric: min(sigma, WIDEST.get(metric, sigma)) for metric, sigma in wide.items()}

    def scheduling(
        self, token_budget: float, drafts: float = 0.0, acceptance: float = ACCEPTANCE, schedulers: int = 1
    ) -> Scheduling:
        """Its way of forming steps, with a token budget.

        Parameters
        ----------
        token_budget
            Of one scheduler's step. [token]
        drafts
            Tokens drafted a step. [token]
        acceptance
            Chance that a draft is accepted, given that the one before was (Leviathan et al. 2023, eq. 1). [1]
        schedulers
            Data-parallel ranks of a replica that each fill a step of their own. [1]
        """
        accepted = (1.0 - acceptance ** (drafts + 1.0)) / (1.0 - acceptance)
        return Scheduling(
            token_budget=(self.token_budget or token_budget) * schedulers,
            mixed=self.mixed, chunked=self.chunked, drafts=drafts, accepted=accepted,
            reserves_output=self.reserves_output,
            lockstep=self.lockstep,
            idle_slots=self.idle_slots,
        )  # fmt: skip


@lru_cache(maxsize=1)
def engine_timings() -> dict[str, EngineTiming]:
    """Every record of ``data/engines.toml`` by name."""
    import tomllib

    from sizing.catalog.files import data_file

    raw: dict[str, Any] = tomllib.loads(data_file("engines.toml").read_text(encoding="utf-8"))
    return {name: _made(name, table) for name, table in raw.items()}


@lru_cache(maxsize=1)
def _aliases() -> dict[str, str]:
    import tomllib

    from sizing.catalog.files import data_file

    raw: dict[str, Any] = tomllib.loads(data_file("engines.toml").read_text(encoding="utf-8"))
    return {alias: name for name, table in raw.items() for alias in (name, *table["aliases"])}


def _made(name: str, table: dict[str, Any]) -> EngineTiming:
    pairs = {key: table[key] for key in CONSTANTS if key in table}
    return EngineTiming(
        name=name, memory=table["memory"], kernels=table["kernels"], residual=table["residual"],
        residual_by_gpu=table.get("residual_by_gpu", {}),
        values={key: float(pair[0]) for key, pair in pairs.items()},
        spreads={key: float(pair[1]) for key, pair in pairs.items()},
        mixed=table["mixed"], chunked=table["chunked"], reserves_output=table["reserves_output"],
        lockstep=table["lockstep"],
        overlaps=bool(table.get("overlaps", False)),
        windows=bool(table.get("windows", True)),
        splits_context=bool(table.get("splits_context", True)),
        library_all_reduce=bool(table.get("library_all_reduce", False)),
        idle_slots=float(table.get("idle_slots", 0.0)),
        token_budget=table.get("token_budget"),
        basis=table["basis"],
        source=table["source"],
        of=table.get("of", ""),
        since=tuple(table.get("since", ())),
        until=tuple(table.get("until", ())),
    )  # fmt: skip


def engine_timing(name: str | None, version: str | None = None) -> EngineTiming:
    """An engine's own time by the name that a benchmark or a flag gives it.

    Parameters
    ----------
    name
        ``vllm``, ``NVIDIA NIM (TensorRT-LLM)``, ``ATOM``, ...; one that is not known gets generic constants
        with a wide spread, and says so (``known`` is False).
    version
        As a log prints it, or the date of a run; an old one may have a record of its own. None takes the newest.
    """
    asked = (name or "").strip().lower()
    aliases = _aliases()
    found = [alias for alias in aliases if alias and asked.startswith(alias)]
    if not found and asked not in aliases:
        return replace(engine_timings()["generic"], known=False)
    return _of_version(engine_timings()[aliases[max(found, key=len, default=asked)]], version)


def _of_version(newest: EngineTiming, version: str | None) -> EngineTiming:
    from sizing.engines.record import Version

    text = version or ""
    years = [int(year) for year in re.findall(r"\b(20[12]\d)(?!\d|\.)", text)]
    recent = 2026 if newest.name == "vllm" else 2025
    if any(year >= recent for year in years):
        return newest
    stated = re.search(r"(?<![\d.])v?([01]\.\d+)", text)
    parsed = Version.parse(text if stated or (years and max(years) > 2024) else "")
    older = [record for record in engine_timings().values() if record.of == newest.name]
    for record in sorted(older, key=lambda r: r.until):
        legacy = parsed.legacy if newest.name == "vllm" else None
        if not stated and years and max(years) <= 2024:
            return record
        if legacy or (legacy is None and record.since <= parsed.number < record.until and parsed.number):
            return record
    return newest
