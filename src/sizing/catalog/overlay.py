"""A user's own catalogue on top of the shipped one: ``--catalog FILE`` and the platform's config folder.

A file holds tables ``[gpus.NAME]``, ``[prices.NAME]`` and ``[models.NAME]``; each adds an entry or
overrides single values of a shipped one. Later files win over earlier ones.
"""

import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sizing.errors import InputError, UnknownFile

KINDS = ("gpus", "prices", "models")
_added: list[tuple[str, Mapping[str, Any]]] = []
_folder_read: list[tuple[str, Mapping[str, Any]]] | None = None
_listeners: list[Any] = []


def config_folder() -> Path:
    """Folder of the user's own catalogues on this platform (``sizing`` under the config folder)."""
    if named := os.environ.get("SIZING_CONFIG_DIR"):
        return Path(named)
    if sys.platform == "win32":
        base = Path(os.environ.get("APPDATA") or Path.home() / "AppData" / "Roaming")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "sizing"


def overlay(path: str | Path) -> None:
    """Put a user's catalogue file on top of all others, for the rest of this process.

    Parameters
    ----------
    path
        TOML file with tables ``[gpus.NAME]``, ``[prices.NAME]``, ``[models.NAME]``.

    Raises
    ------
    UnknownFile
        No such file.
    InputError
        Not TOML, an unknown top-level table, or an entry that is not a table.
    """
    file = Path(path)
    _added.append((str(file), _read(file)))
    _changed()


def forget_overlays() -> None:
    """Drop every file added with :func:`overlay` and read the config folder again when next needed."""
    global _folder_read
    _added.clear()
    _folder_read = None
    _changed()


def layers(kind: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The user's entries of one kind, lowest layer first: pairs of (file, entries by name)."""
    if kind not in KINDS:
        raise InputError(f"catalogue kind: {kind!r} is not allowed; choose one of {', '.join(KINDS)}")
    return [(name, data[kind]) for name, data in [*_from_folder(), *_added] if kind in data]


def on_change(forget: Any) -> None:
    """Call ``forget()`` whenever the overlays change, to drop what was read before."""
    _listeners.append(forget)


def _changed() -> None:
    for forget in _listeners:
        forget()


def _from_folder() -> list[tuple[str, Mapping[str, Any]]]:
    """Files of the config folder, read once: catalog.toml; gpus.toml and the like without prefix."""
    global _folder_read
    if _folder_read is None:
        found: list[tuple[str, Mapping[str, Any]]] = []
        folder = config_folder()
        if folder.is_dir():
            for kind in KINDS:
                file = folder / f"{kind}.toml"
                if file.is_file():
                    found.append((str(file), {kind: _tables(file, _parse(file))}))
            if (folder / "catalog.toml").is_file():
                found.append((str(folder / "catalog.toml"), _read(folder / "catalog.toml")))
        _folder_read = found
    return _folder_read


def _parse(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnknownFile(f"catalogue file {str(file)!r}: there is no such file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"catalogue file {str(file)!r} can't be read as TOML: {detail}") from None


def _read(file: Path) -> Mapping[str, Any]:
    data = _parse(file)
    for name, tables in data.items():
        if name not in KINDS:
            raise InputError(
                f"catalogue file {str(file)!r}: table [{name}] is not known; "
                f"write [gpus.NAME], [prices.NAME] or [models.NAME]"
            )
        _tables(file, tables, name)
    return data


def _tables(file: Path, tables: Any, kind: str = "") -> Mapping[str, Any]:
    if not isinstance(tables, dict):
        raise InputError(f"catalogue file {str(file)!r}: {kind} must be a table of tables")
    for name, entry in tables.items():
        if not isinstance(entry, dict):
            raise InputError(f"catalogue file {str(file)!r}: {kind}.{name} must be a table, not {entry!r}")
    return tables
