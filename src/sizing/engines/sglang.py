"""SGLang: memory rules.

Identity: ``KV room = free after loading - free before loading * (1 - mem_fraction_static)``, within
0.04 GiB in 5 of 6 start-up logs. Activations and graphs come out of the 1 - mem_fraction_static.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from sizing.architecture import Model
from sizing.catalog import Gpu
from sizing.engines import footprint
from sizing.engines.blocks import layer_types
from sizing.engines.cache import CacheGroup, CachePool
from sizing.engines.record import GIB, Defaults, Engine, Overhead, Rank, register

#: What a process holds before it loads: driver context, and NCCL with several GPUs [GiB].
CONTEXT_GIB = (0.6, 1.9)
#: The same on ROCm; with several GPUs as on 8 MI308 in one public log (IS117).
ROCM_CONTEXT_GIB = (1.0, 7.9)
#: Tokens of the sliding-window pool for one of the full pool (``swa_full_tokens_ratio``).
SWA_RATIO = 0.8
#: Memory of recurrent states for one of the full cache (``mamba_full_memory_ratio``).
STATE_RATIO = 0.9
#: ``mem_fraction_static`` by tensor-parallel size, from SGLang's server arguments up to 0.4.
FRACTION = ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87), (1, 0.88))
#: Largest batch that logits and graphs are set aside for [sequence].
GRAPH_BATCH = 256


@register("sglang")
@dataclass(frozen=True, kw_only=True)
class Sglang(Engine):
    """SGLang."""

    # ServerArgs divides chunked_prefill_size and max_running_requests by dp_size
    limits_per_rank: ClassVar[bool] = False
    name: str = "sglang"

    def defaults(self, model: Model, gpu: Gpu, tp: int = 1, max_model_len: int | None = None) -> Defaults:
        """Static fraction by tensor-parallel size; chunked prefill of 8,192 tokens; pages of one token.

        Requests that run at once are 2,048 to 4,096 by the cache's size (``ModelRunner``: ``max_total_num_tokens /
        context_len * 512`` within those bounds); the lower bound is taken.
        """
        fraction = next(share for size, share in FRACTION if tp >= size)
        return Defaults(
            memory_utilization=fraction,
            max_num_seqs=2048,
            max_num_batched_tokens=8192 if gpu.process_memory_bytes > 35 * GIB else 2048,
            block_size=1,
            max_model_len=max_model_len or model.max_positions or 8192,
        )

    def overhead(self, rank: Rank) -> Overhead:
        """Activations and graphs, outside the static share; the process's own before it loads."""
        sampled = replace(rank, max_num_seqs=min(rank.max_num_seqs, GRAPH_BATCH))
        return Overhead(
            weights_extra_bytes=footprint.rotary_bytes(rank),
            activation_bytes=footprint.forward_bytes(rank) + footprint.sampler_bytes(sampled, 14.0),
            cuda_graph_bytes=(0.6 + 0.02 * rank.depth) * GIB if rank.cuda_graphs else 0.0,
            context_bytes=(ROCM_CONTEXT_GIB if rank.gpu.vendor == "AMD" else CONTEXT_GIB)[rank.tp > 1] * GIB,
        )

    def kv_bytes(self, rank: Rank, overhead: Overhead, utilization: float) -> float:
        """``(total - context) * fraction - weights``, which is the identity above rearranged."""
        before = rank.gpu.process_memory_bytes - overhead.context_bytes
        return before * utilization - rank.weights_bytes - overhead.weights_extra_bytes

    def pools(self, rank: Rank, kv_bytes: float) -> tuple[CachePool, ...]:
        """A pool of tokens for layers cached in full, one for windows, one for recurrent states."""
        types = layer_types(rank, hybrid=True)
        full = sum(t.token_bytes * n for t, n in types.items() if t.kind == "full")
        windows = {t: n for t, n in types.items() if t.kind in ("sliding", "chunked")}
        sliding = sum(t.token_bytes * n for t, n in windows.items())
        state = sum(t.state_bytes * n for t, n in types.items() if t.kind == "state")
        kv_bytes = max(kv_bytes, 0.0)
        pools: list[CachePool] = []
        if state:
            states = kv_bytes * (STATE_RATIO / (1 + STATE_RATIO) if full + sliding else 1.0)
            pools.append(_pool("state", state, states, None, rank.cp))
            kv_bytes -= states
        if not full:
            full, sliding, windows = sliding, 0.0, {}
        if full:
            tokens = kv_bytes / (full + SWA_RATIO * sliding)
            pools.append(_pool("full", full, tokens * full, None, rank.cp))
            if sliding:
                window = max(t.window or 0 for t in windows)
                pools.append(_pool("sliding", sliding, SWA_RATIO * tokens * sliding, window, rank.cp))
        return tuple(pools)

    def printed_tokens(self, pools: tuple[CachePool, ...]) -> int:
        """The log's ``#tokens`` is that of the pool cached in full."""
        return max((pool.printed_tokens for pool in pools if pool.groups[0].kind == "full"), default=0)

    def wording(self, kv_bytes: float, tokens: int, concurrency: float, max_model_len: int) -> tuple[str, ...]:
        """The start-up lines; the log prints half of the room for K and half for V, labelled GB."""
        half = kv_bytes / GIB / 2
        return (
            f"KV Cache is allocated. #tokens: {tokens}, K size: {half:.2f} GB, V size: {half:.2f} GB",
            f"max_total_num_tokens={tokens}, context_len={max_model_len}",
        )

    def rule(self) -> str:
        """The identity in words."""
        return "KV room = (total - context) * mem_fraction_static - weights"


def _pool(kind: str, unit_bytes: float, room: float, window: int | None, scale: int) -> CachePool:
    group = CacheGroup(
        kind=kind, layers=1, block_tokens=1, most_tokens=window, fixed_blocks=1 if kind == "state" else 0
    )
    return CachePool(groups=(group,), block_bytes=unit_bytes, blocks=room // unit_bytes, token_scale=scale)
