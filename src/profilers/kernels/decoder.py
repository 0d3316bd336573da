"""Whole decoder steps: prefill and decode, launched from Python, compiled, and replayed from CUDA graphs."""

from collections.abc import Iterator, Sequence

import torch

from profilers.bench import Bench
from profilers.decoder.model import Decoder, fitting_layers
from profilers.decoder.reference import decoder_error, stack_gap
from profilers.kernel import Case, Reading, Unsupported, kernel
from profilers.operations import Step, step_operations
from profilers.plan import STEPS, TYPICAL, Plan
from profilers.shapes import DecoderShape, read_shape
from profilers.timing import time_step

DECODE_MODES = ("graph", "eager", "compiled_graph")
PREFILL_MODES = ("eager", "compiled")
TOLERANCE = 0.05


def _cases(plan: Plan) -> Iterator[Case]:
    if not plan.decoders:
        return
    for model in plan.models:
        for step in plan.steps:
            typical = step in TYPICAL
            for mode in DECODE_MODES if step.decodes else PREFILL_MODES:
                compiles = mode.startswith("compiled")
                seldom = mode in ("eager", "compiled_graph", "compiled") and (step.decodes or compiles)
                if seldom and not (typical or plan.every_step or plan.toy):
                    continue
                shape = {"model": model.name, "tp": model.tp, "mode": mode, **step.as_shape()}
                yield Case(
                    kernel="decoder.step",
                    shape=shape,
                    priority=_priority(mode, step, typical),
                    energy=typical and mode == "graph",
                    compiles=compiles,
                )


def _priority(mode: str, step: Step, typical: bool) -> int:
    """The plain way of each step first, with every way of a typical one; then the rest."""
    return 1 if typical or mode == ("graph" if step.decodes else "eager") else 2


def decoder_for(shape: DecoderShape, bench: Bench, step: Step, others: Sequence[Step] = ()) -> Decoder:
    """A decoder with room for a step, with as many layers as the memory takes.

    Drawing the weights takes longer than most steps, so the bench holds them for the model's next case.

    Parameters
    ----------
    shape
        Its sizes.
    bench
        Where.
    step
        Batch that its cache must hold.
    others
        Steps that are to have as many layers.
    """
    held = bench.held_for(shape)
    if isinstance(held, Decoder):
        held.drop_cache()
    own = held.weight_bytes if isinstance(held, Decoder) else 0.0
    layers = min(fitting_layers(shape, bench, s, held_bytes=own) for s in (step, *others))
    if layers < shape.dense_layers + 1:
        raise Unsupported(f"{shape.name}: not even {shape.dense_layers + 1} layers fit the free memory")
    sizes = {"sequences": step.sequences, "capacity": step.history + step.new_tokens}
    if isinstance(held, Decoder):
        held.cut_to(layers)
        held.set_cache(**sizes)
        return held
    made = Decoder(shape.with_layers(layers), bench, **sizes)
    bench.hold(shape, made)
    return made


def checked(decoder: Decoder, *, plain: bool = False) -> float:
    """Error of the decoder's first layers against FP32; found once, for its weights serve many cases. [1]

    Parameters
    ----------
    decoder
        Which.
    plain
        Check the plain layers instead.
    """
    if plain not in decoder.errors:
        decoder.errors[plain] = decoder_error(decoder, plain=plain)
    return decoder.errors[plain]


@kernel("decoder.step", cases=_cases)
def decoder_step(case: Case, bench: Bench) -> Reading:
    """One step of the whole stack, embedding to next token."""
    s = case.shape
    shape = read_shape(str(s["model"])).per_gpu(int(s["tp"]))
    step = Step(sequences=int(s["sequences"]), new_tokens=int(s["new_tokens"]), history=int(s["history"]))
    mode = str(s["mode"])
    with torch.inference_mode():
        decoder = decoder_for(shape, bench, step, () if bench.toy else STEPS)
        wrong = checked(decoder)
        run = decoder.stack(step)
        if mode.startswith("compiled"):
            torch.compiler.reset()
            eager, run = run, decoder.stack(step, compile_layers=True)
            wrong = max(wrong, stack_gap(decoder, step, run, eager))
        call = decoder.call(step, run)
        timing = time_step(call, bench, graph=mode.endswith("graph"), energy=case.energy)
        if mode.endswith("graph") and bench.cuda and timing.mode != "graph":
            raise RuntimeError(timing.note)
    measured = decoder.shape
    return Reading(
        samples={"time_s": timing.samples_s},
        implementation=mode,
        error=wrong,
        tolerance=TOLERANCE,
        moved_bytes=measured.weight_bytes,
        facts={
            "layers": measured.layers,
            "layers_of_model": shape.layers,
            "operations": [o.as_record() for o in step_operations(measured, step)],
            "energy_j": timing.energy_j,
            "energy_window_s": timing.energy_window_s,
        },
    )
