"""Random weights of one layer, scaled so that activations keep their size through any depth."""

import torch

from profilers.shapes import DecoderShape

Weights = dict[str, torch.Tensor]


def _matrix(outputs: int, inputs: int, device: torch.device) -> torch.Tensor:
    return torch.randn(outputs, inputs, device=device, dtype=torch.bfloat16).mul_(inputs**-0.5)


def _gain(width: int, device: torch.device) -> torch.Tensor:
    return torch.randn(width, device=device, dtype=torch.bfloat16).mul_(0.1).add_(1.0)


def layer_weights(shape: DecoderShape, layer: int, device: torch.device) -> Weights:
    """Weights of one layer.

    Parameters
    ----------
    shape
        The decoder.
    layer
        Which, for the first ones may be dense.
    device
        Where.
    """
    weights = {"norm_attention": _gain(shape.hidden, device), "norm_mlp": _gain(shape.hidden, device)}
    for name, (n, k) in shape.attention_linears().items():
        weights[name] = _matrix(n, k, device)
    if shape.mla:
        weights["norm_kv"] = _gain(shape.kv_lora, device)
        weights["key_up"] = torch.stack([_matrix(shape.nope_dim, shape.kv_lora, device) for _ in range(shape.heads)])
        weights["value_up"] = torch.stack([_matrix(shape.value_dim, shape.kv_lora, device) for _ in range(shape.heads)])
        if shape.q_lora:
            weights["norm_q"] = _gain(shape.q_lora, device)
    else:
        if shape.qk_norm:
            weights |= {"norm_q": _gain(shape.head_dim, device), "norm_k": _gain(shape.head_dim, device)}
        if shape.qkv_bias:
            weights["qkv_bias"] = _matrix(weights["qkv"].shape[0], 1, device).flatten()
    return weights | _feed_forward(shape, layer, device)


def _feed_forward(shape: DecoderShape, layer: int, device: torch.device) -> Weights:
    hidden = shape.hidden
    if not shape.has_experts(layer):
        width = shape.intermediate
        return {"gate_up": _matrix(2 * width, hidden, device), "down": _matrix(hidden, width, device)}
    width, experts = shape.moe_intermediate, shape.experts
    gate_up = torch.randn(experts, 2 * width, hidden, device=device, dtype=torch.bfloat16).mul_(hidden**-0.5)
    down = torch.randn(experts, hidden, width, device=device, dtype=torch.bfloat16).mul_(width**-0.5)
    weights = {
        "router": _matrix(experts, hidden, device),
        "experts_gate_up": gate_up.transpose(1, 2),
        "experts_down": down.transpose(1, 2),
    }
    if shape.shared_intermediate:
        width = shape.shared_intermediate
        weights |= {"shared_gate_up": _matrix(2 * width, hidden, device), "shared_down": _matrix(hidden, width, device)}
    return weights
