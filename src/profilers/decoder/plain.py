"""One layer written out operation by operation, as Python model libraries write it.

Norms and rotary embedding in single operations, queries, keys and values apart, the cache copied as it grows:
what a served model would cost if every kernel were launched from Python.
"""

import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import linear, silu
from torch.nn.functional import scaled_dot_product_attention as sdpa

from profilers.decoder.weights import Weights
from profilers.kernel import Unsupported
from profilers.operations import Step
from profilers.shapes import DecoderShape


def _norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    wide = x.to(torch.float32)
    mean = wide.pow(2).mean(-1, keepdim=True)
    return gain * (wide * torch.rsqrt(mean + 1e-6)).to(x.dtype)


def _turn(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return (x * cosine) + (torch.cat((-second, first), dim=-1) * sine)


def plain_layer(shape: DecoderShape, step: Step):  # noqa: ANN201 - a Layer
    """A dense layer with grouped query heads for one step's sizes.

    Parameters
    ----------
    shape
        The decoder.
    step
        Its batch.
    """
    if shape.mla or shape.experts:
        raise Unsupported(f"{shape.name}: only dense decoders with grouped heads are written out plainly")
    batch, tokens, start, width = step.sequences, step.new_tokens, step.history, shape.head_dim
    rows, kv_rows = shape.heads * width, shape.kv_heads * width
    splits = [rows, kv_rows, kv_rows]

    def attend(
        x: torch.Tensor, w: Weights, cache: tuple[torch.Tensor, ...], turn: tuple[torch.Tensor, ...]
    ) -> torch.Tensor:
        biases = w["qkv_bias"].split(splits) if "qkv_bias" in w else (None, None, None)
        parts = zip(w["qkv"].split(splits), biases, strict=True)
        query, key, value = (linear(x, m, b).view(batch, tokens, -1, width) for m, b in parts)
        if "norm_q" in w:
            query, key = _norm(query, w["norm_q"]), _norm(key, w["norm_k"])
        query, key, value = (t.transpose(1, 2) for t in (query, key, value))
        query, key = _turn(query, *turn), _turn(key, *turn)
        keys = torch.cat([cache[0][:, :, :start], key], dim=2)
        values = torch.cat([cache[1][:, :, :start], value], dim=2)
        cache[0][:, :, start : start + tokens] = key
        cache[1][:, :, start : start + tokens] = value
        if tokens == 1:
            out = sdpa(query, keys, values, enable_gqa=True)
        elif start:
            out = sdpa(query, keys, values, attn_mask=causal_lower_right(tokens, start + tokens), enable_gqa=True)
        else:
            out = sdpa(query, keys, values, is_causal=True, enable_gqa=True)
        return linear(out.transpose(1, 2).reshape(batch * tokens, rows), w["out"])

    def layer(
        x: torch.Tensor, w: Weights, cache: tuple[torch.Tensor, ...], cosine: torch.Tensor, sine: torch.Tensor
    ) -> torch.Tensor:
        turn = (torch.cat([cosine, cosine], -1), torch.cat([sine, sine], -1))
        x = x + attend(_norm(x, w["norm_attention"]), w, cache, turn)
        half = shape.intermediate
        h = _norm(x, w["norm_mlp"])
        gate, up = linear(h, w["gate_up"][:half]), linear(h, w["gate_up"][half:])
        return x + linear(silu(gate) * up, w["down"])

    return layer
