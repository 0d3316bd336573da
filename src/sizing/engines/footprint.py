"""Activation peaks: what a profiling step holds above the weights, from the sizes of a model."""

from sizing.architecture import Layer
from sizing.engines.record import Rank
from sizing.formats import weight_format


def sampler_bytes(rank: Rank, bytes_per_entry: float) -> float:
    """Logits of a full batch with the copies that sampling makes of them. [byte]

    ``max_num_seqs * vocabulary * bytes_per_entry``; the vocabulary is gathered whole on every rank.
    """
    if not rank.last or rank.model.head is None:
        return 0.0
    return rank.max_num_seqs * rank.model.vocab_size * bytes_per_entry


def hidden_bytes(rank: Rank, copies: float = 1.6) -> float:
    """Residual stream of a step's tokens, held while sampling. [byte]"""
    return copies * rank.max_num_batched_tokens * rank.model.hidden_size * rank.sixteen_bit_bytes


def forward_bytes(rank: Rank) -> float:
    """Peak inside one layer: widest intermediate of the feed-forward, residual, queries, keys, values. [byte]

    ``tokens * bytes * (3 * widest / tp + 4 * hidden)``: gate and up, their product, and the residual
    stream with its copies; pipeline stages hold two more, received and sent.
    """
    widest = max((_dense_width(layer) for layer in rank.layers), default=0)
    per_token = 3.0 * widest / rank.tp + (4.0 if rank.pp == 1 else 6.0) * rank.model.hidden_size
    return rank.max_num_batched_tokens * per_token * rank.sixteen_bit_bytes


def _dense_width(layer: Layer) -> int:
    return max((x.inputs for x in layer.feed_forward.linears if x.role != "expert" and x.shard == "row"), default=0)


def expert_workspace_bytes(rank: Rank) -> float:
    """Two workspaces of a fused mixture of experts: inputs and outputs of every token and chosen expert. [byte]

    ``tokens * top_k * 16 bit * (max(width, hidden) + max(2 * width, hidden))`` with the expert's width on
    one GPU.
    """
    largest = 0.0
    for layer in rank.layers:
        for x in layer.feed_forward.linears:
            if x.role != "expert" or x.shard != "row":
                continue
            width, hidden, _ = x.per_gpu(rank.tp * rank.dp, rank.ep)
            chosen = rank.max_num_batched_tokens * max(layer.feed_forward.top_k, 1)
            largest = max(largest, chosen * 2.0 * (max(width, hidden) + max(2 * width, hidden)))
    return largest


def expert_format(rank: Rank) -> str:
    """Format in which the routed experts are held, an empty text when there are none."""
    for layer in rank.layers:
        for x in layer.feed_forward.linears:
            if x.role == "expert":
                return x.stored_format(rank.requested, weight_format("bf16")).name
    return ""


def expert_bytes(rank: Rank, shard: str = "") -> float:
    """Bytes of routed experts on this GPU; of one side only when ``shard`` is given. [byte]"""
    total = 0.0
    for layer in rank.layers:
        for x in layer.feed_forward.linears:
            if x.role == "expert" and shard in ("", x.shard):
                total += layer.count * x.bytes(rank.requested, None, rank.tp * rank.dp, rank.ep)
    return total


def rotary_bytes(rank: Rank) -> float:
    """Table of sines and cosines for every position, kept once per kind of rotary embedding. [byte]"""
    positions = rank.model.max_positions or 0
    widths = {(x.mixer.rope_dim or x.mixer.head_dim) for x in rank.layers if x.mixer.kv_heads or x.mixer.rope_dim}
    return float(sum(positions * width * 2.0 for width in widths))
