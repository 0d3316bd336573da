"""What a model is made of: matrices, token mixers, feed-forwards and layers, with their sizes.

A layer is a token mixer (attention of some kind, a recurrence, or nothing) and a feed-forward (dense, a
mixture of experts, or nothing). Everything about memory and time follows from the matrices and from what
a token leaves behind in the cache.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from sizing.formats import KvFormat, WeightFormat, kv_format, weight_format

Shard = Literal["column", "row", "kv", "replicated"]
#: Roles whose matrices a requested number format leaves in 16 bit.
UNQUANTISED_ROLES = frozenset({"embedding", "head", "router", "vision", "norm"})


def split(size: int, ways: int) -> int:
    """Size of the largest part of ``size`` over ``ways`` GPUs."""
    return -(-size // ways)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """One matrix product, or ``count`` of the same shape of which a token uses ``active``.

    Parameters
    ----------
    name
        Path inside the layer, in the spelling of Hugging Face checkpoints (``self_attn.q_proj``).
    inputs, outputs
        Shape [element].
    shard
        How tensor parallelism splits it: by columns, by rows, by KV heads (replicated beyond their
        number), or not at all.
    count, active
        How many there are (experts) and how many of them one token uses.
    bias_elements
        Elements of the bias of one of them, never quantised [element].
    quantized
        Whether a requested number format applies to it.
    role
        ``attention``, ``mlp``, ``expert``, ``shared_expert``, ``router``, ``embedding``, ``head``, ``vision``.
    format
        Number format in the checkpoint.
    heads
        Number of heads its columns are split by, for ``kv`` [head].
    group
        Products that engines fuse into one carry the same name (``qkv``, ``gate_up``).
    """

    name: str
    inputs: int
    outputs: int
    shard: Shard = "column"
    count: int = 1
    active: int = 1
    bias_elements: int = 0
    quantized: bool = True
    role: str = "attention"
    format: str = "bf16"
    heads: int = 0
    group: str = ""

    @property
    def parameters(self) -> int:
        """Elements of all of them, biases included. [element]"""
        return self.count * (self.inputs * self.outputs + self.bias_elements)

    @property
    def active_parameters(self) -> int:
        """Elements that one token uses. [element]"""
        return self.active * (self.inputs * self.outputs + self.bias_elements)

    def per_gpu(self, tp: int = 1, ep: int = 1) -> tuple[int, int, int]:
        """Shape and number of what one GPU holds: inputs, outputs, count.

        Parameters
        ----------
        tp
            Tensor-parallel GPUs [gpu].
        ep
            Expert-parallel GPUs; experts are spread whole over them and split by what of TP is left [gpu].
        """
        inputs, outputs, count = self.inputs, self.outputs, self.count
        if self.role == "expert" and ep > 1:
            count, tp = split(count, ep), max(1, tp // ep)
        if self.shard == "column":
            outputs = split(outputs, tp)
        elif self.shard == "row":
            inputs = split(inputs, tp)
        elif self.shard == "kv" and self.heads:
            outputs = split(self.heads, tp) * (outputs // self.heads)
        return inputs, outputs, count

    def stored_format(self, requested: WeightFormat | None, sixteen_bit: WeightFormat) -> WeightFormat:
        """Format it is held in when ``requested`` is asked for (None: the checkpoint's own)."""
        if requested is None:
            return weight_format(self.format)
        return requested if self.quantized else sixteen_bit

    def bytes(
        self, requested: WeightFormat | None = None, sixteen_bit: WeightFormat | None = None, tp: int = 1, ep: int = 1
    ) -> float:
        """Bytes of what one GPU holds, scales included, biases in 16 bit. [B]"""
        sixteen_bit = sixteen_bit or weight_format("bf16")
        stored = self.stored_format(requested, sixteen_bit)
        inputs, outputs, count = self.per_gpu(tp, ep)
        bias = self.bias_elements * outputs / self.outputs if self.outputs else 0.0
        return count * (stored.matrix_bytes(inputs, outputs) + bias * sixteen_bit.bytes_per_weight)

    def with_format(self, name: str) -> "Linear":
        """The same matrix stored in another format."""
        return self if name == self.format else replace(self, format=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixer:
    """What mixes tokens in a layer, and what a token leaves behind for later ones.

    Parameters
    ----------
    kind
        ``attention``, ``sliding``, ``chunked``, ``mla``, ``sparse``, ``compressed``, ``linear``, ``encoder``
        or ``none``.
    linears
        Its matrices.
    other_parameters
        Norms, convolutions, gates, sinks: never quantised, 16 bit [element].
    heads, kv_heads
        Query heads, and heads whose keys and values are cached [head].
    head_dim, value_dim
        Width of a query or key head, of a value head [element].
    window
        Tokens that the layer looks back at most; None: all of them [token].
    kv_elements_per_token
        Elements a token leaves in this layer's cache on all KV heads together [element].
    kv_extra_bytes_per_token
        Bytes a token leaves besides, whatever the KV format (index keys with their scales) [B].
    kv_replicated
        True when every tensor-parallel GPU holds all of it (MLA's latent).
    kv_compression
        Tokens that share one cache entry (DeepSeek-V4), 1 otherwise [token].
    kv_window_elements
        Elements kept for each of the last ``window`` tokens beside compressed entries [element].
    state_elements, conv_elements
        Recurrent state and convolution state of one sequence [element].
    latent_dim, rope_dim
        MLA: rank of the latent, width of the shared rotary key [element].
    attended_tokens
        Sparse attention: tokens read at most, chosen by the indexer; None: all [token].
    index_heads, index_dim
        The indexer's heads and their width.
    recurrence
        ``mamba1``, ``mamba2``, ``gated_delta``, ``lightning``, ``short_conv``, ... for ``linear``.
    norm_spans_heads
        True when queries and keys are normalised over all heads together, so that tensor-parallel GPUs must add
        up their squares first (MiniMax-M2, OLMo 2).
    shares_cache
        True when it reads another layer's cache and keeps none (Gemma 3n and 4).
    """

    kind: str
    linears: tuple[Linear, ...] = ()
    other_parameters: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    value_dim: int = 0
    window: int | None = None
    kv_elements_per_token: float = 0
    kv_extra_bytes_per_token: float = 0
    kv_replicated: bool = False
    kv_compression: int = 1
    kv_window_elements: int = 0
    state_elements: int = 0
    conv_elements: int = 0
    latent_dim: int = 0
    rope_dim: int = 0
    attended_tokens: int | None = None
    index_heads: int = 0
    index_dim: int = 0
    recurrence: str = ""
    norm_spans_heads: bool = False
    shares_cache: bool = False

    @property
    def parameters(self) -> int:
        """All its elements. [element]"""
        return sum(linear.parameters for linear in self.linears) + self.other_parameters

    def kv_bytes_per_token(self, kv: KvFormat | str = "bf16", tp: int = 1) -> float:
        """Bytes one more token takes in this layer's cache on one GPU, before any window is full. [B]

        Parameters
        ----------
        kv
            KV format.
        tp
            Tensor-parallel GPUs; KV heads are replicated beyond their number [gpu].
        """
        stored = kv_format(kv) if isinstance(kv, str) else kv
        share = 1.0 if self.kv_replicated or not self.kv_heads else split(self.kv_heads, tp) / self.kv_heads
        return self.kv_elements_per_token * stored.bytes_per_element * share + self.kv_extra_bytes_per_token

    def kv_bytes(self, tokens: float, kv: KvFormat | str = "bf16", tp: int = 1) -> float:
        """Bytes one sequence of ``tokens`` takes in this layer's cache on one GPU, windows applied. [B]"""
        stored = kv_format(kv) if isinstance(kv, str) else kv
        per_token = self.kv_bytes_per_token(stored, tp)
        if self.kv_window_elements:
            recent = min(tokens, self.window or 0) * self.kv_window_elements * stored.bytes_per_element
            return tokens * per_token + recent
        kept = tokens if self.window is None else min(tokens, self.window)
        return kept * per_token

    def state_bytes(self, state: str = "fp32", conv: str = "bf16", tp: int = 1) -> float:
        """Bytes of recurrent and convolution state of one sequence on one GPU. [B]

        Parameters
        ----------
        state, conv
            Number formats of the recurrent and of the convolution state.
        tp
            Tensor-parallel GPUs; the state is split by heads [gpu].
        """
        recurrent = self.state_elements * kv_format(state).bytes_per_element
        return (recurrent + self.conv_elements * kv_format(conv).bytes_per_element) / tp


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """The part of a layer that works on each token alone.

    Parameters
    ----------
    kind
        ``dense``, ``moe`` or ``none``.
    linears
        Its matrices; routed experts are one Linear with ``count`` and ``active``.
    other_parameters
        Elements that are never quantised [element].
    experts, top_k
        Routed experts, and how many of them a token uses.
    shared_experts
        Experts that every token uses.
    latent_size
        Width the routed experts work in, when it is not the model's (latent MoE) [element].
    """

    kind: str
    linears: tuple[Linear, ...] = ()
    other_parameters: int = 0
    experts: int = 0
    top_k: int = 0
    shared_experts: int = 0
    latent_size: int = 0

    @property
    def parameters(self) -> int:
        """All its elements. [element]"""
        return sum(linear.parameters for linear in self.linears) + self.other_parameters

    @property
    def active_parameters(self) -> int:
        """Elements that one token uses. [element]"""
        return sum(linear.active_parameters for linear in self.linears) + self.other_parameters


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Equal layers of a model.

    Parameters
    ----------
    mixer, feed_forward
        Its two halves; either may be of kind ``none``.
    norm_parameters
        Elements of the norms around them, and of other small things [element].
    count
        How many such layers the model has.
    """

    mixer: Mixer
    feed_forward: FeedForward
    norm_parameters: int = 0
    count: int = 1

    @cached_property
    def linears(self) -> tuple[Linear, ...]:
        """The matrices of one such layer."""
        return (*self.mixer.linears, *self.feed_forward.linears)

    @cached_property
    def other_parameters(self) -> int:
        """Elements of one such layer that are in no matrix. [element]"""
        return self.norm_parameters + self.mixer.other_parameters + self.feed_forward.other_parameters

    @cached_property
    def parameters(self) -> int:
        """Elements of one such layer. [element]"""
        return sum(linear.parameters for linear in self.linears) + self.other_parameters

    @cached_property
    def active_parameters(self) -> int:
        """Elements of one such layer that a token uses. [element]"""
        return sum(linear.active_parameters for linear in self.linears) + self.other_parameters

    def weights_bytes(
        self, requested: WeightFormat | None, sixteen_bit: WeightFormat, tp: int = 1, ep: int = 1
    ) -> float:
        """Bytes of one such layer on one GPU. [B]"""
        matrices = sum(linear.bytes(requested, sixteen_bit, tp, ep) for linear in self.linears)
        return matrices + self.other_parameters * sixteen_bit.bytes_per_weight
