"""``python -m sizing`` is ``size-inference``."""

from sizing.cli import main

if __name__ == "__main__":
    main()
