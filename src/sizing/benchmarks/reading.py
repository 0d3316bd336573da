"""A result file or a folder of them -> checked points."""

from collections.abc import Sequence
from pathlib import Path

from sizing.benchmarks.checks import checked
from sizing.benchmarks.document import Document, open_document
from sizing.benchmarks.point import BenchPoint, with_facts
from sizing.benchmarks.reader import READERS, Reader
from sizing.errors import InputError, UnknownFile

RESULT_SUFFIXES = (".json", ".jsonl", ".csv", ".yaml", ".yml", ".txt", ".log", ".npz", ".out")


def formats() -> tuple[tuple[str, str, bool], ...]:
    """Name, title and whether it is a hint only, of every format that can be read."""
    return tuple((name, reader.title, reader.hint_only) for name, reader in READERS.entries().items())


def read_benchmark(path: str | Path, kind: str | None = None, **facts: object) -> tuple[BenchPoint, ...]:
    """Read a load-test result, finding the format from the content.

    Parameters
    ----------
    path
        A result file, or a folder of them (``vllm bench sweep``, inference-perf stages).
    kind
        Format name, when the content alone does not tell (``formats()`` lists them).
    facts
        What the file does not say: ``model``, ``gpu``, ``tp``, ``engine``, ``input_tokens``, ...
    """
    folder = Path(path)
    points = _read_folder(folder, kind) if folder.is_dir() else read_document(open_document(path), kind)
    return tuple(checked(with_facts(point, **facts)) for point in points)


def read_document(document: Document, kind: str | None = None) -> tuple[BenchPoint, ...]:
    """Points of one document, unchecked, in the order of the file."""
    reader = READERS.get(kind)() if kind else recognised(document)
    if reader is None:
        known = ", ".join(READERS.names())
        raise InputError(f"{document.name}: not a benchmark result known here; give its format with --kind ({known})")
    points = tuple(reader.read(document))
    if not points:
        raise InputError(f"{document.name}: no benchmark result in the file (read as {reader.title})")
    return points


def recognised(document: Document) -> Reader | None:
    """The reader that recognises the content, the most specific first."""
    ranked = sorted(READERS.entries().items(), key=lambda entry: (entry[1].rank, entry[0]))
    for _, kind in ranked:
        reader = kind()
        if reader.recognises(document):
            return reader
    return None


def _read_folder(folder: Path, kind: str | None) -> tuple[BenchPoint, ...]:
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix.lower() in RESULT_SUFFIXES)
    if not files:
        raise UnknownFile(f"{folder}: no result file in the folder ({', '.join(RESULT_SUFFIXES)})")
    points: list[BenchPoint] = []
    for file in _without_summaries(files):
        document = open_document(file) if file.stat().st_size else None
        if document is None or (kind is None and recognised(document) is None):
            continue
        points.extend(_numbered(read_document(document, kind), len(points), str(file.relative_to(folder))))
    if not points:
        raise InputError(f"{folder}: none of its {len(files)} files is a benchmark result that I know")
    return tuple(points)


def _without_summaries(files: Sequence[Path]) -> list[Path]:
    """Leave out files that repeat others: a sweep's summary, the whole run beside its stages."""
    names = {(file.parent, file.name) for file in files}
    runs = {file.parent for file in files if file.name.startswith("run=")}
    staged = {file.parent for file in files if file.name.startswith("stage_")}

    def repeats(file: Path) -> bool:
        if file.stem == "summary":
            return (
                file.parent in runs
                or any(file.parent in run.parents for run in runs)
                or (file.suffix == ".csv" and (file.parent, "summary.json") in names)
            )
        return file.parent in staged and file.name.startswith("summary")

    return [file for file in files if not repeats(file)]


def _numbered(points: Sequence[BenchPoint], start: int, source: str) -> list[BenchPoint]:
    import dataclasses

    return [dataclasses.replace(point, index=start + n, source=source) for n, point in enumerate(points)]
