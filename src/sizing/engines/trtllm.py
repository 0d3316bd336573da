"""TensorRT-LLM: memory rules.

Identity: ``KV room = (total - peak + KV of the profiling run) * free_gpu_memory_fraction``: the share is taken
of what is left, not of the whole. Exact in 2 of 2 logs.
"""

from dataclasses import dataclass

from sizing.architecture import Model
from sizing.catalog import Gpu
from sizing.engines import footprint
from sizing.engines.blocks import block_pools
from sizing.engines.cache import CachePool
from sizing.engines.record import GIB, Defaults, Engine, Overhead, Rank, register

#: Driver context, workspaces; with several GPUs also NCCL and all-reduce buffers [GiB].
NON_TORCH_GIB = (1.0, 2.5)


#: First release whose default is the PyTorch backend, as ``trtllm-session`` in data/engines.toml has it.
PYTORCH = (0, 19)
#: Decoder buffers of built engines, for each sequence and entry of the vocabulary (assumed) [B].
DECODER_BYTES = 8.0


@register("trtllm")
@dataclass(frozen=True, kw_only=True)
class TrtLlm(Engine):
    """TensorRT-LLM with the PyTorch backend."""

    name: str = "trtllm"

    def defaults(self, model: Model, gpu: Gpu, tp: int = 1, max_model_len: int | None = None) -> Defaults:
        """0.9 of what is free; 2,048 sequences, 8,192 tokens; blocks of 32."""
        return Defaults(
            memory_utilization=0.9,
            max_num_seqs=2048,
            max_num_batched_tokens=8192,
            block_size=32,
            max_model_len=max_model_len or model.max_positions or 8192,
        )

    def overhead(self, rank: Rank) -> Overhead:
        """Activation peak of one full step, workspaces, graphs; in built engines also the decoder's buffers.

        Releases before the PyTorch backend (1.0's default, 0.19 here) keep logits, sorted and cumulated, of every
        sequence that may run: some 8 bytes an entry of the vocabulary, which is why a 70B on one 80 GB GPU carried
        less than the weights leave room for.
        """
        logits = footprint.sampler_bytes(rank, 0.0) + 4.0 * min(rank.max_num_seqs, 256) * rank.model.vocab_size
        if () < self.version.number < PYTORCH:
            logits += DECODER_BYTES * rank.max_num_seqs * rank.model.vocab_size
        return Overhead(
            weights_extra_bytes=footprint.rotary_bytes(rank),
            activation_bytes=footprint.forward_bytes(rank) + logits,
            non_torch_bytes=NON_TORCH_GIB[rank.tp > 1] * GIB,
            cuda_graph_bytes=0.3 * GIB if rank.cuda_graphs else 0.0,
        )

    def kv_bytes(self, rank: Rank, overhead: Overhead, utilization: float) -> float:
        """``(total - weights - activation - non-torch) * fraction``."""
        taken = rank.weights_bytes + overhead.weights_extra_bytes
        taken += overhead.activation_bytes + overhead.non_torch_bytes
        return (rank.gpu.process_memory_bytes - taken) * utilization

    def pools(self, rank: Rank, kv_bytes: float) -> tuple[CachePool, ...]:
        """One pool of blocks, every layer cached in full unless windows are asked for."""
        return block_pools(rank, kv_bytes, hybrid=False)

    def wording(self, kv_bytes: float, tokens: int, concurrency: float, max_model_len: int) -> tuple[str, ...]:
        """The start-up line."""
        return (f"[MemUsageChange] Allocated {kv_bytes / GIB:.2f} GiB for max tokens in paged KV cache ({tokens}).",)

    def rule(self) -> str:
        """The identity in words."""
        return "KV room = (total - weights - activation - non-torch) * free_gpu_memory_fraction"
