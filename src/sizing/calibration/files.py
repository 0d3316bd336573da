"""Calibration files: one TOML a GPU, tables by engine and family, each constant with its spread.

Layout (``schema = 1``)::

    gpu = "h100-sxm"

    [vllm.gemm]                       # every weight format of the family
    basis = "fitted"                  # fitted | fitted end to end | assumed
    fitted_on = "..."
    date = "2026-11-29"
    depth_s = [7.1e-10, 0.03]         # value, spread (log-sigma)

    [vllm."gemm.fp8"]                 # one format, on top
    residual = 0.08                   # log-sigma of measured over predicted, single calls
    compute_fraction = [0.77, 0.02]

    [any.nccl]                        # every engine

    [vllm.engine]                     # of a user's own load test
    residual_tpot = 0.08              # log-sigma of measured over predicted of a whole run
    residual_ttft = 0.21

A constant that a table leaves out keeps the default of :mod:`sizing.calibration.constants`.
"""

import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from sizing.calibration.constants import BOUNDS, BY_FORMAT, FAMILIES, default, family_keys
from sizing.calibration.record import UNKNOWN_RESIDUAL, Calibration, Evidence, rule_of_thumb
from sizing.catalog import Gpu
from sizing.catalog import gpu as catalog_gpu
from sizing.catalog.files import data_file
from sizing.errors import CalibrationError, UnknownFile, nearest

SCHEMA = 1
"""Version of the layout."""
NAMED = ("measured", "rule-of-thumb")
"""Calibrations that come with the library."""
ANY = "any"
"""Name of the table that holds for every engine."""
BASES = ("fitted", "fitted end to end", "assumed")
NOTES = ("basis", "fitted_on", "date", "residual")
RUN_METRICS = ("tpot", "ttft")
"""Metrics of a run whose residuals the ``engine`` table may give, as ``residual_tpot``."""
LEAST_ASSUMED = 0.15
"""Spread of a family's time where nothing of the GPU was measured, at the least. [1]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table of a file: constants of one family, or of one format of it, and their evidence."""

    values: Mapping[str, float]
    spreads: Mapping[str, float]
    notes: Mapping[str, str]
    residual: float | None = None
    residuals: Mapping[str, float] = field(default_factory=dict)


Tables = Mapping[str, Mapping[str, Table]]
"""Tables by engine and family."""


def read_tables(text: str, where: str) -> tuple[str, Tables]:
    """GPU id and tables of a calibration file.

    Parameters
    ----------
    text
        TOML.
    where
        Name of the file, for messages.

    Raises
    ------
    CalibrationError
        Not TOML, another schema, a name that is not known, a value outside its bounds: the message says which.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise CalibrationError(f"{where}: not a TOML file: {problem}") from None
    if raw.pop("schema", SCHEMA) != SCHEMA:
        raise CalibrationError(f"{where}: schema must be {SCHEMA}; refit with this version of the library")
    gpu = raw.pop("gpu", "")
    if not isinstance(gpu, str):
        raise CalibrationError(f"{where}: gpu must be an id of the catalogue, got {gpu!r}")
    tables: dict[str, dict[str, Table]] = {}
    for engine, of_engine in raw.items():
        if not isinstance(of_engine, dict):
            raise CalibrationError(f"{where}: {engine}: not a table of an engine; expected [{engine}.FAMILY]")
        tables[engine] = {key: _table(body, key, f"{where}: [{engine}.{key}]") for key, body in of_engine.items()}
    if not tables:
        raise CalibrationError(f"{where}: no table of constants; expected [vllm.gemm] and the like")
    return gpu, tables


def _table(body: object, key: str, where: str) -> Table:
    family, _, kernel_format = key.partition(".")
    if family not in FAMILIES:
        raise CalibrationError(f"{where}: no such family; choose one of {', '.join(FAMILIES)}{nearest(key, FAMILIES)}")
    if kernel_format and kernel_format not in BY_FORMAT.get(family, ()):
        formats = f"choose {', '.join(BY_FORMAT[family])}" if family in BY_FORMAT else f"{family} has none"
        raise CalibrationError(f"{where}: no such format; {formats}")
    if not isinstance(body, dict):
        raise CalibrationError(f"{where}: not a table")
    allowed = [item.name for item in fields(FAMILIES[family])]
    of_runs = {f"residual_{metric}": metric for metric in RUN_METRICS} if family == "engine" else {}
    values, spreads, notes, residuals = {}, {}, {}, {}
    residual: float | None = None
    for name, given in body.items():
        if name == "residual":
            residual = _number(given, f"{where} residual", 0.0, 3.0)
        elif name in of_runs:
            residuals[of_runs[name]] = _number(given, f"{where} {name}", 0.0, 3.0)
        elif name in NOTES:
            notes[name] = _note(name, given, where)
        elif name in allowed:
            values[name], spreads[name] = _constant(name, given, where)
        else:
            known = [*allowed, *NOTES, *of_runs]
            raise CalibrationError(f"{where} {name}: no such constant; choose {', '.join(known)}{nearest(name, known)}")
    return Table(values=values, spreads=spreads, notes=notes, residual=residual, residuals=residuals)


def _note(name: str, given: object, where: str) -> str:
    text = str(given)
    if name == "basis" and text not in BASES:
        raise CalibrationError(f"{where} basis: {text!r} is not allowed; choose one of {', '.join(BASES)}")
    return text


def _number(given: object, where: str, low: float, high: float) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not low <= given <= high or math.isnan(given):
        raise CalibrationError(f"{where}: {given!r} is not allowed; give a number from {low:g} to {high:g}")
    return float(given)


def _constant(name: str, given: object, where: str) -> tuple[float, float]:
    bound = BOUNDS[name]
    pair = given if isinstance(given, list) else [given, 0.0]
    if len(pair) != 2:
        raise CalibrationError(f"{where} {name}: {given!r} is not allowed; give [value, spread]")
    value = _number(pair[0], f"{where} {name} [{bound.unit}]", bound.low, bound.high)
    return value, _number(pair[1], f"{where} {name} spread", 0.0, 3.0)


def write_tables(gpu: str, tables: Tables, *, header: str = "") -> str:
    """The TOML text of tables, as :func:`read_tables` reads it.

    Parameters
    ----------
    gpu
        Id in the catalogue.
    tables
        Tables by engine and family.
    header
        Comment at the top, one line.
    """
    lines = [f"# {header}" if header else "# Efficiency constants: [value, spread]; see docs/explanation/kernels.md"]
    lines += [f"schema = {SCHEMA}", f'gpu = "{gpu}"']
    for engine, of_engine in tables.items():
        for key, table in of_engine.items():
            quoted = f'"{key}"' if "." in key else key
            lines += ["", f"[{engine}.{quoted}]"]
            lines += [f"{name} = {_quoted(text)}" for name, text in table.notes.items()]
            if table.residual is not None:
                lines.append(f"residual = {_plain(table.residual)}")
            lines += [f"residual_{metric} = {_plain(value)}" for metric, value in table.residuals.items()]
            lines += [
                f"{name} = [{_plain(value)}, {_plain(table.spreads.get(name, 0.0))}]"
                for name, value in table.values.items()
            ]
    return "\n".join(lines) + "\n"


def _plain(value: float) -> str:
    text = f"{value:.4g}"
    return text if any(mark in text for mark in ".en") else f"{text}.0"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'


def calibration(name: str | Path, gpu: Gpu, engine: str = "vllm") -> Calibration:
    """Constants by name or from a file, for one GPU and engine.

    Parameters
    ----------
    name
        ``measured``, ``rule-of-thumb`` or the path of a TOML file; a file's constants go on top of the
        measured ones, for the GPU that it names or, if it names none, for every GPU.
    gpu
        The accelerator; one without measurements gets its class's constants, marked ``assumed``.
    engine
        Whose kernels and engine time (``vllm``, ``trtllm``, ``sglang``, ``transformers``, ...).

    Raises
    ------
    CalibrationError
        No such name, or a file that does not hold.
    UnknownFile
        No such file.
    """
    text = str(name)
    if text == "rule-of-thumb":
        return rule_of_thumb(gpu=gpu.id, engine=engine)
    if text == "measured":
        return _measured(gpu.id, gpu.architecture or "", engine, watts_per_flop(gpu))
    path = Path(text).expanduser()
    if not path.is_file():
        if path.suffix or "/" in text:
            raise UnknownFile(f"calibration: no file {text!r}; give a TOML file or one of {', '.join(NAMED)}")
        raise CalibrationError(
            f"calibration: no {text!r}; choose one of {', '.join(NAMED)} or give a TOML file{nearest(text, NAMED)}"
        )
    return _of_file(path, gpu, engine)


def _of_file(path: Path, gpu: Gpu, engine: str) -> Calibration:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise CalibrationError(f"{path}: can't be read as text: {problem}") from None
    meant, tables = read_tables(text, str(path))
    base = calibration("measured", gpu, engine)
    if meant and meant != gpu.id:
        note = f"{path.name} is for {meant}; {gpu.id} keeps the shipped constants"
        return replace(base, name=path.name, notes=(*base.notes, note))
    return replace(applied(base, tables, engine), name=path.name)


def kernels_of(engine: str) -> str:
    """Engine whose kernel tables stand for an engine: ``vllm`` or ``trtllm``."""
    from sizing.engines.timing import engine_timing

    kernels = engine_timing(engine).kernels
    return kernels if kernels in ("vllm", "trtllm") else "vllm"


def applied(base: Calibration, tables: Tables, engine: str) -> Calibration:
    """A calibration with a file's tables on top: those of any engine, then of the engine or of its kernels.

    Parameters
    ----------
    base
        What holds where the file says nothing.
    tables
        Tables by engine and family.
    engine
        Whose tables.
    """
    own = engine if engine in tables else kernels_of(engine)
    families, evidence = dict(base.families), dict(base.evidence)
    for table, keys in _in_order(tables, (ANY, own)):
        for key in keys:
            families[key] = replace(families[key], **table.values)
            evidence[key] = _evidence(evidence.get(key, Evidence()), table)
    return replace(base, families=families, evidence=evidence)


def _in_order(tables: Tables, engines: tuple[str, ...]) -> Iterator[tuple[Table, list[str]]]:
    """Tables from the general to the special, each with the families that it holds for."""
    every = [key for key, _ in family_keys()]
    for engine in engines:
        for key, table in sorted(tables.get(engine, {}).items(), key=lambda item: "." in item[0]):
            yield table, [k for k in every if k == key or k.startswith(f"{key}.")]


def _evidence(before: Evidence, table: Table) -> Evidence:
    return Evidence(
        basis=table.notes.get("basis", before.basis),
        fitted_on=table.notes.get("fitted_on", before.fitted_on),
        date=table.notes.get("date", before.date),
        residual=before.residual if table.residual is None else table.residual,
        spreads={**before.spreads, **table.spreads},
        residuals={**before.residuals, **table.residuals},
    )


@lru_cache(maxsize=512)
def _measured(gpu: str, architecture: str, engine: str, watts: float = 0.0) -> Calibration:
    """Shipped constants of a GPU; its class's, widened, where it has none."""
    tables = _shipped(gpu)
    if tables is not None:
        return applied(replace(_start(), gpu=gpu, engine=engine), tables, engine)
    like = _class_of(architecture)
    if like["like"] == gpu:
        raise UnknownFile(f"no data file calibration/{gpu}.toml; the installation is incomplete")
    return _widened(_measured(str(like["like"]), "", engine), _power_limited(like, watts), gpu)


POWER = 0.6
"""Power of the watts that the sustained share of the peak grows with (assumed): power rises faster than clocks. [1]"""


def watts_per_flop(gpu: Gpu) -> float:
    """Board power over the peak in 16 bit; 0 where either is unknown. [W s/flop]

    Parameters
    ----------
    gpu
        The accelerator.
    """
    return gpu.tdp_w / gpu.peak_flops_per_s["bf16"] if gpu.tdp_w and "bf16" in gpu.peak_flops_per_s else 0.0


def _power_limited(like: Mapping[str, Any], watts: float) -> Mapping[str, Any]:
    """A class whose share of the peak is less where a GPU has fewer watts for the same peak.

    The same chip on a card of 350 W computes what 700 W sustain only in bursts (H100 NVL and PCIe, A100 PCIe, L4).
    """
    there = watts_per_flop(catalog_gpu(str(like["like"]))) if like.get("power_limited") and watts else 0.0
    if not there or watts >= there:
        return like
    return {**like, "compute_factor": float(like.get("compute_factor", 1.0)) * (watts / there) ** POWER}


@lru_cache(maxsize=1)
def _start() -> Calibration:
    """Defaults of the form, with nothing fitted."""
    unknown = Evidence(fitted_on="defaults of the form", spreads={"scale": UNKNOWN_RESIDUAL})
    return Calibration(
        name="measured",
        gpu="any",
        engine="any",
        families={key: default(key) for key, _ in family_keys()},
        evidence={key: unknown for key, _ in family_keys() if key != "engine"},
    )


@lru_cache(maxsize=64)
def _shipped(gpu: str) -> Tables | None:
    try:
        path = data_file(f"calibration/{gpu}.toml")
    except UnknownFile:
        return None
    return read_tables(path.read_text(encoding="utf-8"), path.name)[1]


@lru_cache(maxsize=1)
def _classes() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = tomllib.loads(data_file("calibration/classes.toml").read_text("utf-8"))["class"]
    return rows


def _class_of(architecture: str) -> dict[str, Any]:
    """The class whose architecture is the longest beginning of the GPU's; the last class is for the rest."""
    rows = _classes()
    fitting = [(len(begin), row) for row in rows for begin in row["architectures"] if architecture.startswith(begin)]
    return max(fitting, key=lambda item: item[0])[1] if fitting else rows[-1]


def _widened(base: Calibration, like: Mapping[str, Any], gpu: str) -> Calibration:
    """A class's constants for another GPU: fractions and fixed costs scaled, everything assumed and wider."""
    families, evidence = {}, {}
    factors = {
        "memory_fraction": float(like.get("memory_factor", 1.0)),
        "compute_fraction": float(like.get("compute_factor", 1.0)),
        "fixed_s": float(like.get("fixed_factor", 1.0)),
    }
    for key, constants in base.families.items():
        own = {**factors, "compute_fraction": 1.0} if key in like.get("full_compute", ()) else factors
        changes = {
            n: min(getattr(constants, n) * factor, BOUNDS[n].high)
            for n, factor in own.items()
            if hasattr(constants, n) and factor != 1.0
        }
        families[key] = replace(constants, **changes)
        if key in base.evidence:
            before = base.evidence[key]
            spreads = {n: s * float(like["widen"]) for n, s in before.spreads.items()}
            spreads["scale"] = max(spreads.get("scale", 0.0), float(like.get("spread", LEAST_ASSUMED)))
            evidence[key] = replace(
                before, basis="assumed", fitted_on=f"{like['source']}; there {before.fitted_on}", spreads=spreads,
                residual=max(before.residual, float(like.get("spread", LEAST_ASSUMED))),
            )  # fmt: skip
    note = f"{gpu}: no kernels measured; constants {like['source']}, assumed, wider error bars"
    return replace(base, gpu=gpu, families=families, evidence=evidence, notes=(*base.notes, note))
