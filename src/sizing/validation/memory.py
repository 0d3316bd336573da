"""Memory budgets held against engine start-up logs: predict each row from model, GPU and flags, then compare."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sizing.catalog.files import data_file
from sizing.errors import SizingError
from sizing.memory import GIB, MemoryBudget, memory_budget
from sizing.validation.rows import csv_rows
from sizing.validation.startup_rows import INPUTS, asked

#: Columns of the per-row file, in order.
COLUMNS = (
    "id", "weights_gib", "activation_peak_gib", "non_torch_gib", "cuda_graph_gib", "kv_cache_gib", "kv_tokens",
    "max_concurrency", "bytes_per_token", "reason",
)  # fmt: skip
#: Measured column of a row for each predicted one; bytes per token are room over tokens.
MEASURED = {
    "weights_gib": "weights_gib_per_gpu",
    "activation_peak_gib": "activation_peak_gib",
    "non_torch_gib": "non_torch_gib",
    "cuda_graph_gib": "cuda_graph_gib",
    "kv_cache_gib": "kv_cache_gib_per_gpu",
    "kv_tokens": "kv_tokens",
    "max_concurrency": "max_concurrency_x",
}
#: Parts small enough to be zero are compared in GiB, not in percent.
ABSOLUTE = ("activation_peak_gib", "non_torch_gib", "cuda_graph_gib")
NEEDED = ("id", "engine", "model")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPrediction:
    """What one start-up would print.

    Attributes
    ----------
    values
        By column of :data:`COLUMNS`; None where there is no answer.
    reason
        Why.
    """

    id: str
    engine: str
    architecture: str
    gpu_id: str
    values: Mapping[str, float | None]
    reason: str

    def cells(self) -> dict[str, object]:
        """The row of the per-row file."""
        numbers = {name: _shown(name, self.values.get(name)) for name in COLUMNS[1:-1]}
        return {"id": self.id, **numbers, "reason": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryValidation:
    """Predictions, and their errors where a row was measured.

    Attributes
    ----------
    predictions
        One a row, in the order of the file.
    errors
        (row, part) to relative error, or to the difference in GiB for the small parts.
    """

    predictions: tuple[RowPrediction, ...]
    errors: Mapping[tuple[int, str], float]

    @property
    def unanswered(self) -> tuple[RowPrediction, ...]:
        """Rows that lack an answer, with their reasons."""
        return tuple(p for p in self.predictions if p.reason)

    def table(self) -> list[dict[str, object]]:
        """Error table: all rows, then by architecture, by engine and by GPU."""
        rows = [self._line("all", "", range(len(self.predictions)), part) for part in _parts()]
        for name in ("architecture", "engine", "gpu_id"):
            for value in sorted({getattr(p, name) or "not stated" for p in self.predictions}):
                members = [i for i, p in enumerate(self.predictions) if (getattr(p, name) or "not stated") == value]
                heading = name.removesuffix("_id")
                rows += [self._line(heading, value, members, part) for part in ("kv_cache_gib", "max_concurrency",
                         "bytes_per_token")]  # fmt: skip
        return [row for row in rows if row["rows"]]

    def _line(self, by: str, value: str, members: Iterable[int], part: str) -> dict[str, object]:
        found = [self.errors[i, part] for i in members if (i, part) in self.errors]
        unit = "GiB" if part in ABSOLUTE else "percent"
        scale = 1.0 if part in ABSOLUTE else 100.0
        sizes = sorted(abs(e) * scale for e in found)
        if not sizes:
            return {"by": by, "value": value, "part": part, "rows": 0, "median": None, "p90": None, "worst": None,
                    "bias": None, "unit": unit}  # fmt: skip
        return {
            "by": by, "value": value, "part": part, "rows": len(sizes), "median": round(statistics.median(sizes), 2),
            "p90": round(sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))], 2), "worst": round(sizes[-1], 2),
            "bias": round(statistics.fmean(found) * scale, 2), "unit": unit,
        }  # fmt: skip


def validate_memory(rows: Sequence[Mapping[str, str]], configs: Path | None = None) -> MemoryValidation:
    """Predict every row and compare with what it measured.

    Parameters
    ----------
    rows
        Columns of a start-up log file by name.
    configs
        Folder of ``owner--name.json`` files.
    """
    return compare(rows, [predict_row(row, configs) for row in rows])


def compare(rows: Sequence[Mapping[str, str]], predictions: Sequence[RowPrediction]) -> MemoryValidation:
    """Errors of predictions where a row was measured."""
    errors: dict[tuple[int, str], float] = {}
    for i, (row, prediction) in enumerate(zip(rows, predictions, strict=True)):
        for part, truth in measured_values(row).items():
            guess = prediction.values.get(part)
            if guess is not None:
                errors[i, part] = guess - truth if part in ABSOLUTE else guess / truth - 1.0
    return MemoryValidation(predictions=tuple(predictions), errors=errors)


def predict_row(row: Mapping[str, str], configs: Path | None = None) -> RowPrediction:
    """What the engine would print for one row, from model, GPU and flags alone."""
    what = asked({name: row.get(name, "") for name in INPUTS}, configs)
    values: dict[str, float | None] = dict.fromkeys(COLUMNS[1:-1])
    reason = what.reason
    if what.deployment is not None:
        try:
            budget = memory_budget(what.deployment)
        except SizingError as error:
            reason = str(error)
        else:
            values["weights_gib"] = budget.weights_bytes / GIB
            values["bytes_per_token"] = printed_bytes_per_token(budget)
            if what.gpu_known:
                values |= _room(budget)
            reason = reason or _too_big(values)
    return RowPrediction(
        id=what.id, engine=what.engine, architecture=what.architecture, gpu_id=what.gpu_id, values=values,
        reason=" ".join(reason.split())[:300],
    )  # fmt: skip


def _room(budget: MemoryBudget) -> dict[str, float | None]:
    first = budget.printed
    return {
        "weights_gib": first.weights_bytes / GIB,
        "activation_peak_gib": first.activation_bytes / GIB,
        "non_torch_gib": first.non_torch_bytes / GIB,
        "cuda_graph_gib": first.cuda_graph_bytes / GIB,
        "kv_cache_gib": budget.printed_kv_bytes / GIB,
        "kv_tokens": float(budget.printed_tokens),
        "max_concurrency": budget.printed_concurrency,
    }


def _too_big(values: Mapping[str, float | None]) -> str:
    return "" if values["kv_cache_gib"] else "no KV room: weights and overhead take all of the engine's share"


def printed_bytes_per_token(budget: MemoryBudget) -> float | None:
    """KV room over the tokens the engine prints; by the layout alone where there is no room. [byte]"""
    if budget.printed_tokens > 1000:
        return budget.printed_kv_bytes / budget.printed_tokens
    nominal = budget.engine.pools(budget.rank, 1000.0 * GIB)
    tokens = budget.engine.printed_tokens(nominal)
    return 1000.0 * GIB / tokens if tokens else None


def measured_values(row: Mapping[str, str]) -> dict[str, float]:
    """What a row measured, by predicted column; blank and zero are not measurements."""
    found = {}
    for part, column in MEASURED.items():
        value = _number(row.get(column, ""))
        if value is not None and (value > 0 or part in ABSOLUTE):
            found[part] = value
    if "kv_cache_gib" in found and "kv_tokens" in found:
        found["bytes_per_token"] = found["kv_cache_gib"] * GIB / found["kv_tokens"]
    return found


def read_rows(file: Path | None) -> list[dict[str, str]]:
    """Rows of a CSV file of start-up logs; None reads the curated set that ships with the library.

    Raises
    ------
    UnknownFile
        No such file.
    InputError
        Not a CSV file with the columns a prediction needs.
    """
    return csv_rows(file or data_file("measured/memory.csv"), "of start-up logs", NEEDED)


def _parts() -> tuple[str, ...]:
    return (*MEASURED, "bytes_per_token")


def _shown(name: str, value: float | None) -> object:
    if value is None:
        return ""
    if name.endswith("_gib") or name == "max_concurrency":
        return round(value, 3)
    return round(value) if name == "kv_tokens" else round(value, 1)


def _number(text: object) -> float | None:
    try:
        number = float(str(text))
    except ValueError:
        return None
    return number if number == number and abs(number) < 1e15 else None
