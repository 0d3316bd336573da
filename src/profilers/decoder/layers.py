"""One layer of a decoder, written with few, large kernels as engines do.

A layer is a closure over its sizes, so that the compiler sees constants; what changes from layer to layer
(weights and cache) are its arguments, so that one compilation serves them all.
"""

from collections.abc import Callable

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import linear, pad, rms_norm, silu
from torch.nn.functional import scaled_dot_product_attention as sdpa

from profilers.decoder.weights import Weights
from profilers.kernels.elementwise import rotate
from profilers.kernels.mla import absorbed
from profilers.kernels.moe import apply_experts, grouped_bf16, route
from profilers.operations import Step
from profilers.shapes import DecoderShape

EPSILON = 1e-6
Cache = tuple[torch.Tensor, ...]
Layer = Callable[[torch.Tensor, Weights, Cache, torch.Tensor, torch.Tensor], torch.Tensor]


def new_cache(shape: DecoderShape, sequences: int, capacity: int, device: torch.device) -> Cache:
    """Empty KV cache of one layer: keys and values by head, or the latent vectors with their rotary key.

    Parameters
    ----------
    shape
        The decoder.
    sequences, capacity
        Sequences, and tokens that each may have. [sequence], [token]
    device
        Where.
    """
    if shape.mla:
        size = (sequences, capacity, shape.kv_lora + shape.rope_dim)
        return (torch.randn(size, device=device, dtype=torch.bfloat16),)
    heads = (sequences, shape.kv_heads, capacity, shape.head_dim)
    return tuple(torch.randn(heads, device=device, dtype=torch.bfloat16) for _ in range(2))


def _norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return rms_norm(x, (x.shape[-1],), gain, EPSILON)


def _causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, gqa: bool) -> torch.Tensor:
    """Causal attention, queries at the end of the keys."""
    tokens, context = query.shape[2], key.shape[2]
    if tokens == 1:
        return sdpa(query, key, value, enable_gqa=gqa)
    if tokens == context:
        return sdpa(query, key, value, is_causal=True, enable_gqa=gqa)
    return sdpa(query, key, value, attn_mask=causal_lower_right(tokens, context), enable_gqa=gqa)


def grouped_attention(shape: DecoderShape, step: Step) -> Layer:
    """Attention with grouped query heads, its projections and its cache."""
    batch, tokens, start = step.sequences, step.new_tokens, step.history
    heads, kv_heads, width = shape.heads, shape.kv_heads, shape.head_dim

    def attend(x: torch.Tensor, w: Weights, cache: Cache, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        mixed = linear(x, w["qkv"], w.get("qkv_bias")).view(batch, tokens, heads + 2 * kv_heads, width)
        query, key, value = mixed.split([heads, kv_heads, kv_heads], dim=2)
        if "norm_q" in w:
            query, key = _norm(query, w["norm_q"]), _norm(key, w["norm_k"])
        turn = (cosine.unsqueeze(1), sine.unsqueeze(1))
        query, key = rotate(query, *turn), rotate(key, *turn)
        cache[0][:, :, start : start + tokens] = key.transpose(1, 2)
        cache[1][:, :, start : start + tokens] = value.transpose(1, 2)
        keys, values = (c[:, :, : start + tokens] for c in cache)
        out = _causal(query.transpose(1, 2), keys, values, True)
        return linear(out.transpose(1, 2).reshape(batch * tokens, heads * width), w["out"])

    return attend


def latent_attention(shape: DecoderShape, step: Step) -> Layer:
    """Multi-head latent attention: absorbed when decoding, expanded for a prompt."""
    batch, tokens, start = step.sequences, step.new_tokens, step.history
    heads, latent, rope, nope = shape.heads, shape.kv_lora, shape.rope_dim, shape.nope_dim

    def project(
        x: torch.Tensor, w: Weights, cache: Cache, turn: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        query = linear(_norm(linear(x, w["q_down"]), w["norm_q"]), w["q_up"]) if "q_down" in w else linear(x, w["q"])
        plain, rotary = query.view(batch, tokens, heads, nope + rope).split([nope, rope], dim=3)
        compressed, key = linear(x, w["kv_down"]).view(batch, tokens, -1).split([latent, rope], dim=2)
        rotary = rotate(rotary, turn[0].unsqueeze(1), turn[1].unsqueeze(1))
        stored = torch.cat([_norm(compressed, w["norm_kv"]), rotate(key, *turn)], dim=2)
        cache[0][:, start : start + tokens] = stored
        return plain, rotary

    def attend(x: torch.Tensor, w: Weights, cache: Cache, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        plain, rotary = project(x, w, cache, (cosine, sine))
        known = cache[0][:, : start + tokens]
        if tokens == 1:
            moved = torch.bmm(plain[:, 0].transpose(0, 1), w["key_up"]).transpose(0, 1)
            query = torch.cat([moved, rotary[:, 0]], dim=2)
            mixed = absorbed(query, known, latent, (nope + rope) ** -0.5)
            out = torch.bmm(mixed.transpose(0, 1), w["value_up"].transpose(1, 2)).transpose(0, 1)
            return linear(out.reshape(batch, -1), w["out"])
        vector, shared = known.split([latent, rope], dim=2)
        key = linear(vector, w["key_up"].flatten(0, 1)).view(batch, start + tokens, heads, nope)
        value = linear(vector, w["value_up"].flatten(0, 1)).view(batch, start + tokens, heads, -1)
        key = torch.cat([key, shared.unsqueeze(2).expand(-1, -1, heads, -1)], dim=3).transpose(1, 2)
        query = torch.cat([plain, rotary], dim=3).transpose(1, 2)
        padded = pad(value.transpose(1, 2), (0, nope + rope - value.shape[3]))
        out = _causal(query, key, padded, False)[..., : value.shape[3]]
        return linear(out.transpose(1, 2).reshape(batch * tokens, -1), w["out"])

    return attend


def _gated(x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    gate, up = linear(x, gate_up).chunk(2, dim=-1)
    return linear(silu(gate) * up, down)


def make_layer(shape: DecoderShape, step: Step, *, experts: bool) -> Layer:
    """A whole layer for one step's sizes.

    Parameters
    ----------
    shape
        The decoder.
    step
        Its batch.
    experts
        Whether the feed-forward is a mixture.
    """
    attend = (latent_attention if shape.mla else grouped_attention)(shape, step)
    top_k = shape.top_k

    def feed_forward(x: torch.Tensor, w: Weights) -> torch.Tensor:
        if not experts:
            return _gated(x, w["gate_up"], w["down"])
        weight, index = route(linear(x, w["router"]), top_k)
        out = apply_experts(x, weight, index, w["experts_gate_up"], w["experts_down"], grouped_bf16)
        return out + _gated(x, w["shared_gate_up"], w["shared_down"]) if "shared_gate_up" in w else out

    def layer(x: torch.Tensor, w: Weights, cache: Cache, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        x = x + attend(_norm(x, w["norm_attention"]), w, cache, cosine, sine)
        return x + feed_forward(_norm(x, w["norm_mlp"]), w)

    return layer
