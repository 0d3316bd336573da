r"""Constants fitted from a profile of the user's own GPU, with their spread.

Per family of operations the constants :math:`\theta` minimise, in logarithms,

.. math:: \sum_i \rho\!\left(\frac{\ln(\hat t_i(\theta) / t_i)}{\sigma}\right)
          + \sum_j \left(\frac{\ln(\theta_j / \theta_{0j})}{s_j}\right)^2

with :math:`t_i` the fastest implementation measured at shape *i*, :math:`\rho` a loss that outliers pull at
with constant force, and wide priors :math:`s_j` around the shipped constants (maximum a posteriori; Gelman et
al., Bayesian Data Analysis, 3rd ed., section 4.1: the posterior's covariance is the inverse of the curvature).
A constant that the profile says nothing about keeps its value. Engine time is not a kernel's and is left alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sizing.calibration import BOUNDS, Calibration, Evidence
from sizing.catalog import Gpu
from sizing.errors import CalibrationError
from sizing.fitting.profile_file import Case, Profile, peak_flops_per_s
from sizing.fitting.profile_kernels import Columns, columns, family, predict, quantising_s
from sizing.fitting.profile_table import TableMatch, table_matches

Floats = NDArray[np.float64]

FIXED = frozenset(
    {
        "scale",
        "narrow",
        "narrow_rate",
        "element_s",
        "packed",
        "shared",
        "shared_heads",
        "alone_s",
        "reorder_s",
        "quantises",
        "tile_rows",
        "split_s",
        "switch_bytes",
        "quantise_row_s",
        "quantise_fraction",
    }
)
"""Constants that stay: choices of the kernel, and what a profile in 16 bits does not see."""

STAND_INS = frozenset({"int4pack_mm", "torch bmm", "torch grouped_mm", "torch scaled_grouped_mm"})
"""What torch has where engines have kernels of their own, which are faster; good for torch's own decoder only."""

PRIOR = {"time": 1.0, "share": 0.35}
"""Log-sigma of the prior: times vary by chip and driver more than fractions do. [1]"""

SIGMA = 0.05  # log-sigma of one measured case around a right model
LEAST_SPREAD = 0.01  # two chips of one kind, two drivers: constants are never known better. [1]
OTHER_CHIP = 0.02  # spread of a fitted family's time from one chip of a kind to the next. [1]
LEAST_CASES = 4  # fewer identify nothing
IDENTIFIED = 0.6  # posterior spread below this share of the prior's
FLOOR = 1e-12  # stands for a constant of 0 in logarithms


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One constant before and after.

    Attributes
    ----------
    name
        Field of the family's record.
    old, new
        Value before and after, in the unit of :data:`sizing.calibration.BOUNDS`.
    spread
        Log-sigma of the new value. [1]
    held
        The same with the family's other constants held. A file states this one: draws are independent, and of
        all independent draws these are nearest to the joint ones. [1]
    """

    name: str
    old: float
    new: float
    spread: float
    held: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyFit:
    """One family before and after.

    Attributes
    ----------
    family
        Its name.
    cases
        Shapes that it was fitted on. [1]
    constants
        Those that moved.
    error_old, error_new
        Median absolute error of the predicted time. [1]
    residual
        Log-sigma of measured over predicted time, robust. [1]
    kept
        Constants that the profile says nothing about.
    ratio
        Measured time over that of the constants before: 10th percentile, median, 90th. [1]
    compute_share, memory_share
        Highest share of the dense peak and of the HBM bandwidth that a case reached. [1]
    stand_in
        What torch has in place of an engine's kernel (:data:`STAND_INS`); empty where an engine's was measured.
    """

    family: str
    cases: int
    constants: tuple[Constant, ...]
    error_old: float
    error_new: float
    residual: float
    kept: tuple[str, ...]
    ratio: tuple[float, float, float]
    compute_share: float
    memory_share: float
    stand_in: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeStep:
    """A whole decoder step, measured and predicted from its kernels.

    Attributes
    ----------
    model, layers, step, mode
        What ran, and how.
    measured_s, old_s, new_s
        Measured; predicted with the constants before and after. [s]
    decodes
        One token a sequence: its time is a TPOT; else a prompt's, the greatest part of a TTFT.
    """

    model: str
    layers: int
    step: str
    mode: str
    measured_s: float
    old_s: float
    new_s: float
    decodes: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFit:
    """What a profile gives.

    Attributes
    ----------
    calibration
        The constants, with those that the profile does not touch as before.
    families
        What changed.
    steps
        Whole steps held against them.
    tables
        The profile beside published tables of the chip, at equal shapes.
    """

    calibration: Calibration
    families: tuple[FamilyFit, ...]
    steps: tuple[WholeStep, ...]
    tables: tuple[TableMatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    at: Columns
    time_s: Floats


def fastest(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """Cases by family, of each shape the fastest implementation: an engine takes the best kernel it has."""
    best: dict[str, dict[str, Case]] = {}
    for case in cases:
        name = family(case.kernel, case.shape)
        if name is None or (name == "elementwise" and case.implementation.startswith("eager")):
            continue  # several kernels where the compiler would make one
        what = case.kernel if name == "elementwise" else ""
        key = what + " ".join(f"{k}={case.shape[k]}" for k in sorted(case.shape))
        known = best.setdefault(name, {})
        if key not in known or case.time_s < known[key].time_s:
            known[key] = case
    return {name: list(found.values()) for name, found in best.items()}


def fit_profile(profile: Profile, cases: Sequence[Case], gpu: Gpu, base: Calibration) -> ProfileFit:
    """Fit every family that a profile holds.

    Parameters
    ----------
    profile
        Where the cases come from.
    cases
        Those that can be trusted (:func:`sizing.fitting.profile_file.trusted`).
    gpu
        The accelerator.
    base
        Constants before, which are also the priors.

    Raises
    ------
    CalibrationError
        The profile holds too little of every family.
    """
    grouped = fastest(cases)
    order = sorted((name for name in grouped if name in base.families), key=lambda n: n != "elementwise")
    cal, done = base, []
    for name in order:
        if len(grouped[name]) >= LEAST_CASES:
            fit, cal = _fit_family(name, grouped[name], gpu, cal, profile)
            done.append(fit)
    if not done:
        raise CalibrationError(
            f"{profile.path}: no family has {LEAST_CASES} cases that can be trusted; profile with a longer --budget"
        )
    return ProfileFit(calibration=cal, families=tuple(done), steps=whole_steps(cases, gpu, base, cal))


def _fit_family(
    name: str, cases: Sequence[Case], gpu: Gpu, cal: Calibration, profile: Profile
) -> tuple[FamilyFit, Calibration]:
    at = columns(name, [c.kernel for c in cases], [c.shape for c in cases])
    time_s = np.array([c.time_s for c in cases])
    if name.startswith("gemm."):
        time_s = time_s + quantising_s(name, at, gpu, cal)
    rows = _Rows(at=at, time_s=time_s)
    free = _free(name, cal)
    _, spreads, _ = _solve(name, free, rows, gpu, cal)
    known = tuple(n for n, s in zip(free, spreads, strict=True) if s < IDENTIFIED * _prior(n))
    found = _solve(name, known, rows, gpu, cal) if known else (np.array([]),) * 3
    new = cal.with_constants(name, **dict(zip(known, (float(v) for v in found[0]), strict=True)))
    off_old, off_new = (np.log(predict(name, at, gpu, c) / time_s) for c in (cal, new))
    residual = max(float(1.4826 * np.median(np.abs(off_new - np.median(off_new)))), LEAST_SPREAD)
    old = cal.families[name]
    fit = FamilyFit(
        family=name,
        cases=len(cases),
        constants=tuple(
            Constant(name=n, old=float(getattr(old, n)), new=float(v), spread=float(s), held=float(h))
            for n, v, s, h in zip(known, *found, strict=True)
        ),
        error_old=float(np.median(np.abs(np.expm1(off_old)))),
        error_new=float(np.median(np.abs(np.expm1(off_new)))),
        residual=residual,
        kept=tuple(n for n in free if n not in known),
        ratio=tuple(float(q) for q in np.exp(np.percentile(-off_old, [10, 50, 90]))),  # type: ignore[arg-type]
        compute_share=max(c.flops / c.time_s for c in cases) / peak_flops_per_s(cases[0].kernel, gpu),
        memory_share=max(c.moved_bytes / c.time_s for c in cases if c.cold) / gpu.memory_bandwidth_bytes_per_s
        if any(c.cold for c in cases)
        else 0.0,
        stand_in=_stand_in(cases),
    )
    return fit, _with_evidence(new, fit, profile)


def _stand_in(cases: Sequence[Case]) -> str:
    """The stand-in that most shapes were fastest with; empty if there was a kernel that engines use."""
    names = [c.implementation for c in cases if c.implementation in STAND_INS]
    return names[0] if 2 * len(names) > len(cases) else ""


def _with_evidence(cal: Calibration, fit: FamilyFit, profile: Profile) -> Calibration:
    """Note where the family's constants come from now."""
    before = cal.evidence.get(fit.family, Evidence())
    spreads = {**before.spreads, **{c.name: c.held for c in fit.constants}, "scale": OTHER_CHIP}
    by = sorted({c.implementation for c in profile.cases if family(c.kernel, c.shape) == fit.family})
    evidence = replace(
        before,
        basis="fitted",
        fitted_on=f"{fit.cases} kernels ({', '.join(by)}) of {profile.device}, {profile.path.name}",
        date=profile.created[:10],
        residual=fit.residual,
        spreads=spreads,
    )
    return replace(cal, evidence={**cal.evidence, fit.family: evidence})


def _free(name: str, cal: Calibration) -> tuple[str, ...]:
    """Constants of a family that a profile may move."""
    record = cal.families[name]
    values = {f.name: float(np.asarray(getattr(record, f.name)).mean()) for f in fields(record)}
    return tuple(n for n, v in values.items() if n not in FIXED and math.isfinite(v))


def _prior(name: str) -> float:
    return PRIOR["time" if BOUNDS[name].unit.startswith("s") else "share"]


def _start(name: str, old: float) -> float:
    """Where the search begins; a constant of 0 at a small part of its range."""
    bound = BOUNDS[name]
    high = bound.high if math.isfinite(bound.high) else 100.0
    return min(max(old, bound.low, 1e-6 * high, FLOOR), high)


def _solve(
    family_name: str, names: Sequence[str], rows: _Rows, gpu: Gpu, cal: Calibration
) -> tuple[Floats, Floats, Floats]:
    """Values of the named constants of one family, their log-spreads, and those with the others held."""
    from scipy.optimize import least_squares

    record = cal.families[family_name]
    centre = np.log([_start(n, float(getattr(record, n))) for n in names])
    low = np.log([max(BOUNDS[n].low, FLOOR) for n in names]) - 1e-9
    high = np.log([BOUNDS[n].high if math.isfinite(BOUNDS[n].high) else 100.0 for n in names]) + 1e-9
    prior = np.array([_prior(n) for n in names])

    def off(x: Floats) -> Floats:
        values: Mapping[str, float] = {n: float(v) for n, v in zip(names, np.exp(x), strict=True)}
        seconds = predict(family_name, rows.at, gpu, cal.with_constants(family_name, **values))
        return np.asarray(np.log(np.maximum(seconds, FLOOR) / rows.time_s))

    def residuals(x: Floats) -> Floats:
        scaled = off(x) / SIGMA
        soft = np.sign(scaled) * np.sqrt(2.0 * (np.sqrt(1.0 + scaled**2) - 1.0))
        return np.concatenate([soft, (x - centre) / prior])

    found = least_squares(residuals, centre, bounds=(low, high), x_scale=prior, max_nfev=200)
    jacobian = np.array(found.jac)
    sigma = max(float(1.4826 * np.median(np.abs(off(found.x)))), 0.01)
    jacobian[: len(rows.time_s)] *= SIGMA / sigma
    curvature = jacobian.T @ jacobian
    spread, held = np.sqrt(np.diag(np.linalg.inv(curvature))), 1.0 / np.sqrt(np.diag(curvature))
    return np.exp(found.x), np.maximum(spread, LEAST_SPREAD), np.maximum(held, LEAST_SPREAD)


def whole_steps(cases: Sequence[Case], gpu: Gpu, old: Calibration, new: Calibration) -> tuple[WholeStep, ...]:
    """Whole decoder steps, of each the fastest way it was run, against the sum of their predicted kernels."""
    best: dict[tuple[object, ...], Case] = {}
    for case in cases:
        if case.kernel == "decoder.step" and isinstance(case.facts.get("operations"), list):
            key = tuple(case.shape.get(k) for k in ("model", "tp", "sequences", "new_tokens", "history"))
            if key not in best or case.time_s < best[key].time_s:
                best[key] = case
    return tuple(
        WholeStep(
            model=str(case.shape["model"]),
            layers=int(case.facts["layers"]),
            step=f"{case.shape['sequences']} x {case.shape['new_tokens']} behind {case.shape['history']}",
            mode=str(case.shape["mode"]),
            measured_s=case.time_s,
            old_s=_step_s(case, gpu, old),
            new_s=_step_s(case, gpu, new),
            decodes=int(case.shape["new_tokens"]) == 1,
        )
        for case in best.values()
    )


def _step_s(case: Case, gpu: Gpu, cal: Calibration) -> float:
    total = 0.0
    for operation in case.facts["operations"]:
        kernel, shape = str(operation["family"]), operation["shape"]
        name = family(kernel, shape)
        if name is not None:
            seconds = predict(name, columns(name, [kernel], [shape]), gpu, cal)
            total += float(operation["count"]) * float(np.asarray(seconds).reshape(-1)[0])
    return total


def calibrate_profile(path: Path, gpu_name: str | None, engine: str, base: str) -> tuple[ProfileFit, tuple[str, ...]]:
    """Read, judge and fit a profile; the fit and what a reader should be told.

    Parameters
    ----------
    path
        The measurement file.
    gpu_name
        Catalogue name of the accelerator; None: told by the name its driver gives.
    engine
        Whose constants the profile's kernels replace.
    base
        Calibration before.
    """
    from sizing.calibration import calibration
    from sizing.catalog import gpu, resolve_gpu
    from sizing.fitting.profile_file import read_profile, trusted

    if base == "rule-of-thumb":
        raise CalibrationError(
            "--calibration: a profile refines measured constants and can't begin from 'rule-of-thumb'; "
            "leave it out or give a TOML file"
        )
    profile = read_profile(path)
    notes: list[str] = []
    if gpu_name is None and not profile.toy:
        gpu_name, note = resolve_gpu(profile.device)
        notes += [note] if note else []
    chip = gpu(gpu_name or "h100-sxm")
    cases, left_out = trusted(profile, chip)
    fit = fit_profile(profile, cases, chip, calibration(base, chip, engine))
    fit = replace(fit, tables=table_matches(cases, chip.id))
    kept = {f.family: ", ".join(f.kept) for f in fit.families if f.kept}
    notes += [f"left out: {', '.join(left_out)}"] if left_out else []
    notes += [f"{name}: the profile says nothing of {what}; kept as before" for name, what in kept.items()]
    return fit, tuple(notes)
