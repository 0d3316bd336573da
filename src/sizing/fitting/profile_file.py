"""A profile of the user's own GPU, read, and refused where it can't be trusted.

The format is written by ``profile-inference`` and described in ``docs/reference/measurement-format.md``.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sizing.catalog import Gpu
from sizing.errors import CalibrationError, UnknownFile

FORMAT, VERSION = "sizing-profile", 1
LARGEST_BYTES = 200_000_000

UNSTEADY = 0.10
"""80th over 20th percentile of a case's samples, less 1, from which it is left out. [1]"""
MOST_UNSTEADY, MOST_THROTTLED, MOST_WRONG = 0.20, 0.10, 0.10
"""Shares of the cases beyond which the whole file is refused. [1]"""
PEAK_ROOM = {"FLOP/s": 1.10, "B/s": 1.03}
"""How far a rate may pass the datasheet: boost clocks exceed the clock that peaks are stated at, HBM's do not."""
SEVERE = frozenset({"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake"})
WARM_BYTES = 8e6
"""Traffic above which a case that fits the L2 cache says nothing of the HBM. [B]"""

PEAKS = {"fp8": "fp8", "fp8_row": "fp8", "fp8_block": "fp8", "nvfp4": "fp4"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measured case.

    Attributes
    ----------
    key, kernel, implementation
        Its name, the kernel, and what did the work.
    shape
        Sizes and formats.
    time_s
        Median of its samples. [s]
    spread
        80th over 20th percentile of its samples, less 1. [1]
    cold
        Its operands did not fit the L2 cache.
    throttle
        Reasons for reduced clocks while it ran.
    flops, moved_bytes
        Least arithmetic and traffic. [FLOP], [B]
    facts
        Anything else that was kept with it.
    """

    key: str
    kernel: str
    implementation: str
    shape: Mapping[str, Any]
    time_s: float
    spread: float
    cold: bool
    throttle: tuple[str, ...]
    flops: float
    moved_bytes: float
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A finished profile.

    Attributes
    ----------
    path, created
        File, and the day and time it was begun.
    device, toy
        The GPU as its driver names it, and whether this was only a dry run.
    environment
        Everything else that describes the machine.
    cases
        Cases with a time.
    outcomes
        How many cases ended how.
    """

    path: Path
    created: str
    device: str
    toy: bool
    environment: Mapping[str, Any]
    cases: tuple[Case, ...]
    outcomes: Mapping[str, int]


def read_profile(path: Path) -> Profile:
    """Read a measurement file.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    UnknownFile
        There is none.
    CalibrationError
        It is not a finished profile, or was changed.
    """
    records = _records(path)
    header, results = records[0], records[1:-1]
    try:
        environment = dict(header["environment"])
        timed = [case for r in results if r.get("outcome") == "measured" for case in _cases(r)]
        counted: dict[str, int] = {}
        for result in results:
            counted[str(result["outcome"])] = counted.get(str(result["outcome"]), 0) + 1
        return Profile(
            path=path,
            created=str(header["created"]),
            device=str(environment["device"]["name"]),
            toy=bool(environment.get("toy")) or environment["device"].get("type") != "cuda",
            environment=environment,
            cases=tuple(timed),
            outcomes=counted,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _bad(path, f"a record lacks {error}" if isinstance(error, KeyError) else str(error)) from None


def _records(path: Path) -> list[dict[str, Any]]:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise _bad(path, f"is larger than {LARGEST_BYTES:,} bytes")
        content = path.read_bytes()
    except OSError as error:
        raise UnknownFile(
            f"{path}: {(error.strerror or 'unreadable').lower()}; give a file of profile-inference"
        ) from None
    lines = content.splitlines(keepends=True)
    try:
        records = [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        raise _bad(path, "a line is not JSON") from None
    if not records or not all(isinstance(r, dict) for r in records) or records[0].get("format") != FORMAT:
        raise _bad(path, "is not a file of profile-inference")
    if records[0].get("version") != VERSION:
        raise _bad(path, f"is version {records[0].get('version')!r}; this reader knows version {VERSION}")
    if records[-1].get("record") != "end":
        raise _bad(path, "is not finished; run profile-inference with the same --out to carry on")
    if hashlib.sha256(b"".join(lines[:-1])).hexdigest() != records[-1].get("sha256"):
        raise _bad(path, "was changed after it was measured (its digest does not hold)")
    return records


def _cases(result: Mapping[str, Any]) -> list[Case]:
    """Cases of one record; a collective's holds one for each operation and size."""
    out = []
    for name, samples in result["samples"].items():
        prefix = name.removesuffix("time_s")
        if prefix == name or (prefix and not prefix.endswith(".")):
            continue
        low, middle, high = (float(x) for x in np.percentile(np.asarray(samples, dtype=float), [20, 50, 80]))
        if not (math.isfinite(high) and low > 0.0):
            raise ValueError(f"{result['key']}: times must be above 0")
        shape = dict(result["shape"])
        if prefix:
            operation, size = prefix.rstrip(".").split(".")
            shape |= {"operation": operation, "bytes": int(size)}
        out.append(
            Case(
                key=f"{result['key']} {prefix}".strip(),
                kernel=str(result["kernel"]),
                implementation=str(result["implementation"]),
                shape=shape,
                time_s=middle,
                spread=high / low - 1.0,
                cold=bool(result["cold"]),
                throttle=tuple(result["sensors"]["throttle"]),
                flops=float(result["flops"]),
                moved_bytes=float(result["moved_bytes"]),
                facts=dict(result["facts"]),
            )
        )
    return out


def trusted(profile: Profile, gpu: Gpu) -> tuple[tuple[Case, ...], tuple[str, ...]]:
    """Cases to fit, and why others were left out; refuses the file when too many are bad.

    Parameters
    ----------
    profile
        The profile.
    gpu
        The accelerator it was measured on.

    Raises
    ------
    CalibrationError
        A dry run, above the chip's peaks, throttled, or too unsteady.
    """
    if profile.toy:
        raise _bad(profile.path, "is a dry run at toy sizes, which says nothing of a GPU; profile with --device cuda")
    if not profile.cases:
        raise _bad(profile.path, "holds no measured case")
    _refuse_above_peak(profile, gpu)
    hot = [c for c in profile.cases if SEVERE & set(c.throttle)]
    unsteady = [c for c in profile.cases if c.spread > UNSTEADY and c not in hot]
    wrong = profile.outcomes.get("wrong", 0)
    total = len(profile.cases)
    _refuse_share(profile, hot, MOST_THROTTLED, "the GPU throttled", "cool it or lower its power limit")
    _refuse_share(
        profile, unsteady, MOST_UNSTEADY, "samples scatter by over 10 %", "use an idle GPU, or lock its clocks"
    )
    if wrong > MOST_WRONG * total:
        raise _bad(profile.path, f"{wrong} cases computed a wrong result; the driver or a library is broken")
    left_out = {c.key for c in (*hot, *unsteady)}
    kept = tuple(c for c in profile.cases if c.key not in left_out and (c.cold or c.moved_bytes <= WARM_BYTES))
    notes = [f"{len(hot)} throttled", f"{len(unsteady)} unsteady", f"{total - len(kept) - len(left_out)} inside the L2"]
    notes += [f"{n} {what}" for what, n in sorted(profile.outcomes.items()) if what not in ("measured", "unsupported")]
    return kept, tuple(note for note in notes if not note.startswith("0 "))


def _refuse_share(profile: Profile, cases: Sequence[Case], most: float, what: str, remedy: str) -> None:
    if len(cases) > most * len(profile.cases):
        share = len(cases) / len(profile.cases)
        raise _bad(
            profile.path,
            f"{what} in {share:.0%} of the cases ({most:.0%} is allowed), as in {cases[0].key!r}; {remedy}",
        )


def peak_flops_per_s(kernel: str, gpu: Gpu) -> float:
    """Dense peak that a kernel is held against; infinite where the chip states none. [FLOP/s]

    Parameters
    ----------
    kernel
        Name of the profiled kernel.
    gpu
        The accelerator.
    """
    return gpu.peak_flops_per_s.get(PEAKS.get(kernel.partition(".")[2], "bf16"), math.inf)


def _refuse_above_peak(profile: Profile, gpu: Gpu) -> None:
    """A rate that the chip can't reach: another chip, or a broken clock."""
    for case in profile.cases:
        if not case.kernel.startswith(("gemm", "moe", "attention", "mla", "copy.hbm", "batched")):
            continue
        peak = peak_flops_per_s(case.kernel, gpu)
        for rate, limit, unit in (
            (case.flops / case.time_s, peak, "FLOP/s"),
            (case.moved_bytes / case.time_s if case.cold else 0.0, gpu.memory_bandwidth_bytes_per_s, "B/s"),
        ):
            if rate > PEAK_ROOM[unit] * limit:
                raise _bad(
                    profile.path,
                    f"{case.key!r} ran at {rate:.3g} {unit}, above the peak of {gpu.id} ({limit:.3g}); "
                    f"measured on {profile.device!r}: give the right --gpu, or measure again",
                )


def _bad(path: Path, reason: str) -> CalibrationError:
    return CalibrationError(f"{path}: {reason}")
