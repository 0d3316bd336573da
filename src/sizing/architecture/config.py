"""Fields of a config.json, read by meaning: every spelling of a fact, checked for type and range.

Nothing of a model's folder is ever run. A field of the wrong type or size is refused with its name; what
was not understood is collected as warnings.
"""

import math
from collections.abc import Mapping, Sequence

from sizing.errors import InputError

#: Largest value believed of any size; beyond it a config is refused.
LARGEST = {
    "layers": 2_000,
    "width": 10**6,
    "intermediate": 10**7,
    "vocabulary": 10**8,
    "heads": 10**5,
    "head_dim": 10**5,
    "experts": 10**5,
    "positions": 10**12,
    "small": 10**6,
}


#: Longest text and most warnings that are passed on.
LONGEST_TEXT, MOST_WARNINGS = 200, 100


class Config:
    """One level of a config.json.

    Parameters
    ----------
    raw
        The mapping.
    where
        Name of the level in messages (``""``, ``"text_config"``).
    warnings
        List that warnings are added to, shared between levels.
    """

    def __init__(self, raw: Mapping[str, object], where: str = "", warnings: list[str] | None = None) -> None:
        self.raw, self.where = raw, where
        self.warnings: list[str] = [] if warnings is None else warnings

    def warn(self, text: str) -> None:
        """Note something assumed or not understood, once."""
        if text not in self.warnings and len(self.warnings) < MOST_WARNINGS:
            self.warnings.append(text)

    def name_of(self, key: str) -> str:
        """The key with its level in front."""
        shown = key if key.isprintable() and len(key) <= 60 else repr(key[:40])
        return f"{self.where}.{shown}" if self.where else shown

    def has(self, *keys: str) -> bool:
        """Whether any of the keys is there and not null."""
        return any(self.raw.get(key) is not None for key in keys)

    def get(self, *keys: str) -> object:
        """First of the keys that is there and not null."""
        for key in keys:
            value = self.raw.get(key)
            if value is not None:
                return value
        return None

    def _found(self, keys: tuple[str, ...]) -> tuple[str, object] | None:
        for key in keys:
            if self.raw.get(key) is not None:
                return key, self.raw[key]
        return None

    def integer(
        self, *keys: str, default: int | None = None, low: int = 1, kind: str = "width", required: bool = False
    ) -> int:
        """A whole number under one of several names.

        Parameters
        ----------
        keys
            Spellings, the first found wins.
        default
            Value when none is there.
        low
            Least value allowed.
        kind
            Which limit of ``LARGEST`` holds.
        required
            Refuse when none is there and no default is given.
        """
        found = self._found(keys)
        if found is None:
            if default is None and required:
                raise InputError(f"config has no {self.name_of(keys[0])} (nor {', '.join(keys[1:]) or 'a synonym'})")
            return default if default is not None else 0
        key, value = found
        number = whole(value)
        if number is None:
            raise InputError(f"config {self.name_of(key)} must be a whole number, got {_shown(value)}")
        high = LARGEST[kind]
        if not low <= number <= high:
            raise InputError(f"config {self.name_of(key)} must lie in {low} to {high:,}, got {_shown(value)}")
        return number

    def optional(self, *keys: str, low: int = 1, kind: str = "width") -> int | None:
        """A whole number, or None when it isn't there."""
        return self.integer(*keys, low=low, kind=kind) if self.has(*keys) else None

    def number(self, *keys: str, default: float) -> float:
        """A finite number under one of several names."""
        found = self._found(keys)
        if found is None:
            return default
        key, value = found
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise InputError(f"config {self.name_of(key)} must be a finite number, got {_shown(value)}")
        if not 0 <= value < 1e12:
            raise InputError(f"config {self.name_of(key)} must lie in 0 to 1e12, got {_shown(value)}")
        return float(value)

    def flag(self, *keys: str, default: bool = False) -> bool:
        """A truth value; 0 and 1 count as one."""
        found = self._found(keys)
        if found is None:
            return default
        key, value = found
        if isinstance(value, bool) or value in (0, 1):
            return bool(value)
        raise InputError(f"config {self.name_of(key)} must be true or false, got {_shown(value)}")

    def text(self, *keys: str, default: str = "") -> str:
        """A short text; anything else is read as absent, with a warning."""
        found = self._found(keys)
        if found is None:
            return default
        key, value = found
        if isinstance(value, str) and len(value) <= LONGEST_TEXT:
            return value
        self.warn(f"{self.name_of(key)} is not text and was ignored: {_shown(value)}")
        return default

    def items(self, *keys: str) -> list[object] | None:
        """A list, or None when it isn't there."""
        found = self._found(keys)
        if found is None:
            return None
        key, value = found
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            return list(value[: LARGEST["layers"] + 1])
        raise InputError(f"config {self.name_of(key)} must be a list, got {_shown(value)}")

    def texts(self, *keys: str) -> list[str] | None:
        """A list of texts, or None when it isn't there."""
        values = self.items(*keys)
        if values is None:
            return None
        for value in values:
            if not isinstance(value, str) or len(value) > LONGEST_TEXT:
                raise InputError(f"config {self.name_of(keys[0])} must list names, got {_shown(value)}")
        return [str(value) for value in values]

    def per_layer(self, index: int, *keys: str, default: int, low: int = 0, kind: str = "width") -> int:
        """A whole number that is one for all layers, or a list with one for each (``..._per_layer`` comes first)."""
        found = self._found((*(f"{key}_per_layer" for key in keys), *keys))
        if found is None:
            return default
        key, value = found
        if isinstance(value, list):
            if not value:
                return default
            at = value[min(index, len(value) - 1)]
            one = Config({key: at}, self.where, self.warnings)
            return one.integer(key, default=default, low=low, kind=kind)
        return self.integer(*keys, default=default, low=low, kind=kind)

    def at_layer(self, index: int) -> "Config":
        """The config with what ``per_layer_config`` overrides for a layer."""
        overrides = self.raw.get("per_layer_config")
        if not isinstance(overrides, Mapping):
            return self
        own = next((overrides[key] for key in (str(index), f"{index:02d}", f"{index:03d}") if key in overrides), None)
        if not isinstance(own, Mapping) or not own:
            return self
        plain = {key: value for key, value in self.raw.items() if not key.startswith(("global_", "num_global_"))}
        return Config({**plain, **own}, self.where, self.warnings)

    def level(self, *keys: str) -> "Config | None":
        """A nested level, or None when it isn't there."""
        found = self._found(keys)
        if found is None:
            return None
        key, value = found
        if isinstance(value, Mapping):
            return Config(value, self.name_of(key), self.warnings)
        self.warn(f"{self.name_of(key)} is not an object and was ignored: {_shown(value)}")
        return None


def whole(value: object) -> int | None:
    """The value as a whole number, or None when it isn't one."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    return None


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits somewhere inside
        return f"a {type(value).__name__} with a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:57]}..."
