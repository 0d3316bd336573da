"""The operations of one forward pass on one GPU, and the time of each.

A deployment becomes a short list of :class:`Operation`: matrix products with their shapes after sharding,
attention of each kind, fused experts, collectives, kernels that only move data. Equal operations of equal
layers are one entry with a count, so a model of eighty layers is a list of some fifteen.

What an operation depends on is its ``phase``: ``tokens`` (all tokens of the step), ``rows`` (positions that
are sampled), ``decode`` (sequences that decode, and their cache) or ``prefill`` (new prompt tokens, and the
pairs they attend to). Phases add up; that is what makes a step tabulable.
"""

from sizing.operations.layers import imbalance, launches, operations
from sizing.operations.record import Operation, Step
from sizing.operations.times import seconds
from sizing.operations.work import weight_bytes, work

__all__ = ["Operation", "Step", "imbalance", "launches", "operations", "seconds", "weight_bytes", "work"]
