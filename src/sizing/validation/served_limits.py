"""Limits of one step that a measured server is taken to have been given, where it states none."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sizing.memory import MemoryBudget

COMMON_TOKENS, COMMON_SEQUENCES = 8192, 256
"""Least limits of one step that a server under test is taken to have been given [token], [sequence]."""


def served_limits(memory: "MemoryBudget") -> tuple[float, float]:
    """Sequences of one step of the whole replica, and tokens of one of its schedulers. [sequence], [token]

    Parameters
    ----------
    memory
        Of the deployment; what it states comes first, then the engine's defaults, but no less than is common.
    """
    settings, usual = memory.deployment.settings, memory.defaults
    sequences = settings.max_num_seqs or max(usual.max_num_seqs, COMMON_SEQUENCES)
    tokens = settings.max_num_batched_tokens or max(usual.max_num_batched_tokens, COMMON_TOKENS)
    return float(sequences) * memory.schedulers, float(tokens)
