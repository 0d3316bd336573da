"""``python -m sizing.cli``."""

from sizing.cli import main

main()
