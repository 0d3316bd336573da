"""The step-time table as the kernels read it: dense in tokens and batch, in picoseconds.

Times are summed in float64 and rounded to whole picoseconds once a step. No operation is fused or reordered,
so every machine gets the same integers; int64 picoseconds reach 106 days.
"""

from math import sqrt

from sizing.simulator.compiler import compiled
from sizing.simulator.layout import (
    C_DELIVERY,
    C_FIRST_TOKEN,
    C_HOST_SEQUENCE,
    C_HOST_STEP,
    C_PREFILL_SEQUENCE,
    C_PREFILL_STEP,
    C_REQUEST,
    C_REQUEST_TOKEN,
    C_SEQUENCE,
    C_STEP,
    P_COSTS,
    P_DECODE,
    P_KNOT_COUNT,
    P_KNOTS,
    P_LINEAR,
    P_PREFILL,
    P_PREFILL_C,
    P_PREFILL_C_COUNT,
    P_PREFILL_Q,
    P_PREFILL_Q_COUNT,
    Floats,
    Ints,
)


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
def fixed_ps(s: Ints, f: Floats, n: int) -> float:
    """Time of a decode step apart from attention. [ps]"""
    return f[s[P_LINEAR] + n] + (f[s[P_COSTS] + C_STEP] + f[s[P_COSTS] + C_SEQUENCE] * n)


@compiled
def host_ps(s: Ints, f: Floats, n: int) -> float:
    """What the host does beside the kernels of a step with ``n`` decoding sequences. [ps]"""
    return f[s[P_COSTS] + C_HOST_STEP] + f[s[P_COSTS] + C_HOST_SEQUENCE] * n


@compiled
def beside_ps(kernels: float, host: float) -> float:
    """Kernels and host side by side: exactly ``kernels`` where the host does nothing. [ps]"""
    if host == 0.0:
        return kernels
    kernels, host = kernels * kernels, host * host
    return sqrt(sqrt(kernels * kernels + host * host))


@compiled
def decode_attention_ps(s: Ints, f: Floats, n: int, context: int) -> float:
    """Attention of ``n`` decoding sequences with ``context`` tokens in the cache together. [ps]"""
    if n == 0:
        return 0.0
    k = knot(f, s[P_KNOTS], s[P_KNOT_COUNT], context / n)
    cell = s[P_DECODE] + 2 * (n * s[P_KNOT_COUNT] + k)
    return f[cell] + f[cell + 1] * (context - n * f[s[P_KNOTS] + k])


@compiled
def prefill_attention_ps(s: Ints, f: Floats, tokens: int, attention: int) -> float:
    """Attention of ``tokens`` prompt tokens with ``attention`` pairs together. [ps]"""
    mean = attention / tokens
    i = knot(f, s[P_PREFILL_Q], s[P_PREFILL_Q_COUNT], tokens)
    j = knot(f, s[P_PREFILL_C], s[P_PREFILL_C_COUNT], mean)
    u = (tokens - f[s[P_PREFILL_Q] + i]) / (f[s[P_PREFILL_Q] + i + 1] - f[s[P_PREFILL_Q] + i])
    v = (mean - f[s[P_PREFILL_C] + j]) / (f[s[P_PREFILL_C] + j + 1] - f[s[P_PREFILL_C] + j])
    cell = s[P_PREFILL] + i * s[P_PREFILL_C_COUNT] + j
    below = cell + s[P_PREFILL_C_COUNT]
    near = f[cell] * (1.0 - v) + f[cell + 1] * v
    far = f[below] * (1.0 - v) + f[below + 1] * v
    return near * (1.0 - u) + far * u


@compiled
def step_ps(s: Ints, f: Floats, n: int, context: int, tokens: int, attention: int, sequences: int) -> int:
    """Time of one step, at least 1. [ps]"""
    if tokens == 0:
        total = beside_ps(fixed_ps(s, f, n) + decode_attention_ps(s, f, n, context), host_ps(s, f, n))
    else:
        total = f[s[P_LINEAR] + n + tokens] + (f[s[P_COSTS] + C_STEP] + f[s[P_COSTS] + C_SEQUENCE] * n)
        total = total + decode_attention_ps(s, f, n, context)
        total = total + prefill_attention_ps(s, f, tokens, attention)
        total = total + f[s[P_COSTS] + C_PREFILL_SEQUENCE] * sequences
        total = beside_ps(total, host_ps(s, f, n)) + f[s[P_COSTS] + C_PREFILL_STEP]
    return max(1, int(total + 0.5))


@compiled
def delivery_ps(s: Ints, f: Floats, n: int, context: int) -> int:
    """Time until a first token reaches the client, when ``n`` sequences decode next. [ps]"""
    share = n / (n + f[s[P_COSTS] + C_DELIVERY])
    return int(f[s[P_COSTS] + C_FIRST_TOKEN] * share * step_ps(s, f, n, context, 0, 0, 0) + 0.5)


@compiled
def client_ps(s: Ints, f: Floats, prompt: int) -> int:
    """Time between client and scheduler of a request. [ps]"""
    return int(f[s[P_COSTS] + C_REQUEST] + f[s[P_COSTS] + C_REQUEST_TOKEN] * prompt + 0.5)
