"""Kinds of layer halves, one file each; a file registers itself under the names patterns use."""

from collections.abc import Callable

from sizing.architecture.config import Config
from sizing.architecture.parts import FeedForward, Mixer
from sizing.architecture.traits import Traits
from sizing.registry import Registry

MixerReader = Callable[[Config, Traits, int], Mixer]
FeedForwardReader = Callable[[Config, Traits, int], FeedForward]

#: Readers of token mixers: ``(config, traits, layer index) -> Mixer``.
mixers: Registry[MixerReader] = Registry("kind of token mixer", "sizing.architecture.kinds")
#: Readers of feed-forwards: ``(config, traits, layer index) -> FeedForward``.
feed_forwards: Registry[FeedForwardReader] = Registry("kind of feed-forward", "sizing.architecture.kinds")
