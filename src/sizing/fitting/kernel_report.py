"""Reports of a fit to kernel tables: the calibration file, errors and constants old against new."""

import datetime
from collections.abc import Sequence

from sizing.calibration import ANY, BOUNDS, Table, Tables, calibration, write_tables
from sizing.catalog import gpu as find_gpu
from sizing.errors import InputError
from sizing.fitting.kernels import FamilyFit, constant_of
from sizing.validation.kernel_tables import KernelTable


def fitted_tables(fits: Sequence[FamilyFit], *, date: str) -> dict[str, Tables]:
    """Tables of calibration files by GPU, as :func:`sizing.calibration.write_tables` takes them.

    Parameters
    ----------
    fits
        What :func:`sizing.fitting.kernels.fit_kernels` gave.
    date
        Day of the fit, ISO 8601.
    """
    files: dict[str, dict[str, dict[str, Table]]] = {}
    for fit in fits:
        tables = files.setdefault(fit.gpu, {}).setdefault(fit.engine, {})
        keys = sorted({*fit.values, *(fit.plan.key_of(name) for name in fit.operations)})
        for key in keys:
            names = [n for n in fit.operations if fit.plan.key_of(n) == key or key in fit.plan.families]
            if not names:
                continue
            rows = sum(fit.operations[n][0] for n in names)
            notes = {
                "basis": "fitted",
                "fitted_on": f"{rows} rows of {', '.join(names)}",
                "date": date,
            }
            own = [n for n in names if fit.plan.key_of(n) == key]
            spreads = dict(fit.spreads.get(key, {}))
            values = dict(fit.values.get(key, {}))
            residual = None
            if own:
                residual = max(fit.residual[n] for n in own)
                values["scale"], spreads["scale"] = 1.0, max(max(fit.systematic[n] for n in own), 0.02)
            tables[key] = Table(values=values, spreads=spreads, notes=notes, residual=residual)
    return dict(files)


def fit_rows(fits: Sequence[FamilyFit]) -> list[dict[str, object]]:
    """One row an operation: old error against new, and the error on shapes left out.

    Parameters
    ----------
    fits
        What :func:`sizing.fitting.kernels.fit_kernels` gave.
    """
    rows: list[dict[str, object]] = []
    for fit in fits:
        for name, (count, excluded) in fit.operations.items():
            rows.append(
                {
                    "gpu": fit.gpu,
                    "engine": fit.engine,
                    "operation": name,
                    "rows": count,
                    "left_out": sum(excluded.values()),
                    "old_median_%": round(100 * fit.before[name][0], 1),
                    "old_p90_%": round(100 * fit.before[name][1], 1),
                    "median_%": round(100 * fit.after[name][0], 1),
                    "p90_%": round(100 * fit.after[name][1], 1),
                    "held_out_median_%": round(100 * fit.held_out[name][0], 1),
                    "held_out_p90_%": round(100 * fit.held_out[name][1], 1),
                }
            )
    return rows


def constant_rows(fits: Sequence[FamilyFit], base: str = "measured") -> list[dict[str, object]]:
    """One row a constant: old value, new value, spread.

    Parameters
    ----------
    fits
        What :func:`sizing.fitting.kernels.fit_kernels` gave.
    base
        Calibration of the old values.
    """
    rows: list[dict[str, object]] = []
    for fit in fits:
        old = calibration(base, find_gpu(fit.gpu), "vllm" if fit.engine == ANY else fit.engine)
        for key, values in fit.values.items():
            for name, value in values.items():
                rows.append(
                    {
                        "gpu": fit.gpu,
                        "engine": fit.engine,
                        "family": key,
                        "constant": name,
                        "unit": BOUNDS[name].unit,
                        "old": float(f"{constant_of(old, key, name):.4g}"),
                        "new": float(f"{value:.4g}"),
                        "spread": float(f"{fit.spreads[key][name]:.2g}"),
                    }
                )
    return rows


def of_gpus(tables: Sequence[KernelTable], gpus: Sequence[str] | None, *, writes: bool) -> list[KernelTable]:
    """Tables of some GPUs.

    Parameters
    ----------
    tables
        As read.
    gpus
        Names as in the catalogue; None: all.
    writes
        Whether one calibration file is to be written, which holds one GPU.

    Raises
    ------
    InputError
        None left, or several GPUs for one file.
    """
    wanted = {find_gpu(name).id for name in gpus or []}
    kept = [t for t in tables if not wanted or t.gpu in wanted]
    present = sorted({t.gpu for t in tables})
    if not kept:
        raise InputError(f"--gpu: no table of {', '.join(sorted(wanted))}; there are tables of {', '.join(present)}")
    if writes and len({t.gpu for t in kept}) > 1:
        raise InputError(f"--out: a calibration file holds one GPU; choose one with --gpu: {', '.join(present)}")
    return kept


def calibration_text(fits: Sequence[FamilyFit], date: str | None = None) -> str:
    """The calibration file of one GPU's fits.

    Parameters
    ----------
    fits
        What :func:`sizing.fitting.kernels.fit_kernels` gave, all of one GPU.
    date
        Day of the fit, ISO 8601; None: today.
    """
    (gpu, tables), *_ = fitted_tables(fits, date=date or datetime.date.today().isoformat()).items()
    return write_tables(gpu, tables)


def fit_notes(fits: Sequence[FamilyFit]) -> list[str]:
    """How many numbers each GPU and engine has.

    Parameters
    ----------
    fits
        What :func:`sizing.fitting.kernels.fit_kernels` gave.
    """
    counts: dict[tuple[str, str], int] = {}
    for fit in fits:
        counts[fit.gpu, fit.engine] = counts.get((fit.gpu, fit.engine), 0) + sum(len(v) for v in fit.values.values())
    return [f"{gpu} {engine}: {count} constants" for (gpu, engine), count in counts.items()]
