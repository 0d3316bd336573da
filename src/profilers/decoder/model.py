"""The whole decoder: embedding, layers, cache, head."""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear, rms_norm

from profilers.bench import Bench
from profilers.decoder.layers import EPSILON, Cache, Layer, make_layer, new_cache
from profilers.decoder.plain import plain_layer
from profilers.decoder.weights import Weights, layer_weights
from profilers.operations import Step
from profilers.shapes import DecoderShape

Stack = Callable[..., torch.Tensor]
"""Embeddings in, normalised hidden states out; a number stops it after so many of the first layers."""


class Decoder:
    """Weights and cache of a decoder on one GPU.

    Parameters
    ----------
    shape
        Its sizes.
    bench
        Where.
    sequences, capacity
        Sequences, and tokens that the cache of each holds. [sequence], [token]
    """

    def __init__(self, shape: DecoderShape, bench: Bench, *, sequences: int, capacity: int) -> None:
        self.shape, self.bench = shape, bench
        device = bench.device
        self.embedding = torch.randn(shape.vocab, shape.hidden, device=device, dtype=torch.bfloat16)
        self.head = torch.randn(shape.vocab, shape.hidden, device=device, dtype=torch.bfloat16).mul_(shape.hidden**-0.5)
        self.norm = torch.ones(shape.hidden, device=device, dtype=torch.bfloat16)
        self.weights: list[Weights] = [layer_weights(shape, i, device) for i in range(shape.layers)]
        self.errors: dict[bool, float] = {}
        self.set_cache(sequences, capacity)

    @property
    def weight_bytes(self) -> float:
        """Weights that it holds, embedding and head included. [B]"""
        return self.shape.weight_bytes

    def drop_cache(self) -> None:
        """Let the cache go, so that its memory can be had for another."""
        self.caches = []

    def cut_to(self, layers: int) -> None:
        """Let the last layers go.

        Parameters
        ----------
        layers
            Layers to stay, at most those that there are. [layer]
        """
        self.shape = self.shape.with_layers(layers)
        del self.weights[self.shape.layers :]

    def set_cache(self, sequences: int, capacity: int) -> None:
        """Replace the cache by one of another size, filled with random data."""
        shape, device = self.shape, self.bench.device
        self.drop_cache()
        self.capacity = capacity
        self.caches: list[Cache] = [new_cache(shape, sequences, capacity, device) for _ in self.weights]
        rope = shape.rope_dim if shape.mla else shape.head_dim
        frequency = shape.rope_theta ** (-torch.arange(0, rope, 2, device=device, dtype=torch.float32) / rope)
        angle = torch.arange(capacity, device=device, dtype=torch.float32)[:, None] * frequency
        self.cosine, self.sine = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)

    def cut(self, layers: list[int], sequences: int, capacity: int) -> "Decoder":
        """A small decoder of some of the layers, sharing their weights."""
        small = object.__new__(Decoder)
        small.shape, small.bench = self.shape, self.bench
        small.embedding, small.head, small.norm = self.embedding, self.head, self.norm
        small.weights = [self.weights[i] for i in layers]
        small.set_cache(sequences, capacity)
        return small

    def stack(self, step: Step, *, compile_layers: bool = False, plain: bool = False) -> Stack:
        """The layers for one step's sizes: embeddings in, normalised hidden states out.

        Parameters
        ----------
        step
            Its batch.
        compile_layers
            Let the compiler fuse each layer of the kind that there are most of: dense, or with experts.
        plain
            Write every operation out, as a Python model library does.
        """
        sparse = sum("router" in weights for weights in self.weights)
        common = 2 * sparse >= len(self.weights)
        layers: dict[bool, Layer] = {}
        for weights in self.weights:
            experts = "router" in weights
            if experts not in layers:
                made = plain_layer(self.shape, step) if plain else make_layer(self.shape, step, experts=experts)
                compiled = compile_layers and experts == common
                layers[experts] = _compiled(made, self.bench) if compiled else made
        span = slice(step.history, step.history + step.new_tokens)
        cosine, sine = self.cosine[span], self.sine[span]

        def run(x: torch.Tensor, first: int | None = None) -> torch.Tensor:
            for weights, cache in zip(self.weights[:first], self.caches[:first], strict=True):
                x = layers["router" in weights](x, weights, cache, cosine, sine)
            return rms_norm(x, (x.shape[-1],), self.norm, EPSILON)

        return run

    def step(self, step: Step, *, compile_layers: bool = False, plain: bool = False) -> Callable[[], torch.Tensor]:
        """One step as a call without arguments: token ids in fixed memory, the next token of each sequence out.

        Parameters
        ----------
        step
            Its batch.
        compile_layers
            Let the compiler fuse each layer.
        plain
            Write every operation out, as a Python model library does.
        """
        return self.call(step, self.stack(step, compile_layers=compile_layers, plain=plain))

    def call(self, step: Step, run: Stack) -> Callable[[], torch.Tensor]:
        """One step through a stack that is there already.

        Parameters
        ----------
        step
            Its batch.
        run
            Of :meth:`stack`.
        """
        tokens = torch.randint(0, self.shape.vocab, (step.tokens,), device=self.bench.device)
        last = torch.arange(1, step.sequences + 1, device=self.bench.device) * step.new_tokens - 1
        decodes = step.decodes

        def call() -> torch.Tensor:
            with attention_kernels(self.bench, step):
                hidden = run(self.embedding[tokens])
            if not decodes:
                hidden = hidden[last]
            return torch.argmax(linear(hidden, self.head), dim=-1)

        return call


def _compiled(layer: Layer, bench: Bench) -> Layer:
    """The layer through the compiler; on a CPU only through its front end (dry run)."""
    if bench.cuda:
        return torch.compile(layer, dynamic=False)
    return torch.compile(layer, dynamic=False, backend="eager")


@contextlib.contextmanager
def attention_kernels(bench: Bench, step: Step) -> Iterator[None]:
    """Let torch use the fast attention kernels only: flash to decode and behind a history, cuDNN first otherwise."""
    if not bench.cuda:
        yield
        return
    chosen = [SDPBackend.FLASH_ATTENTION]
    if not step.decodes and not step.history and bench.capability >= (9, 0):
        chosen = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]
    with sdpa_kernel(chosen, set_priority=True):  # torch 2.6
        yield


def fitting_layers(shape: DecoderShape, bench: Bench, step: Step, *, held_bytes: float = 0.0) -> int:
    """Layers whose weights and cache fit the memory that is free, at most all. [layer]

    Parameters
    ----------
    shape
        The decoder.
    bench
        Where.
    step
        Batch that the cache must hold.
    held_bytes
        Weights of the decoder that are in memory already. [B]
    """
    ends = 4.0 * shape.vocab * shape.hidden
    cache = shape.kv_bytes_per_token * step.sequences * (step.history + step.new_tokens)
    a_layer = (shape.weight_bytes - ends + cache) / shape.layers
    width = max(shape.intermediate, shape.hidden, shape.moe_intermediate * shape.top_k)
    activations = 16.0 * step.tokens * width + 8.0 * step.sequences * shape.vocab
    return min(shape.layers, int((0.92 * (bench.free_bytes + held_bytes) - ends - activations) / a_layer))
