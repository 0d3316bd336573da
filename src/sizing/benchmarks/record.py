"""Values out of a parsed mapping, each refused by file and key when it is not what it must be."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sizing.benchmarks.point import Latency
from sizing.errors import InputError

SECONDS = {
    "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "ms": 1e-3, "msec": 1e-3, "millisecond": 1e-3, "milliseconds": 1e-3,
    "us": 1e-6, "microsecond": 1e-6, "microseconds": 1e-6,
    "ns": 1e-9, "nanosecond": 1e-9, "nanoseconds": 1e-9,
}  # fmt: skip
LARGEST = 1e20  # of anything that a result file counts or times, nanoseconds since 1970 included
ABSENT = ("", "none", "null", "n/a", "nan", "not set")
PERCENTILE = re.compile(r"p(?:(\d{1,2})p(\d+)|(\d{1,3}(?:\.\d+)?))$")


def seconds_per(unit: str, where: str) -> float:
    """Seconds in one of ``unit`` (``ms``, ``s/token``, ``milliseconds``, ...)."""
    try:
        return SECONDS[unit.split("/", 1)[0].strip().lower()]
    except KeyError:
        raise InputError(f"{where}: time unit {unit!r} is not known; allowed: {', '.join(SECONDS)}") from None


def percentile_of(key: str) -> float | None:
    """Percentile that a key names: ``p50``, ``p99.9``, ``p99p9``, ``median``; None for other keys."""
    if key in ("median", "50%"):
        return 50.0
    found = PERCENTILE.match(key)
    if not found:
        return None
    value = float(f"{found[1]}.{found[2]}") if found[1] else float(found[3])
    if key in ("p001", "p999"):  # GuideLLM writes 0.1 and 99.9 so
        value /= 10.0
    return value if 0.0 < value < 100.0 else None


@dataclass(frozen=True, slots=True)
class Record:
    """A mapping with the name of the place it came from.

    Parameters
    ----------
    where
        File and path inside it, for messages.
    values
        The parsed mapping.
    """

    where: str
    values: Mapping[str, Any]

    def has(self, *keys: str) -> bool:
        """Whether every key is there with a value."""
        return all(self.values.get(key) is not None for key in keys)

    def number(self, *keys: str) -> float | None:
        """First of ``keys`` that is there, as a finite number or infinity; None when none is.

        Numbers written as text are read; NaN is absent; a truth value or other text is refused.
        """
        for key in keys:
            value = self.values.get(key)
            if value is None or (isinstance(value, str) and value.strip().lower() in ABSENT):
                continue
            number = self._as_number(key, value)
            if not math.isnan(number):
                return number
        return None

    def _as_number(self, key: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise InputError(f"{self.where}: {key} is {_short(value)}, expected a number")
        try:
            return float(value)
        except OverflowError:
            raise InputError(f"{self.where}: {key} is too large a number") from None
        except ValueError:
            raise InputError(f"{self.where}: {key} is {_short(value)}, expected a number") from None

    def amount(self, *keys: str) -> float | None:
        """A number that must be finite and not negative."""
        value = self.number(*keys)
        if value is not None and not 0.0 <= value <= LARGEST:
            key = next(k for k in keys if self.values.get(k) is not None)
            raise InputError(f"{self.where}: {key} is {value:g}, expected a number from 0 to {LARGEST:g}")
        return value

    def rate(self, *keys: str) -> float | None:
        """A positive number; infinity, 0 and words such as ``trace`` mean "no rate was set"."""
        for key in keys:
            value = self.values.get(key)
            if isinstance(value, str) and not value.replace(".", "").isdigit():
                if value.strip().lower() in ("inf", "infinity", "trace", "not set", "none", ""):
                    continue
                raise InputError(f"{self.where}: {key} is {_short(value)}, expected a number or inf")
            number = self.number(key)
            if number is not None and number < 0.0:
                raise InputError(f"{self.where}: {key} is {number:g}, expected a number > 0 or inf")
            if number is not None and 0.0 < number < math.inf:
                return number
        return None

    def count(self, *keys: str) -> int | None:
        """A whole number >= 0."""
        value = self.amount(*keys)
        if value is not None and value != int(value):
            raise InputError(f"{self.where}: {keys[0]} is {value:g}, expected a whole number")
        return None if value is None else int(value)

    def text(self, *keys: str) -> str | None:
        """First of ``keys`` that holds text that says something."""
        for key in keys:
            value = self.values.get(key)
            if isinstance(value, str) and value.strip().lower() not in ABSENT:
                return value.strip()
        return None

    def part(self, *path: str) -> "Record":
        """The mapping at ``path``; empty when it is not there, refused when it is something else."""
        here: Any = self.values
        where = self.where
        for key in path:
            where = f"{where}: {key}" if where == self.where else f"{where}.{key}"
            here = here.get(key)
            if here is None:
                return Record(where, {})
            if not isinstance(here, Mapping):
                raise InputError(f"{where} is {_short(here)}, expected a mapping")
        return Record(where, here)

    def items(self, key: str) -> list["Record"]:
        """The mappings in the list at ``key``."""
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            raise InputError(f"{self.where}: {key} is {_short(value)}, expected a list of mappings")
        return [Record(f"{self.where}: {key}[{n}]", item) for n, item in enumerate(value)]

    def need(self, value: float | None, key: str) -> float:
        """The value, or a refusal that names the key that is missing."""
        if value is None:
            raise InputError(f"{self.where}: {key} is missing")
        return value

    def latency(
        self, scale_s: float | None = None, *, unit_keys: tuple[str, ...] = ("unit", "units")
    ) -> Latency | None:
        """Statistics held as keys of this mapping (``mean``/``avg``, ``std``, ``p50``, ``percentiles``).

        Parameters
        ----------
        scale_s
            Seconds in one of the file's units [s]; None reads the mapping's own unit.
        unit_keys
            Keys that may name the unit.
        """
        if not self.values:
            return None
        if scale_s is None:
            scale_s = seconds_per(self.text(*unit_keys) or "", self.where)
        percentiles = dict(self._percentiles())
        nested = self.values.get("percentiles")
        if isinstance(nested, Mapping):
            percentiles.update(Record(f"{self.where}.percentiles", nested)._percentiles())
        return latency_s(
            scale_s,
            mean=self.amount("mean", "avg"),
            std=self.amount("std", "stddev", "std_dev"),
            percentiles=percentiles,
        )

    def _percentiles(self) -> dict[float, float]:
        found: dict[float, float] = {}
        for key in self.values:
            level = percentile_of(key)
            value = None if level is None else self.amount(key)
            if level is not None and value is not None:
                found[level] = value
        return found


def latency_s(
    scale_s: float,
    *,
    mean: float | None,
    std: float | None = None,
    percentiles: Mapping[float, float] | None = None,
) -> Latency | None:
    """Latency in seconds from numbers in another unit; None when there is no number at all."""
    if mean is None and not percentiles:
        return None
    return Latency(
        mean_s=None if mean is None else mean * scale_s,
        std_s=None if std is None else std * scale_s,
        percentiles_s={level: value * scale_s for level, value in (percentiles or {}).items()},
    )


def flat_latency(record: Record, name: str, scale_s: float) -> Latency | None:
    """Latency of a flat file whose keys read ``mean_<name>``, ``median_<name>``, ``p99_<name>``.

    Parameters
    ----------
    record
        The flat mapping.
    name
        Tail of the keys (``ttft_ms``).
    scale_s
        Seconds in one of the file's units [s].
    """
    percentiles: dict[float, float] = {}
    for key in record.values:
        head, _, tail = key.partition("_")
        level = percentile_of(head) if tail == name else None
        value = None if level is None else record.amount(key)
        if level is not None and value is not None:
            percentiles[level] = value
    return latency_s(
        scale_s,
        mean=record.amount(f"mean_{name}", f"avg_{name}"),
        std=record.amount(f"std_{name}"),
        percentiles=percentiles,
    )


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
