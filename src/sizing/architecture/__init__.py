"""What a model is made of, read from its config.json: layers, matrices, caches, number formats."""

from sizing.architecture.model import CheckpointFormat, Model, Tower
from sizing.architecture.parts import FeedForward, Layer, Linear, Mixer
from sizing.architecture.reading import model_from_config, read_model

__all__ = [
    "CheckpointFormat",
    "FeedForward",
    "Layer",
    "Linear",
    "Mixer",
    "Model",
    "Tower",
    "model_from_config",
    "read_model",
]
