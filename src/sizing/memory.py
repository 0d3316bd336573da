"""Where a GPU's memory goes: the budget of one replica, line by line, by its engine's own rules.

Everything is per GPU; of the stages of a pipeline the one with the least room for KV decides how many
requests fit. A model that does not fit gives zero room and a shortfall, never an exception.
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sizing.architecture import Layer, Model
from sizing.deployment import Deployment
from sizing.engines import CachePool, Defaults, Engine, Overhead, Rank, engine
from sizing.errors import InputError
from sizing.formats import WeightFormat, weight_format

GIB = 2.0**30
RULES = ("usable", "datasheet")
CONTEXT_STEP = 1024
"""Contexts are advised in steps of this. [token]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """One line of the budget: a name, its bytes, how they were found and on what that rests."""

    name: str
    bytes: float
    formula: str
    basis: str


@dataclass(frozen=True, kw_only=True)
class MemoryBudget:
    """Memory of one GPU of a replica.

    Attributes
    ----------
    total_bytes, usable_bytes
        What the process sees; the engine's share of it. [byte]
    weights_bytes, activation_bytes, non_torch_bytes, cuda_graph_bytes
        What is taken before the KV cache. [byte]
    kv_bytes
        Room for the KV cache, of the stage with the least. [byte]
    kv_bytes_per_token
        What one more token takes on this GPU, padding of the engine's allocator included. [byte]
    kv_tokens
        Capacity of the whole replica at ``request_tokens``. [token]
    printed_tokens, printed_concurrency
        What the engine's log states: tokens, and requests of the longest context. [token], [request]
    first_stage
        Budget of the first pipeline stage when that is another one: logs print its bytes, and the
        tokens of the stage with the least room.
    shortfall_bytes
        What is missing when weights and overhead do not fit; 0 otherwise. [byte]
    request_tokens
        Length at which capacity in tokens is stated. [token]
    """

    deployment: Deployment
    engine: Engine
    rank: Rank
    overhead: Overhead
    defaults: Defaults
    utilization: float
    rule: str
    total_bytes: float
    usable_bytes: float
    weights_bytes: float
    activation_bytes: float
    non_torch_bytes: float
    cuda_graph_bytes: float
    charged_graph_bytes: float
    kv_bytes: float
    kv_bytes_per_token: float
    pools: tuple[CachePool, ...]
    printed_tokens: int
    shortfall_bytes: float
    request_tokens: float
    replicas_of_attention: int = 1
    first_stage: "MemoryBudget | None" = None

    def max_requests(self, tokens_per_request: ArrayLike) -> Any:
        """Requests of so many tokens that fit the replica at once; 0 when not even one does. [request]

        Parameters
        ----------
        tokens_per_request
            Tokens of one request when it is longest; scalar or array. [token]
        """
        tokens = np.asarray(tokens_per_request, dtype=float)
        if not self.pools:
            fit: NDArray[np.float64] = np.full(tokens.shape, np.inf if self.shortfall_bytes <= 0 else 0.0)
        else:
            fit = np.min([pool.requests(tokens) for pool in self.pools], axis=0)
        fit = np.where(fit < 1.0, 0.0, fit) * self.replicas_of_attention
        return float(fit) if fit.ndim == 0 else fit

    @property
    def limits(self) -> tuple[int, int]:
        """Sequences and tokens of one step of the whole replica, at most. [request], [token]

        Under data-parallel attention every rank has a scheduler of its own: vLLM's and TensorRT-LLM's limits are
        each rank's (``max_num_seqs``, ``max_batch_size``), SGLang divides its limits among them.
        """
        settings = self.deployment.settings
        sequences = settings.max_num_seqs or self.defaults.max_num_seqs
        tokens = settings.max_num_batched_tokens or self.defaults.max_num_batched_tokens
        return sequences * self.schedulers, tokens * self.schedulers

    @property
    def schedulers(self) -> int:
        """Schedulers of a replica that each have the engine's whole limits. [1]"""
        return self.replicas_of_attention if self.engine.limits_per_rank else 1

    @property
    def kv_tokens(self) -> float:
        """Tokens of requests of ``request_tokens`` that the whole replica holds. [token]"""
        requests = self.max_requests(self.request_tokens)
        return float(requests * self.request_tokens) if np.isfinite(requests) else float("inf")

    @property
    def printed_concurrency(self) -> float:
        """Requests of the longest context in one attention replica, as engines print it. [request]"""
        longest = float(self.rank.max_model_len)
        return float(min((pool.requests(longest) for pool in self.pools), default=0.0))

    @property
    def refusal(self) -> str:
        """Why the engine would not start although the model fits; empty where it would.

        vLLM raises where its cache is shorter than one request of the longest context
        (``_check_enough_kv_cache_memory`` in ``vllm/v1/core/kv_cache_utils.py``).
        """
        longest, held = self.rank.max_model_len, self.printed_tokens
        if not self.engine.holds_longest or self.shortfall_bytes > 0 or not 0 < self.printed_concurrency < 1:
            return ""
        shorter = max(held // CONTEXT_STEP * CONTEXT_STEP, int(min(self.request_tokens, held)))
        return (
            f"{self.engine.name} refuses to start with a context of {longest:,} tokens, of which its cache holds "
            f"{held:,}: give it --max-model-len {shorter} or less"
        )

    @property
    def printed(self) -> "MemoryBudget":
        """Budget whose bytes the engine's log prints: that of the first pipeline stage."""
        return self.first_stage or self

    @property
    def printed_kv_bytes(self) -> float:
        """KV room as the engine's log prints it. [byte]"""
        return self.printed.kv_bytes

    @property
    def wording(self) -> tuple[str, ...]:
        """The engine's own log lines for the KV room."""
        return self.engine.wording(
            self.printed_kv_bytes, self.printed_tokens, self.printed_concurrency, self.rank.max_model_len
        )

    @property
    def lines(self) -> tuple[BudgetLine, ...]:
        """The budget line by line; the lines sum to ``total_bytes``."""
        return _lines(self)


def memory_budget(
    deployment: Deployment, *, request_tokens: float | None = None, memory_rule: str = "usable"
) -> MemoryBudget:
    """Memory of a deployment, per GPU, by its engine's rules.

    Parameters
    ----------
    deployment
        Model, GPU, layout, formats and settings.
    request_tokens
        Length at which the capacity is stated; None takes the longest context. [token]
    memory_rule
        ``usable``: what a process sees, and the engine's rules; ``datasheet``: data sheet bytes times
        utilisation, minus weights, as the back of an envelope has it.

    Returns
    -------
    MemoryBudget
        With zero room and a shortfall when the model does not fit.
    """
    if memory_rule not in RULES:
        raise InputError(f"memory_rule: {memory_rule!r} is not allowed; choose one of {', '.join(RULES)}")
    settings = deployment.settings
    the_engine = engine(settings.engine, settings.version)
    defaults = the_engine.defaults(deployment.model, deployment.gpu, deployment.parallelism.tp, settings.max_model_len)
    utilization = settings.memory_utilization or defaults.memory_utilization
    budgets = [
        _rank_budget(rank, the_engine, deployment, defaults, utilization, memory_rule)
        for rank in _ranks(deployment, defaults)
    ]
    least = min(budgets, key=lambda b: (min((p.blocks for p in b.pools), default=np.inf), b.kv_bytes))
    return replace(
        least,
        first_stage=None if least is budgets[0] else budgets[0],
        request_tokens=float(request_tokens or least.rank.max_model_len),
    )


def budget_rows(budget: MemoryBudget) -> list[dict[str, object]]:
    """The budget's lines as a table's rows, total last."""
    rows: list[dict[str, object]] = [
        {"line": x.name, "gib": round(x.bytes / GIB, 3), "bytes": round(x.bytes), "basis": x.basis,
         "formula": x.formula} for x in budget.lines
    ]  # fmt: skip
    total = budget.total_bytes
    return [*rows, {"line": "total", "gib": round(total / GIB, 3), "bytes": round(total), "basis": "", "formula": ""}]


def budget_notes(budget: MemoryBudget, *notes: str) -> list[str]:
    """What the budget holds, in tokens, in requests and in the engine's own words."""
    length, fit = budget.request_tokens, budget.max_requests(budget.request_tokens)
    said = [note for note in notes if note]
    if budget.shortfall_bytes > 0:
        said.append(f"does not fit: {budget.shortfall_bytes / GIB:.2f} GiB more needed on each GPU")
    if refusal := budget.refusal:
        said.append(refusal)
    said.append(f"KV bytes per token and GPU: {budget.kv_bytes_per_token:,.0f}")
    said.append(f"KV room: {budget.kv_tokens:,.0f} tokens, in {fit:,.2f} requests of {length:,.0f} tokens")
    said.append(f"the engine's log will say ({budget.engine.name}, per attention replica):")
    said += [f"  {line}" for line in budget.wording]
    return [*said, *budget.deployment.model.warnings]


def _rank_budget(
    rank: Rank, the_engine: Engine, deployment: Deployment, defaults: Defaults, utilization: float, rule: str
) -> MemoryBudget:
    if rule == "datasheet":
        overhead, total = Overhead(), deployment.gpu.memory_bytes
        room = total * utilization - rank.weights_bytes
    else:
        overhead, total = _overhead(the_engine, rank), deployment.gpu.process_memory_bytes
        room = the_engine.kv_bytes(rank, overhead, utilization)
    pools = the_engine.pools(rank, room)
    printed = the_engine.printed_tokens(pools)
    return MemoryBudget(
        deployment=deployment, engine=the_engine, rank=rank, overhead=overhead, defaults=defaults,
        utilization=utilization, rule=rule, total_bytes=float(total), usable_bytes=total * utilization,
        weights_bytes=rank.weights_bytes + overhead.weights_extra_bytes,
        activation_bytes=overhead.activation_bytes, non_torch_bytes=overhead.non_torch_bytes,
        cuda_graph_bytes=overhead.cuda_graph_bytes, charged_graph_bytes=overhead.charged_graph_bytes,
        kv_bytes=max(room, 0.0), kv_bytes_per_token=_bytes_per_token(pools, rank), pools=pools,
        printed_tokens=printed, shortfall_bytes=max(-room, 0.0),
        request_tokens=float(rank.max_model_len), replicas_of_attention=deployment.parallelism.dp,
    )  # fmt: skip


def _bytes_per_token(pools: tuple[CachePool, ...], rank: Rank) -> float:
    """What the next token of a short request takes on this GPU, all its layers and groups. [byte]"""
    each = 0.0
    for pool in pools:
        for group in pool.groups:
            if not group.fixed_blocks:
                each += pool.block_bytes / group.block_tokens / pool.token_scale
    return each


# -- the GPUs of a replica ------------------------------------------------------------------------------


def _ranks(deployment: Deployment, defaults: Defaults) -> list[Rank]:
    """One GPU of each pipeline stage."""
    model, layout, settings = deployment.model, deployment.parallelism, deployment.settings
    formats = deployment.formats
    stages = _remembered(model, ("stages", layout.pp), lambda: _stages(model, layout.pp))
    longest = settings.max_model_len or defaults.max_model_len
    kv = (model.checkpoint.kv or "bf16") if formats.kv in ("auto", "") else formats.kv
    if formats.kv in ("auto", "") and model.native_dtype == "fp32":
        kv = "fp32" if formats.weights in (None, "fp32") else kv
    if formats.weights == "fp32" and formats.kv in ("auto", ""):
        kv = "fp32"
    sixteen = _sixteen_bit(model, formats.weights)
    ranks = []
    for position, layers in enumerate(stages):
        first, last = position == 0, position == len(stages) - 1
        key = ("weights", formats.weights, layout.tp, layout.dp, layout.ep, layout.pp, position)
        weights = _remembered(model, key, lambda: _stage_bytes(deployment, layers, first, last))  # noqa: B023
        ranks.append(
            Rank(
                model=model, gpu=deployment.gpu, layers=layers, first=first, last=last,
                tp=layout.tp, pp=layout.pp, ep=layout.ep, dp=layout.dp, cp=layout.cp,
                weights_bytes=weights, sixteen_bit_bytes=sixteen.bytes_per_weight, kv=kv,
                weights=formats.weights or model.checkpoint.name,
                requested=None if formats.weights is None else weight_format(formats.weights),
                max_num_seqs=settings.max_num_seqs or defaults.max_num_seqs,
                max_num_batched_tokens=settings.max_num_batched_tokens or defaults.max_num_batched_tokens,
                max_model_len=longest, block_size=settings.block_size or defaults.block_size,
                cuda_graphs=settings.cuda_graphs,
            )
        )  # fmt: skip
    return ranks


def _stages(model: Model, pp: int) -> list[tuple[Layer, ...]]:
    """Layers of each pipeline stage, spread evenly; what is left over goes to late stages but the last."""
    depth, left = divmod(model.num_layers, pp)
    sizes = [depth] * pp
    for i in range(2, left + 2):
        sizes[-i] += 1
    stages, start = [], 0
    for size in sizes:
        counts = Counter(model.pattern[start : start + size])
        stages.append(tuple(replace(model.layers[kind], count=n) for kind, n in counts.items()))
        start += size
    return stages


def _sixteen_bit(model: Model, requested: str | None) -> WeightFormat:
    if requested is not None and weight_format(requested).element_bits >= 16:
        return weight_format(requested)
    return weight_format(model.native_dtype if requested is None or model.native_dtype != "fp32" else "bf16")


def _stage_bytes(deployment: Deployment, layers: tuple[Layer, ...], first: bool, last: bool) -> float:
    """Bytes of weights on one GPU of a stage; experts are spread over all GPUs of the replica. [byte]

    Asked for MXFP4, engines convert the experts of a mixture only; so do the FP8 checkpoints of Llama 4.
    """
    model, layout, name = deployment.model, deployment.parallelism, deployment.formats.weights
    requested = None if name is None else weight_format(name)
    sixteen = _sixteen_bit(model, name)
    experts_only = model.is_moe and name is not None and _experts_only(model, name)
    total = 0.0
    for layer in layers:
        for linear in layer.linears:
            expert = linear.role == "expert"
            ways = layout.tp * layout.dp if expert else layout.tp
            asked = requested if expert or not experts_only else None
            total += layer.count * linear.bytes(asked, sixteen, ways, layout.ep)
        total += layer.count * layer.other_parameters * sixteen.bytes_per_weight
    if first:
        total += model.embedding.bytes(requested, sixteen, layout.tp)
        total += model.vision_parameters * sixteen.bytes_per_weight / layout.tp
    if last:
        total += model.other_parameters * sixteen.bytes_per_weight
        if model.head is not None and (not model.tied_embeddings or not first):
            total += model.head.bytes(requested, sixteen, layout.tp)
    return total


def _experts_only(model: Model, name: str) -> bool:
    return name.startswith("mxfp4") or (name.startswith("fp8") and model.model_type.startswith("llama4"))


def _overhead(the_engine: Engine, rank: Rank) -> Overhead:
    """What the engine takes, remembered for GPUs and settings that give the same."""
    key = (
        "overhead", the_engine.name, the_engine.version.text, rank.gpu.id, rank.tp, rank.pp, rank.ep, rank.dp,
        rank.first, rank.last, rank.depth, rank.weights_bytes, rank.weights, rank.kv, rank.max_num_seqs,
        rank.max_num_batched_tokens, rank.max_model_len, rank.cuda_graphs,
    )  # fmt: skip
    found: Overhead = _remembered(rank.model, key, lambda: the_engine.overhead(rank))
    return found


def _remembered(model: Model, key: Hashable, make: Any) -> Any:
    """Value that depends on the model and a key only, kept with the model."""
    kept = model.__dict__.setdefault("_memory", {})
    if key not in kept:
        kept[key] = make()
    return kept[key]


# -- the lines ------------------------------------------------------------------------------------------


def _lines(budget: MemoryBudget) -> tuple[BudgetLine, ...]:
    rank, over = budget.rank, budget.overhead
    gpu, layout = budget.deployment.gpu, budget.deployment.parallelism
    basis = "measured" if budget.rule == "usable" else "datasheet"
    lines = [
        BudgetLine(name="weights", bytes=rank.weights_bytes, basis="config.json",
                   formula=f"{rank.model.parameters / 1e9:.3f}e9 parameters, {rank.weights}, {layout}"),
    ]  # fmt: skip

    def add(name: str, size: float, formula: str, rests_on: str = "fitted") -> None:
        if size:
            lines.append(BudgetLine(name=name, bytes=size, formula=formula, basis=rests_on))

    add("weights, engine's own", over.weights_extra_bytes, "rotary tables, absorbed projections", "config.json")
    if budget.rule == "usable":
        _overhead_lines(budget, add)
    add("KV cache", budget.kv_bytes, budget.engine.rule(), "computed")
    rest = budget.total_bytes - sum(line.bytes for line in lines)
    formula = f"{gpu.name}: {budget.total_bytes / GIB:.2f} GiB x (1 - {budget.utilization:g}) and what is not charged"
    if rest < 0:
        formula = "does not fit: missing"
    lines.append(BudgetLine(name="left to the driver and as headroom", bytes=rest, formula=formula, basis=basis))
    return tuple(lines)


def _overhead_lines(budget: MemoryBudget, add: Any) -> None:
    rank, over = budget.rank, budget.overhead
    shape = f"{rank.max_num_seqs:,} sequences, {rank.max_num_batched_tokens:,} tokens a step"
    add("activation peak", over.activation_bytes, f"{shape}, vocabulary {rank.model.vocab_size:,}")
    add("non-torch", over.non_torch_bytes, f"communication and kernel workspaces, TP{rank.tp} PP{rank.pp}")
    add("driver context before loading", over.context_bytes, "outside the engine's share")
    charged = "charged" if over.charged_graph_bytes else "not charged: out of the headroom"
    add("CUDA graphs", over.cuda_graph_bytes, f"{rank.depth} layers; {charged}")
