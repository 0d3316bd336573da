"""What several tests share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference facts beside the checkout; a test that needs it is skipped where it isn't."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "reference"
    if not folder.is_dir():
        pytest.skip("no ../shared here")
    return folder
