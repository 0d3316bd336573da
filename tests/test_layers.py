"""A module imports only modules earlier in the order of the data path."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
ORDER = (
    "errors", "units", "registry", "formats", "catalog", "hub", "architecture", "assumptions", "workload",
    "engines", "deployment", "calibration", "roofline", "collectives", "queueing", "memory", "operations",
    "steptable", "steptime", "techniques", "batching", "simulator", "replica", "fleet", "cost", "prepared",
    "laws", "answer", "remarks", "checked", "planner", "schema", "reports", "benchmarks", "validation", "fitting",
    "sweep", "web", "cli", "__main__",
)  # fmt: skip
FILES = sorted(p for p in (SOURCE / "sizing").rglob("*.py") if p.name != "__init__.py" or p.parent.name != "sizing")


def room(path: Path) -> str:
    """First name below the package: ``catalog`` for sizing/catalog/gpus.py."""
    return path.relative_to(SOURCE / "sizing").parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> set[str]:
    """Rooms of ``sizing`` that a module imports, at its top or inside functions, type checking left out."""
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "sizing":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {a.name for a in node.names}
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("sizing.")}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_module_imports_only_earlier_rooms(path: Path) -> None:
    here = room(path)
    assert here in ORDER, f"{here} has no place in the order"
    later = {r for r in imported(ast.parse(path.read_text())) if r in ORDER and ORDER.index(r) > ORDER.index(here)}
    assert not later, f"{here} imports {later}, which come later"


def test_profilers_never_import_sizing() -> None:
    for path in (SOURCE / "profilers").rglob("*.py"):
        assert not imported(ast.parse(path.read_text())), path
