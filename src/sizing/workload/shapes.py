"""Request shapes that ship: chat, reasoning, RAG, summarisation, code completion, agents, with their sources."""

from functools import lru_cache
from typing import Any

from sizing.errors import InputError, nearest
from sizing.workload.files import parsed, workload_from_record
from sizing.workload.traffic import Workload


@lru_cache(maxsize=1)
def _tables() -> dict[str, Any]:
    from sizing.catalog.files import data_file

    return {k: v for k, v in parsed(data_file("workloads.toml")).items() if isinstance(v, dict)}


def shapes() -> dict[str, str]:
    """Names of the shipped shapes, each with what it is."""
    return {name: str(table["about"]) for name, table in _tables().items()}


def shape(name: str, request_rate_per_s: float = 1.0) -> Workload:
    """Shipped shape of a name, such as ``chat``, at a rate of one's own.

    Parameters
    ----------
    name
        One of :func:`shapes`.
    request_rate_per_s
        Mean arrival rate. [request/s]
    """
    tables = _tables()
    if name not in tables:
        raise InputError(f"shape: {name!r} is not known; choose one of {', '.join(tables)}{nearest(name, tables)}")
    record = {k: v for k, v in tables[name].items() if k not in ("about", "basis")}
    return workload_from_record({"name": name, "request_rate_per_s": request_rate_per_s, **record}, name)
