"""Read one table of a large TOML file without parsing the rest: one accelerator in a millisecond."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_HEADER = re.compile(r"^\[([A-Za-z0-9_.-]+)\][ \t]*$", re.MULTILINE)


class Tables(Mapping[str, dict[str, Any]]):
    """Top-level tables of a TOML file, each parsed when first asked for.

    The file holds flat tables only: a bare name in brackets on a line of its own, no sub-tables.
    """

    def __init__(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        heads = list(_HEADER.finditer(text))
        ends = [head.start() for head in heads[1:]] + [len(text)]
        self._texts = {h[1]: text[h.end() : end] for h, end in zip(heads, ends, strict=True)}
        self._parsed: dict[str, dict[str, Any]] = {}

    def __getitem__(self, name: str) -> dict[str, Any]:
        """Table of that name, parsed."""
        if name not in self._parsed:
            self._parsed[name] = tomllib.loads(self._texts[name])
        return self._parsed[name]

    def __iter__(self) -> Iterator[str]:
        """Names in file order."""
        return iter(self._texts)

    def __len__(self) -> int:
        """How many tables."""
        return len(self._texts)

    def texts(self) -> Mapping[str, str]:
        """Unparsed text of each table, for a quick look at one line of it."""
        return self._texts
