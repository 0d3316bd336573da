"""From a deployment to the operations of its pass."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from sizing.architecture import Model
from sizing.architecture.parts import Layer, Linear, Mixer
from sizing.deployment import Deployment
from sizing.formats import kv_format
from sizing.operations.record import Operation

SKIPPED_ROLES = frozenset({"vision", "embedding", "head"})
SQUARES_BYTES = 8.0
"""Sums of squares of a token's queries and of its keys, FP32. [byte]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Sizes that every layer's operations need."""

    model: Model
    requested: str | None
    kv_bytes: float
    kv_format: str
    native_fp4: bool
    tp: int
    pp: int
    dp: int
    ep: int
    cp: int

    @property
    def group(self) -> int:
        """GPUs that share the experts of a stage. [gpu]"""
        return self.tp * self.dp

    def format_of(self, linear: Linear) -> str:
        if self.requested is None:
            native = self.native_fp4 and linear.format == "mxfp4"
            return "mxfp4_a4" if native else linear.format
        sixteen = self.model.native_dtype if self.model.native_dtype in ("bf16", "fp16") else "bf16"
        return self.requested if linear.quantized else sixteen


def _layout(deployment: Deployment) -> _Layout:
    at, formats, model = deployment.parallelism, deployment.formats, deployment.model
    kv = formats.kv if formats.kv != "auto" else (model.checkpoint.kv or "bf16")
    return _Layout(
        model=model, requested=formats.weights, kv_format=kv,
        native_fp4="fp4" in deployment.gpu.peak_flops_per_s, kv_bytes=kv_format(kv).bytes_per_element,
        tp=at.tp, pp=at.pp, dp=at.dp, ep=min(at.ep, at.tp * at.dp), cp=min(at.cp, at.tp),
    )  # fmt: skip


def operations(deployment: Deployment) -> tuple[Operation, ...]:
    """Every operation of one forward pass, as one GPU of the replica runs it.

    Parameters
    ----------
    deployment
        Model, layout and number formats.

    Notes
    -----
    Data-parallel attention ranks see ``1 / dp`` of the tokens, pipeline stages ``1 / pp`` of them at a time
    (a step is one round of all micro-batches, so every layer is counted).
    """
    layout = _layout(deployment)
    found: list[Operation] = []
    for layer in layout.model.layers:
        for op in _layer(layer, layout):
            found.append(replace(op, count=op.count * layer.count))  # noqa: PERF401
    found += _ends(layout)
    return tuple(op for op in _merged(found) if op.works)


def _merged(found: list[Operation]) -> Iterator[Operation]:
    """Equal operations of different layers as one."""

    def key(op: Operation) -> str:
        return repr(replace(op, count=0.0))

    for _, equal in groupby(sorted(found, key=key), key=key):
        same = list(equal)
        yield replace(same[0], count=sum(op.count for op in same))


def _layer(layer: Layer, at: _Layout) -> Iterator[Operation]:
    yield from _mixer(layer.mixer, at)
    yield from _feed_forward(layer, at)


def _products(linears: tuple[Linear, ...], at: _Layout, tp: int, share: float, part: str) -> Iterator[Operation]:
    """Matrix products, those that engines fuse as one."""

    def key(linear: Linear) -> str:
        return linear.group or linear.name

    for name, fused in groupby(linears, key=key):
        same = list(fused)
        shapes = [linear.per_gpu(tp) for linear in same]
        label = name.rsplit(".", 1)[-1]
        yield Operation(
            name=f"{part}.{label}", family="gemm", n=float(sum(s[1] for s in shapes)), k=float(shapes[0][0]),
            format=at.format_of(same[0]), share=share, count=float(shapes[0][2]),
        )  # fmt: skip


def _mixer(mixer: Mixer, at: _Layout) -> Iterator[Operation]:
    if mixer.kind == "none":
        return
    share = 1.0 / (at.dp * at.pp)
    hidden, width = at.model.hidden_size, 2.0
    linears = tuple(x for x in mixer.linears if x.role not in SKIPPED_ROLES)
    yield from _products(linears, at, at.tp, share, "attention")
    yield from _cores(mixer, at, share)
    inner = (mixer.heads * mixer.head_dim + mixer.kv_heads * (mixer.head_dim + mixer.value_dim)) / at.tp
    calls = 3.0 + (1.0 if mixer.kind in ("mla", "sparse") else 0.0)
    yield Operation(
        name="attention.norm_rope_cache", family="elementwise", launches=calls, share=share,
        token_bytes=4.0 * hidden * width + 3.0 * inner * width,
    )  # fmt: skip
    if mixer.norm_spans_heads:
        yield Operation(
            name="attention.norm_all_reduce", family="all_reduce", token_bytes=SQUARES_BYTES, gpus=at.tp, share=share
        )
    yield Operation(
        name="attention.all_reduce", family="all_reduce", token_bytes=hidden * width, gpus=at.tp, share=share
    )


def _cores(mixer: Mixer, at: _Layout, share: float) -> Iterator[Operation]:
    """The attention itself, of either phase."""
    heads = float(-(-mixer.heads // at.tp))
    decode, window = share / at.cp, mixer.window
    if mixer.state_elements or mixer.kind == "linear":
        yield from _recurrence(mixer, at, share)
        return
    if mixer.latent_dim:
        seen = float(mixer.attended_tokens) if mixer.attended_tokens else None
        yield Operation(name="attention.decode", family="mla_decode", phase="decode", heads=heads,
                        n=float(mixer.latent_dim), k=float(mixer.rope_dim), kv_bytes=at.kv_bytes, window=seen,
                        share=decode)  # fmt: skip
        yield Operation(name="attention.prefill", family="mla_prefill", phase="prefill", heads=heads,
                        head_dim=float(mixer.head_dim), value_dim=float(mixer.value_dim or mixer.head_dim),
                        window=seen, share=share)  # fmt: skip
    else:
        core = Operation(
            name="attention.decode", family="attention_decode", phase="decode", heads=heads,
            kv_heads=float(max(-(-mixer.kv_heads // at.tp), 1)), head_dim=float(mixer.head_dim),
            value_dim=float(mixer.value_dim or mixer.head_dim), kv_bytes=at.kv_bytes,
            window=float(window) if window else None, chunked=mixer.kind == "chunked", share=decode,
        )  # fmt: skip
        if mixer.attended_tokens:
            core = replace(core, window=float(mixer.attended_tokens), chunked=False)
        yield core
        yield replace(core, name="attention.prefill", family="attention_prefill", phase="prefill", share=share)
    if mixer.index_heads:
        index = Operation(name="attention.index_decode", family="indexer", phase="decode", share=decode,
                          heads=float(mixer.index_heads), head_dim=float(mixer.index_dim),
                          token_bytes=mixer.kv_extra_bytes_per_token or float(mixer.index_dim))  # fmt: skip
        yield index
        yield replace(index, name="attention.index_prefill", phase="prefill", share=share)


RECURRENT_LAUNCHES = 10.0
"""Small kernels of a recurrent layer (assumed, from runs of Qwen3.5 and Qwen3-Next). [1]"""


def _recurrence(mixer: Mixer, at: _Layout, share: float) -> Iterator[Operation]:
    """A recurrent layer reads and writes its state a token in decode, a chunk of 64 tokens in prefill.

    Small kernels around it: convolution, gates, norms of queries and keys, the split and copies of what the
    projection gives, states gathered and put back, the gated norm; runs of hybrid models need some ten a layer.
    """
    state = mixer.state_bytes(at.model.state_dtype, tp=at.tp)
    yield Operation(name="attention.state_decode", family="elementwise", phase="decode", launches=RECURRENT_LAUNCHES,
                    token_bytes=2.0 * state, share=share)  # fmt: skip
    yield Operation(name="attention.state_prefill", family="elementwise", phase="prefill", launches=RECURRENT_LAUNCHES,
                    token_bytes=2.0 * state / 64.0, share=share)  # fmt: skip


def _feed_forward(layer: Layer, at: _Layout) -> Iterator[Operation]:
    block, hidden = layer.feed_forward, at.model.hidden_size
    if block.kind == "none":
        return
    share = 1.0 / (at.dp * at.pp)
    plain = tuple(x for x in block.linears if x.role not in SKIPPED_ROLES and x.role != "expert")
    yield from _products(plain, at, at.tp, share, "mlp")
    experts = tuple(x for x in block.linears if x.role == "expert")
    inner = sum(x.per_gpu(at.tp)[1] for x in plain if x.role != "router" and x.shard == "column")
    yield Operation(
        name="mlp.norm_activation", family="elementwise", launches=4.0 if experts else 2.0, share=share,
        token_bytes=8.0 * hidden + 3.0 * inner,
    )  # fmt: skip
    if experts:
        yield from _experts(experts, block.experts, block.top_k, at)
    if at.group > 1 and not (experts and at.dp > 1):
        yield Operation(name="mlp.all_reduce", family="all_reduce", token_bytes=2.0 * hidden, gpus=at.tp, share=share)


def _experts(linears: tuple[Linear, ...], experts: int, top_k: int, at: _Layout) -> Iterator[Operation]:
    first = linears[0]
    inputs, outputs, local = first.per_gpu(at.group, at.ep)
    yield Operation(
        name="mlp.experts", family="moe", n=float(inputs), k=float(outputs), experts=float(experts),
        top_k=float(top_k), local_experts=float(local), matrices=float(len(linears)), format=at.format_of(first),
        share=1.0 / at.pp, skew=imbalance(at.ep), launches=4.0,
    )  # fmt: skip
    if at.dp > 1:
        per_gpu = 1.0 / (at.group * at.pp)
        for name, size in (("mlp.dispatch", 1.0), ("mlp.combine", 2.0)):
            yield Operation(name=name, family="all_to_all", n=float(inputs), top_k=float(top_k), gpus=at.group,
                            token_bytes=size, share=per_gpu)  # fmt: skip


def imbalance(ranks: int) -> float:
    """Load of the busiest expert-parallel rank over the mean; assumed, grows with the logarithm of ranks. [1]

    Parameters
    ----------
    ranks
        Expert-parallel GPUs. [gpu]
    """
    return 1.0 + 0.08 * float(np.log2(ranks))


def _ends(at: _Layout) -> Iterator[Operation]:
    """Embedding, head, sampling, and the hand-over between pipeline stages."""
    model, share = at.model, 1.0 / (at.dp * at.pp)
    hidden = float(model.hidden_size)
    yield Operation(name="embedding", family="elementwise", token_bytes=4.0 * hidden, share=share)
    head = model.head or (model.embedding if model.tied_embeddings else None)
    if head is not None:
        yield Operation(name="head", family="gemm", phase="rows", n=float(-(-model.vocab_size // at.tp)), k=hidden,
                        format=at.format_of(head), share=share)  # fmt: skip
        yield Operation(name="head.all_gather", family="all_gather", phase="rows", gpus=at.tp, share=share,
                        token_bytes=2.0 * model.vocab_size)  # fmt: skip
        yield Operation(name="sampling", family="elementwise", phase="rows", launches=4.0, share=share,
                        token_bytes=10.0 * model.vocab_size)  # fmt: skip
    if at.pp > 1:
        yield Operation(name="stages", family="point_to_point", count=float(at.pp - 1), share=share,
                        token_bytes=2.0 * hidden, gpus=at.tp * at.pp)  # fmt: skip


#: Kernels of each part of a layer when every one is launched from Python (counted by hand in the plain PyTorch
#: forward pass of transformers): a norm in FP32 8; rotary embedding 10; appending to keys and values 2;
#: attention and its transpose 2; activation and gate 2; two residuals 2; copies and split depth 9.
NORM_LAUNCHES = 8
ROPE_LAUNCHES, CACHE_LAUNCHES, CORE_LAUNCHES, ACTIVATION_LAUNCHES, RESIDUAL_LAUNCHES, COPY_LAUNCHES = 10, 2, 2, 2, 2, 9
EXPERT_LAUNCHES = 5
#: Embedding, rotary table, mask, final norm, head, choice of the token.
END_LAUNCHES = 22


def launches(model: Model) -> int:
    """Kernels that one decoded token launches when nothing is fused or replayed from a graph. [1]

    Parameters
    ----------
    model
        Its layers; each expert a token goes to is a few products of its own.
    """
    return END_LAUNCHES + sum(_layer_launches(layer) * layer.count for layer in model.layers)


def _layer_launches(layer: Layer) -> int:
    mixer, block = layer.mixer, layer.feed_forward
    count = COPY_LAUNCHES + RESIDUAL_LAUNCHES
    if mixer.kind != "none":
        norms = 1 + (2 if mixer.other_parameters and mixer.heads else 0)
        products = sum(1 for x in mixer.linears if x.role not in SKIPPED_ROLES)
        count += norms * NORM_LAUNCHES + products + ROPE_LAUNCHES + CACHE_LAUNCHES + CORE_LAUNCHES
    if block.kind != "none":
        plain = sum(1 for x in block.linears if x.role not in SKIPPED_ROLES and x.role != "expert")
        routed = sum(1 for x in block.linears if x.role == "expert")
        count += NORM_LAUNCHES + plain + ACTIVATION_LAUNCHES
        count += block.top_k * (routed + EXPERT_LAUNCHES) if routed else 0
    return count
