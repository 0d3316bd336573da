"""Time of an engine step: prefill, decode and mixed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sizing.calibration import Calibration
from sizing.deployment import Deployment

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """First, simple form: one roofline for a whole step of a dense model."""

    weight_bytes: float
    linear_flops_per_token: float
    attention_flops_per_pair: float
    kv_bytes_per_token: float
    bandwidth_bytes_per_s: float
    flops_per_s: float

    def step_s(self, decode_batch: ArrayLike, context_tokens: ArrayLike, prefill_tokens: ArrayLike = 0.0,
               prefill_attention: ArrayLike = 0.0, prefill_sequences: ArrayLike = 0.0) -> Seconds:  # fmt: skip
        """Time of one step. [s]"""
        batch, context = np.asarray(decode_batch, dtype=float), np.asarray(context_tokens, dtype=float)
        tokens = batch + np.asarray(prefill_tokens, dtype=float)
        memory = (self.weight_bytes + context * self.kv_bytes_per_token) / self.bandwidth_bytes_per_s
        pairs = np.asarray(prefill_attention, dtype=float)
        compute = (tokens * self.linear_flops_per_token + pairs * self.attention_flops_per_pair) / self.flops_per_s
        return np.maximum(memory, compute)

    def decode_s(self, batch: ArrayLike, context_tokens: ArrayLike) -> Seconds:
        """Time of one decode step of a batch at a mean context. [s]"""
        return self.step_s(batch, np.asarray(batch, dtype=float) * np.asarray(context_tokens, dtype=float))

    def prefill_s(self, tokens: ArrayLike, history_tokens: ArrayLike = 0.0) -> Seconds:
        """Time to prefill one prompt alone. [s]"""
        q, history = np.asarray(tokens, dtype=float), np.asarray(history_tokens, dtype=float)
        return self.step_s(0.0, 0.0, q, q * history + q * q / 2)


def step_model(deployment: Deployment, calibration: Calibration) -> StepModel:
    """Step times of a deployment under a calibration."""
    model, gpu, tp = deployment.model, deployment.gpu, deployment.parallelism.tp
    gemm = calibration.gemm("bf16")
    embedding = 0 if model.tied_embeddings else model.embedding.parameters
    attention = sum(2.0 * m.heads * (m.head_dim + m.value_dim) * layer.count for layer in model.layers
                    if (m := layer.mixer).heads)  # fmt: skip
    return StepModel(
        weight_bytes=model.weights_bytes(deployment.formats.weights, tp=tp) - embedding * 2.0 / tp,
        linear_flops_per_token=2.0 * (model.active_parameters - embedding) / tp,
        attention_flops_per_pair=attention / tp,
        kv_bytes_per_token=model.kv_bytes_per_token(deployment.formats.kv, tp),
        bandwidth_bytes_per_s=gpu.memory_bandwidth_bytes_per_s * float(gemm.memory_fraction),
        flops_per_s=next(v for k in ("bf16", "fp16", "fp32") if (v := gpu.peak_flops_per_s.get(k))) * float(gemm.compute_fraction),
    )
