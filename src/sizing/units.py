"""Text with units to SI floats and back: the door, where quantities come in as people write them.

A short pattern reads the everyday forms (``20ms``, ``1200/min``, ``80GiB``, ``4k``) without loading
anything; a form it doesn't know goes to pint, with a registry of our own, since pint's default reads
``Gb`` as gilberts and takes a byte for a plain number.
"""

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sizing.errors import UnitError

if TYPE_CHECKING:
    import pint

_NUMBER = re.compile(r"^\s*([+-]?(?:[0-9]+(?:[_,][0-9]{3})*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*(.*?)\s*$")

_SECONDS = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "minute": 60.0, "minutes": 60.0, "h": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86400.0, "day": 86400.0, "days": 86400.0,
}  # fmt: skip
_PREFIX = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"": 1.0, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_BYTES = (
    {f"{p}B": f for p, f in _PREFIX.items()}
    | {f"{p}B": f for p, f in _BINARY.items()}
    | {"KB": 1e3, "bytes": 1.0, "byte": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
    | {"gib": 2.0**30, "mib": 2.0**20, "kib": 2.0**10, "tib": 2.0**40}
)
_COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "K": 1024.0, "M": 1024.0**2, "G": 1024.0**3, "g": 1e9, "b": 1e9}
_COUNT_NOUNS = ("tokens", "token", "tok", "requests", "request", "req", "rps", "gpus", "gpu")
LARGEST = 1e18


def _split(text: str | float, what: str, allowed: str) -> tuple[float, str]:
    """Number and unit of a quantity; refuses NaN, infinity and nonsense."""
    if isinstance(text, bool):
        raise UnitError(f"{what}: {text!r} is not a quantity; write {allowed}")
    if isinstance(text, int | float):
        value, unit = float(text), ""
    else:
        match = _NUMBER.match(str(text))
        if match is None:
            raise UnitError(f"{what}: {shown(text)} is not a quantity; write {allowed}")
        try:
            value, unit = float(match[1].replace("_", "").replace(",", "")), match[2]
        except ValueError:
            raise UnitError(f"{what}: {shown(text)} is not a quantity; write {allowed}") from None
    if not math.isfinite(value) or abs(value) > LARGEST:
        raise UnitError(f"{what}: {shown(text)} is out of range; write {allowed}")
    return value, unit


def shown(text: object, limit: int = 60) -> str:
    """A value as a message quotes it: one line, printable, short."""
    printable = "".join(c if c.isprintable() else "?" for c in str(text))
    return repr(printable if len(printable) <= limit else printable[: limit - 3] + "...")


@lru_cache(maxsize=1)
def registry() -> "pint.UnitRegistry[Any]":
    """Our own pint registry: seconds, bytes, bits, tokens, requests, FLOP, USD and nothing else."""
    import pint

    own: pint.UnitRegistry[Any] = pint.UnitRegistry(None, cache_folder=None)
    for line in (
        "kilo- = 1e3 = k-", "mega- = 1e6 = M-", "giga- = 1e9 = G-", "tera- = 1e12 = T-", "peta- = 1e15 = P-",
        "milli- = 1e-3 = m-", "micro- = 1e-6 = u-", "nano- = 1e-9 = n-",
        "kibi- = 2**10 = Ki-", "mebi- = 2**20 = Mi-", "gibi- = 2**30 = Gi-", "tebi- = 2**40 = Ti-",
        "second = [time] = s = sec", "minute = 60 * second = min", "hour = 60 * minute = h",
        "day = 24 * hour = d", "byte = [information] = B", "bit = byte / 8 = b",
        "token = [token] = tok = tokens", "request = [request] = req = requests", "flop = [flop] = FLOP",
        "usd = [money] = USD", "watt = [power] = W",
    ):  # fmt: skip
        own.define(line)
    return own


def _by_pint(text: str, unit: str, what: str, allowed: str) -> float:
    """Read a form the quick pattern does not know; the unit says the dimension wanted."""
    import tokenize

    import pint

    try:
        value = float(registry().Quantity(text).to(unit).magnitude)
    except (
        pint.errors.PintError, tokenize.TokenError, AttributeError, SyntaxError, TypeError, ValueError, KeyError,
        ZeroDivisionError, OverflowError, AssertionError, RecursionError, IndexError,
    ) as error:  # fmt: skip
        raise UnitError(f"{what}: {shown(text)} is not understood; write {allowed}") from error
    if not math.isfinite(value) or abs(value) > LARGEST:
        raise UnitError(f"{what}: {shown(text)} is out of range; write {allowed}")
    return value


def duration_s(text: str | float, what: str = "duration") -> float:
    """Duration [s] from ``20ms``, ``1.5s``, ``2 min``; a bare number is in seconds."""
    allowed = "a duration such as 20ms, 1.5s or 2min"
    value, unit = _split(text, what, allowed)
    if unit in _SECONDS or not unit:
        return value * _SECONDS.get(unit, 1.0)
    return _by_pint(str(text), "second", what, allowed)


def slo_s(text: str | float, what: str = "slo") -> tuple[float, bool]:
    """Latency target [s], and whether it came bare: a bare number means milliseconds.

    Raises
    ------
    UnitError
        Not a duration, not positive, or not finite.
    """
    allowed = "a positive duration such as 20ms or 1s (a bare number means milliseconds)"
    value, unit = _split(text, what, allowed)
    seconds = value * 1e-3 if not unit else duration_s(text, what)
    if seconds <= 0:
        raise UnitError(f"{what}: {shown(text)} is not positive; write {allowed}")
    return seconds, not unit


def rate_per_s(text: str | float, what: str = "rate") -> float:
    """Request rate [1/s] from ``20``, ``20/s``, ``1200/min``, ``20rps``."""
    allowed = "a rate such as 20, 20/s or 1200/min"
    value, unit = _split(text, what, allowed)
    number, slash, per = unit.partition("/")
    number, per = number.strip(), per.strip()
    scale = 1.0
    for noun in ("requests", "request", "req", "r", ""):
        if number.endswith(noun):
            number = number[: len(number) - len(noun)].strip()
            break
    if unit in ("rps", "qps", "Hz"):
        return value
    if number in _COUNTS:
        scale = _COUNTS[number]
        if not slash:
            return value * scale
        if per in _SECONDS:
            return value * scale / _SECONDS[per]
    if not slash:
        raise UnitError(f"{what}: {shown(text)} is not understood; write {allowed}")
    return _by_pint(str(text), "request/second", what, allowed)


def size_bytes(text: str | float, what: str = "size") -> float:
    """Size [byte] from ``80GB`` (decimal), ``80GiB`` (binary); a bare number is in bytes."""
    allowed = "a size such as 80GB (10^9) or 80GiB (2^30)"
    value, unit = _split(text, what, allowed)
    if not unit or unit in _BYTES:
        return value * _BYTES.get(unit, 1.0)
    return _by_pint(str(text), "byte", what, allowed)


def bandwidth_bytes_per_s(text: str | float, what: str = "bandwidth") -> float:
    """Bandwidth [byte/s] from ``4.8 TB/s`` or ``400 Gb/s`` (bits); a bare number is bytes a second."""
    allowed = "a bandwidth such as 4.8TB/s or 400Gb/s"
    value, unit = _split(text, what, allowed)
    return value if not unit else _by_pint(str(text), "byte/second", what, allowed)


def count(text: str | float, what: str = "count") -> float:
    """Count from ``2000``, ``2,000``, ``4k`` (4000), ``4K`` (4096), ``2000 tokens``."""
    allowed = "a number such as 2000, 4k (4000) or 4K (4096)"
    value, unit = _split(text, what, allowed)
    for noun in _COUNT_NOUNS:
        if unit.endswith(noun):
            unit = unit[: len(unit) - len(noun)].strip()
            break
    if unit not in _COUNTS:
        raise UnitError(f"{what}: {shown(text)} is not understood; write {allowed}")
    value *= _COUNTS[unit]
    if abs(value) > LARGEST:
        raise UnitError(f"{what}: {shown(text)} is out of range; write {allowed}")
    return value


def positive(value: float, what: str, allowed: str) -> float:
    """Return ``value`` if above zero, else refuse it by name."""
    if not math.isfinite(value) or value <= 0:
        raise UnitError(f"{what}: {value:g} is not positive; write {allowed}")
    return value


def whole(text: str | float, what: str, least: int = 0, most: int = 10**9) -> int:
    """Whole number within bounds, such as spares or GPUs."""
    allowed = f"a whole number from {least} to {most}"
    value = count(text, what)
    if value != int(value) or not least <= value <= most:
        raise UnitError(f"{what}: {shown(text)} is not allowed; write {allowed}")
    return int(value)


def fraction(text: str | float, what: str = "fraction") -> float:
    """Share in (0, 1] from ``0.85`` or ``85%``."""
    allowed = "a share above 0 and up to 1, such as 0.85 or 85%"
    value, unit = _split(text, what, allowed)
    value = value / 100 if unit == "%" else value
    if unit not in ("", "%") or not 0 < value <= 1:
        raise UnitError(f"{what}: {shown(text)} is not allowed; write {allowed}")
    return value


def percentile(text: str | float, what: str = "percentile") -> float:
    """Share of requests in percent, between 0 and 100, from ``99``, ``99%`` or ``p99``. [%]"""
    allowed = "a percentile between 0 and 100, such as 95 or 99"
    cleaned = text.strip().lower().removeprefix("p") if isinstance(text, str) else text
    value, unit = _split(cleaned, what, allowed)
    if unit not in ("", "%", "th") or not 0 < value < 100:
        raise UnitError(f"{what}: {shown(text)} is not allowed; write {allowed}")
    return value


def usd_per_hour(text: str | float, what: str = "price") -> float:
    """Price of one GPU [USD/h] from ``4``, ``$4``, ``4 USD/h``."""
    allowed = "a price per GPU and hour such as 4, $4 or 4 USD/h"
    cleaned = text.strip().lstrip("$") if isinstance(text, str) else text
    value, unit = _split(cleaned, what, allowed)
    unit = unit.replace(" ", "").lower()
    if unit not in ("", "$", "$/h", "usd", "usd/h", "/h", "/hour", "usd/hour", "/hr", "usd/hr") or value < 0:
        raise UnitError(f"{what}: {shown(text)} is not allowed; write {allowed}")
    return value


def format_duration(seconds: float) -> str:
    """A duration as people read it: ``18.2 ms``, ``1.35 s``, ``3.4 min``."""
    if not math.isfinite(seconds):
        return "never" if seconds > 0 else "unknown"
    for scale, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale * (2 if scale > 1 else 1):
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def format_bytes(size: float) -> str:
    """A size in decimal units: ``16.38 GB``."""
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(size) >= scale:
            return f"{size / scale:.2f} {unit}"
    return f"{size:.0f} B"


def format_rate(rate: float) -> str:
    """A rate per second: ``20/s``."""
    return f"{rate:,.0f}/s" if rate >= 999.5 else f"{rate:.3g}/s"


def format_count(value: float) -> str:
    """A count with thousands separated: ``147,456``."""
    return f"{value:,.0f}"
