"""What can go wrong, and the exit code the command gives it.

SizingError                    1
├── InputError (ValueError)    2   bad input: one clear message
│   ├── UnitError                  a quantity that does not parse
│   └── CalibrationError           a calibration file that does not hold
├── CatalogError (LookupError) 4   something named that is not there
│   ├── UnknownGpu
│   ├── UnknownModel
│   └── UnknownFile
├── Infeasible                 3   raised by ``Plan.require()`` only
└── LawBroken                  1   an answer that breaks a law of physics: a bug, never printed
"""

from collections.abc import Iterable


class SizingError(Exception):
    """Base of every error that the library explains."""

    exit_code = 1


class InputError(SizingError, ValueError):
    """Input that can't be used: says what, which value, what is allowed."""

    exit_code = 2


class UnitError(InputError):
    """A quantity with a unit that does not parse or has the wrong dimension."""


class CalibrationError(InputError):
    """A calibration file that is malformed or out of physical bounds."""


class CatalogError(SizingError, LookupError):
    """Something was named that is not there."""

    exit_code = 4


class UnknownGpu(CatalogError):  # noqa: N818 - reads as the answer it is
    """No such accelerator in the catalogue."""


class UnknownModel(CatalogError):  # noqa: N818 - reads as the answer it is
    """No such model in the catalogue, and no such folder or file."""


class UnknownFile(CatalogError):  # noqa: N818 - reads as the answer it is
    """No such file."""


class Infeasible(SizingError):  # noqa: N818 - reads as the answer it is
    """No candidate meets the targets; raised only by ``Plan.require()``."""

    exit_code = 3


class LawBroken(SizingError):  # noqa: N818 - reads as the answer it is
    """An answer breaks a law (roofline floor, Little's law, KV capacity)."""


def near_names(name: str, names: Iterable[str], n: int = 3) -> tuple[str, ...]:
    """Names nearest in spelling to ``name``, best first."""
    from difflib import SequenceMatcher

    wanted = name.lower()

    def distance(candidate: str) -> tuple[float, str]:
        low = candidate.lower()
        ratio = SequenceMatcher(None, wanted, low).ratio()
        tail = SequenceMatcher(None, wanted, low.rsplit("/", 1)[-1]).ratio()
        inside = 0.3 if wanted and (wanted in low or low in wanted) else 0.0
        return -(max(ratio, tail) + inside), candidate

    ranked = sorted(set(names), key=distance)
    return tuple(c for c in ranked[:n] if -distance(c)[0] > 0.45)


def nearest(name: str, names: Iterable[str], n: int = 3) -> str:
    """Return ``"; nearest: a, b, c"`` or an empty text when nothing is near."""
    near = near_names(name, names, n)
    return f"; nearest: {', '.join(near)}" if near else ""


def check_choice(what: str, given: str, allowed: Iterable[str]) -> None:
    """Refuse a name that is not among those allowed, and say which is near.

    Parameters
    ----------
    what
        Option or field, as its user writes it.
    given, allowed
        The name, and the names.

    Raises
    ------
    InputError
        If it isn't one of them.
    """
    names = tuple(allowed)
    if given not in names:
        raise InputError(f"{what}: {given!r} is not allowed; choose {', '.join(names)}{nearest(given, names)}")
