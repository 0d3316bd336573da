"""Measure the cases of a plan one after another, within a budget, and write each down as it is done."""

import gc
import math
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from profilers.bench import Bench
from profilers.kernel import Case, Reading, Unsupported, Work, kernels
from profilers.measurements import MeasurementFile
from profilers.timing import first_line, time_work
from profilers.watch import SEVERE, Sensors

RETRY_WAIT_S = 3.0

LARGE = ("decoder.", "scenario.")
"""Kernels whose memory has to be back before the next case starts."""


class DeviceLost(RuntimeError):  # noqa: N818 - reads as the answer it is
    """The device no longer answers in this process; a new process can carry on."""


@dataclass(slots=True)
class Outlook:
    """Looks at the sensors while a case runs.

    Attributes
    ----------
    bench
        Whose sensors.
    every_s
        Between two looks. [s]
    """

    bench: Bench
    every_s: float = 0.1
    seen: list[Sensors] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Outlook":
        if self.bench.watch.works:
            self._thread = threading.Thread(target=self._look, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=2.0)
            self.seen.append(self.bench.watch.look())

    def _look(self) -> None:
        while not self._stop.wait(self.every_s):
            self.seen.append(self.bench.watch.look())

    def as_record(self) -> dict[str, Any]:
        """Extremes of what was seen."""

        def numbers(name: str) -> list[float]:
            return [v for s in self.seen if (v := getattr(s, name)) is not None]

        clocks, power, heat = numbers("sm_clock_mhz"), numbers("power_w"), numbers("temperature_c")
        return {
            "sm_clock_mhz": [min(clocks), max(clocks)] if clocks else None,
            "power_w": max(power) if power else None,
            "temperature_c": max(heat) if heat else None,
            "throttle": sorted({name for s in self.seen for name in s.throttle}),
        }


def measure_case(case: Case, bench: Bench) -> dict[str, Any]:
    """Measure one case, whatever happens, and say what came of it.

    Parameters
    ----------
    case
        Which.
    bench
        Where.
    """
    torch.manual_seed(zlib.crc32(case.key.encode()))
    begun = time.perf_counter()
    if not case.kernel.startswith(LARGE):
        bench.drop()
    with Outlook(bench) as outlook:
        found = _attempt(case, bench)
    if SEVERE & set(outlook.as_record()["throttle"]):
        time.sleep(0.0 if bench.toy else RETRY_WAIT_S)
        with Outlook(bench) as outlook:
            found = _attempt(case, bench)
    _tidy(case, bench, str(found["outcome"]))
    return {
        "key": case.key,
        "kernel": case.kernel,
        "shape": dict(case.shape),
        **found,
        "sensors": outlook.as_record(),
        "took_s": time.perf_counter() - begun,
    }


def _tidy(case: Case, bench: Bench, outcome: str) -> None:
    """Give memory back where the next case may miss it; a case that never began has taken none."""
    if not bench.cuda or outcome == "unsupported":
        return
    if outcome != "measured":
        bench.held = None
    if outcome != "measured" or case.kernel.startswith(LARGE) or bench.crowded:
        gc.collect()
        _release(bench)


def _release(bench: Bench) -> None:
    """Free memory; a device that fails even at that is found out by the next probe."""
    try:
        bench.release()
    except RuntimeError:
        return


def _attempt(case: Case, bench: Bench) -> dict[str, Any]:
    try:
        made = kernels()[case.kernel].build(case, bench)
        return _reading_record(made) if isinstance(made, Reading) else _work_record(case, made, bench)
    except Unsupported as reason:
        return {"outcome": "unsupported", "reason": str(reason)}
    except torch.OutOfMemoryError as reason:
        lacking = {"outcome": "oom", "reason": first_line(reason)}
    except Exception as reason:  # one kernel's failure must not end the session
        return {"outcome": "failed", "reason": first_line(reason)}
    if bench.held is None:
        return lacking
    bench.drop()  # it may have been in the way
    return _attempt(case, bench)


def _judged(error: float, tolerance: float) -> dict[str, Any]:
    right = error <= tolerance
    finite = error if error < float("inf") else None
    reason = "" if right else f"error {error:.3g} of the largest value; {tolerance:.3g} is allowed"
    return {"outcome": "measured" if right else "wrong", "reason": reason, "error": finite, "tolerance": tolerance}


def _work_record(case: Case, work: Work, bench: Bench) -> dict[str, Any]:
    with torch.inference_mode():
        judged = _judged(work.check(), work.tolerance)
        timing = time_work(work, bench, energy=case.energy)
    return {
        **judged,
        "implementation": work.implementation,
        "samples": {"time_s": list(timing.samples_s)},
        "calls_per_sample": timing.calls_per_sample,
        "mode": timing.mode,
        "note": timing.note,
        "flops": work.flops,
        "moved_bytes": work.moved_bytes,
        "cold": work.footprint_bytes >= 2.5 * bench.cache_bytes,
        "facts": {**work.facts, "energy_j": timing.energy_j, "energy_window_s": timing.energy_window_s},
    }


def _reading_record(reading: Reading) -> dict[str, Any]:
    return {
        **_judged(reading.error, reading.tolerance),
        "implementation": reading.implementation,
        "samples": {name: list(values) for name, values in reading.samples.items()},
        "calls_per_sample": 1,
        "mode": "own",
        "note": "",
        "flops": reading.flops,
        "moved_bytes": reading.moved_bytes,
        "cold": True,
        "facts": dict(reading.facts),
    }


def run_session(
    cases: Iterable[Case], bench: Bench, file: MeasurementFile, budget_s: float, show: Callable[[str], None]
) -> list[str]:
    """Measure until all is done or the budget is spent; gives the keys that were left out.

    Parameters
    ----------
    cases
        What to measure, most needed first.
    bench
        Where.
    file
        Where results go; cases that it has are skipped.
    budget_s
        Time for this session. [s]
    show
        Told of the progress.
    """
    begun = time.perf_counter()
    raise_clocks(bench)
    if bench.cuda:
        gc.collect()
        gc.freeze()  # torch's own objects need not be searched again after every large case
    wanted = [case for case in cases if case.key not in file.done]
    for index, case in enumerate(wanted):
        spent_s = time.perf_counter() - begun
        if index and spent_s > budget_s:  # a session gets somewhere, however short
            return [left.key for left in wanted[index:]]
        of = "" if budget_s == math.inf else f" of {budget_s:.0f} s"
        show(f"{index + 1}/{len(wanted)} {spent_s:.0f} s{of}  {case.key}")
        result = measure_case(case, bench)
        file.add({**result, "at_s": spent_s})
        if result["outcome"] in ("failed", "wrong") and not answers(bench):
            raise DeviceLost(f"the device stopped answering after {case.key}")
    return []


def raise_clocks(bench: Bench, seconds: float = 1.0) -> None:
    """Keep an idle GPU busy until its clocks have risen.

    Parameters
    ----------
    bench
        Where; nothing happens on a CPU.
    seconds
        How long. [s]
    """
    if not bench.cuda:
        return
    x = torch.randn(4096, 4096, device=bench.device, dtype=torch.bfloat16)
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for _ in range(10):
            torch.mm(x, x)
        bench.synchronize()


def answers(bench: Bench) -> bool:
    """Whether the device still computes in this process."""
    if not bench.cuda:
        return True
    try:
        bench.synchronize()
        return float(torch.ones(8, device=bench.device).sum()) == 8.0
    except RuntimeError:
        return False


_said: list[float] = [time.monotonic()]


def progress_line(text: str, every_s: float = 20.0) -> None:
    """Show progress on one line of a terminal; elsewhere a line now and then.

    Parameters
    ----------
    text
        What is being done.
    every_s
        Between two lines where there is no terminal. [s]
    """
    if sys.stderr.isatty():
        print(f"\r\033[K{text[:110]}", end="", file=sys.stderr, flush=True)
    elif text and time.monotonic() - _said[0] > every_s:
        _said[0] = time.monotonic()
        print(text, file=sys.stderr, flush=True)


def outcomes(results: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many results of each outcome."""
    counted: dict[str, int] = {}
    for result in results:
        counted[str(result["outcome"])] = counted.get(str(result["outcome"]), 0) + 1
    return counted
