"""A number with its unit, what it rests on, and where it was read."""

import functools
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Fact:
    """One value of a catalogue.

    Attributes
    ----------
    value
        Number or text.
    unit
        SI unit, or an empty text.
    basis
        ``datasheet``, ``measured``, ``quoted`` (a price), ``fitted``, ``assumed`` (no page was read) or
        ``user`` (from the user's own file).
    source
        Page, package or file that it was read from.
    note
        Conflicts between sources, and what else a reader should know.
    """

    value: Any
    unit: str = ""
    basis: str = "datasheet"
    source: str = ""
    note: str = ""


@functools.cache
def _pages() -> dict[str, str]:
    """Read the source keys of the catalogues: key to page or package."""
    import tomllib

    from sizing.catalog.files import data_file

    return tomllib.loads(data_file("sources.toml").read_text(encoding="utf-8"))


def source_text(keys: list[str] | tuple[str, ...] | str) -> str:
    """Pages behind source keys, joined; a text that is no key stands for itself."""
    if isinstance(keys, str):
        keys = [keys]
    pages = _pages()
    return "; ".join(pages.get(key, key) for key in keys)
