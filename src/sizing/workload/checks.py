"""One way to refuse a value: which one, what it was, what is allowed."""

from collections.abc import Callable, Iterable
from inspect import Parameter, signature
from numbers import Real
from typing import Any, TypeVar

from sizing.errors import InputError, nearest

T = TypeVar("T")


def require(holds: bool, name: str, value: object, allowed: str) -> None:
    """Refuse ``value`` of ``name`` unless it ``holds``."""
    if not holds:
        shown = repr(value)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        raise InputError(f"{name}: {shown} is not allowed; give {allowed}")


def is_number(value: object) -> bool:
    """Whether a value can be compared with numbers; text and truth values can't."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_fields(make: Callable[..., object], fields: Iterable[str], where: str) -> None:
    """Refuse fields that ``make`` does not take, and the lack of one that it needs."""
    known = signature(make).parameters
    for name in fields:
        if name not in known:
            raise InputError(f"{where}: unknown field {name!r}; give {', '.join(known)}{nearest(name, known)}")
    for name, parameter in known.items():
        if parameter.default is Parameter.empty and name not in fields:
            raise InputError(f"{where}: {name} is missing; give {', '.join(known)}")


def kind_of(record: object, kinds: dict[str, T], where: str) -> T:
    """The entry of ``kinds`` that a record's ``kind`` names."""
    if not isinstance(record, dict):
        raise InputError(f"{where}: {record!r} is not a table; give one with a kind ({', '.join(kinds)})")
    kind = record.get("kind")
    if kind not in kinds:
        near = nearest(str(kind), kinds)
        raise InputError(f"{where}.kind: {kind!r} is not known; choose one of {', '.join(kinds)}{near}")
    return kinds[kind]


def made_of(make: Callable[..., T], fields: dict[str, Any], kind: str, where: str) -> T:
    """What a record's fields make, or one message that says where they are wrong.

    Parameters
    ----------
    make
        Class or function.
    fields
        Its arguments.
    kind, where
        Of the record, and its place in the file.

    Raises
    ------
    InputError
        An argument is unknown, missing, no number, or refused by ``make``.
    """
    check_fields(make, fields, f"{where}: {kind}")
    try:
        return make(**fields)
    except TypeError as error:
        raise InputError(f"{where}: {kind}: a value is no number") from error
    except InputError as error:
        raise InputError(f"{where}.{error}") from error
