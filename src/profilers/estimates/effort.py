"""What each kernel's case takes: data that is made, its check, calls and their time, what is compiled."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

from profilers.attentions import Sizes, sizes
from profilers.estimates.machine import (
    COLLECTIVE_S,
    CUDNN_S,
    DISK_BYTES_PER_S,
    HOST_BYTES_PER_S,
    HOST_RANDOM_BYTES_PER_S,
    KERNEL_S,
    LAUNCH_S,
    Machine,
    PaperBench,
)
from profilers.kernel import Case
from profilers.kernels.copies import COMPARED_BY_HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """A case in numbers.

    Attributes
    ----------
    random_elements, made_bytes
        Normal numbers drawn, and traffic of what is made from them (copies, quantising). [element], [B]
    held_bytes
        Memory that all of it takes. [B]
    check_flops, check_bytes, check_operations
        Of the check against FP32. [FLOP], [B], [1]
    call_s, calls, operations
        Time of one call on the device, on how many memories it is called in turn, operations it launches. [s], [1], [1]
    graph
        Replayed from a CUDA graph.
    host_s, own_s
        Work of the host while setting up; measuring by itself, without the usual samples. [s]
    compiled
        Graphs that are compiled, by name: one that is compiled already costs nothing.
    large_graphs
        How many of them are whole layers or attention templates. [1]
    forgets
        Throws away everything that is compiled.
    shared, shared_elements, check_name
        What large data it was made for, which the next case of the same may use again; its normal numbers; and what
        check on it need be made once only. [element]
    """

    random_elements: float = 0.0
    made_bytes: float = 0.0
    held_bytes: float = 0.0
    check_flops: float = 0.0
    check_bytes: float = 0.0
    check_operations: int = 20
    call_s: float = 0.0
    calls: int = 1
    operations: float = 1.0
    graph: bool = True
    host_s: float = 0.0
    own_s: float = 0.0
    compiled: tuple[str, ...] = ()
    large_graphs: int = 0
    forgets: bool = False
    shared: str = ""
    shared_elements: float = 0.0
    check_name: str = ""


CHECKED_ROWS = 256
"""Rows of a product that are checked. [token]"""
WEIGHTS = {"bf16": (2.0, 0.0), "fp8": (1.0, 40.0), "fp8_row": (1.0, 40.0), "fp8_block": (1.0, 40.0),
           "int4_weight": (0.53125, 160.0), "nvfp4": (0.5625, 250.0)}  # fmt: skip
"""Bytes of a weight, and traffic of quantising it, which passes over FP32 copies of it. [B]"""


def gemm(case: Case, bench: PaperBench) -> Effort:
    """A matrix product."""
    m, n, k = (int(case.shape[x]) for x in "mnk")
    name = case.kernel.partition(".")[2]
    width, quantising = WEIGHTS[name]
    copies, rows = bench.copies(width * n * k), min(m, CHECKED_ROWS)
    given = width if name in ("fp8", "fp8_row", "fp8_block", "nvfp4") else 2.0
    moved = width * n * k + given * m * k + 2.0 * m * n
    return Effort(
        random_elements=n * k + m * k,
        made_bytes=quantising * (n * k + m * k) + 2.0 * (copies - 1) * width * n * k,
        held_bytes=copies * width * n * k,
        check_flops=2.0 * rows * n * k,
        check_bytes=20.0 * n * k + 8.0 * rows * n,
        call_s=bench.machine.call_s(2.0 * m * n * k, moved, fp8="fp8" in name),
        calls=copies,
        operations=1.5,
    )


PAGES = {"varlen": 256, "flash_attn": 256, "flashinfer": 16, "flex": 128}
"""Tokens of a page of the cache. [token]"""


def attention(case: Case, bench: PaperBench) -> Effort:
    """Prefill or decode attention by any library."""
    at = sizes(case)
    library = case.kernel.partition(".")[2]
    copies, elements = bench.copies(at.kv_bytes), at.batch * at.tokens * at.heads * at.head_dim
    flex, page = library == "flex", PAGES.get(library, 1)
    padded = -(-at.context // page) * page / at.context
    return Effort(
        random_elements=copies * padded * at.kv_bytes / 2.0 + elements,
        held_bytes=copies * at.kv_bytes,
        made_bytes=12.0 * at.tokens * at.context if flex and at.tokens > 1 else 0.0,
        check_flops=4.0 * 16 * at.context * at.heads * at.head_dim,
        check_bytes=20.0 * at.context * at.heads * at.head_dim,
        call_s=_attention_s(at, bench.machine),
        calls=copies,
        operations=5.0,
        host_s=CUDNN_S if library == "cudnn" else 0.0,
        compiled=(case.key,) if flex else (),
        large_graphs=int(flex),
        forgets=flex,
    )


def _attention_s(at: Sizes, machine: Machine) -> float:
    moved = at.kv_bytes + 4.0 * at.batch * at.tokens * at.heads * at.head_dim
    return machine.call_s(4.0 * at.pairs * at.heads * at.head_dim, moved, kernels=2)


def mla_decode(case: Case, bench: PaperBench) -> Effort:
    """Absorbed attention; torch's own reads the cache twice."""
    s = {name: int(value) for name, value in case.shape.items()}
    width = s["latent"] + s["rope"]
    cache = 2.0 * s["batch"] * s["context"] * width
    copies, passes = bench.copies(cache), 2.0 if case.kernel.endswith("bmm") else 1.0
    scores = s["batch"] * s["context"] * s["heads"]
    flops, kernels = 2.0 * scores * (width + s["latent"]), 2 * passes
    return Effort(
        random_elements=copies * cache / 2.0,
        held_bytes=copies * cache,
        check_bytes=20.0 * s["context"] * width,
        call_s=bench.machine.call_s(flops, passes * cache + 16.0 * scores * (passes - 1), kernels=kernels),
        calls=copies,
        operations=6.0,
    )


def mla_prefill(case: Case, bench: PaperBench) -> Effort:
    """Expanded attention."""
    s = {name: int(value) for name, value in case.shape.items()}
    context, width = s["history"] + s["tokens"], s["head_dim"] + s["value_dim"]
    read = 2.0 * s["batch"] * s["heads"] * context * width
    copies, pairs = bench.copies(read), s["tokens"] * (s["history"] + (s["tokens"] + 1) / 2)
    flops = 4.0 * s["batch"] * pairs * s["heads"] * s["head_dim"]
    return Effort(
        random_elements=copies * read / 2.0 + s["tokens"] * s["heads"] * s["head_dim"],
        held_bytes=copies * read,
        check_flops=2.0 * 16 * context * s["heads"] * width,
        check_bytes=20.0 * context * s["heads"] * width,
        call_s=bench.machine.call_s(flops, 3.0 * read, kernels=2),
        calls=copies,
        operations=6.0,
    )


def batched_gemm(case: Case, bench: PaperBench) -> Effort:
    """A product a head."""
    batches, m, n, k = (int(case.shape[x]) for x in ("batches", "m", "n", "k"))
    each = 2.0 * batches * n * k
    copies = bench.copies(each)
    return Effort(
        random_elements=copies * each / 2.0 + batches * m * k,
        held_bytes=copies * each,
        check_flops=2.0 * batches * m * n * k,
        check_bytes=6.0 * batches * n * k,
        call_s=bench.machine.call_s(2.0 * batches * m * n * k, each + 2.0 * batches * m * (n + k)),
        calls=copies,
    )


def moe(case: Case, bench: PaperBench) -> Effort:
    """Experts with what sends tokens to them."""
    s = {name: int(value) for name, value in case.shape.items()}
    fp8 = case.kernel == "moe.fp8"
    matrix = 3.0 * s["hidden"] * s["intermediate"]
    all_elements, width = s["experts"] * matrix, 1.0 if fp8 else 2.0
    sets = 1 if fp8 else min(bench.copies(2.0 * all_elements), 2)
    touched = experts_touched(s["tokens"], s["experts"], s["top_k"])
    at_most = min(s["tokens"] * s["top_k"], s["experts"]) * matrix * width
    chosen = max(2, bench.copies(at_most, at_most=24))
    flops = 2.0 * s["tokens"] * s["top_k"] * matrix
    moved = touched * matrix * width + 12.0 * s["tokens"] * s["top_k"] * s["hidden"]
    checked = experts_touched(min(s["tokens"], 8), s["experts"], s["top_k"])
    return Effort(
        random_elements=sets * all_elements + s["tokens"] * s["hidden"] + chosen * s["tokens"] * s["experts"],
        made_bytes=sets * all_elements * (60.0 if fp8 else 4.0),
        held_bytes=sets * all_elements * (5.0 if fp8 else 2.0),
        check_flops=2.0 * min(s["tokens"], 8) * s["top_k"] * matrix,
        check_bytes=checked * matrix * 6.0,
        check_operations=int(12 * checked) + 12 * chosen,
        call_s=bench.machine.call_s(flops, moved, kernels=14, fp8=fp8),
        calls=chosen,
        operations=24.0 if fp8 else 16.0,
    )


def experts_touched(tokens: float, experts: float, top_k: float) -> float:
    """Experts that a batch reads when every choice is as likely: E (1 - (1 - k/E)^T). [1]

    Parameters
    ----------
    tokens
        Of the batch. [token]
    experts, top_k
        Of the layer, and those that a token goes to. [1]
    """
    return float(experts * (1.0 - (1.0 - top_k / experts) ** tokens))


ELEMENT_BYTES = {"add_rms_norm": 8.0, "silu_mul": 6.0, "rope": 4.0, "fp8_quantise": 3.0}
"""Traffic of an element. [B]"""


def elementwise(case: Case, bench: PaperBench) -> Effort:
    """Kernels that the compiler fuses; one token is compiled apart from more."""
    tokens, width = int(case.shape["tokens"]), int(case.shape["width"])
    moved = ELEMENT_BYTES[case.kernel.partition(".")[2]] * tokens * width
    return Effort(
        random_elements=2.0 * tokens * width,
        held_bytes=2.0 * moved,
        check_bytes=40.0 * tokens * width,
        call_s=bench.machine.call_s(0.0, moved),
        operations=4.0,
        compiled=(f"{case.kernel} {'one' if tokens == 1 else 'more'}",),
    )


def sampling(case: Case, bench: PaperBench) -> Effort:
    """The next token."""
    size = 4.0 * int(case.shape["sequences"]) * int(case.shape["vocabulary"])
    passes, kernels = (1.0, 1) if case.kernel.endswith("greedy") else (3.0, 12)
    return Effort(
        random_elements=size / 4.0,
        held_bytes=size,
        call_s=bench.machine.call_s(0.0, passes * size, kernels=kernels),
        operations=float(kernels),
    )


def copy(case: Case, bench: PaperBench) -> Effort:
    """Copies; to and from the host at the speed of the link, checked by the host."""
    size = float(case.shape["bytes"])
    name = case.kernel.partition(".")[2]
    if name.startswith("hbm"):
        copies = bench.copies(2.0 * size if name == "hbm" else size)
        return Effort(
            made_bytes=2.0 * copies * size,
            held_bytes=2.0 * copies * size,
            call_s=bench.machine.call_s(0.0, 2.0 * size if name == "hbm" else size),
            calls=copies,
            check_bytes=4.0 * size,
        )
    drawn = min(size, 16 << 20) / HOST_RANDOM_BYTES_PER_S
    return Effort(
        held_bytes=size,
        call_s=KERNEL_S + size / (0.8 * bench.machine.pcie_bytes_per_s),
        host_s=drawn + (2.0 * size + 4.0 * min(size, 2 * COMPARED_BY_HOST)) / HOST_BYTES_PER_S,
        graph=False,
    )


def launch(case: Case, bench: PaperBench) -> Effort:
    """Smallest kernels, one after another."""
    return Effort(own_s=25 * int(case.shape["kernels"]) * LAUNCH_S)


def loading(case: Case, bench: PaperBench) -> Effort:
    """A file written once, read three times from the disk and three times from the host's memory."""
    size = float(case.shape["bytes"])
    return Effort(own_s=4.0 * size / DISK_BYTES_PER_S + 3.0 * size / HOST_BYTES_PER_S, held_bytes=size)


def collective(case: Case, bench: PaperBench) -> Effort:
    """A group of processes."""
    return Effort(own_s=COLLECTIVE_S)


EFFORTS: dict[str, Callable[[Case, PaperBench], Effort]] = {
    "gemm": gemm, "attention_decode": attention, "attention_prefill": attention, "mla_decode": mla_decode,
    "mla_prefill": mla_prefill, "batched_gemm": batched_gemm, "moe": moe, "elementwise": elementwise,
    "sampling": sampling, "copy": copy, "launch": launch, "loading": loading, "collective": collective,
}  # fmt: skip
"""Efforts by family; whole decoders are in :mod:`profilers.estimates.whole`."""

NEEDS = {"flash_attn": ("flash_attn_interface", "flash_attn"), "flashinfer": ("flashinfer",),
         "bf16_vllm": ("vllm",), "transformers": ("transformers",)}  # fmt: skip
"""Libraries of which one is needed, by the second part of a kernel's name."""


def missing(case: Case) -> bool:
    """Whether a case can't run on one Hopper GPU with what is installed in this Python.

    Parameters
    ----------
    case
        Which.
    """
    needed = NEEDS.get(case.kernel.partition(".")[2], ())
    if needed and not any(importlib.util.find_spec(name) for name in needed):
        return True
    return case.kernel in ("gemm.nvfp4", "copy.device_to_device")
