"""The calibration file that a fit to a load test writes: the engine's constants, on top of what it began from."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from sizing.calibration import NAMED, SCHEMA, Table, Tables, read_tables, write_tables
from sizing.errors import InputError
from sizing.fitting.bench import BenchFit

LARGEST_SPREAD = 3.0  # log-sigma that a calibration file may state


def bench_text(
    fit: BenchFit,
    gpu: str,
    engine: str,
    base: str | Path = "measured",
    residuals: Mapping[str, float] | None = None,
) -> str:
    """TOML of the fitted engine constants, for ``--calibration``.

    Parameters
    ----------
    fit
        The fit.
    gpu, engine
        What the constants belong to.
    base
        Calibration that the fit began from; the tables of a file are kept.
    residuals
        Log-sigma by ``tpot`` and ``ttft`` that predictions with these constants deserve; the shipped ones if left
        out [1].
    """
    text = str(base)
    if text == "rule-of-thumb":
        raise InputError(
            "--calibration: a fitted file goes on top of the measured constants, so it can't begin from "
            "'rule-of-thumb'; leave it out or give a TOML file"
        )
    tables: dict[str, dict[str, Table]] = {}
    if text not in NAMED:
        _, held = read_tables(Path(text).expanduser().read_text(encoding="utf-8"), text)
        tables = {name: dict(of_engine) for name, of_engine in held.items()}
    tables.setdefault(engine, {})["engine"] = _engine_table(fit, residuals or {})
    kept: Tables = tables
    return write_tables(gpu, kept, header=f"Constants fitted to a load test (layout {SCHEMA}); begun from {base}")


def _engine_table(fit: BenchFit, residuals: Mapping[str, float]) -> Table:
    own, evidence = fit.calibration.engine_time, fit.calibration.evidence["engine"]
    values = {item.name: float(getattr(own, item.name)) for item in fields(own)}
    return Table(
        values=values,
        spreads={name: min(evidence.spreads.get(name, 0.0), LARGEST_SPREAD) for name in values},
        notes={"basis": evidence.basis, "fitted_on": evidence.fitted_on, "date": evidence.date},
        residual=evidence.residual,
        residuals={metric: min(value, LARGEST_SPREAD) for metric, value in residuals.items()},
    )
