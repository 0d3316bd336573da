"""What a kernel to measure is: cases, work, readings; and the registry that kernels enter themselves in."""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profilers.bench import Bench
    from profilers.plan import Plan

Shape = Mapping[str, int | str]


class Unsupported(Exception):  # noqa: N818 - reads as the answer it is
    """A kernel that can't run here: the chip, the build of torch or a library lacks it. Says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kernel at one shape.

    Attributes
    ----------
    kernel
        Registered name, ``family.implementation``.
    shape
        Sizes and formats, by name.
    priority
        0 identifies a constant, 1 checks it on a whole model, 2 adds detail, 3 repeats a published table; a budget
        cuts from the end. [1]
    energy
        Also measure joules per call, which takes a second more.
    compiles
        A graph of its own is compiled for it, which takes seconds and throws away all that was compiled before.
    """

    kernel: str
    shape: Shape
    priority: int = 1
    energy: bool = False
    compiles: bool = False

    @property
    def key(self) -> str:
        """Name that tells this case from every other."""
        return " ".join([self.kernel, *(f"{name}={value}" for name, value in self.shape.items())])


@dataclass(slots=True, kw_only=True)
class Work:
    """A case ready to run.

    Attributes
    ----------
    calls
        The same work on different memory: called in turn, so that the L2 cache is cold as in a served model.
    check
        Error of the output against FP32, relative to the largest reference value. [1]
    tolerance
        Largest error that rounding explains. [1]
    flops, moved_bytes
        Least arithmetic and HBM traffic of one call. [FLOP], [B]
    implementation
        Library or backend that does the work.
    footprint_bytes
        Distinct memory that all calls read. [B]
    graph
        May be captured in a CUDA graph.
    facts
        Anything else worth keeping with the result.
    """

    calls: Sequence[Callable[[], Any]]
    check: Callable[[], float]
    tolerance: float
    flops: float
    moved_bytes: float
    implementation: str
    footprint_bytes: float = 0.0
    graph: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Reading:
    """What a kernel that times itself has measured.

    Attributes
    ----------
    samples
        Every sample of each quantity; the unit is the end of its name (``time_s``, ``kernels_count``).
    implementation
        Library or backend that does the work.
    error, tolerance
        Of the output against a reference, and what is allowed. [1]
    flops, moved_bytes
        Least arithmetic and traffic of one call. [FLOP], [B]
    facts
        Anything else worth keeping with the result.
    """

    samples: Mapping[str, Sequence[float]]
    implementation: str
    error: float = 0.0
    tolerance: float = 0.0
    flops: float = 0.0
    moved_bytes: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)


Build = Callable[[Case, "Bench"], "Work | Reading"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A registered kernel.

    Attributes
    ----------
    name
        ``family.implementation``, such as ``gemm.bf16`` or ``attention_decode.sdpa``.
    cases
        What to measure under a plan.
    build
        Makes a case's work, or measures it itself.
    """

    name: str
    cases: Callable[["Plan"], Iterable[Case]]
    build: Build

    @property
    def family(self) -> str:
        """Kind of operation."""
        return self.name.partition(".")[0]


_KERNELS: dict[str, Kernel] = {}
_scanned: list[bool] = []


def kernel(name: str, *, cases: Callable[["Plan"], Iterable[Case]]) -> Callable[[Build], Build]:
    """Enter a kernel in the registry under ``family.implementation``.

    Parameters
    ----------
    name
        Its name.
    cases
        Gives the cases to measure under a plan.
    """

    def enter(build: Build) -> Build:
        if name in _KERNELS:
            raise RuntimeError(f"kernel {name!r} is registered twice")
        _KERNELS[name] = Kernel(name=name, cases=cases, build=build)
        return build

    return enter


def kernels() -> dict[str, Kernel]:
    """Every kernel by name; the folder ``profilers/kernels`` is imported on first use."""
    if not _scanned:
        _scanned.append(True)
        folder = importlib.import_module("profilers.kernels")
        for module in sorted(m.name for m in pkgutil.iter_modules(folder.__path__)):
            importlib.import_module(f"profilers.kernels.{module}")
    return dict(sorted(_KERNELS.items()))
