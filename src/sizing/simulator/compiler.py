"""How kernels are compiled: numba, once per version of their source, kept in a folder that can be written."""

import os
import sys
import tempfile
from collections.abc import Callable
from hashlib import sha256
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


def compiled(function: Function, *, entry: bool = False) -> Function:
    """Compile a kernel for the types it is annotated with; later processes load it from the cache folder.

    Only an ``entry`` can be called from Python; the others save what that takes to compile.
    """
    hints = dict(function.__annotations__)
    result = _compiled_type(hints.pop("return"))
    signature = f"{result}({', '.join(_compiled_type(hint) for hint in hints.values())})"
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = _FOLDER
    try:
        decorate = numba.njit(
            signature, cache=bool(_FOLDER), nogil=True, error_model="numpy", _nrt=False,
            no_cpython_wrapper=not entry, no_cfunc_wrapper=True,
        )  # fmt: skip
        return cast(Function, decorate(function))
    finally:
        numba.config.CACHE_DIR = before


def entry(function: Function) -> Function:
    """Compile a kernel that Python calls."""
    return compiled(function, entry=True)


def inlined(function: Function) -> Function:
    """Paste a function into the kernels that call it.

    A kernel is compiled together with all that it calls, so each level of calls costs compile time again.
    """
    return cast(Function, numba.njit(inline="always")(function))
