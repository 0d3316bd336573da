"""The made-up GPU's measurements, made once."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def made_up():
    """Results that the default suite would have on a GPU with known constants."""
    import synthetic

    return synthetic.results()
