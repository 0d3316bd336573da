"""Hugging Face transformers: no pool; the cache grows into whatever is free."""

from dataclasses import dataclass

from sizing.architecture import Model
from sizing.catalog import Gpu
from sizing.engines import footprint
from sizing.engines.blocks import layer_types
from sizing.engines.cache import CacheGroup, CachePool
from sizing.engines.record import GIB, Defaults, Engine, Overhead, Rank, register

#: Driver context and library handles of one process [GiB].
CONTEXT_GIB = 0.6


@register("transformers")
@dataclass(frozen=True, kw_only=True)
class Transformers(Engine):
    """transformers' ``generate`` in eager mode."""

    name: str = "transformers"

    def defaults(self, model: Model, gpu: Gpu, tp: int = 1, max_model_len: int | None = None) -> Defaults:
        """All of the memory; whole prompts; no blocks."""
        return Defaults(
            memory_utilization=1.0,
            max_num_seqs=256,
            max_num_batched_tokens=8192,
            block_size=1,
            max_model_len=max_model_len or model.max_positions or 8192,
        )

    def overhead(self, rank: Rank) -> Overhead:
        """Activations of a prefill with the logits of its last positions."""
        return Overhead(
            weights_extra_bytes=footprint.rotary_bytes(rank),
            activation_bytes=footprint.forward_bytes(rank) + footprint.sampler_bytes(rank, 6.0),
            non_torch_bytes=CONTEXT_GIB * GIB,
        )

    def kv_bytes(self, rank: Rank, overhead: Overhead, utilization: float) -> float:
        """``total * utilisation - weights - activation - context``."""
        taken = rank.weights_bytes + overhead.weights_extra_bytes
        taken += overhead.activation_bytes + overhead.non_torch_bytes
        return rank.gpu.process_memory_bytes * utilization - taken

    def pools(self, rank: Rank, kv_bytes: float) -> tuple[CachePool, ...]:
        """Tokens of every layer, in full."""
        types = layer_types(rank, hybrid=False)
        token = sum(t.token_bytes * n for t, n in types.items())
        if not token:
            return ()
        group = CacheGroup(kind="full", layers=rank.depth, block_tokens=1)
        return (CachePool(groups=(group,), block_bytes=token, blocks=max(kv_bytes, 0.0) // token),)
