"""A workload as a small file, TOML or JSON, with a version: written by ``--fit``, read back by every command."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sizing.errors import InputError, UnknownFile
from sizing.workload.arrivals import Poisson, arrivals_from_record
from sizing.workload.mixture import length_from_record
from sizing.workload.sessions import prefix_from_record, prefix_record, sessions_from_record, sessions_record
from sizing.workload.traffic import Workload

SCHEMA = "sizing.workload"
VERSION = 1
_FIELDS = (
    "schema", "version", "name", "source", "request_rate_per_s", "correlation", "prefix_hit_share", "input_tokens",
    "output_tokens", "arrivals", "sessions", "prefix",
)  # fmt: skip


def workload_record(workload: Workload) -> dict[str, Any]:
    """A workload as plain values. Measured pairs become their distributions and are drawn apart."""
    record: dict[str, Any] = {"schema": SCHEMA, "version": VERSION}
    for name in ("name", "source"):
        if getattr(workload, name):
            record[name] = getattr(workload, name)
    record["request_rate_per_s"] = workload.request_rate_per_s
    if workload.correlation:
        record["correlation"] = workload.correlation
    if workload.prefix_hit_share is not None:
        record["prefix_hit_share"] = workload.prefix_hit_share
    record["input_tokens"] = workload.input_length.record()
    record["output_tokens"] = workload.output_length.record()
    record["arrivals"] = workload.arrivals.record()
    if workload.sessions is not None:
        record["sessions"] = sessions_record(workload.sessions)
    if workload.prefix is not None:
        record["prefix"] = prefix_record(workload.prefix)
    return record


def workload_from_record(record: Mapping[str, Any], where: str = "workload") -> Workload:
    """Workload written by :func:`workload_record`.

    Raises
    ------
    InputError
        Another version, a field that is missing, unknown, of the wrong type or out of range.
    """
    from sizing.errors import nearest

    version = record.get("version", VERSION)
    if record.get("schema", SCHEMA) != SCHEMA or version != VERSION:
        raise InputError(f"{where}: schema {record.get('schema')!r} version {version!r}; this reads {SCHEMA} {VERSION}")
    for name in record:
        if name not in _FIELDS:
            raise InputError(f"{where}: unknown field {name!r}; allowed: {', '.join(_FIELDS)}{nearest(name, _FIELDS)}")
    for name in ("request_rate_per_s", "input_tokens", "output_tokens"):
        if name not in record:
            raise InputError(f"{where}: no {name}; a workload needs a rate and both lengths")
    try:
        return Workload(
            request_rate_per_s=_number(record, "request_rate_per_s", where),
            input_tokens=length_from_record(record["input_tokens"], f"{where}.input_tokens"),
            output_tokens=length_from_record(record["output_tokens"], f"{where}.output_tokens"),
            arrivals=arrivals_from_record(record["arrivals"]) if "arrivals" in record else Poisson(),
            sessions=sessions_from_record(record["sessions"]) if "sessions" in record else None,
            prefix=prefix_from_record(record["prefix"]) if "prefix" in record else None,
            correlation=_number(record, "correlation", where) if "correlation" in record else 0.0,
            prefix_hit_share=_number(record, "prefix_hit_share", where) if "prefix_hit_share" in record else None,
            name=str(record.get("name", "")), source=str(record.get("source", "")),
        )  # fmt: skip
    except TypeError as error:
        raise InputError(f"{where}: {error}") from error
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(where) else f"{where}: {error}") from error


def _number(record: Mapping[str, Any], name: str, where: str) -> float:
    value = record[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{where}: {name}: {value!r} is not allowed; give a number")
    return float(value)


def workload_text(workload: Workload, form: str = "toml") -> str:
    """A workload as the text of a TOML or JSON file."""
    record = workload_record(workload)
    if form == "json":
        return json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    lines: list[str] = []
    _toml_table(record, (), lines)
    return "\n".join(lines) + "\n"


def form_of(path: Path) -> str:
    """``json`` for a file named so, else ``toml``."""
    return "json" if path.suffix.lower() == ".json" else "toml"


def _toml_table(record: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    if path:
        lines += ["", f"[{'.'.join(path)}]"]
    nested = {k: v for k, v in record.items() if isinstance(v, Mapping)}
    lines += [f"{k} = {_toml_value(v)}" for k, v in record.items() if k not in nested]
    for key, value in nested.items():
        _toml_table(value, (*path, key), lines)


def _toml_value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {_toml_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


def read_workload(path: str | Path) -> Workload:
    """Read a workload file.

    Raises
    ------
    UnknownFile
        There is no such file.
    InputError
        Not TOML or JSON, or a field that is wrong.
    """
    path = Path(path)
    return workload_from_record(parsed(path), str(path))


def parsed(path: Path) -> dict[str, Any]:
    """The table in a TOML or JSON file."""
    import tomllib

    try:
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        raise UnknownFile(f"{path}: no such workload file; check the path") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: can't be read ({error}); give a TOML or JSON file") from error
    try:
        data = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: neither TOML nor JSON ({error})") from error
    if not isinstance(data, dict):
        raise InputError(f"{path}: a {type(data).__name__} where a table is expected")
    return data


def is_workload_file(path: Path) -> bool:
    """Whether a file states the workload schema in its first lines."""
    try:
        with path.open("rb") as file:
            start = file.read(4096)
    except OSError:
        return False
    return SCHEMA.encode() in start
