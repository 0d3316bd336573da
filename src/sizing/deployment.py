"""The choice: how one replica of a model is laid out on GPUs and how its engine is set."""

from dataclasses import dataclass, field

from sizing.architecture import Model
from sizing.catalog import Gpu
from sizing.errors import InputError


def _whole(name: str, value: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InputError(f"{name}: {value!r} is not allowed; give a whole number from 1 to {most}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """How one replica is spread over GPUs.

    Attributes
    ----------
    tp
        Tensor parallel ranks. [gpu]
    pp
        Pipeline stages. [stage]
    dp
        Data-parallel attention ranks inside the replica (experts shared). [rank]
    ep
        Ranks that experts are spread over; at most ``tp * dp``. [rank]
    cp
        Decode context parallel: ranks, inside TP, that share one copy of the KV cache. [rank]

    Raises
    ------
    InputError
        For what is no whole number in its range, and for experts on more ranks than there are.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    cp: int = 1

    def __post_init__(self) -> None:
        for name, most in (("tp", 64), ("pp", 64), ("dp", 512), ("ep", 512), ("cp", 64)):
            _whole(name, getattr(self, name), most)
        if self.ep > self.tp * self.dp:
            raise InputError(
                f"ep: {self.ep} ranks of experts are more than tp x dp = {self.tp * self.dp}; "
                f"give at most {self.tp * self.dp}, or tp {self.ep}"
            )

    @property
    def gpus(self) -> int:
        """GPUs of one replica. [gpu]"""
        return self.tp * self.pp * self.dp

    def __str__(self) -> str:
        """TP2 PP2 EP4, leaving out what is 1; ``TP1`` for a single GPU."""
        named = [(n, getattr(self, n)) for n in ("tp", "pp", "dp", "ep", "cp")]
        return " ".join(f"{n.upper()}{v}" for n, v in named if v > 1) or "TP1"


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberFormats:
    """Formats of weights and KV cache.

    Attributes
    ----------
    weights
        Name in :mod:`sizing.formats`; None takes the checkpoint's own.
    kv
        Name of the KV format; ``auto`` is the engine's default (16 bit unless the checkpoint says so).
    """

    weights: str | None = None
    kv: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Engine and its settings; None takes the engine's own default for its version and GPU.

    Attributes
    ----------
    engine, version
        Record in :mod:`sizing.engines`.
    memory_utilization
        Share of GPU memory that the engine may use. [1]
    max_num_seqs
        Requests in one step, at most. [request]
    max_num_batched_tokens
        Token budget of one step. [token]
    max_model_len
        Longest context. [token]
    chunked_prefill, prefix_caching, cuda_graphs
        Switches.
    """

    engine: str = "vllm"
    version: str | None = None
    memory_utilization: float | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    chunked_prefill: bool = True
    prefix_caching: bool = True
    cuda_graphs: bool = True
    block_size: int | None = None

    def __post_init__(self) -> None:
        share = self.memory_utilization
        if share is not None and not 0 < share <= 1:
            raise InputError(f"memory_utilization: {share!r} is not allowed; give a share above 0 and up to 1")
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size"):
            value = getattr(self, name)
            if value is not None:
                _whole(name, value, 10**9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One replica: a model on GPUs, laid out and set."""

    model: Model
    gpu: Gpu
    parallelism: Parallelism = field(default_factory=Parallelism)
    formats: NumberFormats = field(default_factory=NumberFormats)
    settings: EngineSettings = field(default_factory=EngineSettings)

    @property
    def gpus(self) -> int:
        """GPUs of one replica. [gpu]"""
        return self.parallelism.gpus
