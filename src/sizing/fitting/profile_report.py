"""What a fit to a profile shows and writes: old against new, whole steps, the calibration file."""

from dataclasses import fields
from pathlib import Path

import numpy as np

from sizing.calibration import BOUNDS
from sizing.errors import CalibrationError
from sizing.fitting.profile import ProfileFit, WholeStep


def family_rows(fit: ProfileFit) -> list[dict[str, object]]:
    """Old against new, a row a constant, a family's errors at its first."""
    rows: list[dict[str, object]] = []
    for part in fit.families:
        for i, c in enumerate(part.constants):
            rows.append(
                {
                    "family": part.family if i == 0 else "",
                    "cases": part.cases if i == 0 else None,
                    "error before": f"{part.error_old:.1%}" if i == 0 else "",
                    "after": f"{part.error_new:.1%}" if i == 0 else "",
                    "constant": c.name,
                    "old": c.old,
                    "new": c.new,
                    "spread": f"{c.spread:.1%}",
                    "unit": BOUNDS[c.name].unit,
                }
            )
    return rows


def achieved_rows(fit: ProfileFit) -> list[dict[str, object]]:
    """What the chip achieved, and how far that is from the constants before, which stand for its kind."""
    return [
        {
            "family": part.family,
            "cases": part.cases,
            "most of peak FLOP/s": f"{part.compute_share:.0%}",
            "most of HBM": f"{part.memory_share:.0%}",
            "measured / expected": f"{part.ratio[1]:.2f}",
            "10 % to 90 %": f"{part.ratio[0]:.2f} to {part.ratio[2]:.2f}",
        }
        for part in fit.families
    ]


def step_rows(fit: ProfileFit) -> list[dict[str, object]]:
    """Whole steps, measured and predicted."""
    return [
        {
            "model": f"{s.model} ({s.layers} layers)",
            "step": s.step,
            "run": s.mode,
            "measured ms": 1e3 * s.measured_s,
            "old": f"{s.old_s / s.measured_s - 1:+.1%}",
            "new": f"{s.new_s / s.measured_s - 1:+.1%}",
        }
        for s in fit.steps
    ]


def model_rows(fit: ProfileFit) -> list[dict[str, object]]:
    """One row a decoder and kind of step: how far the predicted TPOT or TTFT is, before and after.

    Where steps ran compiled those alone count: the sum is of fused kernels, and what is launched as written has more.
    """
    pooled: dict[tuple[str, str], list[WholeStep]] = {}
    for step in fit.steps:
        pooled.setdefault((f"{step.model} ({step.layers} layers)", "TPOT" if step.decodes else "TTFT"), []).append(step)
    rows: list[dict[str, object]] = []
    for (model, metric), found in pooled.items():
        steps = [s for s in found if s.mode.startswith("compiled")] or found
        old, new = (np.array([getattr(s, name) / s.measured_s - 1.0 for s in steps]) for name in ("old_s", "new_s"))
        rows.append(
            {
                "model": model,
                "metric": metric,
                "steps": len(steps),
                "median error old": f"{np.median(np.abs(old)):.1%}",
                "new": f"{np.median(np.abs(new)):.1%}",
                "largest new": f"{new[np.argmax(np.abs(new))]:+.1%}",
            }
        )
    return rows


def table_rows(fit: ProfileFit) -> list[dict[str, object]]:
    """The profile beside published tables, at the shapes that both have."""
    return [
        {
            "operation": one.operation,
            "shapes": one.shapes,
            "profiled / table": f"{one.ratio[1]:.2f}",
            "10 % to 90 %": f"{one.ratio[0]:.2f} to {one.ratio[2]:.2f}",
            "median difference": f"{one.difference:.1%}",
            "table": one.source,
        }
        for one in fit.tables
    ]


def profile_text(fit: ProfileFit, base: str, *, stand_ins: bool = False) -> str:
    """TOML of the fitted constants, for ``--calibration``; they hold for every engine.

    Parameters
    ----------
    fit
        The fit.
    base
        Calibration that it began from; the other tables of a file are kept.
    stand_ins
        Also the families that only torch's stand-in for an engine's kernel was measured of.
    """
    from sizing.calibration import NAMED, Table, read_tables, write_tables

    tables: dict[str, dict[str, Table]] = {}
    if base not in NAMED:
        _, held = read_tables(Path(base).expanduser().read_text(encoding="utf-8"), base)
        tables = {name: dict(of_engine) for name, of_engine in held.items()}
    for part in (f for f in fit.families if stand_ins or not f.stand_in):
        constants, evidence = fit.calibration.families[part.family], fit.calibration.evidence[part.family]
        for of_engine in tables.values():
            of_engine.pop(part.family, None)
        values = {item.name: float(np.asarray(getattr(constants, item.name))) for item in fields(constants)}
        tables.setdefault("any", {})[part.family] = Table(
            values=values,
            spreads={name: min(evidence.spreads.get(name, 0.0), 3.0) for name in values},
            notes={"basis": evidence.basis, "fitted_on": evidence.fitted_on, "date": evidence.date},
            residual=evidence.residual,
        )
    tables = {name: of_engine for name, of_engine in tables.items() if of_engine}
    if not tables:
        raise CalibrationError("only stand-ins for an engine's kernels were measured; give --stand-ins to write them")
    return write_tables(fit.calibration.gpu, tables, header=f"Constants fitted from a profile; begun from {base}")


def stand_in_notes(fit: ProfileFit) -> tuple[str, ...]:
    """Families that are not written, for an engine would run another kernel."""
    return tuple(
        f"{part.family}: only {part.stand_in} was measured, which no engine runs; not written (install the engine's "
        "kernels, or give --stand-ins)"
        for part in fit.families
        if part.stand_in
    )
