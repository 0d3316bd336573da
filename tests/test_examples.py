"""Every example runs; every command of the README and the docs runs and does not crash."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from sizing.cli import run

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Commands that need a file of the reader's own, a GPU, or minutes: shown, not run here.
NEEDS = re.compile(
    r"profile-inference|\bpip\b|venv|\.\./shared|--install-completion|\$[A-Z]|<|\./my|\./configs|\bFILE\b|\bFOLDER\b|\bDIR\b|mine\.|mine/"
)


def commands(page: Path) -> list[str]:
    """Lines that begin with a prompt inside ``console`` blocks, continued lines joined."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line[2:].partition("  #")[0].strip() for line in lines if line.startswith("$ ")]


CASES = [(p.relative_to(ROOT), c) for p in PAGES for c in commands(p) if not NEEDS.search(c)]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.stem)
def test_example_runs(
    example: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example)])
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize(("page", "command"), CASES, ids=lambda c: str(c)[:70])
def test_documented_command_runs(
    page: Path,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)
    if words[0] == "printf":
        assert words[2] == ">", command
        return
    assert words[0] == "size-inference", f"{page}: {command}"
    if "plan.yaml" in words:
        Path("plan.yaml").write_text("rps: 20\nslo_tpot: 20ms\ngpu: [h100, b200]\n")
    code = run(words[1:])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert shown.out or "--out" in command or "-o" in words


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_of_the_docs_runs(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "docs"}  # blocks of a page go on from one another
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
    assert len(names) > len(blocks)  # each block defines something, or is built on what one defined


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page}: {target}"
