"""The same decoder in FP32, written for reading: no cache, no absorbed products, one expert at a time."""

import torch
from torch.nn.functional import silu

from profilers.decoder.model import Decoder, Stack, attention_kernels
from profilers.decoder.weights import Weights
from profilers.operations import Step
from profilers.shapes import DecoderShape

SEQUENCES = 5
"""Of the check: enough for a median of one token each. [sequence]"""


def _norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * gain


def _turn(x: torch.Tensor, theta: float) -> torch.Tensor:
    """Rotary embedding of ``[tokens, heads, width]``."""
    width = x.shape[-1]
    frequency = theta ** (-torch.arange(0, width, 2, device=x.device) / width)
    angle = torch.arange(x.shape[0], device=x.device)[:, None] * frequency
    cosine, sine = angle.cos()[:, None], angle.sin()[:, None]
    first, second = x[..., : width // 2], x[..., width // 2 :]
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Causal attention of ``[tokens, heads, width]``."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    score = torch.einsum("qhd,khd->hqk", query, key) * query.shape[-1] ** -0.5
    score = score + torch.full_like(score[0], float("-inf")).triu(1)
    return torch.einsum("hqk,khd->qhd", score.softmax(-1), value).flatten(1)


def _attention(x: torch.Tensor, w: Weights, s: DecoderShape) -> torch.Tensor:
    if s.mla:
        return _latent(x, w, s)
    mixed = x @ w["qkv"].t() + w.get("qkv_bias", torch.zeros(1, device=x.device))
    query, key, value = mixed.view(len(x), -1, s.head_dim).split([s.heads, s.kv_heads, s.kv_heads], 1)
    if s.qk_norm:
        query, key = _norm(query, w["norm_q"]), _norm(key, w["norm_k"])
    return _attend(_turn(query, s.rope_theta), _turn(key, s.rope_theta), value) @ w["out"].t()


def _latent(x: torch.Tensor, w: Weights, s: DecoderShape) -> torch.Tensor:
    query = _norm(x @ w["q_down"].t(), w["norm_q"]) @ w["q_up"].t() if s.q_lora else x @ w["q"].t()
    plain, rotary = query.view(len(x), s.heads, -1).split([s.nope_dim, s.rope_dim], 2)
    compressed, shared = (x @ w["kv_down"].t()).split([s.kv_lora, s.rope_dim], 1)
    compressed = _norm(compressed, w["norm_kv"])
    key = torch.einsum("tc,hdc->thd", compressed, w["key_up"])
    value = torch.einsum("tc,hdc->thd", compressed, w["value_up"])
    shared = _turn(shared[:, None], s.rope_theta).expand(-1, s.heads, -1)
    query = torch.cat([plain, _turn(rotary, s.rope_theta)], 2)
    return _attend(query, torch.cat([key, shared], 2), value) @ w["out"].t()


def _gated(x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    gate, up = (x @ gate_up.t()).chunk(2, -1)
    return (silu(gate) * up) @ down.t()


def _feed_forward(x: torch.Tensor, w: Weights, s: DecoderShape) -> torch.Tensor:
    if "router" not in w:
        return _gated(x, w["gate_up"], w["down"])
    weight, index = (x @ w["router"].t()).topk(s.top_k, 1)
    weight = weight.softmax(1)
    rows = []
    for token, row in enumerate(x):
        chosen = zip(weight[token], index[token].tolist(), strict=True)
        rows.append(sum(p * _gated(row, w["experts_gate_up"][e].t(), w["experts_down"][e].t()) for p, e in chosen))
    out = torch.stack(rows)
    return out + _gated(x, w["shared_gate_up"], w["shared_down"]) if "shared_gate_up" in w else out


def hidden_states(decoder: Decoder, tokens: torch.Tensor) -> torch.Tensor:
    """Normalised hidden states of one sequence, ``[tokens, hidden]``."""
    x = decoder.embedding[tokens].float()
    for stored in decoder.weights:
        w = {name: t.float() for name, t in stored.items()}
        x = x + _attention(_norm(x, w["norm_attention"]), w, decoder.shape)
        x = x + _feed_forward(_norm(x, w["norm_mlp"]), w, decoder.shape)
    return _norm(x, decoder.norm.float())


def decoder_error(decoder: Decoder, *, prompt: int = 12, plain: bool = False) -> float:
    """Error of a short run through the first layers: a prompt, a chunk behind it, then one token. [1]

    Of each of the three the median over tokens of a token's largest error, relative to the largest value; the
    worst of the three. A router that rounds to another expert spoils a token, not the check.

    Parameters
    ----------
    decoder
        Its weights are used, not its cache.
    prompt
        Tokens of the prompt and of the chunk together. [token]
    plain
        Check the plain layers instead.
    """
    layers = list(range(min(len(decoder.weights), decoder.shape.dense_layers + 1)))
    small = decoder.cut(layers, SEQUENCES, prompt + 1)
    tokens = torch.randint(0, decoder.shape.vocab, (SEQUENCES, prompt + 1), device=decoder.bench.device)
    expected = torch.stack([hidden_states(small, row) for row in tokens])
    first, worst = prompt // 2, 0.0
    for start, stop in ((0, first), (first, prompt), (prompt, prompt + 1)):
        step = Step(sequences=SEQUENCES, new_tokens=stop - start, history=start)
        with attention_kernels(decoder.bench, step):
            out = small.stack(step, plain=plain)(small.embedding[tokens[:, start:stop].flatten()])
        measured = out.view(SEQUENCES, stop - start, -1).float()
        if not bool(torch.isfinite(measured).all()):
            return float("inf")
        off = (measured - expected[:, start:stop]).abs().amax(-1).flatten()
        worst = max(worst, float(off.median() / expected.abs().max()))
    return worst


def stack_gap(decoder: Decoder, step: Step, run: Stack, other: Stack) -> float:
    """Median over tokens of the largest difference of two stacks' first layers, relative to the largest value. [1]

    The first layers alone: further on routers have sent tokens to other experts, which no rounding explains.

    Parameters
    ----------
    decoder
        Whose embeddings go in.
    step
        Its batch.
    run, other
        The stacks, such as compiled and not.
    """
    first = decoder.shape.dense_layers + 1
    x = decoder.embedding[torch.arange(step.tokens, device=decoder.bench.device) % decoder.shape.vocab]
    with attention_kernels(decoder.bench, step):
        expected, found = other(x, first).float(), run(x, first).float()
    if not bool(torch.isfinite(found).all()):
        return float("inf")
    return float((found - expected).abs().amax(-1).median() / expected.abs().max())
