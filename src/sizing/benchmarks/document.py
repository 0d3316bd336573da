"""A result file as it lies on disk: bytes, checksum, text and what the text parses to."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sizing.errors import InputError, UnknownFile

LARGEST_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True)
class Document:
    """One file: parsed at most once, and only as far as a reader asks.

    Parameters
    ----------
    name
        File name for messages.
    raw
        The bytes as they are.
    """

    name: str
    raw: bytes

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the raw bytes."""
        return hashlib.sha256(self.raw).hexdigest()

    @cached_property
    def text(self) -> str | None:
        """The text, or None for a binary file."""
        if self.raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return self._decoded("utf-16")
        if b"\x00" in self.raw[:4096] or self.raw[:4] == b"PK\x03\x04":
            return None
        return self._decoded("utf-8-sig")

    def _decoded(self, encoding: str) -> str | None:
        try:
            return self.raw.decode(encoding)
        except UnicodeDecodeError:
            return None

    @cached_property
    def records(self) -> list[Any]:
        """JSON values in the file: one for a document, one a line for JSON lines, none otherwise."""
        text = (self.text or "").strip()
        if not text.startswith(("{", "[")):
            return []
        try:
            return [json.loads(text)]
        except RecursionError:
            raise InputError(f"{self.name}: JSON is nested too deeply to be a benchmark result") from None
        except json.JSONDecodeError as whole:
            return self._json_lines(text, whole)
        except ValueError as error:
            raise InputError(f"{self.name}: {error}") from None

    def _json_lines(self, text: str, whole: json.JSONDecodeError) -> list[Any]:
        lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        try:
            json.loads(lines[0][1])
        except (json.JSONDecodeError, RecursionError):
            raise InputError(
                f"{self.name}, line {whole.lineno}, column {whole.colno}: broken JSON ({whole.msg})"
            ) from None
        values = []
        for number, line in lines:
            try:
                values.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise InputError(f"{self.name}, line {number}: broken JSON line ({error})") from None
        return values

    @cached_property
    def mapping(self) -> dict[str, Any]:
        """The one JSON or YAML mapping of the file; empty when it holds something else."""
        found = self.records[0] if len(self.records) == 1 else None
        if found is None and not self.records and self._looks_like_yaml():
            found = self._yaml()
        return found if isinstance(found, dict) else {}

    @property
    def mappings(self) -> list[dict[str, Any]]:
        """Every mapping: the lines of JSON lines, the items of a list, or the one document."""
        found = self.records if len(self.records) != 1 else self.records[0]
        if isinstance(found, list):
            return [item for item in found if isinstance(item, dict)]
        return [self.mapping] if self.mapping else []

    def _looks_like_yaml(self) -> bool:
        if self.text is None:
            return False
        if self.name.endswith((".yaml", ".yml")):
            return True
        first = next((x for x in self.text.splitlines() if x.strip() and not x.startswith(("#", "---"))), "")
        key, colon, _ = first.partition(":")
        return bool(colon) and key.replace("_", "").isalnum() and len(self.text) < 8_000_000

    def _yaml(self) -> Any:
        import yaml

        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            return yaml.load(self.text or "", Loader=loader)
        except RecursionError:
            raise InputError(f"{self.name}: YAML is nested too deeply to be a benchmark result") from None
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            if not self.name.endswith((".yaml", ".yml")):
                return None
            where = f", line {mark.line + 1}" if mark else ""
            raise InputError(f"{self.name}{where}: broken YAML ({getattr(error, 'problem', error)})") from None


def open_document(path: str | Path) -> Document:
    """Read a file whole, refusing what cannot be a result file.

    Parameters
    ----------
    path
        A file that exists.
    """
    file = Path(path)
    try:
        size = file.stat().st_size
        if not file.is_file():
            raise InputError(f"{path}: not a regular file; give the result file or its folder")
        if size > LARGEST_BYTES:
            raise InputError(f"{path}: {size} bytes is too large for a result file (limit {LARGEST_BYTES})")
        raw = file.read_bytes()
    except FileNotFoundError:
        raise UnknownFile(f"{path}: no such benchmark file") from None
    except ValueError as error:
        raise InputError(f"{path!r}: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if not raw.strip():
        raise InputError(f"{path}: the file is empty")
    return Document(name=file.name, raw=raw)
