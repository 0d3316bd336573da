"""Machine code does what Python does with the same kernels."""

import math
import re
from collections.abc import Callable
from math import sqrt
from types import FunctionType

import numpy as np
import pytest
from tests.simulator.cases import case

from sizing.simulator import eventloop, fleetloop
from sizing.simulator.compiler import compiled, entry
from sizing.simulator.layout import Floats, IntRows, Ints, Small
from sizing.simulator.packing import pack
from sizing.simulator.translate import module_text

BIG = 1 << 40


@compiled
def two(a: int, b: float, often: bool) -> tuple[int, float, bool]:
    """Several values."""
    return (a if often else -a), b / 3, not often


@compiled
def first_multiple(low: int, of: int) -> int:
    """Return out of a loop."""
    while True:
        if low % of == 0:
            return low
        low += 1


@entry
def arithmetic(s: Ints, w: Small, f: Floats, t: IntRows, a: int, b: int) -> None:
    """All that kernels may use."""
    s[0] = a // b
    s[1] = a % b
    s[2], s[3] = min(a, b, 3), max(a, b, -3)
    s[4] = s[5] = a & 6
    w[0] = a
    s[6] = int(w[0]) - BIG
    f[0] = a / 7 + b * 0.1
    s[7] = int(f[0] * 3)
    s[8], f[1], odd = two(a, 1, a > b)
    s[9] = 1 if (odd and s[0] > -9) or b == 2 else 0
    total, k = 0.0, 0
    for k in range(9, a, -2):
        if k == 3:
            continue
        if k < -5:
            break
        total += 1.5 * k
    f[2] = total
    s[10] = first_multiple(a * a, 7) + two(a, 0.5, True)[0]
    while s[11] < 5 and not (b < 0 and s[11] > 2):
        s[11] += 1
        t[s[11], 1], t[s[11], 4] = s[11] + k, -s[11]


@pytest.mark.parametrize("a", [-17, -6, -1, 0, 2, 6, 40])
@pytest.mark.parametrize("b", [-5, -2, 2, 7])
def test_arithmetic_is_that_of_python(a: int, b: int) -> None:
    def arrays() -> list[np.ndarray]:
        return [np.zeros(12, np.int64), np.zeros(2, np.int32), np.zeros(3), np.zeros((6, 5), np.int64)]

    ours, python = arrays(), arrays()
    arithmetic(*ours, a, b)
    arithmetic.function(*python, a, b)
    for x, y in zip(ours, python, strict=True):
        assert x.tolist() == y.tolist()


@pytest.mark.parametrize("seed", range(40))
def test_kernels_run_by_python_give_the_same_arrays(seed: int) -> None:
    arguments = case(seed, count=25)
    horizon = arguments.pop("horizon_s")
    names = ("requests", "steps", "scheduler", "fleet")
    found = []
    for machine in (True, False):
        p = pack(*(arguments[name] for name in names), seed=seed, horizon_s=horizon)
        run = eventloop.run_events if p.parameters["chained"] or p.parameters["events"] else fleetloop.run
        more = (p.e,) if run is eventloop.run_events else ()
        begin, go = (fleetloop.initialise, run) if machine else (fleetloop.initialise.function, run.function)
        begin(p.s, p.w)
        go(p.s, p.w, p.q, p.t, p.f, *more, p.parameters["arrivals"])
        found.append(p)
    for name in "swqtf":
        assert np.array_equal(getattr(found[0], name), getattr(found[1], name)), name


def with_a_list(s: Ints) -> None:
    """Not a kernel."""
    s[0] = len([1, 2])


def whole_from_float(s: Ints) -> None:
    """Not a kernel either: a float is not cut off by chance."""
    s[0] = s[1] / 2


def shifted(s: Ints) -> None:
    """Shifts would overflow where Python's numbers grow."""
    s[0] = s[1] << 3


def power(s: Ints) -> None:
    """Powers too."""
    s[0] **= 2


def floats_rounded_down(f: Floats) -> None:
    """Rounding of floats is not written."""
    f[0] = f[1] // 2.0


def same_object(s: Ints) -> None:
    """Not an order."""
    s[0] = 1 if s[1] is s[2] else 0


def chained(s: Ints) -> None:
    """Two comparisons in one."""
    s[0] = 1 if 0 < s[1] < 9 else 0


def too_large(s: Ints) -> None:
    """More than 64 bits."""
    s[0] = 18446744073709551616


def a_step_that_varies(s: Ints, by: int) -> None:
    """The direction of a range must be known."""
    for k in range(0, 9, by):
        s[0] = k


def too_many(s: Ints) -> None:
    """Three names for what has three values."""
    s[0], s[1] = two(1, 2.0, True)[3], 0


def too_few_arguments(s: Ints) -> None:
    """An argument is missing."""
    s[0] = first_multiple(3)


def nothing_returned(s: Ints) -> int:
    """A return without a value."""
    if s[0] > 0:
        return  # type: ignore[return-value]
    return 1


def of_text(s: Ints, name: str) -> None:
    """No kernel takes text."""
    s[0] = 1


def untyped(s: Ints, k) -> None:  # type: ignore[no-untyped-def]
    """A parameter without a type."""
    s[0] = k


def loops_over_an_array(s: Ints) -> None:
    """Only ranges are looped over."""
    for x in s:
        s[0] = x


NOT_KERNELS = (
    with_a_list, whole_from_float, shifted, power, floats_rounded_down, same_object, chained, too_large,
    a_step_that_varies, too_many, too_few_arguments, nothing_returned, of_text, untyped, loops_over_an_array,
)  # fmt: skip


@pytest.mark.parametrize("function", NOT_KERNELS, ids=lambda function: function.__name__)
def test_what_is_not_for_a_kernel_is_refused_with_file_and_line(function: Callable[..., object]) -> None:
    first = function.__code__.co_firstlineno
    with pytest.raises(NotImplementedError, match=r"^test_translate.py, line \d+: \w+: ") as found:
        module_text([function])
    line, name = re.findall(r"line (\d+): (\w+)", str(found.value))[0]
    assert name == function.__name__
    assert first <= int(line) <= first + 4


def test_two_kernels_of_one_name_are_refused() -> None:
    other = FunctionType(two.__code__, two.__globals__, "two")
    other.__annotations__ = two.__annotations__
    with pytest.raises(NotImplementedError, match="have one name"):
        module_text([two, other])


@entry
def whole_of(s: Ints, f: Floats) -> None:
    """Floats cut off, and truth values as numbers."""
    for k in range(s[0]):
        s[k + 1] = int(f[k])


def test_floats_are_cut_off_towards_zero() -> None:
    given = np.array([-2.5, -0.5, 0.5, 2.999999, 2.0**53, -(2.0**62)])
    s = np.zeros(7, np.int64)
    s[0] = len(given)
    whole_of(s, given)
    assert s[1:].tolist() == [math.trunc(x) for x in given]


@entry
def roots(f: Floats, n: int) -> None:
    """Square roots, of sums and of whole numbers too."""
    for k in range(n):
        f[k] = sqrt(f[k])
    f[n] = sqrt(n)
    f[n + 1] = sqrt(f[0] * f[0] + 2 * n)


def test_square_roots_are_pythons_bit_for_bit() -> None:
    rng = np.random.default_rng(4)
    given = np.concatenate([
        [0.0, 1.0, 2.0, 5e-324, 2.2e-308, 1.7976931348623157e308, 2.0**52 + 1, 1e12, math.inf],
        np.exp(rng.uniform(-700.0, 700.0, 20_000)), rng.uniform(0.0, 1e16, 20_000), np.zeros(2),
    ])  # fmt: skip
    n = len(given) - 2
    f = given.copy()
    roots(f, n)
    assert f[:n].tolist() == [math.sqrt(x) for x in given[:n].tolist()]
    assert f[n] == math.sqrt(n)
    assert f[n + 1] == math.sqrt(2 * n)


@entry
def divided(s: Ints, a: int, b: int) -> None:
    """Both divisions."""
    s[0], s[1] = a // b, a % b


@pytest.mark.parametrize("a", [-(2**63) + 1, -(2**62), -1, 0, 1, 2**62 + 1, 2**63 - 1])
@pytest.mark.parametrize("b", [-(2**62), -3, -1, 1, 3, 2**63 - 1])
def test_division_is_that_of_python_up_to_64_bits(a: int, b: int) -> None:
    s = np.zeros(2, np.int64)
    divided(s, a, b)
    assert s.tolist() == [a // b, a % b]


@pytest.mark.parametrize("wrong", [np.zeros(12, np.int32), np.zeros((6, 2), np.int64), np.zeros(24, np.int64)[::2]])
def test_arrays_of_another_type_or_order_are_refused(wrong: np.ndarray) -> None:
    with pytest.raises(TypeError, match="is not an array of int64"):
        fleetloop.initialise(wrong, np.zeros(2, np.int32))
