"""vLLM: memory rules by version.

Identity (V1): ``KV room = total * utilisation - weights - activation peak - non-torch``, within 0.05 GiB on
61 start-up logs of v0.19; graphs are charged from v0.20 on. What the process held before it began to load
is not charged: it sits in the 1 - utilisation.

Constants are fitted on start-up logs (``data/measured/memory.csv``); the mechanisms are named beside them.
"""

import math
import re
from dataclasses import dataclass
from typing import ClassVar

from sizing.architecture import Model
from sizing.catalog import Gpu
from sizing.engines import footprint
from sizing.engines.blocks import block_pools
from sizing.engines.cache import CachePool
from sizing.engines.record import GIB, Defaults, Engine, Overhead, Rank, register

NEWEST = (0, 20, 0)
#: Cards with less memory, and A100s, get the smaller defaults [byte].
LARGE_CARD_BYTES = 70 * GIB

#: Bytes for each logit of a full batch while sampling: 16-bit logits, their fp32 copy, probabilities and
#: random draws (14), and with PyTorch's top-k/top-p also sorted values, 64-bit indices and sums (24 more).
SAMPLER_FUSED_BYTES = 14.55
SAMPLER_SORTING_BYTES = 38.1
#: Encoder outputs and profiled images of multimodal models [GiB].
ENCODER_GIB = 0.2
#: Non-torch memory [GiB]: one GPU, several GPUs (NCCL, custom all-reduce); from 0.17 on fused all-reduce too.
NON_TORCH_GIB = {"old": (0.13, 0.55), "new": (0.25, 2.05), "plain": (0.02, 0.14)}
NON_TORCH_PER_GPU_GIB = 0.03
PIPELINE_NON_TORCH_GIB = 0.07
#: ROCm: one GPU, and several (RCCL buffers) [GiB].
ROCM_NON_TORCH_GIB = (1.2, 2.5)
ROCM_NON_TORCH_PER_GPU_GIB = 0.11
#: Graphs: start, a layer, mixtures besides; versions that free as much as they capture; ROCm before 0.17, since.
GRAPHS_GIB = (0.37, 0.017, 0.2)
QUIET_GRAPHS_GIB = 0.1
ROCM_GRAPHS_GIB = (4.8, 6.8)
#: ROCm: what loading takes beyond the weights, dense models and mixtures [GiB].
ROCM_LOADED_GIB = (0.64, 1.55)


@register("vllm")
@dataclass(frozen=True, kw_only=True)
class Vllm(Engine):
    """vLLM."""

    holds_longest: ClassVar[bool] = True
    name: str = "vllm"

    @property
    def number(self) -> tuple[int, ...]:
        """Version that the rules follow: the one stated, or the newest known."""
        return self.version.number or NEWEST

    @property
    def legacy(self) -> bool:
        """Whether it is the V0 engine."""
        if self.version.legacy is not None:
            return self.version.legacy
        return self.number < (0, 8)

    def defaults(self, model: Model, gpu: Gpu, tp: int = 1, max_model_len: int | None = None) -> Defaults:
        """Utilisation 0.92 since 0.20, 0.9 before; 8,192 tokens and 1,024 sequences on cards of 70 GiB.

        Smaller cards and A100s get 2,048 tokens and 256 sequences; V1 before 0.9 gave 1,024 to all.
        """
        large = gpu.process_memory_bytes >= LARGE_CARD_BYTES and "a100" not in gpu.id
        longest = max_model_len or model.max_positions or 8192
        if self.legacy:
            sequences, tokens = 256, max(2048, longest if longest <= 32768 else 2048)
        else:
            sequences = 1024 if large or self.number < (0, 9) else 256
            tokens = 8192 if large else 2048
        return Defaults(
            memory_utilization=0.92 if self.number >= (0, 20) else 0.9,
            max_num_seqs=sequences,
            max_num_batched_tokens=tokens,
            block_size=16,
            max_model_len=longest,
        )

    def overhead(self, rank: Rank) -> Overhead:
        """Activation peak, non-torch memory and graphs."""
        graphs = self._graph_bytes(rank) if rank.cuda_graphs else 0.0
        return Overhead(
            weights_extra_bytes=self._loaded_bytes(rank),
            activation_bytes=self._activation_bytes(rank),
            non_torch_bytes=self._non_torch_bytes(rank),
            cuda_graph_bytes=graphs,
            charged_graph_bytes=graphs if self.number >= (0, 20) else 0.0,
        )

    def kv_bytes(self, rank: Rank, overhead: Overhead, utilization: float) -> float:
        """``total * utilisation - weights - activation peak - non-torch - charged graphs``."""
        taken = rank.weights_bytes + overhead.weights_extra_bytes + overhead.activation_bytes
        taken += overhead.non_torch_bytes + overhead.charged_graph_bytes
        return rank.gpu.process_memory_bytes * utilization - taken

    def pools(self, rank: Rank, kv_bytes: float) -> tuple[CachePool, ...]:
        """One pool; windows are grouped apart by the V1 engine since 0.9."""
        return block_pools(rank, kv_bytes, hybrid=not self.legacy and self.number >= (0, 9))

    def wording(self, kv_bytes: float, tokens: int, concurrency: float, max_model_len: int) -> tuple[str, ...]:
        """Both start-up lines."""
        return (
            f"Available KV cache memory: {kv_bytes / GIB:.2f} GiB",
            f"GPU KV cache size: {tokens:,} tokens",
            f"Maximum concurrency for {max_model_len:,} tokens per request: {concurrency:.2f}x",
        )

    def rule(self) -> str:
        """The identity in words."""
        graphs = " - CUDA graphs" if self.number >= (0, 20) else ""
        return f"KV room = total * utilisation - weights - activation peak - non-torch{graphs}"

    # -- parts ------------------------------------------------------------------------------------------

    def _sorts(self, gpu: Gpu) -> bool:
        """Whether sampling sorts in PyTorch: without FlashInfer (before 0.10), or with it off (0.11.1-0.16)."""
        if gpu.vendor == "AMD":
            upstream_kernels = "rhai" not in self.version.build and self.number >= (0, 13)
            return self.number < (0, 17) and not upstream_kernels
        return self.number < (0, 10) or (0, 11, 1) <= self.number < (0, 17)

    def _activation_bytes(self, rank: Rank) -> float:
        entry = SAMPLER_SORTING_BYTES if self._sorts(rank.gpu) else SAMPLER_FUSED_BYTES
        entry += rank.sixteen_bit_bytes - 2.0
        sampling = footprint.sampler_bytes(rank, entry) + footprint.hidden_bytes(rank)
        kept = ENCODER_GIB * GIB if rank.model.towers and rank.first else 0.0
        experts = footprint.expert_workspace_bytes(rank) if self._fused_experts(rank) else 0.0
        if self._keeps_workspaces(rank):
            kept, experts = kept + experts, 0.0
        return max(sampling, footprint.forward_bytes(rank) + experts) + kept

    def _fused_experts(self, rank: Rank) -> bool:
        """Whether experts run in fused kernels with workspaces: not in MXFP4's, nor in Blackwell's own."""
        stored = footprint.expert_format(rank)
        blackwell = 10.0 <= _generation(rank.gpu) < 11.0
        return not stored.startswith("mxfp4") and not (blackwell and stored.startswith(("fp8", "nvfp4")))

    def _keeps_workspaces(self, rank: Rank) -> bool:
        """Whether those workspaces stay while sampling: from 0.14 on, but not for FP8 in 0.15 and 0.16."""
        if self.legacy or self.number < (0, 14):
            return False
        between = (0, 15) <= self.number < (0, 17) and rank.gpu.vendor == "NVIDIA"
        return not (between and footprint.expert_format(rank).startswith("fp8"))

    def _loaded_bytes(self, rank: Rank) -> float:
        """What loading adds to the checkpoint's bytes. [byte]"""
        extra = footprint.rotary_bytes(rank) + self._absorbed_bytes(rank) + self._padding_bytes(rank)
        if rank.gpu.vendor == "AMD":
            extra += ROCM_LOADED_GIB[rank.model.is_moe] * GIB
            if self.number >= (0, 14) and footprint.expert_format(rank) in ("bf16", "fp16"):
                extra += footprint.expert_bytes(rank, "row")  # shuffled copies of the down-projections
        return extra

    def _padding_bytes(self, rank: Rank) -> float:
        """MXFP4 experts padded to the kernel's tiles. [byte]

        Width on one GPU to 256 (Marlin, before Hopper: 128), and the model's width to 256 except on Hopper.
        """
        if not footprint.expert_format(rank).startswith("mxfp4"):
            return 0.0
        generation = _generation(rank.gpu)
        marlin = 0.0 < generation < 9.0
        for layer in rank.layers:
            for x in layer.feed_forward.linears:
                if x.role == "expert" and x.shard == "row":
                    width, hidden, _ = x.per_gpu(rank.tp * rank.dp, rank.ep)
                    tile = 128 if marlin else 256
                    grown = math.ceil(width / tile) * tile / width
                    grown *= 1.0 if generation == 9.0 else math.ceil(hidden / 256) * 256 / hidden
                    return (grown - 1.0) * footprint.expert_bytes(rank)
        return 0.0

    def _non_torch_bytes(self, rank: Rank) -> float:
        if rank.gpu.vendor == "AMD":
            one, several = ROCM_NON_TORCH_GIB
            size = one if rank.tp == 1 else several + ROCM_NON_TORCH_PER_GPU_GIB * rank.tp
            return size * GIB
        if rank.tp == 1:
            size = PIPELINE_NON_TORCH_GIB if rank.pp > 1 else NON_TORCH_GIB[self._era()][0]
            return size * GIB
        return (NON_TORCH_GIB[self._era()][1] + NON_TORCH_PER_GPU_GIB * (rank.tp - 2)) * GIB

    def _era(self) -> str:
        if self.number >= (0, 17):
            return "new"
        return "plain" if (0, 10) <= self.number < (0, 11) else "old"

    def _graph_bytes(self, rank: Rank) -> float:
        """Captured graphs: a start, and some for each layer; hardly any from 0.11.1 to 0.16; more on ROCm."""
        newer = self.number >= (0, 17)
        if rank.gpu.vendor == "AMD":
            return ROCM_GRAPHS_GIB[newer] * GIB
        if self.number >= (0, 11, 1) and not newer:
            return QUIET_GRAPHS_GIB * GIB
        start, each, mixture = GRAPHS_GIB
        return (start + each * rank.depth + mixture * rank.model.is_moe) * GIB

    def _absorbed_bytes(self, rank: Rank) -> float:
        """16-bit copies of the MLA up-projections, absorbed into queries and outputs. [byte]"""
        total = 0.0
        for layer in rank.layers:
            m = layer.mixer
            if m.latent_dim and m.heads:
                nope = max(m.head_dim - m.rope_dim, 0)
                total += layer.count * 2.0 * m.latent_dim * m.heads * (nope + m.value_dim) / rank.tp
        return total


def _generation(gpu: Gpu) -> float:
    """CUDA compute capability, 0 for other makers' and for unknown ones."""
    return float(gpu.compute_capability) if re.fullmatch(r"\d+\.\d+", gpu.compute_capability) else 0.0
