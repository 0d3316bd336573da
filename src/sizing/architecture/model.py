"""A model: its layers in order, what stands before and after them, and the sums over them."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from sizing.architecture.parts import Layer, Linear, split
from sizing.formats import KvFormat, WeightFormat, kv_format, weight_format


@dataclass(frozen=True, kw_only=True)
class Tower:
    """An encoder of images or sound in front of the text model.

    Parameters
    ----------
    name
        ``vision`` or ``audio``.
    parameters
        Its elements, projector included [element].
    hidden_size, layers
        Width and depth, for the cost of encoding.
    note
        What was read and what was assumed.
    """

    name: str
    parameters: int
    hidden_size: int = 0
    layers: int = 0
    note: str = ""

    def flops(self, patches: float) -> float:
        """Floating-point operations to encode an image of so many patches. [flop]"""
        return 2.0 * self.parameters * patches + 4.0 * self.layers * self.hidden_size * patches**2


@dataclass(frozen=True, kw_only=True)
class CheckpointFormat:
    """How the checkpoint's files store the model.

    Parameters
    ----------
    name
        The format of most of its matrices (``bf16``, ``fp8_block``, ``nvfp4`` ...).
    method
        What wrote it: ``modelopt``, ``compressed-tensors``, ``awq``, ..., or ``""``.
    kv
        KV format that the checkpoint asks for, None when it names none.
    left_alone
        Names of what it keeps in 16 bit, as written.
    extra_parameters
        Elements in the files that the framework does not build: buffers, copies of tied heads [element].
    missing_parameters
        Elements the framework builds that the files lack [element].
    extra_note
        What those are.
    """

    name: str = "bf16"
    method: str = ""
    kv: str | None = None
    left_alone: tuple[str, ...] = ()
    extra_parameters: int = 0
    missing_parameters: int = 0
    extra_note: str = ""


@dataclass(frozen=True, kw_only=True)
class Model:
    """What a config.json says, as numbers.

    Parameters
    ----------
    name
        Hugging Face id, or the folder it was read from.
    model_type, architecture
        As the config names them.
    hidden_size
        Width of the residual stream [element].
    vocab_size
        Entries of the embedding [token].
    tied_embeddings
        Whether the head is the embedding.
    max_positions
        Longest context the config allows [token].
    layers
        Kinds of layers with their counts.
    pattern
        Index into ``layers`` of each layer in order.
    embedding, head
        Input embedding and output head; the head is None for encoders.
    other_parameters
        Final norm, position embeddings, pooler and the like [element].
    towers
        Vision and audio encoders.
    mtp_layers
        Layers for multi-token prediction that the checkpoint ships.
    mtp_other_parameters
        What they ship besides, copies of embedding and head included [element].
    checkpoint
        How the files store it.
    native_dtype
        16- or 32-bit type of what is not quantised.
    state_dtype
        Number format of recurrent states in the cache.
    encoder_only
        True for embedding models that keep no KV cache.
    warnings
        What was not understood or assumed, by name.
    source
        Where the config came from.
    config
        The config itself, for readers that need a field we do not carry.
    """

    name: str
    model_type: str
    architecture: str = ""
    hidden_size: int
    vocab_size: int
    tied_embeddings: bool = False
    max_positions: int | None = None
    layers: tuple[Layer, ...]
    pattern: tuple[int, ...]
    embedding: Linear
    head: Linear | None
    other_parameters: int = 0
    towers: tuple[Tower, ...] = ()
    mtp_layers: tuple[Layer, ...] = ()
    mtp_other_parameters: int = 0
    checkpoint: CheckpointFormat = field(default_factory=CheckpointFormat)
    native_dtype: str = "bf16"
    state_dtype: str = "fp32"
    encoder_only: bool = False
    warnings: tuple[str, ...] = ()
    source: str = ""
    config: dict[str, object] = field(default_factory=dict, repr=False, compare=False)

    # -- counting ---------------------------------------------------------------------------------------

    @property
    def num_layers(self) -> int:
        """How many layers (blocks, where a config counts blocks)."""
        return len(self.pattern)

    def in_order(self) -> Iterator[Layer]:
        """Each layer, first to last."""
        return (self.layers[kind] for kind in self.pattern)

    @cached_property
    def text_parameters(self) -> int:
        """Elements of the text model, tied embeddings once, without MTP. [element]"""
        inside = sum(layer.parameters * layer.count for layer in self.layers)
        head = 0 if self.head is None or self.tied_embeddings else self.head.parameters
        return inside + self.embedding.parameters + head + self.other_parameters

    @cached_property
    def vision_parameters(self) -> int:
        """Elements of the encoders in front. [element]"""
        return sum(tower.parameters for tower in self.towers)

    @cached_property
    def parameters(self) -> int:
        """Elements as the framework builds them: encoders in, tied embeddings once, MTP out. [element]"""
        return self.text_parameters + self.vision_parameters

    @cached_property
    def active_parameters(self) -> int:
        """Elements of the text model that one token uses. [element]"""
        idle = sum((layer.parameters - layer.active_parameters) * layer.count for layer in self.layers)
        return self.text_parameters - idle

    @cached_property
    def mtp_parameters(self) -> int:
        """Elements shipped for multi-token prediction. [element]"""
        return sum(layer.parameters * layer.count for layer in self.mtp_layers) + self.mtp_other_parameters

    @cached_property
    def checkpoint_parameters(self) -> int:
        """Elements that the checkpoint's files hold. [element]"""
        shipped = self.parameters + self.mtp_parameters + self.checkpoint.extra_parameters
        return shipped - self.checkpoint.missing_parameters

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return any(layer.feed_forward.experts for layer in self.layers)

    # -- bytes ------------------------------------------------------------------------------------------

    def weights_bytes(
        self, format: str | None = None, tp: int = 1, pp: int = 1, ep: int = 1, attention_tp: int | None = None
    ) -> float:
        """Bytes of weights on one GPU (that of the largest pipeline stage), MTP left out. [B]

        Parameters
        ----------
        format
            Weight format asked for; None: as the checkpoint stores each matrix.
        tp, pp, ep
            Tensor-, pipeline- and expert-parallel GPUs [gpu].
        attention_tp
            Tensor parallelism of the attention when it differs (DP-attention: 1) [gpu].
        """
        requested = None if format is None else weight_format(format)
        sixteen = weight_format(self.native_dtype if requested is None or self.native_dtype != "fp32" else "bf16")
        if requested is not None and requested.element_bits >= 16:
            sixteen = requested
        sizes = [self._layer_bytes(layer, requested, sixteen, tp, ep, attention_tp) for layer in self.layers]
        ends = self._end_bytes(requested, sixteen, tp)
        if pp <= 1:
            return sum(size * layer.count for size, layer in zip(sizes, self.layers, strict=True)) + sum(ends)
        return max(_stage_bytes([sizes[kind] for kind in self.pattern], ends, pp))

    def _layer_bytes(
        self,
        layer: Layer,
        requested: WeightFormat | None,
        sixteen: WeightFormat,
        tp: int,
        ep: int,
        attention_tp: int | None,
    ) -> float:
        if attention_tp is None or attention_tp == tp:
            return layer.weights_bytes(requested, sixteen, tp, ep)
        mixer = sum(linear.bytes(requested, sixteen, attention_tp) for linear in layer.mixer.linears)
        rest = sum(linear.bytes(requested, sixteen, tp, ep) for linear in layer.feed_forward.linears)
        return mixer + rest + layer.other_parameters * sixteen.bytes_per_weight

    def _end_bytes(self, requested: WeightFormat | None, sixteen: WeightFormat, tp: int) -> tuple[float, float]:
        towers = self.vision_parameters * sixteen.bytes_per_weight / tp
        first = self.embedding.bytes(requested, sixteen, tp) + towers
        last = self.other_parameters * sixteen.bytes_per_weight
        if self.head is not None and not self.tied_embeddings and not self.checkpoint.missing_parameters:
            last += self.head.bytes(requested, sixteen, tp)
        return first, last

    @cached_property
    def checkpoint_bytes(self) -> float:
        """Bytes of the checkpoint's files: every matrix in its format, scales, MTP and copies included. [B]"""
        sixteen = weight_format(self.native_dtype)
        total = self.weights_bytes()
        total += sum(layer.weights_bytes(None, sixteen) * layer.count for layer in self.mtp_layers)
        extra = self.mtp_other_parameters + self.checkpoint.extra_parameters
        return total + extra * sixteen.bytes_per_weight

    @property
    def bytes_per_parameter(self) -> float:
        """Mean bytes a weight of the checkpoint as stored. [B]"""
        return self.checkpoint_bytes / max(self.checkpoint_parameters, 1)

    def without_windows(self) -> "Model":
        """The model as an engine runs it that looks back at everything: every window taken for the whole context."""
        layers = tuple(
            replace(layer, mixer=replace(layer.mixer, window=None)) if layer.mixer.kind == "sliding" else layer
            for layer in self.layers
        )
        return replace(self, layers=layers)

    # -- the cache --------------------------------------------------------------------------------------

    def kv_bytes_per_token(self, kv: KvFormat | str | None = None, tp: int = 1, pp: int = 1) -> float:
        """Bytes a token takes in the KV cache of one GPU, every layer counted as if no window were full. [B]

        Parameters
        ----------
        kv
            KV format; None: the checkpoint's, or 16 bit.
        tp, pp
            Tensor- and pipeline-parallel GPUs; KV heads are replicated beyond their number [gpu].
        """
        stored = self._kv(kv)
        each = [layer.mixer.kv_bytes_per_token(stored, tp) for layer in self.layers]
        if pp <= 1:
            return sum(size * layer.count for size, layer in zip(each, self.layers, strict=True))
        return max(_stage_bytes([each[kind] for kind in self.pattern], (0.0, 0.0), pp))

    def kv_bytes(self, tokens: float, kv: KvFormat | str | None = None, tp: int = 1) -> float:
        """Bytes one sequence of ``tokens`` takes on one GPU, windows applied, states included. [B]"""
        stored = self._kv(kv)
        return sum(layer.mixer.kv_bytes(tokens, stored, tp) * layer.count for layer in self.layers) + (
            self.state_bytes(tp=tp)
        )

    def state_bytes(self, state: str | None = None, tp: int = 1) -> float:
        """Bytes of recurrent and convolution state of one sequence on one GPU. [B]"""
        kind = state or self.state_dtype
        return sum(layer.mixer.state_bytes(kind, tp=tp) * layer.count for layer in self.layers)

    def _kv(self, kv: KvFormat | str | None) -> KvFormat:
        if isinstance(kv, KvFormat):
            return kv
        if kv is None or kv == "auto":
            return kv_format(self.checkpoint.kv or "bf16")
        return kv_format(kv)

    # -- operations -------------------------------------------------------------------------------------

    def flops_per_token(self, context: float = 0.0) -> float:
        """Floating-point operations to produce one token after ``context`` tokens. [flop]

        Two a weight that the token uses (the embedding is a look-up), and two a query head, cached token
        and element of key and value (Kaplan et al. 2020, table 1, with windows and sparsity applied).
        """
        weights = self.active_parameters - (0 if self.tied_embeddings else self.embedding.parameters)
        attention = 0.0
        for layer in self.layers:
            mixer = layer.mixer
            seen = context if mixer.window is None else min(context, mixer.window)
            if mixer.attended_tokens is not None:
                seen = min(seen, mixer.attended_tokens)
            attention += layer.count * 2.0 * mixer.heads * (mixer.head_dim + mixer.value_dim) * seen
            attention += layer.count * 2.0 * mixer.index_heads * mixer.index_dim * context
            attention += layer.count * 4.0 * mixer.state_elements
        return 2.0 * weights + attention

    def with_warnings(self, *texts: str) -> "Model":
        """The same model with more said about it."""
        return replace(self, warnings=(*self.warnings, *texts)) if texts else self


def _stage_bytes(per_layer: list[float], ends: tuple[float, float], pp: int) -> list[float]:
    """Bytes of each pipeline stage: layers spread evenly, the first and last carry the ends. [B]"""
    depth = split(len(per_layer), pp)
    stages = [sum(per_layer[start : start + depth]) for start in range(0, max(len(per_layer), 1), depth or 1)]
    stages[0] += ends[0]
    stages[-1] += ends[1]
    return stages
