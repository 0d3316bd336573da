"""Efficiency constants from tables of measured kernels.

For each GPU and engine the families are fitted one after the other, each by least squares on the logarithm of
predicted over measured time with a soft loss (rows that no form explains pull little). Weight formats of one
family share what belongs to the chip and keep apart what belongs to the kernel. Shapes are split in two halves:
each half alone gives the spread of a constant, and the error on rows that it has not seen.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizing.calibration import ANY, BOUNDS, Calibration, calibration, default, family_keys
from sizing.catalog import Gpu
from sizing.catalog import gpu as find_gpu
from sizing.fitting.kernel_plan import PLANS, Choice, Place, Plan
from sizing.validation.kernel_rules import without_defects
from sizing.validation.kernel_tables import KernelTable
from sizing.validation.kernel_times import predicted_s

Floats = NDArray[np.float64]
Progress = Callable[[Sequence[Any], int, str], Iterable[Any]]

ROWS, TRIAL_ROWS = 1600, 500
"""Rows of one table that a fit, and the choice of its constants, look at, drawn evenly. [row]"""
MOST = 29
"""Constants of one GPU and engine at most, NCCL's and DeepEP's among them: with ten of the engine, under 40. [1]"""
SOFT = 0.05
"""Log-ratio from which a row pulls less than its square. [1]"""
SMALL = {"copy_s": 1e-9, "row_s": 1e-9, "alone_s": 1e-9, "element_s": 1e-11, "split_s": 3e-6, "reorder_s": 3e-6}
"""Unit of constants that are zero at the start. [s]"""
LEAST_SPREAD = 0.01
"""Spread of a constant, at the least: another chip of the kind, another driver. [1]"""
SYSTEMATIC_BINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyFit:
    """What a fit of one family gives.

    Attributes
    ----------
    gpu, engine, plan
        What was fitted.
    operations
        Tables that took part, with their rows and those left out by rule.
    values, spreads
        Constants by family key and name, and their log-sigma. [unit of the constant], [1]
    before, after, held_out
        Median and 90th percentile of the relative error, by operation: with the constants so far, with the new
        ones, and with those fitted on the other half of the shapes. [1]
    residual, systematic
        Log-sigma of single calls by operation; of medians by size. [1]
    gains
        Mean soft loss of a row that each optional constant took away. [1]
    choice
        Settings that the constants were fitted under.
    """

    gpu: str
    engine: str
    plan: Plan
    operations: Mapping[str, tuple[int, Mapping[str, int]]]
    values: Mapping[str, Mapping[str, float]]
    spreads: Mapping[str, Mapping[str, float]]
    before: Mapping[str, tuple[float, float]]
    after: Mapping[str, tuple[float, float]]
    held_out: Mapping[str, tuple[float, float]]
    residual: Mapping[str, float]
    systematic: Mapping[str, float] = field(default_factory=dict)
    gains: Mapping[Place, float] = field(default_factory=dict)
    choice: Choice = field(default_factory=dict)


def errors(ratio: Floats) -> tuple[float, float]:
    """Median and 90th percentile of the relative error of log-ratios. [1]

    Parameters
    ----------
    ratio
        Logarithm of predicted over measured.
    """
    off = np.abs(np.expm1(ratio))
    return float(np.median(off)), float(np.percentile(off, 90))


def log_ratio(table: KernelTable, gpu: Gpu, cal: Calibration) -> Floats:
    """Logarithm of predicted over measured time, row by row. [1]

    Parameters
    ----------
    table, gpu, cal
        Rows, the accelerator, its constants.
    """
    return np.asarray(np.log(predicted_s(table, gpu, cal) / table.time_s))


def fit_kernels(
    tables: Sequence[KernelTable],
    *,
    base: str = "measured",
    progress: Progress = lambda items, total, text: items,
) -> list[FamilyFit]:
    """Constants of every GPU, engine and family that the tables hold.

    Parameters
    ----------
    tables
        As read; rows with known defects are left out here.
    base
        Calibration that the old errors are quoted for.
    progress
        Wrapper of a list for a progress bar.
    """
    cases: dict[tuple[str, str], list[KernelTable]] = {}
    for table in tables:
        kept = without_defects(table, find_gpu(table.gpu))
        cases.setdefault((table.gpu, table.engine), []).append(kept)
    fits: list[FamilyFit] = []
    libraries_first = sorted(cases.items(), key=lambda case: case[0][1] != ANY)
    for (gpu_id, engine), found in progress(libraries_first, len(cases), "fitting"):
        gpu = find_gpu(gpu_id)
        shipped = "vllm" if engine == ANY else engine
        old, now = calibration(base, gpu, shipped), calibration("measured", gpu, shipped)
        done: list[FamilyFit] = []
        groups: list[tuple[Plan, list[KernelTable]]] = []
        for plan in PLANS:
            mine = [t for t in found if plan.takes(t.operation, [x.operation for x in found]) and len(t)]
            if mine:
                fit, now = _fit_family(mine, plan, gpu, engine, old, now)
                done.append(fit)
                groups.append((plan, mine))
        taken = _count([fit for fit in fits if fit.gpu == gpu_id and fit.engine == ANY])
        fits += _pruned(done, groups, gpu, engine, old, now, MOST - taken)
    return fits


def _count(fits: Sequence[FamilyFit]) -> int:
    return sum(len(values) for fit in fits for values in fit.values.values())


def _pruned(
    fits: list[FamilyFit],
    groups: Sequence[tuple[Plan, list[KernelTable]]],
    gpu: Gpu,
    engine: str,
    old: Calibration,
    now: Calibration,
    most: int,
) -> list[FamilyFit]:
    """Fits with optional constants taken back, each time the one whose loss is the least, until so many are left."""
    kept = [list(fit.gains) for fit in fits]

    def loss(number: int, without: Place | None = None) -> float:
        """Mean over a family's tables, by its aim; a family of n formats counts as sqrt(n) families."""
        fit, (plan, tables) = fits[number], groups[number]
        samples = _drawn(tables, ROWS)
        places = plan.needed(tables) + [p for p in kept[number] if p != without]
        mean = _minimise(samples, places, gpu, _reset(now, plan), fit.choice)[1]
        return float(mean * np.sqrt(len(tables)) / plan.aim)

    rises: dict[tuple[int, Place], float] = {}
    changed = set(range(len(fits)))
    for _ in range(min(_count(fits) - most, sum(map(len, kept)))):
        rises = {at: rise for at, rise in rises.items() if at[0] not in changed}
        for number in changed:
            whole = loss(number)
            rises.update({(number, place): loss(number, place) - whole for place in kept[number]})
        number, place = min(rises, key=lambda at: rises[at])
        kept[number].remove(place)
        changed = {number}
    for number, fit in enumerate(fits):
        if len(kept[number]) < len(fit.gains):
            plan, tables = groups[number]
            fits[number], now = _fit_family(tables, plan, gpu, engine, old, now, kept[number])
    return fits


def _fit_family(
    tables: Sequence[KernelTable],
    plan: Plan,
    gpu: Gpu,
    engine: str,
    old: Calibration,
    now: Calibration,
    only: Sequence[Place] | None = None,
) -> tuple[FamilyFit, Calibration]:
    start = _reset(now, plan)
    samples = _drawn(tables, ROWS)
    halves = [[t.where(_half(t) == h) for t in samples] for h in (0, 1)]
    places, choice, gains = _selected(tables, plan, gpu, start, only)
    made, _, found = _minimise(samples, places, gpu, start, choice)
    parts, pairs = [], []
    for half in halves:
        part, _, of_half = _minimise(half, places, gpu, made, choice)
        parts.append(part)
        pairs.append(of_half)
    values: dict[str, dict[str, float]] = {}
    spreads: dict[str, dict[str, float]] = {}
    for key, name in places:
        values.setdefault(key, {})[name] = found[key, name]
        pair = [max(of_half[key, name], 1e-30) for of_half in pairs]
        spreads.setdefault(key, {})[name] = max(abs(np.log(pair[0] / pair[1])) / np.sqrt(2.0), LEAST_SPREAD)
    for (key, name), value in choice.items():
        if not (plan.is_news((key, name), value) or (key.partition(".")[0], name) in places):
            continue
        values.setdefault(key, {})[name] = value
        spreads.setdefault(key, {})[name] = 0.0
    final = {t.operation: log_ratio(t, gpu, made) for t in tables}
    unseen = {
        t.operation: np.concatenate([log_ratio(t.where(_half(t) == h), gpu, parts[1 - h]) for h in (0, 1)])
        for t in tables
    }
    fit = FamilyFit(
        gpu=gpu.id, engine=engine, plan=plan, operations={t.operation: (len(t), t.excluded or {}) for t in tables},
        values=values, spreads={k: {n: min(s, 1.0) for n, s in v.items()} for k, v in spreads.items()},
        before={t.operation: errors(log_ratio(t, gpu, old)) for t in tables},
        after={name: errors(ratio) for name, ratio in final.items()},
        held_out={name: errors(ratio) for name, ratio in unseen.items()},
        residual={name: float(1.4826 * np.median(np.abs(ratio - np.median(ratio)))) for name, ratio in final.items()},
        systematic={t.operation: _systematic(final[t.operation], t) for t in tables}, gains=gains, choice=choice,
    )  # fmt: skip
    return fit, made


def _selected(
    tables: Sequence[KernelTable], plan: Plan, gpu: Gpu, start: Calibration, only: Sequence[Place] | None
) -> tuple[list[Place], Choice, dict[Place, float]]:
    """Constants and settings of a plan that are worth their place on these tables.

    The settings with the least loss; then, one at a time, the optional constant that lowers the loss most, while
    one is worth its place. With ``only``, those and no others.
    """
    samples = _drawn(tables, TRIAL_ROWS)
    places = plan.needed(tables)
    best: tuple[float, Calibration, Choice] | None = None
    for choice in plan.settings(tables):
        made, cost, _ = _minimise(samples, places, gpu, start, choice)
        if best is None or cost < (1.0 - plan.worth) * best[0]:
            best = cost, made, choice
    assert best is not None
    cost, made, choice = best
    gains: dict[Place, float] = {}
    left = list(only) if only is not None else [p for p in plan.optional_ones(tables) if p not in choice]
    while left:
        tried = [(*_minimise(samples, [*places, place], gpu, made, choice)[:2], place) for place in left]
        better, lower, place = min(tried, key=lambda item: item[1])
        if only is None and lower > (1.0 - plan.worth) * cost:
            break
        gains[place] = cost - lower
        made, cost, places = better, lower, [*places, place]
        left = [p for p in left if p != place]
    return places, choice, gains


def _drawn(tables: Sequence[KernelTable], most: int) -> list[KernelTable]:
    """Each table with that many rows at most, the same ones each time."""
    return [table.where(_sample(len(table), most)) for table in tables]


def _sample(rows: int, most: int) -> NDArray[np.intp]:
    every = np.arange(rows)
    return every if rows <= most else np.sort(np.random.default_rng(0).choice(every, most, replace=False))


def _half(table: KernelTable) -> NDArray[np.intp]:
    """Half of the shapes that a row belongs to; what a model fixes is the shape, what a load varies is not."""
    loads = ("m", "batch", "length", "bytes")
    fixed = [v for n, v in table.sizes.items() if n not in loads and len(np.unique(v)) > 1]
    shape = np.stack(fixed or [table.sizes[n] for n in loads if n in table.sizes])
    index = np.unique(shape, axis=1, return_inverse=True)[1].ravel()
    return np.asarray(np.random.default_rng(1).integers(0, 2, index.max() + 1)[index])


def _systematic(ratio: Floats, table: KernelTable) -> float:
    """Spread of the median over bins of the measured time. [1]"""
    order = np.array_split(np.argsort(table.time_s), min(SYSTEMATIC_BINS, max(len(ratio) // 10, 1)))
    return float(np.sqrt(np.mean([np.median(ratio[bin_]) ** 2 for bin_ in order if len(bin_)])))


# -- least squares -------------------------------------------------------------------------------------------------


def _reset(cal: Calibration, plan: Plan) -> Calibration:
    """The families of a plan back at their defaults, so that a refit does not depend on what was there."""
    for key, kind in family_keys():
        if key.partition(".")[0] in plan.families:
            cal = cal.with_constants(key, **{n: getattr(default(key), n) for n in kind.__dataclass_fields__})
    return cal


def _with(cal: Calibration, choice: Choice) -> Calibration:
    for (key, name), value in sorted(choice.items(), key=lambda item: "." in item[0][0]):
        for full, _ in family_keys():
            if full == key or full.startswith(f"{key}."):
                cal = cal.with_constants(full, **{name: value})
    return cal


def constant_of(cal: Calibration, key: str, name: str) -> float:
    """A constant of a family, or of the first of its formats.

    Parameters
    ----------
    cal
        Where from.
    key, name
        Family, or family and format; name of the constant.
    """
    full = next(k for k, _ in family_keys() if k == key or k.startswith(f"{key}."))
    return float(getattr(cal.families[full], name))


def _minimise(
    tables: Sequence[KernelTable], places: Sequence[Place], gpu: Gpu, start: Calibration, choice: Choice
) -> tuple[Calibration, float, dict[Place, float]]:
    """Least squares over constants, in units of their start values; the mean soft loss, and the values, with it."""
    from scipy.optimize import least_squares

    tables = [t for t in tables if len(t)]
    first = np.array([constant_of(start, key, name) for key, name in places])
    low = np.array([BOUNDS[name].low for _, name in places])
    high = np.array([min(BOUNDS[name].high, 1e3) for _, name in places])
    unit = np.where(first > 0, first, [SMALL.get(name, 1.0) for _, name in places])
    weights = [1.0 / np.sqrt(len(t)) for t in tables]

    def made(x: Floats) -> Calibration:
        return _with(start, {**{place: float(v) for place, v in zip(places, x * unit, strict=True)}, **choice})

    def residuals(x: Floats) -> Floats:
        cal = made(x)
        return np.concatenate([w * log_ratio(t, gpu, cal) / SOFT for w, t in zip(weights, tables, strict=True)])

    def loss(z: Floats) -> Floats:
        # soft L1 on the unweighted residual: undo the weight of a table, put it back on the loss
        scale = np.concatenate([np.full(len(t), w * w) for w, t in zip(weights, tables, strict=True)])
        u = z / scale
        root = np.sqrt(1.0 + u)
        return np.stack([2.0 * (root - 1.0) * scale, 1.0 / root, -0.5 / root**3 / scale])

    if not places:
        unmoved = 0.5 * float(np.sum(loss(residuals(first) ** 2)[0]))
        return made(first), unmoved / len(tables), {}
    inside = np.clip(np.maximum(first, 0.1 * unit), low + 1e-6 * (high - low), high - 1e-6 * (high - low))
    found = least_squares(
        residuals, inside / unit, bounds=(low / unit, high / unit), loss=loss, max_nfev=40, xtol=1e-5, ftol=1e-6
    )
    values = {place: float(v) for place, v in zip(places, found.x * unit, strict=True)}
    return made(found.x), float(found.cost / len(tables)), values
