"""The command ``profile-inference``."""

import argparse
import datetime
import math
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profilers.shapes import BadInput

if TYPE_CHECKING:
    from profilers.kernel import Case
    from profilers.plan import Plan

PROGRAM = "profile-inference"


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Measure the kernels of a served model, and whole decoders, on this machine's GPU.",
        epilog="Then: size-inference calibrate profile FILE --out my-gpu.toml",
    )
    made.add_argument(
        "--suite", default="default", help="default, compact, model, decoder, scenarios, table (default: default)"
    )
    made.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="NAME|FILE|FOLDER",
        help="shapes of this model: a built-in name, a config.json or its folder; may be repeated",
    )
    made.add_argument("--tp", type=int, default=1, help="tensor-parallel GPUs that shapes are divided by")
    made.add_argument(
        "--table", type=Path, default=None, help="also the shapes of a table such as data/measured/kernels.csv"
    )
    made.add_argument("--chip", default="", help="with --table: whose rows, as the table names it, such as h200-sxm")
    made.add_argument("--only", action="append", default=[], metavar="KERNEL", help="only this family or kernel")
    made.add_argument(
        "--budget",
        default="5m",
        help="time from the command's start after which no case is begun, such as 90s or 5m; none: everything "
        "(default: 5m, which the default suite should not need on one Hopper GPU: see --estimate)",
    )
    made.add_argument("--device", default="", help="cuda, cuda:1 or cpu (default: cuda)")
    made.add_argument("--toy", action="store_true", help="smallest sizes, for a dry run; always on with --device cpu")
    made.add_argument("--ranks", type=int, default=0, help="GPUs for the collectives (default: all that are visible)")
    made.add_argument("--disk", type=Path, default=None, help="folder for the file that weight loading reads")
    made.add_argument("--out", type=Path, default=None, help="measurement file (default: profile-GPU-DATE.jsonl)")
    made.add_argument("--list", action="store_true", help="list kernels and cases, measure nothing")
    made.add_argument(
        "--estimate",
        nargs="?",
        const="h100-sxm",
        default="",
        metavar="CHIP",
        help="say what the session would take on a GPU (default: h100-sxm), without one; with --list case by case",
    )
    made.add_argument("--restarts", type=int, default=0, help=argparse.SUPPRESS)
    return made  # fmt: skip


def seconds(text: str) -> float:
    """``90``, ``90s``, ``5m`` or ``1h`` in seconds; infinite for ``none``. [s]"""
    if text.strip() == "none":
        return math.inf
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h)?\s*", text)
    if found is None or float(found[1]) <= 0:
        raise BadInput(f"--budget {text}: give a time such as 90s, 5m or 1h, or none")
    return float(found[1]) * {"s": 1, "m": 60, "min": 60, "h": 3600, None: 1}[found[2]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; the exit code."""
    begun_s = time.perf_counter()
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(words)
    try:
        return _run(options, words, begun_s)
    except BadInput as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(f"\n{PROGRAM}: interrupted; run the same command again to carry on", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace, words: list[str], begun_s: float) -> int:
    until_s = begun_s + seconds(options.budget)
    try:
        import torch
    except ImportError:
        raise BadInput("needs torch: pip install 'sizing[profile]'") from None
    from profilers.bench import open_bench
    from profilers.plan import make_plan

    if options.estimate:
        return _estimate(options, make_plan(options.suite, options.model, tp=options.tp, ranks=options.ranks or 1))
    device = options.device or ("cuda" if torch.cuda.is_available() else "")
    _check_device(device, options.device, torch)
    toy = options.toy or not device.startswith("cuda")
    ranks = options.ranks or (torch.cuda.device_count() if device.startswith("cuda") else 2)
    if options.disk is not None and not options.disk.is_dir():
        raise BadInput(f"--disk {options.disk}: no such folder")
    plan = make_plan(options.suite, options.model, tp=options.tp, toy=toy, ranks=ranks)
    cases = _cases(options, plan)
    if options.list:
        print("\n".join(f"{case.priority}  {case.key}" for case in cases))
        return 0
    bench = open_bench(device, toy=toy, disk=options.disk)
    return _measure(options, words, plan, cases, bench, until_s)


def _estimate(options: argparse.Namespace, plan: "Plan") -> int:
    """Print what a session would take."""
    from profilers.estimates.session import estimate, find_machine, group_rows
    from profilers.summary import table

    machine = find_machine(options.estimate)
    spent = estimate(_cases(options, plan), machine)
    if options.list:
        print("\n".join(f"{case.total_s:8.2f} s  {case.key}" for case in spent))
    print(table(group_rows(spent), f"Estimated seconds of --suite {plan.suite} on one {machine.name}"), end="")
    return 0


def _cases(options: argparse.Namespace, plan: "Plan") -> "list[Case]":
    """The plan's cases, and behind them those of a table."""
    from profilers.plan import in_order, plan_cases
    from profilers.table import table_cases

    cases = plan_cases(plan, options.only)
    if options.table is None:
        if options.suite == "table":
            raise BadInput("--suite table: give the table with --table and its chip with --chip")
        return cases
    if not options.chip:
        raise BadInput("--table: say whose rows with --chip, such as --chip h200-sxm")
    if plan.toy and not options.list:
        raise BadInput("--table: its sizes are real ones, which take a GPU; leave it out of a dry run")
    return in_order([*cases, *table_cases(options.table, options.chip)])


def _check_device(device: str, asked: str, torch) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    if not device:
        raise BadInput("no GPU that torch can use; --device cpu makes a dry run at toy sizes")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise BadInput(f"--device {asked}: choose cuda, cuda:1 or cpu")
    if device.startswith("cuda"):
        index = int(device.partition(":")[2] or 0)
        count = torch.cuda.device_count()
        if index >= count:
            raise BadInput(f"--device {asked}: {count} GPU{'s' * (count != 1)} visible to torch")


def _measure(options, words: list[str], plan, cases, bench, until_s: float) -> int:  # type: ignore[no-untyped-def]  # noqa: ANN001
    from profilers.environment import read_environment
    from profilers.measurements import MeasurementFile
    from profilers.session import DeviceLost, outcomes, progress_line, run_session
    from profilers.summary import report

    now = datetime.datetime.now(datetime.UTC)
    environment = read_environment(bench)
    name = re.sub(r"[^a-z0-9]+", "-", str(environment["device"]["name"]).lower()).strip("-")[:40]
    out = options.out or Path(f"profile-{name}-{now:%Y%m%d}.jsonl")
    header = {
        "created": now.isoformat(timespec="seconds"),
        "environment": environment,
        "plan": {
            "suite": plan.suite, "models": [m.name for m in plan.models], "tp": options.tp, "toy": plan.toy,
            "ranks": plan.ranks, "only": options.only, "table": options.chip,
        },
    }  # fmt: skip
    file = MeasurementFile(out, header)
    if file.resumed:
        print(f"{PROGRAM}: carrying on; {len(file.results)} cases are in {file.partial}", file=sys.stderr)
    begun = time.perf_counter()
    try:
        left = run_session(cases, bench, file, until_s - begun, progress_line)
    except DeviceLost as error:
        file.close()
        return _start_again(words, until_s - time.perf_counter(), options.restarts, out, str(error))
    finally:
        progress_line("")
    path = file.seal(time.perf_counter() - begun, left)
    print(report(file.results), end="")
    counted = ", ".join(f"{n} {what}" for what, n in sorted(outcomes(file.results).items()))
    print(f"{path}: {counted}" + (f", {len(left)} left out by --budget" if left else ""))
    print(f"next: size-inference calibrate profile {path}")
    return 0 if any(r["outcome"] == "measured" for r in file.results) else 1


def _start_again(words: list[str], budget_s: float, restarts: int, out: Path, reason: str) -> int:
    """A fault of the device stays with the process: carry on in a new one, at most five times."""
    print(f"{PROGRAM}: {reason}; carrying on in a new process", file=sys.stderr)
    if restarts >= 5 or budget_s <= 1:
        print(f"{PROGRAM}: giving up; run the same command again to carry on", file=sys.stderr)
        return 1
    left = "none" if budget_s == math.inf else f"{budget_s:.0f}"
    kept = [*words, "--budget", left, "--restarts", str(restarts + 1), "--out", str(out)]
    os.execv(sys.executable, [sys.executable, "-m", "profilers", *kept])


if __name__ == "__main__":
    sys.exit(main())
