"""A small self-registering registry: a folder's files add themselves, choices are read from it."""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Generic, TypeVar

from sizing.errors import InputError, nearest

T = TypeVar("T")


class Registry(Generic[T]):
    """Named things of one kind, found by scanning a package on first use.

    Parameters
    ----------
    kind
        What is registered, for messages ("report", "trace reader").
    package
        Dotted name of the package whose modules register themselves when imported.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind, self.package = kind, package
        self._entries: dict[str, T] = {}
        self._scanned = False

    def register(self, *names: str) -> Callable[[T], T]:
        """Decorator: enter a thing under one or more names."""

        def enter(entry: T) -> T:
            for name in names:
                if name in self._entries:
                    raise RuntimeError(f"{self.kind} {name!r} is registered twice")
                self._entries[name] = entry
            return entry

        return enter

    def get(self, name: str) -> T:
        """The thing of that name; an unknown name is refused with the nearest ones."""
        if name not in self._entries:
            self._scan()
        try:
            return self._entries[name]
        except KeyError:
            names = self.names()
            raise InputError(
                f"no {self.kind} {name!r}; choose one of {', '.join(names)}{nearest(name, names)}"
            ) from None

    def names(self) -> tuple[str, ...]:
        """Every registered name, sorted."""
        self._scan()
        return tuple(sorted(self._entries))

    def entries(self) -> dict[str, T]:
        """Every registered thing by name."""
        self._scan()
        return dict(sorted(self._entries.items()))

    def _scan(self) -> None:
        if self._scanned:
            return
        self._scanned = True
        folder = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(folder.__path__):
            importlib.import_module(f"{self.package}.{module.name}")
