"""One table out of a large TOML file without parsing the rest of it."""

import tomllib
from functools import lru_cache

from sizing.catalog.files import data_file
from sizing.errors import InputError


@lru_cache(maxsize=8)
def _sections(file: str) -> tuple[str, dict[str, tuple[int, int]]]:
    """Text of a data file, and where each top-level table starts and ends in it."""
    text = "\n" + data_file(file).read_text(encoding="utf-8")
    found: dict[str, tuple[int, int]] = {}
    at = text.find("\n[")
    while at >= 0:
        line_end = text.find("\n", at + 1)
        following = text.find("\n[", at + 1)
        name = text[at + 2 : line_end].rstrip().removesuffix("]").strip('"')
        found[name] = line_end, len(text) if following < 0 else following
        at = following
    return text, found


def table_names(file: str) -> tuple[str, ...]:
    """Names of the top-level tables of a data file, in its order."""
    return tuple(_sections(file)[1])


def table_texts(file: str) -> dict[str, str]:
    """Unparsed text of each top-level table of a data file, for a quick look at one line of it."""
    text, sections = _sections(file)
    return {name: text[start:end] for name, (start, end) in sections.items()}


def read_table(file: str, name: str) -> dict[str, object] | None:
    """One top-level table of a shipped data file, or None when it has none of that name.

    Parameters
    ----------
    file
        Name of the file, such as ``"models.toml"``. It must write each table under its own header, with no
        sub-tables and no header inside a multi-line text.
    name
        The table.
    """
    text, sections = _sections(file)
    if name not in sections:
        return None
    start, end = sections[name]
    try:
        return tomllib.loads(text[start:end])
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file}, table [{name}]: {error}") from error
