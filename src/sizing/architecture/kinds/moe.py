"""Mixture of experts: a router, routed experts of which a token uses a few, and shared experts.

Shazeer et al. 2017 (routing), DeepSeekMoE (Dai et al. 2024: shared experts, dense first layers), latent MoE
(NVIDIA Nemotron 3: experts work in a narrower width).
"""

from sizing.architecture.config import Config
from sizing.architecture.kinds import feed_forwards
from sizing.architecture.kinds.attention import hidden_size, on
from sizing.architecture.kinds.dense import dense_linears, dense_width, intermediate_size
from sizing.architecture.parts import FeedForward, Linear
from sizing.architecture.traits import Traits
from sizing.errors import InputError

EXPERTS = (
    "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts",
    "num_moe_experts", "moe_num_routed_experts",
)  # fmt: skip
TOP_K = (
    "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts", "moe_topk", "moe_k",
    "moe_top_k", "num_selected_experts", "num_experts_per_topk", "top_k",
)  # fmt: skip
WIDTH = (
    "moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size", "expert_ffn_hidden_size",
    "moe_hidden_dim", "expert_dim",
)  # fmt: skip
SHARED = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
SHARED_WIDTH = (
    "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "share_expert_dim",
    "shared_intermediate_size", "moe_shared_intermediate_size", "shared_expert_dim",
)  # fmt: skip


def experts_of(config: Config, index: int = 0) -> int:
    """Number of routed experts, 0 when there are none."""
    return config.per_layer(index, *EXPERTS, default=0, low=0, kind="experts")


def expert_width(config: Config, index: int) -> int:
    """Width of one routed expert; ``intermediate_size`` where no field of its own names it. [element]"""
    width = config.per_layer(index, *WIDTH, default=0, low=0, kind="intermediate")
    return width or intermediate_size(config, index)


def shared_width(config: Config, traits: Traits, index: int) -> tuple[int, int]:
    """Number of shared experts, and their width together. [element]"""
    number = config.per_layer(index, *SHARED, default=0, low=0, kind="experts")
    width = config.per_layer(index, *SHARED_WIDTH, default=0, low=0, kind="intermediate")
    if width and config.has("n_shared_experts") and config.has("moe_shared_expert_intermediate_size"):
        width *= number
    if width:
        return max(number, 1), width
    if not number and config.flag("use_shared_expert", "moe_use_shared_expert"):
        number = 1
    return number, number * expert_width(config, index)


@feed_forwards.register("moe")
def mixture(config: Config, traits: Traits, index: int) -> FeedForward:
    """Router, routed experts and shared experts."""
    experts, top_k = experts_of(config, index), _top_k(config, index)
    hidden = hidden_size(config)
    idle = config.integer("zero_expert_num", default=0, low=0, kind="experts")  # experts that do nothing (LongCat)
    latent = config.integer("moe_latent_size", "routed_expert_hidden_size", default=0, low=0)
    router = _router("mlp.gate", hidden, experts + idle, bias=experts * traits.router_bias)
    linears = [router, *latent_linears(hidden, latent)]
    linears += routed(config, traits, index, latent or hidden, experts, top_k)
    number, width = shared_width(config, traits, index)
    bias = on(config, traits.mlp_bias)
    if width:
        linears += dense_linears(
            hidden, width, gated=traits.gated, bias=bias, name="mlp.shared_experts", role="shared_expert"
        )
    if width and traits.shared_gate:
        linears.append(_router("mlp.shared_expert_gate", hidden, 1))
    if traits.beside or idle:
        linears += dense_linears(hidden, dense_width(config, index), gated=traits.gated, bias=bias)
    return FeedForward(
        kind="moe",
        linears=tuple(linears),
        other_parameters=4 * hidden + experts if config.flag("enable_moe_block") else 0,
        experts=experts,
        top_k=top_k,
        shared_experts=number if width else 0,
        latent_size=latent,
    )


def _top_k(config: Config, index: int) -> int:
    """Routed experts that a token uses, between one and all of them."""
    experts = experts_of(config, index)
    if not experts:
        raise InputError("config routes to experts but names none (num_experts, n_routed_experts, ...)")
    top_k = config.per_layer(index, *TOP_K, default=0, low=1, kind="experts")
    if not top_k:
        config.warn(f"no top-k for {experts} experts in the config: 1 assumed")
    if top_k > experts:
        config.warn(f"top-k {top_k} of {experts} experts: taken as {experts}")
    return min(max(top_k, 1), experts)


def _router(name: str, inputs: int, outputs: int, bias: int = 0) -> Linear:
    return Linear(
        name=name,
        inputs=inputs,
        outputs=outputs,
        bias_elements=bias,
        shard="replicated",
        quantized=False,
        role="router",
    )


def latent_linears(hidden: int, latent: int) -> list[Linear]:
    """Projections into and out of the width that latent experts work in."""
    if not latent:
        return []
    return [
        Linear(name="mlp.fc1_latent_proj", inputs=hidden, outputs=latent, shard="replicated", role="shared_expert"),
        Linear(name="mlp.fc2_latent_proj", inputs=latent, outputs=hidden, shard="replicated", role="shared_expert"),
    ]


def routed(config: Config, traits: Traits, index: int, inputs: int, experts: int, top_k: int) -> list[Linear]:
    """Matrices of the routed experts, one Linear for all experts of one kind of matrix."""
    width = expert_width(config, index)
    bias = on(config, traits.expert_bias)
    return [
        Linear(
            name=linear.name,
            inputs=linear.inputs,
            outputs=linear.outputs,
            bias_elements=linear.bias_elements,
            shard=linear.shard,
            count=experts,
            active=top_k,
            role="expert",
            group=linear.group,
        )
        for linear in dense_linears(inputs, width, gated=traits.gated, bias=bias, name="mlp.experts", role="expert")
    ]
