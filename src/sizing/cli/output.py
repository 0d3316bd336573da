"""Where a result goes: standard output, or a file written whole or not at all; progress on standard error."""

import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from sizing.errors import InputError

T = TypeVar("T")


def emit(text: str, out: Path | None = None) -> None:
    """Print ``text``, or write it to ``out`` whole or not at all.

    Raises
    ------
    InputError
        The file can't be written; an existing file is left as it was.
    """
    if out is None or str(out) == "-":
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except UnicodeEncodeError:
            sys.stdout.write(text.encode("ascii", "replace").decode())
        return
    write_whole(text, out)


def write_whole(text: str, out: Path, option: str = "--out") -> None:
    """Write a file by way of a temporary one beside it, so that no reader sees half of it."""
    try:
        if out.is_dir():
            raise InputError(f"{option}: {str(out)!r} is a folder; give a file")
        handle, temporary = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
    except (OSError, ValueError) as error:
        raise InputError(f"{option}: {str(out)!r} can't be written ({reason(error)}); give a writable file") from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(out)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise InputError(f"{option}: {str(out)!r} can't be written ({reason(error)}); give a writable file") from error


def reason(error: Exception) -> str:
    """The system's own words for an input or output error, in lower case."""
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def progress(items: Iterable[T], total: int, description: str) -> Iterator[T]:
    """Yield ``items``, with a bar on standard error once a second has passed and it is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    begun, bar = time.monotonic(), None
    try:
        for done, item in enumerate(items):
            yield item
            if bar is None and time.monotonic() - begun > 1.0:
                bar = _bar(description, total)
            if bar is not None:
                bar.update(bar.task_ids[0], completed=done + 1)
    finally:
        if bar is not None:
            bar.stop()


def _bar(description: str, total: int):  # type: ignore[no-untyped-def]  # noqa: ANN202 - rich loads late
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    bar.add_task(description, total=total)
    bar.start()
    return bar
