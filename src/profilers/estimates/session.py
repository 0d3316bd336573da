"""The time of a whole session, phase by phase, in the order that it would run."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from profilers.bench import Limits
from profilers.estimates.effort import EFFORTS, Effort, missing
from profilers.estimates.machine import (
    CASE_S,
    COLLECT_S,
    COMPILE_LAYER_S,
    COMPILE_S,
    COMPILER_S,
    FIRST_S,
    LAUNCH_S,
    MACHINES,
    MAPPING_S_PER_BYTE,
    RANDOM_PER_S,
    RECOMPILE_S,
    SCATTER,
    START_S,
    Machine,
    PaperBench,
)
from profilers.estimates.whole import decoder_step, scenario
from profilers.kernel import Case
from profilers.session import LARGE
from profilers.shapes import BadInput
from profilers.timing import SLOW_S, burst_of, turns_of

PHASES = ("around", "set-up", "check", "compile", "warm-up", "samples", "energy", "clean-up")
GROUPS = {
    "start": "start", "gemm": "products", "batched_gemm": "products", "attention_decode": "attention",
    "attention_prefill": "attention", "mla_decode": "latent attention", "mla_prefill": "latent attention",
    "moe": "experts", "elementwise": "elementwise, sampling", "sampling": "elementwise, sampling",
    "copy": "copies, disk, launches", "loading": "copies, disk, launches", "launch": "copies, disk, launches",
    "collective": "collectives", "decoder": "whole decoders", "scenario": "scenarios",
}  # fmt: skip
NOT_THERE = "not installed, or not on this chip"


@dataclass(slots=True)
class Spent:
    """Seconds of one case by phase.

    Attributes
    ----------
    key, group
        Case, and the group that it is summed up in.
    phases
        By name of :data:`PHASES`. [s]
    """

    key: str
    group: str
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def total_s(self) -> float:
        """All phases. [s]"""
        return sum(self.phases.values())


@dataclass(slots=True)
class Walk:
    """What a session remembers from one case to the next.

    Attributes
    ----------
    bench
        Where.
    compiled, ever
        Graphs that are compiled now, and those that the compiler's own cache has.
    empty
        Whether memory was given back, so that it has to be mapped anew.
    held, checked
        Large data that is there already, and what was checked on it.
    """

    bench: PaperBench
    compiled: set[str] = field(default_factory=set)
    ever: set[str] = field(default_factory=set)
    empty: bool = True
    held: str = ""
    checked: set[str] = field(default_factory=set)

    def spend(self, case: Case) -> Spent:
        """The time of the next case."""
        if missing(case):
            return Spent(case.key, NOT_THERE, {"around": CASE_S})
        effort = _effort(case, self.bench)
        phases = {"around": CASE_S, **self._made(effort), "compile": self._compiler_s(effort)}
        phases |= _timed(case, effort, self.bench.limits)
        large = case.kernel.startswith(LARGE) or effort.held_bytes > 0.4 * self.bench.machine.memory_bytes
        if large:
            phases["clean-up"] = COLLECT_S + MAPPING_S_PER_BYTE * effort.held_bytes
        self.empty = large
        return Spent(case.key, GROUPS[case.kernel.partition(".")[0]], phases)

    def _made(self, effort: Effort) -> dict[str, float]:
        machine = self.bench.machine
        drawn, mapped, passes = effort.random_elements, effort.held_bytes, effort.made_bytes
        if effort.shared != self.held:
            drawn, passes = drawn + effort.shared_elements, passes + 4.0 * effort.shared_elements
            self.held, self.checked = effort.shared, set()
        else:
            mapped -= 2.0 * effort.shared_elements
        set_up = effort.host_s + drawn / RANDOM_PER_S + machine.plain_s(0.0, passes)
        if self.empty:
            set_up += MAPPING_S_PER_BYTE * mapped
        check = effort.check_operations * LAUNCH_S + machine.plain_s(effort.check_flops, effort.check_bytes)
        if effort.check_name in self.checked:
            check = 0.0
        elif effort.check_name:
            self.checked.add(effort.check_name)
        return {"set-up": set_up, "check": check}

    def _compiler_s(self, effort: Effort) -> float:
        if effort.forgets:
            self.compiled.clear()
        new = [name for name in effort.compiled if name not in self.compiled]
        total = COMPILER_S if new and not self.ever else 0.0
        one = COMPILE_LAYER_S if effort.large_graphs else COMPILE_S
        total += sum(RECOMPILE_S if name in self.ever else one for name in new)
        self.compiled.update(new)
        self.ever.update(new)
        return total


def _effort(case: Case, bench: PaperBench) -> Effort:
    family = case.kernel.partition(".")[0]
    if family in ("decoder", "scenario"):
        return (decoder_step if family == "decoder" else scenario)(case, bench)
    return EFFORTS[family](case, bench)


def _timed(case: Case, effort: Effort, limits: Limits) -> dict[str, float]:
    """Warm-up with capture, samples and energy, by the rules of :mod:`profilers.timing`."""
    if effort.own_s:
        return {"samples": effort.own_s}
    launched_s = max(effort.call_s, effort.operations * LAUNCH_S)
    slow = launched_s > SLOW_S
    tried = 0.0 if slow else min(20.0, max(3.0, 0.01 / launched_s))
    warm = FIRST_S + (2 + tried) * launched_s
    turns = 1 if slow else turns_of(effort.call_s if effort.graph else launched_s, effort.calls, limits)
    calls = turns * effort.calls
    sample_s = calls * (effort.call_s if effort.graph else launched_s)
    if effort.graph:
        warm += 4 * launched_s + calls * effort.operations * LAUNCH_S + sample_s
    energy = limits.energy_s + sample_s if case.energy else 0.0
    return {"warm-up": warm, "samples": _sampling_s(sample_s, limits), "energy": energy}


def _sampling_s(sample_s: float, limits: Limits) -> float:
    """Bursts until the standard error of the median, 1.2533 sigma / sqrt(n), is below the target. [s]"""
    wanted = max(limits.min_samples, math.ceil((1.2533 * SCATTER / limits.target_spread) ** 2))
    burst, idle = burst_of(sample_s)
    burst_s = burst * sample_s + 1e-3
    samples = spent_s = 0.0
    while samples < wanted:
        samples, spent_s = samples + burst - idle, spent_s + burst_s
        if (samples >= limits.min_samples and spent_s > limits.max_time_s) or spent_s > 10 * limits.max_time_s:
            break
    return spent_s


def estimate(cases: Iterable[Case], machine: Machine) -> list[Spent]:
    """Seconds of a session from its start, case by case in order.

    Parameters
    ----------
    cases
        In the order that they would be measured.
    machine
        On which GPU.
    """
    walk = Walk(PaperBench(machine))
    return [Spent("start", "start", {"around": START_S}), *(walk.spend(case) for case in cases)]


def find_machine(name: str) -> Machine:
    """The GPU of that name.

    Parameters
    ----------
    name
        Of :data:`MACHINES`.
    """
    if name not in MACHINES:
        raise BadInput(f"--estimate {name}: choose one of {', '.join(MACHINES)}")
    return MACHINES[name]


def group_rows(spent: Sequence[Spent]) -> list[dict[str, str]]:
    """A row a group and one for all: cases, seconds by phase, total.

    Parameters
    ----------
    spent
        Of :func:`estimate`.
    """
    names = [*dict.fromkeys([*GROUPS.values(), NOT_THERE])]
    rows = [_row(name, [s for s in spent if s.group == name]) for name in names if any(s.group == name for s in spent)]
    return [*rows, _row("total", spent)]


def _row(name: str, spent: Sequence[Spent]) -> dict[str, str]:
    cases = sum(s.group != "start" for s in spent)
    seconds = {phase: f"{sum(s.phases.get(phase, 0.0) for s in spent):.1f}" for phase in PHASES}
    return {"group": name, "cases": str(cases or ""), **seconds, "total s": f"{sum(s.total_s for s in spent):.1f}"}
