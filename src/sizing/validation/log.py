"""An engine's start-up log held against the memory budget, line by line."""

from collections.abc import Mapping
from dataclasses import dataclass

from sizing.benchmarks.startup_log import GIB, StartupLog
from sizing.catalog import gpu, gpus, resolve_gpu
from sizing.deployment import Deployment, EngineSettings, NumberFormats, Parallelism
from sizing.errors import InputError
from sizing.memory import MemoryBudget, memory_budget
from sizing.validation.cases import find_model
from sizing.validation.startup_rows import weights_of

SAME_MEMORY = 0.01  # relative difference within which a GPU is recognised by its memory


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of the budget.

    Parameters
    ----------
    name, unit
        What, and in which unit.
    logged, predicted
        Values; None where the log is silent.
    """

    name: str
    unit: str
    logged: float | None
    predicted: float

    @property
    def difference(self) -> float | None:
        """Predicted less logged, in the line's unit."""
        return None if self.logged is None else self.predicted - self.logged

    @property
    def error(self) -> float | None:
        """Relative error [1]."""
        return None if not self.logged else self.predicted / self.logged - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogComparison:
    """A log and the budget predicted for it.

    Parameters
    ----------
    log, budget
        Both sides.
    lines
        Line by line.
    notes
        What was assumed, and which line accounts for the difference in KV room.
    """

    log: StartupLog
    budget: MemoryBudget
    lines: tuple[LogLine, ...]
    notes: tuple[str, ...]

    def rows(self) -> list[dict[str, object]]:
        """Rows of a table."""
        return [
            {
                "line": line.name,
                "unit": line.unit,
                "log": _rounded(line.logged, line.unit),
                "predicted": _rounded(line.predicted, line.unit),
                "difference": _rounded(line.difference, line.unit),
                "error": None if line.error is None else f"{line.error:+.1%}",
            }
            for line in self.lines
        ]


def compare_log(log: StartupLog, facts: Mapping[str, str | int | float | None] | None = None) -> LogComparison:
    """Budget of the deployment that a log describes, beside what the log states.

    Parameters
    ----------
    log
        As read.
    facts
        What the log does not say, by field (``model``, ``gpu``, ``tp``, ``version``, ``weight_format``, ...);
        a fact that is given is taken before the log's.
    """
    given = {name: value for name, value in (facts or {}).items() if value is not None}
    deployment, notes = _deployment(log, given)
    budget = memory_budget(deployment)
    lines = _lines(log, budget)
    return LogComparison(log=log, budget=budget, lines=lines, notes=(*log.warnings, *notes, *_cause(lines)))


def _deployment(log: StartupLog, given: Mapping[str, str | int | float]) -> tuple[Deployment, list[str]]:
    def fact(name: str) -> object:
        return given.get(name, getattr(log, name))

    def whole(name: str) -> int | None:
        value = fact(name)
        return None if value is None else int(str(value))

    name = fact("model")
    if name is None:
        raise InputError(f"{log.source}: the log does not say the model; give --model")
    model = find_model(str(name))
    chip, notes = _gpu(log, fact("gpu"))
    tp, pp, dp = whole("tp") or 1, whole("pp") or 1, whole("dp") or 1
    if log.engine == "sglang" and dp > 1:
        tp = max(tp // dp, 1)  # SGLang counts attention ranks inside TP
    utilization = fact("utilization")
    settings = EngineSettings(
        engine=log.engine,
        version=None if fact("version") is None else str(fact("version")),
        memory_utilization=None if utilization is None else float(str(utilization)),
        max_model_len=whole("max_model_len"),
        max_num_batched_tokens=whole("max_num_batched_tokens"),
        max_num_seqs=whole("max_num_seqs"),
        block_size=whole("block_size"),
    )
    stated = fact("weight_format")
    deployment = Deployment(
        model=model,
        gpu=gpu(chip),
        parallelism=Parallelism(tp=tp, pp=pp, dp=dp, ep=min(whole("ep") or 1, tp * dp)),
        formats=NumberFormats(
            weights=weights_of(str(stated or "auto"), str(name), model), kv=str(fact("kv_format") or "auto")
        ),
        settings=settings,
    )
    if settings.version is None:
        notes.append("the log does not say the engine's version: the newest one's rules are used")
    return deployment, notes


def _gpu(log: StartupLog, said: object) -> tuple[str, list[str]]:
    """GPU by name, or by the memory that the log states."""
    if said is not None:
        return resolve_gpu(str(said))[0], []
    if log.total_bytes is None:
        raise InputError(f"{log.source}: the log does not say the GPU; give --gpu")
    ranked = sorted((abs(gpu(name).process_memory_bytes / log.total_bytes - 1.0), name) for name in gpus())
    near = [name for difference, name in ranked if difference < SAME_MEMORY]
    if not near:
        raise InputError(
            f"{log.source}: no GPU of the catalogue has {log.total_bytes / GIB:.2f} GiB for a process; give --gpu"
        )
    others = f" (as has {', '.join(near[1:4])})" if near[1:] else ""
    return near[0], [f"GPU taken from its memory of {log.total_bytes / GIB:.2f} GiB: {near[0]}{others}"]


def _lines(log: StartupLog, budget: MemoryBudget) -> tuple[LogLine, ...]:
    sizes = (
        ("GPU memory", log.total_bytes, budget.total_bytes),
        ("weights", log.weights_bytes, budget.weights_bytes),
        ("activation peak", log.activation_bytes, budget.activation_bytes),
        ("non-torch", log.non_torch_bytes, budget.non_torch_bytes),
        ("CUDA graphs", log.cuda_graph_bytes, budget.cuda_graph_bytes),
        ("KV room", log.kv_bytes, budget.printed_kv_bytes),
    )
    found = [
        LogLine(name=name, unit="GiB", logged=None if logged is None else logged / GIB, predicted=bytes_ / GIB)
        for name, logged, bytes_ in sizes
    ]
    found.append(LogLine(name="KV tokens", unit="token", logged=log.kv_tokens, predicted=float(budget.printed_tokens)))
    if log.max_concurrency is not None:
        found.append(
            LogLine(
                name="requests of the longest context",
                unit="x",
                logged=log.max_concurrency,
                predicted=budget.printed_concurrency,
            )
        )
    return tuple(found)


def _cause(lines: tuple[LogLine, ...]) -> list[str]:
    """Which line accounts for most of the difference in KV room."""
    by_name = {line.name: line for line in lines}
    room = by_name["KV room"]
    if room.difference is None or room.logged is None:
        return ["the log does not state the KV room"]
    told = [by_name[name] for name in ("weights", "activation peak", "non-torch", "CUDA graphs")]
    parts = [line for line in told if line.difference is not None]
    if abs(room.difference) < max(0.02 * room.logged, 0.1) or not parts:
        return [f"KV room predicted to {room.difference:+.2f} GiB ({room.error or 0.0:+.1%})"]
    largest = max(parts, key=lambda line: abs(line.difference or 0.0))
    return [
        f"KV room predicted to {room.difference:+.2f} GiB ({room.error or 0.0:+.1%}); the largest difference above it: "
        f"{largest.name} {largest.difference:+.2f} GiB"
    ]


def _rounded(value: float | None, unit: str) -> float | None:
    return None if value is None else round(value, 0 if unit == "token" else 2)
