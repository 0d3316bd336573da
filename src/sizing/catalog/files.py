"""Where the shipped data files are: inside the wheel, or at the top of a checkout."""

from pathlib import Path

from sizing.errors import UnknownFile


def data_file(name: str) -> Path:
    """Path of a shipped data file, such as ``gpus.toml`` or ``calibration/h100-sxm.toml``.

    Raises
    ------
    UnknownFile
        The file is neither in the installed package nor in the checkout.
    """
    here = Path(__file__).resolve().parents[1]
    for root in (here / "data", here.parents[1] / "data"):
        if (root / name).exists():
            return root / name
    raise UnknownFile(f"no data file {name!r} under {here / 'data'}; the installation is incomplete")
