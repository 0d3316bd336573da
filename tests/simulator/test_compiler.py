"""Kernels are compiled when first asked for, and kept where it can be written."""

import subprocess
import sys
from pathlib import Path

import pytest

from sizing.simulator import compiler


def test_planning_does_not_load_the_compiler() -> None:
    code = "import sizing, sizing.planner, sizing.simulator, sys; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_users_own_folder_is_honoured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert compiler.cache_folder() == str(tmp_path)


def test_a_home_that_cannot_be_written_falls_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    blocked = tmp_path / "a file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked / "below"))
    monkeypatch.setattr(compiler.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = compiler.cache_folder()
    assert folder.startswith(str(tmp_path))
    assert Path(folder).is_dir()


def test_the_folder_follows_the_source_of_the_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = compiler.cache_folder()
    monkeypatch.setattr(compiler, "KERNELS", compiler.KERNELS[:-1])
    assert compiler.cache_folder() != before
