"""Layers for multi-token prediction that a checkpoint ships besides the model.

DeepSeek-V3 report, section 2.2: each module is one more layer of the model's own kind, a projection of twice the
width, and norms on its two inputs and its output.
"""

from sizing.architecture.config import Config
from sizing.architecture.kinds import feed_forwards, mixers
from sizing.architecture.kinds.attention import hidden_size
from sizing.architecture.parts import Layer
from sizing.architecture.patterns import LETTERS, NAMED, kinds_of, layer_count
from sizing.architecture.traits import Traits

DECLARED = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "mtp_num_layers", "num_mtp_layers")


def mtp_count(config: Config, traits: Traits) -> int:
    """Number of modules that the files ship."""
    if traits.mtp == "never":
        return 0
    declared = config.integer(*DECLARED, default=0, low=0, kind="layers")
    return max(declared, 1) if traits.mtp == "always" else declared


def mtp_layers(config: Config, traits: Traits, norm: int, vocabulary: int) -> tuple[list[Layer], int]:
    """Layers of the modules, and elements that they ship besides. [element]

    Parameters
    ----------
    config, traits
        The text model's.
    norm
        Elements of the norms of one layer [element].
    vocabulary
        Entries of the embedding, for modules that ship copies of it and of the head [token].
    """
    count = mtp_count(config, traits)
    if not count:
        return [], 0
    hidden = hidden_size(config)
    each = _module_kinds(config, traits)
    layers = [
        Layer(
            mixer=mixers.get(mixer)(config, traits, index),
            feed_forward=feed_forwards.get(feed)(config, traits, index),
            norm_parameters=norm,
        )
        for _ in range(count)
        for mixer, feed, index in each
    ]
    besides = 2 * hidden * hidden + 3 * hidden
    if traits.mtp_copies:
        besides += 2 * vocabulary * hidden
    return layers, count * besides


def _module_kinds(config: Config, traits: Traits) -> list[tuple[str, str, int]]:
    """Mixer, feed-forward and layer index of each layer of one module."""
    last = layer_count(config) - 1
    letters = config.get("mtp_hybrid_override_pattern")
    listed = config.texts("mtp_layers_block_type")
    blocks: list[str] = []
    if isinstance(letters, str):
        blocks = [LETTERS[letter] for letter in letters if letter in LETTERS]
    elif listed:
        blocks = [NAMED[name] for name in listed if name in NAMED]
    if blocks:
        return [("none", block, last) if block in {"moe", "dense"} else (block, "none", last) for block in blocks]
    mixer, feed = kinds_of(config, traits, last)
    if mixer == "compressed":
        return [(mixer, feed, last + 1)]
    if mixer in {"gated_delta", "kimi_delta"}:
        mixer = "attention"
    return [(mixer, feed, last)]
