"""How kernels are compiled: numba, once per version of their source, kept in a folder that can be written."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_origin

import numba

KERNELS = ("compiler", "layout", "stepcost", "prefixcache", "slots", "engine", "fleetloop", "eventloop")
Function = TypeVar("Function", bound=Callable[..., Any])


def _user_cache() -> Path:
    """The platform's folder for caches of this user."""
    if "XDG_CACHE_HOME" in os.environ:
        return Path(os.environ["XDG_CACHE_HOME"])
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local"))
    return home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _source_digest() -> str:
    """Digest of every kernel's source: numba itself does not see edits to callees in other files."""
    digest = sha256()
    for name in KERNELS:
        digest.update((Path(__file__).parent / f"{name}.py").read_bytes())
    return digest.hexdigest()[:16]


def cache_folder() -> str:
    """Folder of compiled kernels: ``NUMBA_CACHE_DIR``, else the user's cache, else a temporary one."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return os.environ["NUMBA_CACHE_DIR"]
    try:
        base = _user_cache() / "sizing"
    except RuntimeError:  # a user without a home
        base = Path(tempfile.gettempdir()) / "sizing"
    folder = base / "kernels" / _source_digest()
    if not _writable(folder):
        folder = Path(tempfile.gettempdir()) / f"sizing-kernels-{os.getuid() if hasattr(os, 'getuid') else 0}"
        folder = folder / _source_digest()
        if not _writable(folder):
            return ""
    return str(folder)


_FOLDER = cache_folder()


def _compiled_type(hint: Any) -> str:
    """The compiled type of an annotation."""
    if hint is None or hint is type(None):
        return "void"
    if get_origin(hint) is tuple:
        return f"Tuple(({', '.join(_compiled_type(item) for item in get_args(hint))}))"
    for item in getattr(hint, "__metadata__", ()):
        return str(item)
    return {int: "int64", float: "float64", bool: "boolean"}[hint]


_waiting: list[tuple[Any, str]] = []  # kernels that are declared and not yet compiled


@contextmanager
def _settings() -> Iterator[None]:
    """Numba's settings while a kernel is declared or compiled: cache folder, no search for vector loops."""
    ours = {"CACHE_DIR": _FOLDER, "LOOP_VECTORIZE": 0, "SLP_VECTORIZE": 0}
    before = {name: getattr(numba.config, name) for name in ours}
    try:
        for name, value in ours.items():
            setattr(numba.config, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(numba.config, name, value)


def _declare(function: Function, entry: bool) -> tuple[Any, str]:
    """A kernel that is not compiled yet, and the signature it is annotated with."""
    hints = dict(function.__annotations__)
    result = _compiled_type(hints.pop("return"))
    signature = f"{result}({', '.join(_compiled_type(hint) for hint in hints.values())})"
    with _settings():
        decorate = numba.njit(
            cache=bool(_FOLDER), nogil=True, error_model="numpy", _nrt=False,
            no_cpython_wrapper=not entry, no_cfunc_wrapper=True,
        )  # fmt: skip
        return decorate(function), signature


def _compile(kernel: Any, signature: str) -> None:
    with _settings():
        kernel.compile(signature)
    kernel.disable_compile()


def compiled(function: Function) -> Function:
    """Declare a kernel that other kernels call, for the types it is annotated with."""
    kernel, signature = _declare(function, entry=False)
    _waiting.append((kernel, signature))
    return cast(Function, kernel)


def entry(function: Function) -> Function:
    """Compile a kernel that Python calls, and all that it calls; or load it, once that has been done."""
    kernel, signature = _declare(function, entry=True)
    mark = _mark(function.__name__)
    if mark is None or not mark.exists():
        for inner, types in _waiting:
            _compile(inner, types)
        _waiting.clear()
    _compile(kernel, signature)
    if mark is not None:
        with suppress(OSError):
            mark.touch()
    return cast(Function, kernel)


def _mark(name: str) -> Path | None:
    """File that says that an entry has been compiled here, by this numba for this processor."""
    if not _FOLDER:
        return None
    processor = import_module("llvmlite.binding").get_host_cpu_name()
    return Path(_FOLDER) / f"{name}-{_source_digest()}-{numba.__version__}-{processor}"


def inlined(function: Function) -> Function:
    """Paste a function into the kernels that call it.

    A kernel is compiled together with all that it calls, so each level of calls costs compile time again.
    """
    return cast(Function, numba.njit(inline="always")(function))
