"""Kernel constants with an engine's time and scales worked in, and joint draws of all of them."""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from sizing.calibration import Calibration, EngineTime, Evidence
from sizing.calibration.constants import Exchange, ExpertExchange
from sizing.engines.timing import EngineTiming


def scaled(calibration: Calibration) -> Calibration:
    """Kernel constants with the engine's scales on memory, compute and links worked in.

    Parameters
    ----------
    calibration
        Constants of one GPU and engine.
    """
    engine = calibration.engine_time
    changes = {
        "memory_fraction": engine.memory_scale,
        "compute_fraction": engine.compute_scale,
        "link_fraction": engine.link_scale,
        "copy_scale": engine.link_scale,
    }
    neutral = [*changes.values(), engine.fixed_scale, engine.moe_scale]
    if calibration.ideal or all(np.all(np.asarray(x) == 1.0) for x in neutral):
        return calibration
    families = {}
    for key, constants in calibration.families.items():
        if key == "engine":
            families[key] = constants
            continue
        found = {n: getattr(constants, n) / s for n, s in changes.items() if hasattr(constants, n)}
        fixed = engine.link_scale if isinstance(constants, Exchange | ExpertExchange) else engine.fixed_scale
        found["fixed_s"] = constants.fixed_s * (engine.moe_scale if key.startswith("moe.") else fixed)
        families[key] = replace(constants, **found)
    return replace(calibration, families=families)


def with_engine(calibration: Calibration, timing: EngineTiming) -> Calibration:
    """A calibration with an engine's own time, and its spread, worked in; an ideal one stays as it is.

    Parameters
    ----------
    calibration
        Constants of a GPU.
    timing
        The engine's record.
    """
    if calibration.ideal:
        return calibration
    known = {f.name for f in fields(EngineTime)}
    values: dict[str, Any] = {name: value for name, value in timing.values.items() if name in known}
    evidence = Evidence(basis=timing.basis, fitted_on=timing.source, spreads=dict(timing.spreads))
    families = {**calibration.families, "engine": EngineTime(**values)}
    if not timing.splits_context:
        families["attention_decode"] = replace(calibration.decode("attention_decode"), whole=1.0)
    if timing.library_all_reduce:
        families["all_reduce"] = families["nccl.all_reduce"]
    return replace(
        calibration,
        families=families,
        evidence={**calibration.evidence, "engine": evidence},
    )


def nominal_and_draws(calibration: Calibration, n: int, seed: int = 0) -> Calibration:
    """Constants as arrays: the nominal value first, then ``n`` joint draws.

    Parameters
    ----------
    calibration
        Constants with spreads.
    n
        Draws. [1]
    seed
        Of the draws.
    """
    drawn = calibration.draws(n + 1, seed)
    families = {}
    for key, constants in drawn.families.items():
        changes = {}
        for item in fields(constants):
            value = getattr(constants, item.name)
            if isinstance(value, np.ndarray):
                value = value.copy()
                value[0] = getattr(calibration.families[key], item.name)
                changes[item.name] = value
        families[key] = replace(constants, **changes)
    return replace(drawn, families=families)
