"""Parameter counts from config.json against what the framework builds and what the files ship."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from sizing.architecture import Model
from sizing.catalog.files import data_file
from sizing.errors import SizingError
from sizing.validation.rows import csv_rows
from sizing.validation.startup_rows import family, find_model

#: Share by which a figure may differ: of what the framework builds, of what the files ship, of what they weigh.
TOLERANCES = {"parameters": 0.001, "checkpoint_parameters": 0.01, "checkpoint_bytes": 0.02}
TRUTH = {
    "parameters": "transformers_meta_total",
    "checkpoint_parameters": "safetensors_total",
    "checkpoint_bytes": "checkpoint_bytes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCount:
    """One model's counts.

    Parameters
    ----------
    id
        Hugging Face id.
    parameters
        Elements as the framework builds them, None where the model can't be read [element].
    checkpoint_parameters
        Elements that the files ship, None likewise [element].
    active_parameters, checkpoint_bytes
        Elements a token uses, bytes of the files [element], [B].
    reason
        Why a count is missing or differs, ``""`` where both hold.
    group
        Kind of model, for the error table.
    """

    id: str
    parameters: int | None = None
    checkpoint_parameters: int | None = None
    active_parameters: int | None = None
    checkpoint_bytes: float | None = None
    reason: str = ""
    group: str = ""

    def cells(self) -> dict[str, object]:
        """The row of the per-row file."""
        shown = {
            "id": self.id,
            "parameters": self.parameters,
            "checkpoint_parameters": self.checkpoint_parameters,
            "active_parameters": self.active_parameters,
            "checkpoint_bytes": None if self.checkpoint_bytes is None else round(self.checkpoint_bytes),
            "reason": self.reason,
        }
        return {key: "" if value is None else value for key, value in shown.items()}


def read_rows(file: Path | None) -> list[dict[str, str]]:
    """Rows of a CSV file with a column ``id``; None reads the set that ships with the library.

    Raises
    ------
    UnknownFile
        No such file.
    InputError
        Not a CSV file, or no column ``id``.
    """
    return csv_rows(file or data_file("measured/parameters.csv"), "with a column id", ("id",))


def count_row(row: Mapping[str, str], configs: Path | None = None) -> RowCount:
    """Counts of one row's model, from its config alone.

    Parameters
    ----------
    row
        A row with ``id``; measured counts are read only to say why ours differ.
    configs
        Folder of ``owner--name.json`` files, tried before the catalogue.
    """
    try:
        model = find_model(row["id"], configs)
    except SizingError as error:
        return RowCount(id=row["id"], reason=str(error), group="not read")
    return RowCount(
        id=row["id"],
        parameters=model.parameters,
        checkpoint_parameters=model.checkpoint_parameters,
        active_parameters=model.active_parameters,
        checkpoint_bytes=model.checkpoint_bytes,
        reason=_reason(row, model),
        group=family(model),
    )


def measured(row: Mapping[str, str], metric: str) -> float | None:
    """What a row states for a count, None where it doesn't."""
    try:
        value = float(row.get(TRUTH[metric]) or "nan")
    except ValueError:
        return None
    return value if 0 < value < 1e15 else None


def error_of(row: Mapping[str, str], count: RowCount, metric: str) -> float | None:
    """Relative error of a count, None where either is missing."""
    truth, ours = measured(row, metric), getattr(count, metric)
    return None if truth is None or ours is None else ours / truth - 1.0


def _reason(row: Mapping[str, str], model: Model) -> str:
    """Why counts differ by more than is allowed, with what the reader noted."""
    causes = []
    for metric, tolerance in TOLERANCES.items():
        truth = measured(row, metric)
        ours: float = getattr(model, metric)
        if truth is None or abs(ours / truth - 1.0) <= tolerance:
            continue
        causes.append(
            f"{metric} differs by {ours - truth:+,.0f} ({ours / truth - 1.0:+.2%}): {_cause(model, ours - truth)}"
        )
    if not causes:
        return ""
    return "; ".join([*causes, *model.warnings])


def _cause(model: Model, difference: float) -> str:
    """Part of the model that a difference is the size of."""
    embedding = model.embedding.parameters
    parts: dict[str, float] = {
        "the embedding or head: tied on one side only": embedding,
        "embedding and head": 2 * embedding,
        "the multi-token prediction module": model.mtp_parameters,
        "the vision and audio encoders": model.vision_parameters,
    }
    for name, size in parts.items():
        if size and abs(abs(difference) / size - 1.0) < 0.02:
            return f"the size of {name}"
    if model.vision_parameters and abs(difference) < model.vision_parameters:
        return "less than the encoders: the framework's default tower differs from the one shipped"
    return "no single part of the model has that size"


def error_table(rows: Sequence[Mapping[str, str]], counts: Sequence[RowCount]) -> list[dict[str, object]]:
    """Errors by kind of model and count: rows, median, worst, share within tolerance."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row, count in zip(rows, counts, strict=True):
        for metric in TOLERANCES:
            error = error_of(row, count, metric)
            if error is not None:
                found[count.group, metric].append(error)
                found["all", metric].append(error)
    table = []
    for (group, metric), errors in sorted(
        found.items(), key=lambda item: (item[0][1], item[0][0] == "all", item[0][0])
    ):
        sizes = [abs(error) for error in errors]
        within = sum(size <= TOLERANCES[metric] for size in sizes) / len(sizes)
        table.append({
            "count": metric,
            "kind": group,
            "rows": len(sizes),
            "median_error_percent": round(100 * median(sizes), 4),
            "worst_error_percent": round(100 * max(sizes), 4),
            "tolerance_percent": 100 * TOLERANCES[metric],
            "within_percent": round(100 * within, 1),
        })  # fmt: skip
    return table
