"""The step-time table as the kernels read it: dense in tokens and batch, in picoseconds.

Times are summed in float64 and rounded to whole picoseconds once a step. No operation is fused or reordered,
so every machine gets the same integers; int64 picoseconds reach 106 days.
"""

from sizing.simulator.compiler import compiled
from sizing.simulator.layout import Floats, Offsets


@compiled
def knot(f: Floats, first: int, count: int, at: float) -> int:
    """Index of the knot at or left of ``at``, the last but one at most."""
    low, high = 0, count - 1
    while high - low > 1:
        middle = (low + high) // 2
        if f[first + middle] <= at:
            low = middle
        else:
            high = middle
    return low


@compiled
def fixed_ps(f: Floats, o: Offsets, n: int) -> float:
    """Time of a decode step apart from attention. [ps]"""
    return f[o.linear + n] + (f[o.costs] + f[o.costs + 1] * n)


@compiled
def decode_attention_ps(f: Floats, o: Offsets, n: int, context: int) -> float:
    """Attention of ``n`` decoding sequences with ``context`` tokens in the cache together. [ps]"""
    if n == 0:
        return 0.0
    k = knot(f, o.knots, o.knot_count, context / n)
    at = o.decode + 2 * (n * o.knot_count + k)
    return f[at] + f[at + 1] * (context - n * f[o.knots + k])


@compiled
def prefill_attention_ps(f: Floats, o: Offsets, tokens: int, attention: int) -> float:
    """Attention of ``tokens`` prompt tokens with ``attention`` pairs together. [ps]"""
    mean = attention / tokens
    i = knot(f, o.prefill_q, o.prefill_q_count, tokens)
    j = knot(f, o.prefill_c, o.prefill_c_count, mean)
    u = (tokens - f[o.prefill_q + i]) / (f[o.prefill_q + i + 1] - f[o.prefill_q + i])
    v = (mean - f[o.prefill_c + j]) / (f[o.prefill_c + j + 1] - f[o.prefill_c + j])
    at = o.prefill + i * o.prefill_c_count + j
    below = at + o.prefill_c_count
    near = f[at] * (1.0 - v) + f[at + 1] * v
    far = f[below] * (1.0 - v) + f[below + 1] * v
    return near * (1.0 - u) + far * u


@compiled
def step_ps(
    f: Floats, o: Offsets, n: int, context: int, tokens: int, attention: int, sequences: int
) -> int:
    """Time of one step, at least 1. [ps]"""
    if tokens == 0:
        total = fixed_ps(f, o, n) + decode_attention_ps(f, o, n, context)
    else:
        total = f[o.linear + n + tokens] + (f[o.costs] + f[o.costs + 1] * n)
        total = total + decode_attention_ps(f, o, n, context)
        total = total + prefill_attention_ps(f, o, tokens, attention)
        total = total + (f[o.costs + 2] + f[o.costs + 3] * sequences)
    return max(1, int(total + 0.5))
