"""Kernels are compiled when first asked for, and kept where it can be written."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sizing.simulator import compiler, fleetloop


def test_planning_does_not_load_the_compiler() -> None:
    code = "import sizing, sizing.planner, sizing.simulator, sys; print('llvmlite' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_users_own_folder_is_honoured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SIZING_CACHE_DIR", str(tmp_path / "here"))
    assert compiler.cache_folder() == tmp_path / "here"


def test_a_home_that_cannot_be_written_falls_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SIZING_CACHE_DIR", raising=False)
    blocked = tmp_path / "a file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked / "below"))
    monkeypatch.setattr(compiler.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = compiler.cache_folder()
    assert folder is not None
    assert folder.parent == tmp_path
    assert folder.is_dir()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owner here")
def test_a_folder_of_somebody_else_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SIZING_CACHE_DIR", str(tmp_path))
    mine = os.getuid()
    monkeypatch.setattr(compiler.os, "getuid", lambda: mine + 1)
    assert compiler.cache_folder() is None


ONE = """
import numpy as np
from sizing.simulator import Scheduler, replay
from sizing.simulator import compiler
from sizing.steptable import StepTable
from sizing.workload.requests import Requests
compile_, compiled = compiler._compile, []
compiler._compile = lambda *x: compiled.append(1) or compile_(*x)
one = Requests(arrival_s=np.zeros(1), input_tokens=np.array([100]), output_tokens=np.array([3]))
print(len(compiled), replay(one, StepTable.affine(step_s=1e-3), Scheduler(kv_tokens=1000)).finish_ps[0], len(compiled))
"""


def answer(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", ONE], capture_output=True, text=True, check=True,
        env={**os.environ, "SIZING_CACHE_DIR": str(folder)},
    )  # fmt: skip
    return done.stdout.strip()


def test_compiled_once_kept_and_compiled_again_when_the_file_is_spoilt(tmp_path: Path) -> None:
    assert answer(tmp_path) == "0 3000000000 1"
    assert answer(tmp_path) == "0 3000000000 0"
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(kept.read_bytes()[:-100])
    assert answer(tmp_path) == "0 3000000000 1"
    assert answer(tmp_path) == "0 3000000000 0"


def test_without_any_folder_it_is_compiled_in_memory(tmp_path: Path) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    assert answer(blocked / "below") == "0 3000000000 1"


def test_the_file_follows_the_source_of_the_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from llvmlite import binding

    binding.initialize_native_target()
    machine = binding.Target.from_default_triple().create_target_machine()
    monkeypatch.setenv("SIZING_CACHE_DIR", str(tmp_path))
    before = compiler._kept_as(binding, machine, fleetloop.run.function)
    monkeypatch.setattr(compiler, "KERNELS", compiler.KERNELS[:-1])
    assert compiler._kept_as(binding, machine, fleetloop.run.function) != before


def test_the_file_follows_the_source_of_its_own_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kernels elsewhere, such as those of tests: what was kept of an older text would be called at no address."""
    monkeypatch.setenv("SIZING_CACHE_DIR", str(tmp_path / "kept"))
    found = []
    for value in (3, 4):
        source = tmp_path / f"with_{value}.py"
        source.write_text(
            "from sizing.simulator.compiler import Entry\nfrom sizing.simulator.layout import Ints\n\n\n"
            f"def put_{value}(s: Ints) -> None:\n    s[0] = {value}\n"
        )
        names: dict[str, Any] = {"__name__": "elsewhere"}
        exec(compile(source.read_text(), str(source), "exec"), names)
        compiler._entries.pop("elsewhere", None)
        s = np.zeros(1, np.int64)
        compiler.entry(names[f"put_{value}"])(s)
        found.append(int(s[0]))
    compiler._entries.pop("elsewhere", None)
    assert found == [3, 4]
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_every_module_that_kernels_take_code_or_constants_from_is_in_the_files_name() -> None:
    folder = Path(compiler.__file__).parent
    for name in compiler.KERNELS:
        if name in ("translate", "compiler"):
            continue
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sizing"):
                package, _, module = (node.module or "").rpartition(".")
                assert package == "sizing.simulator", f"{name} takes from {node.module}"
                assert module in compiler.KERNELS, f"{name} takes from {node.module}"


def test_processes_that_compile_at_once_get_the_same_answer(tmp_path: Path) -> None:
    environment = {**os.environ, "SIZING_CACHE_DIR": str(tmp_path)}
    started = [
        subprocess.Popen([sys.executable, "-c", ONE], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(3)
    ]
    assert {one.communicate(timeout=120)[0].split()[1] for one in started} == {"3000000000"}
    assert [file.suffix for file in tmp_path.iterdir()] == [".o"]
    assert answer(tmp_path) == "0 3000000000 0"


def test_a_file_that_cannot_be_put_in_place_leaves_nothing_behind(tmp_path: Path) -> None:
    blocked = tmp_path / "kept.o"
    blocked.mkdir()
    (blocked / "in the way").write_text("")
    compiler._keep(blocked, b"code")
    assert [file.name for file in tmp_path.iterdir()] == ["kept.o"]
