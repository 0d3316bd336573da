"""Time of one operation on one GPU: a smooth roofline with tiles, waves, depth and a fixed cost.

Every function takes scalars or arrays (numpy broadcasting) and gives seconds; constants that carry draws put
the draw axis first. Nothing here knows a model or an engine. Shapes are per GPU, after sharding.
"""

from sizing.roofline.attention import attention_decode_s, attention_prefill_s
from sizing.roofline.elementwise import elementwise_s
from sizing.roofline.experts import distinct_experts, moe_s, routed_experts
from sizing.roofline.latent import mla_decode_s, mla_prefill_s
from sizing.roofline.matrix import batched_gemm_s, gemm_s, kernel_format
from sizing.roofline.smooth import Seconds, in_cache, peak_16_bit, smooth_max

__all__ = [
    "Seconds",
    "attention_decode_s",
    "attention_prefill_s",
    "batched_gemm_s",
    "distinct_experts",
    "elementwise_s",
    "gemm_s",
    "in_cache",
    "kernel_format",
    "mla_decode_s",
    "mla_prefill_s",
    "moe_s",
    "peak_16_bit",
    "routed_experts",
    "smooth_max",
]
