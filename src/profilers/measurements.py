"""The measurement file: one JSON object a line, written as it is measured, sealed when it is done.

While a session runs its lines go to ``FILE.partial``, each on the disk before the next case starts. When the
session ends the file gets a last line with a digest and its own name; from then on it does not change. A
session that was killed leaves the partial file, which the next one carries on with.
Layout: ``docs/reference/measurement-format.md``.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from profilers import FORMAT, FORMAT_VERSION
from profilers.environment import MUST_AGREE
from profilers.shapes import BadInput


class MeasurementFile:
    """Opens a new measurement, or carries on with a partial one.

    Parameters
    ----------
    out
        Where the finished file goes; must not exist.
    header
        ``environment``, ``plan`` and what else describes the session.
    """

    def __init__(self, out: Path, header: Mapping[str, Any]) -> None:
        self.out, self.partial = out, out.with_name(out.name + ".partial")
        if out.exists():
            raise BadInput(f"--out {out}: exists, and a measurement is never changed; give another name")
        if not out.parent.is_dir():
            raise BadInput(f"--out {out}: no folder {out.parent}; make it first")
        try:
            self._file: BinaryIO = self.partial.open("a+b")
        except OSError as error:
            raise BadInput(f"--out {out}: can't be written ({error.strerror})") from None
        self._lock()
        self.results = self._carry_on(header)

    @property
    def done(self) -> set[str]:
        """Keys of the cases that are in the file."""
        return {str(r["key"]) for r in self.results}

    @property
    def resumed(self) -> bool:
        """Whether a killed session's results were found."""
        return self._resumed

    def add(self, result: Mapping[str, Any]) -> None:
        """Write one result; it is on the disk when this returns."""
        self._line({"record": "result", **result})
        self.results.append(dict(result))

    def seal(self, elapsed_s: float, not_measured: list[str]) -> Path:
        """Write the last line and give the file its name.

        Parameters
        ----------
        elapsed_s
            What the session took. [s]
        not_measured
            Keys of the cases that the budget left out.
        """
        self._file.seek(0)
        digest = hashlib.sha256(self._file.read()).hexdigest()
        end = {"record": "end", "results": len(self.results), "elapsed_s": elapsed_s, "not_measured": not_measured}
        self._line({**end, "sha256": digest})
        self._file.close()
        try:
            os.link(self.partial, self.out)
            self.partial.unlink()
        except FileExistsError:
            raise BadInput(f"--out {self.out}: appeared meanwhile; the results are in {self.partial}") from None
        except OSError:
            self.partial.rename(self.out)
        with contextlib.suppress(OSError):
            self.out.chmod(0o444)
        return self.out

    def close(self) -> None:
        """Leave the partial file for a later session."""
        self._file.close()

    def _line(self, record: Mapping[str, Any]) -> None:
        text = json.dumps(record, allow_nan=False, separators=(",", ":"), default=str)
        self._file.write(text.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _lock(self) -> None:
        try:
            import fcntl

            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            return
        except OSError:
            self._file.close()
            raise BadInput(f"--out {self.out}: another session is writing it") from None

    def _carry_on(self, header: Mapping[str, Any]) -> list[dict[str, Any]]:
        self._file.seek(0)
        content = self._file.read()
        records, good = whole_lines(content)
        self._file.truncate(good)
        self._file.seek(0, os.SEEK_END)
        self._resumed = bool(records)
        if not records:
            self._line({"record": "header", "format": FORMAT, "version": FORMAT_VERSION, **header})
            return []
        self._agree(records[0], header)
        return [r for r in records[1:] if r.get("record") == "result"]

    def _agree(self, found: Mapping[str, Any], header: Mapping[str, Any]) -> None:
        """Refuse to mix two machines or two plans in one file."""
        remedy = f"remove {self.partial} or give another --out"
        if found.get("format") != FORMAT or found.get("version") != FORMAT_VERSION:
            raise BadInput(f"--out {self.out}: {self.partial.name} is not a version {FORMAT_VERSION} profile; {remedy}")
        before, now = found.get("environment", {}), header["environment"]
        differs = [k for k in MUST_AGREE if before.get(k) != json.loads(json.dumps(now.get(k), default=str))]
        if found.get("plan") != json.loads(json.dumps(header["plan"], default=str)):
            differs.append("plan")
        if differs:
            self._file.close()
            raise BadInput(
                f"--out {self.out}: {self.partial.name} was begun with another {', '.join(differs)}; {remedy}"
            )


def whole_lines(content: bytes) -> tuple[list[dict[str, Any]], int]:
    """Records of every whole line, and how many bytes they take; a torn line at the end is left out."""
    records: list[dict[str, Any]] = []
    good = 0
    for line in content.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        try:
            record = json.loads(line)
        except ValueError:
            break
        if not isinstance(record, dict):
            break
        records.append(record)
        good += len(line)
    return records, good


def read_measurements(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """Header, results and last line of a finished file; refuses one that was changed.

    Parameters
    ----------
    path
        The file.
    """
    content = path.read_bytes()
    records, good = whole_lines(content)
    if good != len(content) or len(records) < 2 or records[-1].get("record") != "end":
        raise BadInput(f"{path}: not a finished profile (no last line); let the session end, or run it again")
    before = content[: content[:-1].rfind(b"\n") + 1]
    if hashlib.sha256(before).hexdigest() != records[-1].get("sha256"):
        raise BadInput(f"{path}: was changed after it was measured (its digest does not hold)")
    return records[0], records[1:-1], records[-1]
