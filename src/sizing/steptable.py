"""A step-time model as arrays, so that compiled loops can ask for a step of any composition.

One engine step computes ``q`` new prompt tokens for ``s`` sequences and one token for each of ``n``
decoding sequences. Its time is a sum of parts that depend on few numbers each, joined in fourth powers with what the
host does beside the kernels::

    step = linear(n + q)                       everything whose cost depends on tokens alone
         + decode attention(n, context / n)    grid over batch and mean context
         + prefill attention(q, attention / q) grid over tokens and mean attended context
         + step_s + sequence_s * n             the engine's own time
         + prefill_sequence_s * s
    step = (step^4 + (host_step_s + host_sequence_s * n)^4)^(1/4) + prefill_step_s [q > 0]

Between knots the parts are interpolated linearly (a grid bilinearly); beyond the last knot the last slope
goes on. A step without any token takes no time.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sizing.errors import InputError

Floats = NDArray[np.float64]


def _segment(axis: Floats, at: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Index of the knot to the left, and the share of the way to the next one (beyond 1 past the end)."""
    left = np.clip(np.searchsorted(axis, at, side="right") - 1, 0, len(axis) - 2)
    return left, np.maximum((at - axis[left]) / (axis[left + 1] - axis[left]), 0.0)


def _grid(rows: Floats, columns: Floats, values: Floats, row: Floats, column: Floats) -> Floats:
    """Bilinear interpolation of ``values[rows, columns]``, linear extrapolation past the last knots."""
    i, u = _segment(rows, row)
    j, v = _segment(columns, column)
    near = values[i, j] * (1 - v) + values[i, j + 1] * v
    far = values[i + 1, j] * (1 - v) + values[i + 1, j + 1] * v
    result: Floats = near * (1 - u) + far * u
    return result


DELIVERY_SEQUENCES = 32.0
"""Running sequences at which half of ``first_token_steps`` is paid. [sequence]"""


def side_by_side(kernels_s: Any, host_s: Any) -> Any:
    """Kernels and the host's work for the next step at once: ``(k^4 + h^4)^(1/4)``, the longer of the two. [s]

    Where they are alike it is a fifth more than either, since neither is ever quite ready for the other.

    Parameters
    ----------
    kernels_s, host_s
        Scalars or arrays. [s], [s]
    """
    return np.sqrt(np.hypot(np.square(kernels_s), np.square(host_s)))


def delivery_share(sequences: Any) -> Any:
    """Share of ``first_token_steps`` that a first token waits for on its way to the client: ``n / (n + 32)``. [1]

    It shares the way with the tokens of the sequences that run; alone it has none to wait for.

    Parameters
    ----------
    sequences
        That run; scalar or array. [sequence]
    """
    return sequences / (sequences + DELIVERY_SEQUENCES)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable:
    """Time of an engine step, tabulated.

    Attributes
    ----------
    tokens, linear_s
        Tokens in the step (decode and prefill together), ascending from 0 [token], and the time of all work
        that depends on their number alone. [s]
    decode_batch, decode_context, decode_attention_s
        Decoding sequences, ascending from 0 [request]; mean tokens in the cache of one, ascending from 0
        [token]; time of decode attention, all layers, one row a batch. [s]
    prefill_tokens, prefill_context, prefill_attention_s
        New prompt tokens in the step, ascending from 0 [token]; mean tokens that one of them attends to,
        ascending from 0 [token]; time of prefill attention, all layers, one row a number of tokens. [s]
    step_s
        The engine's own time per step. [s]
    sequence_s
        The engine's own time per decoding sequence and step. [s]
    prefill_step_s, prefill_sequence_s
        Extra time of a step with prefill, and per sequence that is prefilled in it. [s]
    host_step_s, host_sequence_s
        Work of the host beside the kernels, per step and per decoding sequence. [s]
    request_s, request_token_s
        Time from the client to the scheduler and back that occupies no GPU: per request, and per prompt
        token (tokenising). It is added to a request's TTFT and end-to-end latency. [s]
    first_token_steps
        Decode steps until a first token that is ready reaches the client of a busy server, see
        :func:`delivery_share`; the rest of the answer follows it, so it is part of TTFT and end-to-end latency and
        no part of TPOT. [step]
    """

    tokens: Floats
    linear_s: Floats
    decode_batch: Floats
    decode_context: Floats
    decode_attention_s: Floats
    prefill_tokens: Floats
    prefill_context: Floats
    prefill_attention_s: Floats
    step_s: float = 0.0
    sequence_s: float = 0.0
    prefill_step_s: float = 0.0
    prefill_sequence_s: float = 0.0
    host_step_s: float = 0.0
    host_sequence_s: float = 0.0
    request_s: float = 0.0
    request_token_s: float = 0.0
    first_token_steps: float = 0.0

    def __post_init__(self) -> None:
        grids = {"decode_attention_s": ("decode_batch", "decode_context"),
                 "prefill_attention_s": ("prefill_tokens", "prefill_context"),
                 "linear_s": ("tokens",)}  # fmt: skip
        for name, axes in grids.items():
            shape = []
            for axis in axes:
                knots = np.asarray(getattr(self, axis), dtype=np.float64)
                object.__setattr__(self, axis, knots)
                if knots.ndim != 1 or len(knots) < 2 or knots[0] != 0 or not np.all(np.diff(knots) > 0):
                    raise InputError(f"{axis}: give two or more ascending knots that begin at 0")
                shape.append(len(knots))
            values = np.asarray(getattr(self, name), dtype=np.float64)
            object.__setattr__(self, name, values)
            if values.shape != tuple(shape) or not np.all(np.isfinite(values)) or np.any(values < 0):
                raise InputError(f"{name}: give times of shape {tuple(shape)}, none negative or infinite")

    def time_s(
        self,
        decode_batch: Any,
        context_tokens: Any,
        prefill_tokens: Any = 0,
        prefill_attention: Any = 0,
        prefill_sequences: Any = None,
    ) -> Any:
        """Time of a step of the given composition; scalars or arrays that broadcast. [s]

        Parameters
        ----------
        decode_batch
            Decoding sequences. [request]
        context_tokens
            Tokens in the cache of all decoding sequences together. [token]
        prefill_tokens
            New prompt tokens. [token]
        prefill_attention
            Sum over chunks of ``q * start + q * (q + 1) / 2``. [token^2]
        prefill_sequences
            Sequences that are prefilled; None takes one where there are tokens. [request]
        """
        n, context, q, work = (
            np.asarray(x, dtype=np.float64) for x in (decode_batch, context_tokens, prefill_tokens, prefill_attention)
        )
        sequences = (q > 0).astype(np.float64) if prefill_sequences is None else np.asarray(prefill_sequences)
        i, u = _segment(self.tokens, n + q)
        total = self.linear_s[i] * (1 - u) + self.linear_s[i + 1] * u
        mean_context = context / np.maximum(n, 1.0)
        mean_attended = work / np.maximum(q, 1.0)
        total = total + _grid(self.decode_batch, self.decode_context, self.decode_attention_s, n, mean_context)
        total = total + _grid(self.prefill_tokens, self.prefill_context, self.prefill_attention_s, q, mean_attended)
        total = total + self.step_s + self.sequence_s * n + self.prefill_sequence_s * sequences
        total = side_by_side(total, self.host_step_s + self.host_sequence_s * n) + self.prefill_step_s * (q > 0)
        return np.where(n + q > 0, total, 0.0)[()]

    @classmethod
    def affine(
        cls,
        *,
        step_s: float = 0.0,
        token_s: float = 0.0,
        sequence_s: float = 0.0,
        context_token_s: float = 0.0,
        attention_s: float = 0.0,
        prefill_step_s: float = 0.0,
    ) -> Self:
        """A table of straight lines, exact at any size: for theory, tests and rules of thumb.

        Parameters
        ----------
        step_s, sequence_s, prefill_step_s
            Time per step, per decoding sequence, per step with prefill. [s]
        token_s
            Time per token of either kind. [s]
        context_token_s
            Time per token in the cache of a decoding sequence. [s]
        attention_s
            Time per pair of a prefilled token and a token it attends to. [s]
        """
        two = np.array([0.0, 1.0])
        corner = np.array([[0.0, 0.0], [0.0, 1.0]])
        return cls(
            tokens=two, linear_s=two * token_s,
            decode_batch=two, decode_context=two, decode_attention_s=corner * context_token_s,
            prefill_tokens=two, prefill_context=two, prefill_attention_s=corner * attention_s,
            step_s=step_s, sequence_s=sequence_s, prefill_step_s=prefill_step_s,
        )  # fmt: skip
