"""The public namespace: every name loads, is documented, and importing the package loads nothing heavy."""

import subprocess
import sys

import pytest

import sizing


@pytest.mark.parametrize("name", [n for n in sizing.__all__ if n != "__version__"])
def test_a_public_name_loads_and_is_documented(name: str) -> None:
    assert getattr(sizing, name).__doc__, name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'pln'"):
        _ = sizing.pln


@pytest.mark.parametrize("code", ["import sizing", "import sizing; sizing.plan(gpus=('h100',))"])
def test_what_stays_out_of_the_way(code: str) -> None:
    heavy = ("torch", "scipy", "pint", "llvmlite", "pyarrow", "pandas", "yaml", "rich", "pydantic")
    check = f"{code}; import sys; print([m for m in {heavy!r} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
