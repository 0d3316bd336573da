"""What to measure: which models, which grid, how small."""

from collections.abc import Iterable
from dataclasses import dataclass

from profilers.kernel import Case, Shape, kernels
from profilers.operations import Step, step_operations
from profilers.shapes import BadInput, DecoderShape, read_shape

SUITES = {
    "default": "a grid that identifies the constants, four whole decoders, the scenarios",
    "compact": "the grid alone, with the sizes between",
    "model": "the kernels, steps and scenarios of --model",
    "decoder": "whole decoders, every step compiled too, and the kernels they are made of",
    "table": "nothing but the shapes of --table",
    "scenarios": "kernels per token, users, prefill stall, prefix reuse",
}
"""Suites by name."""

DEFAULT_MODELS = ("Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V2-Lite", "Qwen/Qwen3-32B")
TOY_MODELS = ("toy/dense", "toy/moe", "toy/mla")

STEPS = (
    Step(sequences=1, new_tokens=1, history=1023),
    Step(sequences=32, new_tokens=1, history=1023),
    Step(sequences=128, new_tokens=1, history=1023),
    Step(sequences=1, new_tokens=2048, history=0),
    Step(sequences=1, new_tokens=8192, history=0),
)
"""Steps of a whole decoder: decoding at three batches, prefill at two lengths."""

TYPICAL = (STEPS[1], STEPS[3])
"""The decode and the prefill step that are compiled when not all are."""

TOY_STEPS = (
    Step(sequences=2, new_tokens=1, history=7),
    Step(sequences=1, new_tokens=8, history=0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure.

    Attributes
    ----------
    suite
        Name in :data:`SUITES`.
    models
        Decoders, already divided over the GPUs.
    toy
        Dry run at the smallest sizes that still exercise every step.
    ranks
        GPUs (or processes) for the collectives; 1: none.
    """

    suite: str
    models: tuple[DecoderShape, ...]
    toy: bool = False
    ranks: int = 1

    @property
    def grid(self) -> bool:
        """Whether the grid that identifies the constants is wanted."""
        return self.suite in ("default", "compact")

    @property
    def fine(self) -> bool:
        """Whether sizes between those of the grid are wanted of every format and implementation too."""
        return self.suite == "compact"

    @property
    def every_step(self) -> bool:
        """Whether every step is compiled, and not one decode and one prefill step of each model."""
        return self.suite in ("model", "decoder")

    @property
    def decoders(self) -> bool:
        """Whether whole decoders are wanted."""
        return self.suite in ("default", "model", "decoder")

    @property
    def scenarios(self) -> bool:
        """Whether the scenarios are wanted."""
        return self.suite in ("default", "model", "scenarios")

    @property
    def steps(self) -> tuple[Step, ...]:
        """Steps of a whole decoder."""
        return TOY_STEPS if self.toy else STEPS

    def shapes(self, family: str) -> list[Shape]:
        """Shapes that the models' steps need of one family, each once."""
        if not self.decoders:
            return []
        found: dict[str, Shape] = {}
        for model in self.models:
            for step in self.steps:
                for operation in step_operations(model, step):
                    if operation.family == family:
                        found.setdefault(str(operation.shape), operation.shape)
        return list(found.values())


def make_plan(suite: str, models: Iterable[str] = (), *, tp: int = 1, toy: bool = False, ranks: int = 1) -> Plan:
    """Build a plan from what the user asked for.

    Parameters
    ----------
    suite
        Name in :data:`SUITES`.
    models
        Names, folders or ``config.json`` files; none: the suite's own.
    tp
        Tensor-parallel GPUs that shapes are divided by. [gpu]
    toy
        Dry run.
    ranks
        GPUs for the collectives. [gpu]
    """
    if suite not in SUITES:
        raise BadInput(f"--suite {suite}: choose one of {', '.join(SUITES)}")
    if tp < 1:
        raise BadInput(f"--tp {tp}: give 1 or more")
    names = tuple(models) or (TOY_MODELS if toy else DEFAULT_MODELS)
    if suite == "model" and not tuple(models) and not toy:
        raise BadInput("--suite model: say which with --model")
    shapes = tuple(read_shape(name).per_gpu(tp) for name in names)
    return Plan(suite=suite, models=shapes, toy=toy, ranks=ranks)


def plan_cases(plan: Plan, only: Iterable[str] = ()) -> list[Case]:
    """Every case of a plan, the ones that identify a constant first; each once.

    Parameters
    ----------
    plan
        What to measure.
    only
        Families or kernel names to keep; none: all.
    """
    wanted = tuple(only)
    known = kernels()
    for name in wanted:
        if name not in known and not any(k.family == name for k in known.values()):
            families = sorted({k.family for k in known.values()})
            raise BadInput(
                f"--only {name}: no such kernel; choose from {', '.join(families)}, or one of {', '.join(known)}"
            )
    return in_order(
        case
        for kernel in known.values()
        if not wanted or kernel.name in wanted or kernel.family in wanted
        for case in kernel.cases(plan)
    )


def in_order(cases: Iterable[Case]) -> list[Case]:
    """Cases each once, the most needed first; of equal need whole models, their parts, what is compiled by itself.

    Parameters
    ----------
    cases
        In any order; of two that are alike the first stays.
    """
    found: dict[str, Case] = {}
    for case in cases:
        found.setdefault(case.key, case)
    first = ("decoder", "scenario")
    return sorted(found.values(), key=lambda c: (c.priority, c.compiles, not c.kernel.startswith(first)))
