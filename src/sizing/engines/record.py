"""What an engine answers: its defaults, what it takes besides weights, and how it divides the rest."""

import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sizing.architecture import Layer, Model
from sizing.catalog import Gpu
from sizing.engines.cache import CachePool
from sizing.formats import WeightFormat
from sizing.registry import Registry

GIB = 2.0**30
#: Months in which releases came out, for logs that state a date only: (year, month) -> version.
#: Source: release pages of the vllm-project/vllm repository, from general knowledge.
RELEASES = (
    ((2023, 6), (0, 1)), ((2024, 1), (0, 2)), ((2024, 4), (0, 4)), ((2024, 7), (0, 5)), ((2024, 10), (0, 6)),
    ((2025, 2), (0, 7)), ((2025, 4), (0, 8)), ((2025, 6), (0, 9)), ((2025, 8), (0, 10)), ((2025, 10), (0, 11)),
    ((2025, 12), (0, 12)), ((2026, 1), (0, 14)), ((2026, 3), (0, 16)), ((2026, 5), (0, 19)),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """An engine's version as a log prints it.

    Attributes
    ----------
    number
        (0, 19, 0); empty when nothing was stated.
    legacy
        True for vLLM's V0 engine, False for V1, None when only the number decides.
    build
        What follows a plus sign: ``rhai4``, ``g2841a84ac``.
    """

    number: tuple[int, ...] = ()
    legacy: bool | None = None
    build: str = ""
    text: str = ""

    def __bool__(self) -> bool:
        """Whether a version was stated."""
        return bool(self.number)

    @classmethod
    def parse(cls, text: str | None) -> "Version":
        """Version from ``v0.19.0``, ``0.8.3 (V0)``, ``0.13.1.dev8+g2841a84ac``, ``(V1, 2025-04)``."""
        said = str(text or "").strip()
        engine_mark = re.search(r"\bV([01])\b", said)
        legacy = None if engine_mark is None else engine_mark[1] == "0"
        build = re.search(r"\+([\w.]+)", said)
        found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", said)
        dated = re.search(r"\b(20\d\d)-(\d\d)\b", said)
        number: tuple[int, ...] = ()
        if found:
            number = tuple(int(part) for part in found.groups(default="0"))
        elif dated:
            month = (int(dated[1]), int(dated[2]))
            number = max((v for m, v in RELEASES if m <= month), default=())
        return cls(number=number, legacy=legacy, build=build[1] if build else "", text=said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What an engine sets when it is not told.

    Attributes
    ----------
    memory_utilization
        Share of GPU memory the engine uses (vLLM), gives to weights and KV (SGLang), or takes of what is
        free (TensorRT-LLM). [1]
    max_num_seqs, max_num_batched_tokens
        Requests and tokens of one step at most. [request], [token]
    block_size
        Tokens of one block. [token]
    max_model_len
        Longest context. [token]
    """

    memory_utilization: float
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    max_model_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One GPU of a replica, with everything an engine's memory depends on.

    Attributes
    ----------
    layers
        Layers of this pipeline stage, with their counts.
    first, last
        Whether the stage holds the embedding, the head.
    tp, pp, ep, dp, cp
        Layout of the replica. [gpu]
    weights_bytes
        As the checkpoint stores them or as asked for. [byte]
    sixteen_bit_bytes
        Bytes of an element that is not quantised: 2, or 4 for float32. [byte]
    kv
        Name of the KV format.
    weights
        Name of the format of most matrices.
    requested
        Weight format asked for; None: the checkpoint's own.
    """

    model: Model
    gpu: Gpu
    layers: tuple[Layer, ...]
    first: bool = True
    last: bool = True
    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    cp: int = 1
    weights_bytes: float
    sixteen_bit_bytes: float = 2.0
    kv: str = "bf16"
    weights: str = "bf16"
    requested: WeightFormat | None = None
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    cuda_graphs: bool = True

    @property
    def depth(self) -> int:
        """Layers of this stage."""
        return sum(layer.count for layer in self.layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """What an engine takes on one GPU besides weights and KV cache.

    Attributes
    ----------
    weights_extra_bytes
        Buffers that loading adds to the checkpoint's bytes (rotary tables, absorbed MLA matrices). [byte]
    activation_bytes
        Peak of a profiling step above the weights. [byte]
    non_torch_bytes
        Communication buffers, kernels' workspaces. [byte]
    cuda_graph_bytes
        Captured graphs. [byte]
    charged_graph_bytes
        The part of them that the KV room is charged with. [byte]
    context_bytes
        What the process holds before it loads anything, when the engine's rule counts it. [byte]
    """

    weights_extra_bytes: float = 0.0
    activation_bytes: float = 0.0
    non_torch_bytes: float = 0.0
    cuda_graph_bytes: float = 0.0
    charged_graph_bytes: float = 0.0
    context_bytes: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Engine(ABC):
    """An engine of one version: defaults, memory rules, wording.

    Attributes
    ----------
    name
        ``vllm``, ``sglang``, ``trtllm``, ``transformers``.
    version
        The version asked for, or the newest one known.
    limits_per_rank
        Whether each data-parallel rank schedules by itself, with the whole limits on sequences and tokens;
        otherwise ranks share them out.
    holds_longest
        Whether it starts only where the cache holds one request of the longest context.
    """

    limits_per_rank: ClassVar[bool] = True
    holds_longest: ClassVar[bool] = False
    name: str
    version: Version = field(default_factory=Version)

    @abstractmethod
    def defaults(self, model: Model, gpu: Gpu, tp: int = 1, max_model_len: int | None = None) -> Defaults:
        """What the engine sets when it is not told; some of it follows the longest context asked for."""

    @abstractmethod
    def overhead(self, rank: Rank) -> Overhead:
        """What it takes on this GPU besides weights and KV cache."""

    @abstractmethod
    def kv_bytes(self, rank: Rank, overhead: Overhead, utilization: float) -> float:
        """Room left for the KV cache on this GPU; negative when the rest does not fit. [byte]"""

    @abstractmethod
    def pools(self, rank: Rank, kv_bytes: float) -> tuple[CachePool, ...]:
        """How the room is divided; a request needs its blocks in every pool."""

    def printed_tokens(self, pools: tuple[CachePool, ...]) -> int:
        """Tokens of KV cache as the engine's log states them. [token]"""
        return min((pool.printed_tokens for pool in pools), default=0)

    def wording(self, kv_bytes: float, tokens: int, concurrency: float, max_model_len: int) -> tuple[str, ...]:
        """The lines of the engine's log that state the room, to hold the prediction against."""
        return (f"KV cache: {kv_bytes / GIB:.2f} GiB, {tokens:,} tokens",)

    def rule(self) -> str:
        """The identity by which it finds the KV room, in words."""
        return "KV room = usable - weights - activation - non-torch"


_engines: Registry[type[Engine]] = Registry("engine", "sizing.engines")
register = _engines.register
SHIPPED = frozenset({"vllm", "sglang", "trtllm", "transformers"})
_ALIASES = {"trt-llm": "trtllm", "tensorrt-llm": "trtllm", "tensorrt_llm": "trtllm", "hf": "transformers"}
_made: dict[tuple[str, str], Engine] = {}


def engine(name: str, version: str | None = None) -> Engine:
    """Record of an engine.

    Parameters
    ----------
    name
        ``vllm``, ``sglang``, ``trtllm``, ``transformers``, in any case.
    version
        As a log prints it; None takes the newest version whose rules are known.
    """
    key = (str(name), str(version or ""))
    if key not in _made:
        spelled = key[0].strip().lower()
        spelled = _ALIASES.get(spelled, spelled)
        if spelled in SHIPPED:  # its own file alone, not all of the folder
            importlib.import_module(f"sizing.engines.{spelled}")
        made: type[Any] = _engines.get(spelled)
        _made[key] = made(version=Version.parse(version))
    return _made[key]


def engines() -> tuple[str, ...]:
    """Names of the engines."""
    return _engines.names()


def of_layers(layers: tuple[Layer, ...], kind: str) -> Mapping[int, int]:
    """Counts by position of the layers whose mixer is of one kind."""
    return {i: layer.count for i, layer in enumerate(layers) if layer.mixer.kind == kind}
