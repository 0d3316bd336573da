"""How kernels are compiled: by LLVM, all at once, kept as machine code in a folder that can be written."""

import ctypes
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sizing.simulator.translate import array_of, module_text, parameters

KERNELS = (
    "translate", "compiler", "layout", "stepcost", "prefixcache", "slots", "engine", "fleetloop", "eventloop",
)  # fmt: skip
"""Modules that the machine code depends on."""
SPEED = 2
"""How hard LLVM tries, 0 to 3; 3 takes a third longer and its loops are no faster. [1]"""
DIGEST_BYTES = 32
FOREIGN = {"memset", "memcpy", "memmove"}
"""Functions that LLVM may call without being asked to."""
Function = TypeVar("Function", bound=Callable[..., Any])


def _user_cache() -> Path:
    """The platform's folder for caches of this user."""
    if "XDG_CACHE_HOME" in os.environ:
        return Path(os.environ["XDG_CACHE_HOME"])
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local"))
    return home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"


def _ours(folder: Path) -> bool:
    """Whether a folder can be written and nobody else owns it: what lies in it is run."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            return not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()
    except OSError:
        return False


def cache_folder() -> Path | None:
    """Folder of compiled kernels: ``SIZING_CACHE_DIR``, else the user's cache, else a temporary one; None: nowhere."""
    if named := os.environ.get("SIZING_CACHE_DIR"):
        return Path(named) if _ours(Path(named)) else None
    temporary = Path(tempfile.gettempdir()) / f"sizing-kernels-{os.getuid() if hasattr(os, 'getuid') else 0}"
    try:
        choices = (_user_cache() / "sizing" / "kernels", temporary)
    except RuntimeError:  # a user without a home
        choices = (temporary, temporary)
    return next((folder for folder in choices if _ours(folder)), None)


def compiled(function: Function) -> Function:
    """Mark a kernel that other kernels call."""
    return function


class Entry:
    """A kernel that Python calls. It is compiled, or loaded, with its module's other entries at the first call."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self.hints = list(parameters(function).values())
        self.native: Any = None
        _entries.setdefault(function.__module__, []).append(self)

    def __call__(self, *arguments: Any) -> None:
        """Run it on packed arrays and whole numbers."""
        if self.native is None:
            _link(_entries[self.function.__module__])
        self.native(*(_passed(given, hint) for given, hint in zip(arguments, self.hints, strict=True)))


_entries: dict[str, list[Entry]] = {}
_loaded: list[Any] = []  # machine code lives as long as its engine


def entry(function: Callable[..., None]) -> Entry:
    """A kernel that Python calls; it returns nothing."""
    return Entry(function)


def _passed(given: Any, hint: Any) -> Any:
    """An argument as machine code takes it: arrays by address, after a look at their type and order."""
    array = array_of(hint)
    if array is None:
        return int(given)
    shape = (array.columns,) if array.columns else ()
    if given.dtype != np.dtype(array.item) or given.shape[1:] != shape or not given.flags.c_contiguous:
        raise TypeError(f"{given.dtype}{given.shape} is not an array of {array.item} with rows of {array.columns}")
    return given.ctypes.data


def _link(entries: list[Entry]) -> None:
    """Make entries callable."""
    llvm = import_module("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=_features(llvm), opt=SPEED, jit=True
    )
    code = _machine_code(llvm, machine, entries)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _loaded.append(engine)
    for one in entries:
        kinds = [ctypes.c_int64 if array_of(hint) is None else ctypes.c_void_p for hint in one.hints]
        one.native = ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address(one.function.__name__))


def _features(llvm: Any) -> str:
    try:
        return str(llvm.get_host_cpu_features().flatten())
    except RuntimeError:  # not known on every platform
        return ""


def _machine_code(llvm: Any, machine: Any, entries: list[Entry]) -> bytes:
    """Object file of entries: kept from an earlier run, or compiled now and kept."""
    kept = _kept_as(llvm, machine, entries[0].function)
    if kept is not None:
        with suppress(OSError):
            found = kept.read_bytes()
            if sha256(found[DIGEST_BYTES:]).digest() == found[:DIGEST_BYTES]:
                return found[DIGEST_BYTES:]
    code = _compile(llvm, machine, module_text(one.function for one in entries))
    if kept is not None:
        with suppress(OSError):  # no file could be begun
            _keep(kept, sha256(code).digest() + code)
    return code


def _kept_as(llvm: Any, machine: Any, function: Callable[..., None]) -> Path | None:
    """File of the machine code of a function's module, by all that it depends on."""
    folder = cache_folder()
    if folder is None:
        return None
    digest = sha256(repr((
        import_module("llvmlite").__version__, llvm.llvm_version_info, SPEED, machine.triple,
        llvm.get_host_cpu_name(), _features(llvm),
    )).encode())  # fmt: skip
    for source in [*(Path(__file__).parent / f"{name}.py" for name in KERNELS), Path(function.__code__.co_filename)]:
        digest.update(source.read_bytes())
    return folder / f"{function.__module__.rpartition('.')[2]}-{digest.hexdigest()[:24]}.o"


def _keep(file: Path, content: bytes) -> None:
    """Write a file whole: who reads it meanwhile sees all of it or nothing."""
    handle, name = tempfile.mkstemp(dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(content)
        Path(name).replace(file)
    except OSError:  # no room left, or another process has it open
        Path(name).unlink(missing_ok=True)


def _compile(llvm: Any, machine: Any, text: str) -> bytes:
    """Machine code of a module."""
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=SPEED)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    unknown = {f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")} - FOREIGN
    if unknown:
        raise NotImplementedError(f"kernels call what is not theirs: {', '.join(sorted(unknown))}")
    return bytes(machine.emit_object(module))
