"""What a user sees, on one GPU and without an engine: kernels a token, users, prefill stalls, a prefix reused."""

import time
from collections.abc import Callable, Iterator

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from profilers.bench import Bench
from profilers.decoder.model import Decoder
from profilers.kernel import Case, Reading, kernel
from profilers.kernels.decoder import TOLERANCE, checked, decoder_for
from profilers.operations import Step
from profilers.plan import Plan
from profilers.shapes import read_shape
from profilers.timing import time_step

STYLES = ("plain", "fused")
"""Every operation launched from Python as a model library writes it; few large kernels as an engine has."""


def _cases(name: str, model: str, plan: Plan, shapes: list[dict[str, int | str]]) -> Iterator[Case]:
    if not (plan.scenarios or plan.toy):
        return
    models = [m for m in plan.models if not m.mla and not m.experts] if plan.suite == "model" else []
    chosen = "toy/dense" if plan.toy else (models[0].name if models else model)
    for shape in shapes:
        yield Case(kernel=name, shape={"model": chosen, **shape}, priority=1)


def _styles(plan: Plan, **sizes: int) -> list[dict[str, int | str]]:
    return [{"style": style, **(_toy(sizes) if plan.toy else sizes)} for style in STYLES]


def _toy(sizes: dict[str, int]) -> dict[str, int]:
    """The same sizes in the small."""
    return {name: max(1, size // 1024) if size > 128 else min(size, 2) for name, size in sizes.items()}


def _decoder(case: Case, bench: Bench, step: Step) -> tuple[Decoder, float]:
    decoder = decoder_for(read_shape(str(case.shape["model"])), bench, step)
    return decoder, checked(decoder, plain=case.shape.get("style") == "plain")


def _reading(
    case: Case, decoder: Decoder, wrong: float, samples: dict[str, list[float]], implementation: str = ""
) -> Reading:
    return Reading(
        samples=samples,
        implementation=implementation or str(case.shape.get("style", "fused")),
        error=wrong,
        tolerance=TOLERANCE,
        facts={"layers": decoder.shape.layers, "layers_of_model": read_shape(str(case.shape["model"])).layers},
    )


class _Counter(TorchDispatchMode):
    """Counts operations that do work; views are free."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def count_kernels(call: Callable[[], object], bench: Bench) -> dict[str, list[float]]:
    """Kernels that the device ran, and torch operations that are no views, in one call."""
    call()
    bench.synchronize()
    with _Counter() as counter:
        call()
    samples = {"operations_count": [float(counter.count)]}
    if bench.cuda:
        samples |= _on_device(call, bench)
    return samples


def _on_device(call: Callable[[], object], bench: Bench) -> dict[str, list[float]]:
    """Kernels and copies that torch's profiler saw on the device; nothing where it saw none."""
    from torch.profiler import ProfilerActivity, profile

    try:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            call()
            bench.synchronize()
        names = [e.name for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    except RuntimeError:
        return {}
    copies = [n for n in names if n.startswith(("Memcpy", "Memset"))]
    counted = {"kernels_count": [float(len(names) - len(copies))], "copies_count": [float(len(copies))]}
    return counted if len(names) > len(copies) else {}


@kernel(
    "scenario.kernels_per_token",
    cases=lambda p: _cases("scenario.kernels_per_token", "Qwen/Qwen3-8B", p, _styles(p, context=1024)),
)
def kernels_per_token(case: Case, bench: Bench) -> Reading:
    """Kernels to make one token for one user."""
    step = Step(sequences=1, new_tokens=1, history=int(case.shape["context"]))
    with torch.inference_mode():
        decoder, wrong = _decoder(case, bench, step)
        call = decoder.step(step, plain=case.shape["style"] == "plain")
        return _reading(case, decoder, wrong, count_kernels(call, bench))


def _user_shapes(plan: Plan) -> list[dict[str, int | str]]:
    return [{"users": 2, "context": 9}] if plan.toy else [{"users": n, "context": 2200} for n in (1, 16, 64, 128)]


@kernel("scenario.users", cases=lambda p: _cases("scenario.users", "Qwen/Qwen3-8B", p, _user_shapes(p)))
def users(case: Case, bench: Bench) -> Reading:
    """Time per token when that many users decode together, replayed from a CUDA graph."""
    step = Step(sequences=int(case.shape["users"]), new_tokens=1, history=int(case.shape["context"]))
    with torch.inference_mode():
        decoder, wrong = _decoder(case, bench, step)
        timing = time_step(decoder.step(step), bench, graph=True)
    return _reading(case, decoder, wrong, {"time_s": list(timing.samples_s)}, timing.mode)


@kernel(
    "scenario.prefill_stall",
    cases=lambda p: _cases(
        "scenario.prefill_stall", "Qwen/Qwen2.5-7B", p, _styles(p, tokens=32768, chunk=8192 if p.toy else 512)
    ),
)
def prefill_stall(case: Case, bench: Bench) -> Reading:
    """The gap that a decoding user sees while another's prompt is prefilled: whole, and in chunks."""
    total, chunk = int(case.shape["tokens"]), int(case.shape["chunk"])
    plain = case.shape["style"] == "plain"
    with torch.inference_mode():
        decoder, wrong = _decoder(case, bench, Step(sequences=1, new_tokens=total, history=0))
        other = decoder.cut(list(range(decoder.shape.layers)), 1, min(total, 1025))
        token = other.step(Step(sequences=1, new_tokens=1, history=other.capacity - 1), plain=plain)
        whole = decoder.step(Step(sequences=1, new_tokens=total, history=0), plain=plain)
        chunks = [
            decoder.step(Step(sequences=1, new_tokens=min(chunk, total - start), history=start), plain=plain)
            for start in range(0, total, chunk)
        ]
        for warm in (token, chunks[0], chunks[-1], whole):
            warm()
        bench.synchronize()
        samples = {
            "token_s": gaps([token] * 5, bench),
            "whole_gap_s": [sum(gaps([whole, token], bench)) for _ in range(2)],
            "chunk_gap_s": [sum(gaps([part, token], bench)) for part in chunks],
        }
    return _reading(case, decoder, wrong, samples)


def gaps(calls: list[Callable[[], object]], bench: Bench) -> list[float]:
    """Seconds of each call until its result is there, by the host's clock."""
    out = []
    for call in calls:
        begun = time.perf_counter()
        call()
        bench.synchronize()
        out.append(time.perf_counter() - begun)
    return out


@kernel(
    "scenario.prefix_reuse",
    cases=lambda p: _cases("scenario.prefix_reuse", "Qwen/Qwen3-8B", p, _styles(p, prefix=16384, question=64)),
)
def prefix_reuse(case: Case, bench: Bench) -> Reading:
    """Time to the first token for a document that is new, and for one whose cache is there already."""
    prefix, question = int(case.shape["prefix"]), int(case.shape["question"])
    plain = case.shape["style"] == "plain"
    with torch.inference_mode():
        decoder, wrong = _decoder(case, bench, Step(sequences=1, new_tokens=prefix + question, history=0))
        new = decoder.step(Step(sequences=1, new_tokens=prefix + question, history=0), plain=plain)
        reused = decoder.step(Step(sequences=1, new_tokens=question, history=prefix), plain=plain)
        for warm in (new, reused, reused):
            warm()
        bench.synchronize()
        samples = {"new_s": gaps([new] * 3, bench), "reused_s": gaps([reused] * 10, bench)}
    return _reading(case, decoder, wrong, samples)
