"""What stands before and after the layers: embeddings, positions, heads, poolers, and what files ship besides."""

from sizing.architecture.config import Config
from sizing.architecture.kinds.attention import hidden_size
from sizing.architecture.mtp import mtp_count
from sizing.architecture.parts import Layer, Linear
from sizing.architecture.traits import Traits

POSITIONS = (
    "max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "max_seq_len", "model_max_length",
    "n_ctx", "max_target_positions",
)  # fmt: skip


#: Spellings of the number of entries of the embedding.
VOCABULARY = ("vocab_size", "padded_vocab_size", "n_vocab")


def norm_elements(config: Config, traits: Traits) -> int:
    """Elements of one norm of model width. [element]"""
    return hidden_size(config) * (2 if traits.norm_bias else 1)


def embeddings(config: Config, traits: Traits) -> tuple[Linear, Linear | None, bool]:
    """Input embedding, output head, and whether they are the same."""
    hidden = hidden_size(config)
    width = config.integer("word_embed_proj_dim", "embedding_size", default=hidden)
    vocabulary = config.integer(*VOCABULARY, required=True, kind="vocabulary")
    embedding = Linear(
        name="embed_tokens", inputs=vocabulary, outputs=width, shard="row", quantized=False, role="embedding"
    )
    if traits.mixer == "encoder" or traits.headless:
        return embedding, None, False
    head = Linear(
        name="lm_head",
        inputs=width,
        outputs=vocabulary,
        bias_elements=vocabulary * traits.head_bias,
        quantized=False,
        role="head",
    )
    return embedding, head, config.flag("tie_word_embeddings", default=traits.tied)


def outside_layers(config: Config, traits: Traits, layers: int) -> int:
    """Elements outside the layers and the embedding: norms, positions, types, pooler, extras. [element]"""
    hidden = hidden_size(config)
    total = norm_elements(config, traits) * (traits.final_norms + traits.embedding_norm)
    if traits.positions:
        total += hidden * (config.integer(*POSITIONS, default=512, kind="positions") + traits.position_offset)
    total += hidden * config.integer("type_vocab_size", default=0, low=0) * (traits.mixer == "encoder")
    if traits.pooler:
        total += hidden * hidden + hidden
    if traits.head_bias and config.flag("tie_word_embeddings", default=traits.tied):
        total += config.integer("vocab_size", default=0, low=0, kind="vocabulary")
    copies = config.integer("hc_mult", default=0, low=0, kind="small")
    if copies:  # hyper-connections mix their copies of the stream once more before the head
        total += copies * copies * hidden + copies + 1
    return total + per_layer_inputs(config, layers) + alternating_updates(config)


def per_layer_inputs(config: Config, layers: int) -> int:
    """Elements of Gemma 3n's and 4's second embedding, one slice a layer. [element]"""
    width = config.integer("hidden_size_per_layer_input", default=0, low=0)
    if not width:
        return 0
    vocabulary = config.integer("vocab_size_per_layer_input", "vocab_size", required=True, kind="vocabulary")
    return layers * width * (vocabulary + hidden_size(config)) + width


def alternating_updates(config: Config) -> int:
    """Elements of Gemma 3n's projections between its copies of the stream. [element]"""
    copies = config.integer("altup_num_inputs", default=0, low=0, kind="small")
    return 2 * max(copies - 1, 0) * hidden_size(config) ** 2


def layer_extras(config: Config) -> int:
    """Elements of small parts that some types add to every layer. [element]"""
    hidden = hidden_size(config)
    total = 2 * hidden if config.flag("new_decoder_architecture") else 0  # Falcon: two norms side by side
    width = config.integer("hidden_size_per_layer_input", default=0, low=0)
    if width:
        total += 2 * width * hidden + hidden
    copies = config.integer("altup_num_inputs", default=0, low=0, kind="small")
    if copies:
        total += 2 * hidden + copies * (copies + copies**2 + hidden)
    rank = config.integer("laurel_rank", default=0, low=0)
    if rank:
        total += 2 * rank * hidden + hidden
    streams = config.integer("hc_mult", default=0, low=0, kind="small")
    if streams:  # hyper-connections (Zhu et al. 2024) before the mixer and before the feed-forward
        mixes = (2 + streams) * streams
        total += 2 * (mixes * streams * hidden + mixes + 3)
    return total


def shipped_besides(
    config: Config, traits: Traits, layers: tuple[Layer, ...], embedding: int, facts: dict[str, object]
) -> tuple[int, int, str]:
    """Elements in the files that the framework does not build, elements it builds that they lack, and a note.

    Parameters
    ----------
    config, traits
        The text model's.
    layers
        Its layers.
    embedding
        Elements of the embedding [element].
    facts
        What is known of this very checkpoint: ``head_copy``, ``no_head``.
    """
    extra, missing, notes = 0, 0, []
    if traits.correction_bias:
        routers = [layer for layer in layers if layer.feed_forward.experts]
        modules = mtp_count(config, traits) if routers else 0
        last = routers[-1].feed_forward.experts if routers else 0
        extra += sum(layer.feed_forward.experts * layer.count for layer in routers) + modules * last
        notes.append("correction biases of routers")
    hashed = config.integer("num_hash_layers", default=0, low=0, kind="layers")
    if hashed and layers:
        top_k = config.integer("num_experts_per_tok", default=1, kind="experts")
        extra += hashed * config.integer("vocab_size", default=0, low=0, kind="vocabulary") * top_k
        extra -= hashed * config.integer("n_routed_experts", default=0, low=0, kind="experts")
        notes.append("expert tables of hash layers")
    if traits.mask_buffers:
        extra += sum(layer.count for layer in layers) * config.integer(*POSITIONS, default=1024, kind="width") ** 2
        notes.append("causal masks")
    tied = config.flag("tie_word_embeddings", default=traits.tied)
    if tied and not traits.headless and (facts.get("head_copy", traits.head_copy) is True):
        extra += embedding
        notes.append("a copy of the tied embedding as head")
    if facts.get("no_head") is True and not tied and not traits.headless:
        missing += embedding
        notes.append("no output head (embedding model)")
    return max(extra, 0), missing, ", ".join(notes)
