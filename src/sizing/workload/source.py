"""A trace file as blocks of lines: plain or gzip, streamed, with progress, and honest about damage."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sizing.errors import InputError, UnknownFile

CHUNK_BYTES = 1 << 20
LONGEST_LINE_BYTES = 64 << 20
_GZIP = b"\x1f\x8b"
_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))

Progress = Callable[[Iterable[bytes], int, str], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Head:
    """Beginning of a file, for telling its format.

    Attributes
    ----------
    path
        The file.
    lines
        Its first lines that are not blank.
    """

    path: Path
    lines: tuple[str, ...]

    def objects(self) -> tuple[dict[str, Any], ...]:
        """First lines that are JSON objects."""
        import json

        found = []
        for line in self.lines:
            try:
                value = json.loads(line) if line.lstrip().startswith("{") else None
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                found.append(value)
        return tuple(found)

    def columns(self) -> tuple[str, ...]:
        """Names in the first line, taken as a CSV header."""
        return tuple(c.strip().strip('"').strip() for c in self.lines[0].split(",")) if self.lines else ()


@dataclass(slots=True)
class Source:
    """A trace file that is read in blocks of lines.

    Attributes
    ----------
    path
        The file.
    progress
        Wraps the chunks as they are read, such as ``sizing.cli.output.progress``; None for silence.
    line
        Last whole line that was read.
    cut_short
        Whether the file is a gzip that ends too early.
    """

    path: Path
    progress: Progress | None = None
    line: int = 0
    cut_short: bool = False
    _encoding: str = field(default="utf-8", repr=False)

    def head(self, bytes_wanted: int = CHUNK_BYTES // 4, lines_wanted: int = 20) -> Head:
        """First lines of the file.

        Raises
        ------
        UnknownFile
            There is no such file.
        InputError
            The file is empty, a folder, not readable, or not text.
        """
        text = b""
        for piece in self._plain(self._raw(quiet=True)):
            text += piece
            if len(text) >= bytes_wanted:
                break
        self.cut_short = False
        if not text.strip(b"\x00 \t\r\n"):
            raise InputError(f"{self.path}: the file is empty; give a trace with at least one request")
        for mark, encoding in _BOMS:
            if text.startswith(mark):
                self._encoding = encoding
        if self._encoding == "utf-8" and b"\x00" in text:
            line = text[: text.index(b"\x00")].count(b"\n") + 1
            raise InputError(f"{self.path}: line {line} is not text; give a CSV or JSON lines file")
        decoded = text.decode(self._encoding, "replace").lstrip("\ufeff")
        lines = tuple(line.rstrip("\r") for line in decoded.split("\n") if line.strip())[:lines_wanted]
        if not lines:
            raise InputError(f"{self.path}: the file is empty; give a trace with at least one request")
        return Head(self.path, lines)

    def blocks(self) -> Iterator[tuple[int, list[str]]]:
        """Blocks of lines, each with the number of its first line (from 1).

        Raises
        ------
        InputError
            A line is not text or too long, or the compressed data is damaged; the message names the line.
        """
        self.line, rest = 0, b""
        wide = self._encoding != "utf-8"
        newline = "\n".encode(self._encoding)
        for piece in self._plain(self._raw(quiet=False)):
            rest += piece
            end = _line_end(rest, newline)
            if end:
                yield self._decoded(rest[:end])
                rest = rest[end:]
            elif len(rest) > LONGEST_LINE_BYTES:
                raise InputError(f"{self.path}: line {self.line + 1} is longer than 64 MiB; is this a trace?")
        if rest and not self.cut_short:
            yield self._decoded(rest[: len(rest) - len(rest) % 2] if wide else rest)

    def _decoded(self, data: bytes) -> tuple[int, list[str]]:
        first = self.line + 1
        try:
            text = data.decode(self._encoding)
        except UnicodeDecodeError as error:
            line = first + data[: error.start].decode(self._encoding, "replace").count("\n")
            raise InputError(f"{self.path}: line {line} is not UTF-8 text; save the file as UTF-8") from error
        if first == 1:
            text = text.lstrip("\ufeff")
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        lines = text.split("\n")
        if lines and not lines[-1]:
            lines.pop()
        self.line += len(lines)
        return first, lines

    def _raw(self, *, quiet: bool) -> Iterable[bytes]:
        try:
            size = self.path.stat().st_size
            folder = self.path.is_dir()
        except (FileNotFoundError, NotADirectoryError):
            raise UnknownFile(f"{self.path}: no such trace file; check the path (a shipped shape: --shape)") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{self.path}: can't be read ({_reason(error)}); give a readable file") from error
        if folder:
            raise InputError(f"{self.path}: this is a folder; give a trace file")
        chunks = self._chunks()
        if self.progress is None or quiet:
            return chunks
        return self.progress(chunks, -(-size // CHUNK_BYTES), f"reading {self.path.name}")

    def _chunks(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk
        except OSError as error:
            raise InputError(f"{self.path}: can't be read ({_reason(error)}); give a readable file") from error

    def _plain(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The file's own bytes, or what its gzip members hold."""
        stream = iter(chunks)
        first = next(stream, b"")
        if not first.startswith(_GZIP):
            yield first
            yield from stream
            return
        unzip = zlib.decompressobj(wbits=31)
        pending = first
        while True:
            while pending:
                try:
                    yield unzip.decompress(pending, 4 * CHUNK_BYTES)
                except zlib.error as error:
                    where = f"after line {self.line}"
                    raise InputError(f"{self.path}: damaged gzip {where} ({error}); fetch it again") from error
                pending = unzip.unconsumed_tail or unzip.unused_data
                if unzip.eof and not pending.strip(b"\x00"):  # padding after the last member
                    pending = b""
                if unzip.eof and pending:
                    unzip = zlib.decompressobj(wbits=31)
            chunk = next(stream, b"")
            if not chunk:
                yield unzip.flush()
                self.cut_short = not unzip.eof
                return
            if unzip.eof:
                unzip = zlib.decompressobj(wbits=31)
            pending = chunk


def _line_end(data: bytes, newline: bytes) -> int:
    """Length of the whole lines at the beginning of ``data``."""
    at = data.rfind(newline)
    while at > 0 and at % len(newline):
        at = data.rfind(newline, 0, at)
    return at + len(newline) if at >= 0 else 0


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
