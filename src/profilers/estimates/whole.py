"""What whole decoders and scenarios take."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from profilers.decoder.model import fitting_layers
from profilers.estimates.effort import EFFORTS, Effort
from profilers.estimates.machine import LAUNCH_S, TRACE_S, PaperBench
from profilers.kernel import Case
from profilers.operations import Step, step_operations
from profilers.plan import STEPS
from profilers.shapes import DecoderShape, read_shape

OPERATIONS = {"layer": 30, "plain": 53, "experts": 14, "latent": 10}
"""Operations that a layer launches: dense, written out plainly, and what experts and latent attention add. [1]"""
_IMPLEMENTATION = {"attention_decode": "sdpa", "attention_prefill": "sdpa", "mla_decode": "bmm", "mla_prefill": "sdpa"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A decoder as an estimate sees it.

    Attributes
    ----------
    shape
        With the layers that fit.
    bench
        Where.
    """

    shape: DecoderShape
    bench: PaperBench

    def device_s(self, step: Step) -> float:
        """A step's kernels one after another. [s]"""
        total = 0.0
        for operation in step_operations(self.shape, step):
            library = _IMPLEMENTATION.get(operation.family)
            name = f"{operation.family}.{library}" if library else operation.family
            effort = EFFORTS[operation.family.partition(".")[0]]
            case = Case(kernel=name, shape=operation.shape)
            total += operation.count * effort(case, self.bench).call_s
        return total

    def operations(self, *, plain: bool = False) -> int:
        """Operations that a step launches. [1]"""
        a_layer = OPERATIONS["plain" if plain else "layer"] + OPERATIONS["latent"] * self.shape.mla
        sparse = sum(self.shape.has_experts(i) for i in range(self.shape.layers))
        return a_layer * self.shape.layers + OPERATIONS["experts"] * sparse + 8

    def launched_s(self, step: Step, *, plain: bool = False) -> float:
        """A step launched from Python: the host or the device, whichever is slower. [s]"""
        slower = 1.3 if plain else 1.0
        return max(slower * self.device_s(step), self.operations(plain=plain) * LAUNCH_S)

    def set_up(self, step: Step, *, plain: bool = False) -> dict[str, Any]:
        """Weights, cache and the check of the first layers, as parts of an effort."""
        elements = self.shape.weight_bytes / 2.0
        cache = self.cache_bytes(step) / 2.0
        first = self.shape.dense_layers + 1
        checked = self.shape.with_layers(first).weight_bytes / 2.0 - 2.0 * self.shape.vocab * self.shape.hidden
        routed = 5 * 13 * 9 * self.shape.top_k if self.shape.experts else 0
        return {
            "random_elements": cache,
            "shared": f"{self.shape.name} {self.shape.tp}",
            "shared_elements": elements,
            "check_name": "plain" if plain else "layers",
            "held_bytes": 2.0 * (elements + cache),
            "check_bytes": 5 * 10.0 * checked,
            "check_flops": 2.0 * 5 * 13 * checked,
            "check_operations": 5 * first * 70 + routed + 3 * self.operations() // self.shape.layers * first,
        }

    def cache_bytes(self, step: Step) -> float:
        """Cache of a step. [B]"""
        return self.shape.kv_bytes_per_token * step.sequences * (step.history + step.new_tokens)


def whole(name: str, step: Step, bench: PaperBench, tp: int = 1, others: Sequence[Step] = ()) -> Whole:
    """The decoder that the profiler would build for a step.

    Parameters
    ----------
    name, tp
        Model, and tensor-parallel GPUs.
    step, others
        Its batch, and steps that are to have as many layers.
    bench
        Where.
    """
    shape = read_shape(name).per_gpu(tp)
    layers = min(fitting_layers(shape, bench, s) for s in (step, *others))
    return Whole(shape=shape.with_layers(max(1, layers)), bench=bench)


def decoder_step(case: Case, bench: PaperBench) -> Effort:
    """A step of the whole stack."""
    s = case.shape
    step = Step(sequences=int(s["sequences"]), new_tokens=int(s["new_tokens"]), history=int(s["history"]))
    found, mode = whole(str(s["model"]), step, bench, int(s["tp"]), STEPS), str(s["mode"])
    compiled = mode.startswith("compiled")
    kinds = int(compiled)
    graph = mode.endswith("graph")
    return Effort(
        **found.set_up(step),
        call_s=found.device_s(step) if graph else found.launched_s(step),
        operations=found.operations(),
        graph=graph,
        compiled=tuple(f"{case.key} {i}" for i in range(kinds)),
        large_graphs=kinds,
        forgets=compiled,
    )


def scenario(case: Case, bench: PaperBench) -> Effort:
    """Kernels a token, users, stalls, a prefix reused."""
    name, s = case.kernel.partition(".")[2], case.shape
    step, plain = _scenario_step(name, case), s.get("style") == "plain"
    found = whole(str(s["model"]), step, bench)
    made = found.set_up(step, plain=plain)
    if name == "users":
        return Effort(**made, call_s=found.device_s(step), operations=found.operations())
    if name == "kernels_per_token":
        own_s = TRACE_S + 4 * found.launched_s(step, plain=plain)
    elif name == "transformers":
        own_s = TRACE_S + 5.0 + 25 * found.launched_s(step, plain=True)
    elif name == "prefill_stall":
        own_s = _stall_s(found, int(s["tokens"]), int(s["chunk"]), plain)
    else:
        reused = Step(sequences=1, new_tokens=int(s["question"]), history=int(s["prefix"]))
        own_s = 4 * found.launched_s(step, plain=plain) + 12 * found.launched_s(reused, plain=plain)
    return Effort(**made, own_s=own_s)


def _scenario_step(name: str, case: Case) -> Step:
    s = case.shape
    if name == "prefill_stall":
        return Step(sequences=1, new_tokens=int(s["tokens"]), history=0)
    if name == "prefix_reuse":
        return Step(sequences=1, new_tokens=int(s["prefix"]) + int(s["question"]), history=0)
    return Step(sequences=int(s.get("users", 1)), new_tokens=1, history=int(s["context"]))


def _stall_s(found: Whole, total: int, chunk: int, plain: bool) -> float:
    """Once to warm up and twice whole, once in chunks, and the decoding user's token behind each. [s]"""
    prompt = found.launched_s(Step(sequences=1, new_tokens=total, history=0), plain=plain)
    token = found.launched_s(Step(sequences=1, new_tokens=1, history=1024), plain=plain)
    starts = range(0, total, chunk)
    parts = sum(found.launched_s(Step(sequences=1, new_tokens=chunk, history=at), plain=plain) for at in starts)
    return 3.0 * prompt + parts * (1.0 + 2.0 / len(starts)) + (8 + len(starts)) * token
