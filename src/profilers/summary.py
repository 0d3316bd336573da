"""What a finished profile says at a glance: rates by kernel, the sum of kernels against the whole, scenarios."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Result = Mapping[str, Any]


def median(result: Result, name: str = "time_s") -> float:
    """Median of a quantity's samples."""
    return statistics.median(result["samples"][name])


def measured(results: Iterable[Result]) -> list[Result]:
    """Results that hold."""
    return [r for r in results if r["outcome"] == "measured"]


def kernel_rows(results: Iterable[Result]) -> list[dict[str, str]]:
    """One row a kernel: how many cases, its highest rates, its shortest call."""
    rows: dict[str, list[Result]] = {}
    for result in measured(results):
        if "time_s" in result["samples"]:
            rows.setdefault(str(result["kernel"]), []).append(result)
    out = []
    for name, found in sorted(rows.items()):
        times = [median(r) for r in found]
        out.append(
            {
                "kernel": name,
                "by": str(found[-1]["implementation"]),
                "cases": str(len(found)),
                "best TFLOP/s": _rate([r["flops"] / t / 1e12 for r, t in zip(found, times, strict=True)]),
                "best GB/s": _rate([r["moved_bytes"] / t / 1e9 for r, t in zip(found, times, strict=True)]),
                "shortest us": f"{min(times) * 1e6:.1f}",
            }
        )
    return out


def _rate(values: Sequence[float]) -> str:
    best = max(values)
    return f"{best:,.1f}" if best > 0 else ""


def fastest(results: Iterable[Result]) -> dict[tuple[str, str], float]:
    """Time of each operation by the fastest implementation that was measured, by family and shape. [s]"""
    best: dict[tuple[str, str], float] = {}
    for result in measured(results):
        if "time_s" not in result["samples"]:
            continue
        kernel = str(result["kernel"])
        family = kernel if kernel.startswith(("gemm.", "moe.", "elementwise.", "batched")) else kernel.partition(".")[0]
        key = (family, shape_key(result["shape"]))
        best[key] = min(best.get(key, float("inf")), median(result))
    return best


def shape_key(shape: Mapping[str, Any]) -> str:
    """The sizes of an operation as text, whatever their order."""
    return " ".join(f"{k}={shape[k]}" for k in sorted(shape))


def whole_rows(results: Sequence[Result]) -> list[dict[str, str]]:
    """One row a whole step: its time, the sum of its kernels, what no kernel was measured for."""
    times = fastest(results)
    rows = []
    for result in measured(results):
        if result["kernel"] != "decoder.step":
            continue
        total, missing = kernel_sum(result, times)
        shape, whole_s = result["shape"], median(result)
        rows.append(
            {
                "model": f"{shape['model']} ({layers(result)})",
                "step": f"{shape['sequences']} x {shape['new_tokens']} behind {shape['history']}",
                "mode": str(shape["mode"]),
                "whole ms": f"{whole_s * 1e3:.3f}",
                "kernels ms": f"{total * 1e3:.3f}" if not missing else f"> {total * 1e3:.3f}",
                "kernels / whole": f"{total / whole_s:.2f}" if not missing else f"{len(missing)} not measured",
            }
        )
    return rows


def layers(step: Result) -> str:
    """How many of the model's layers a step had."""
    return f"{step['facts']['layers']} of {step['facts']['layers_of_model']} layers"


def kernel_sum(step: Result, times: Mapping[tuple[str, str], float]) -> tuple[float, list[str]]:
    """Sum of the kernels that a step is made of, and the families that were not measured at its shapes. [s]"""
    total, missing = 0.0, []
    for operation in step["facts"]["operations"]:
        time_s = times.get((operation["family"], shape_key(operation["shape"])))
        if time_s is None:
            missing.append(str(operation["family"]))
        else:
            total += time_s * operation["count"]
    return total, missing


SEEDS = {
    "scenario.kernels_per_token": "2,398 kernels a token (H100, Transformers, one user)",
    "scenario.transformers": "2,398 kernels a token (H100, Transformers, one user)",
    "scenario.users": "6.8 ms at 1 user, 17.3 ms at 128 (H100, vLLM; from $7.59 and $0.15 a million at $4 an hour)",
    "scenario.prefill_stall": "1.5 s whole, 111 ms longest gap in 512-token chunks (H100, a Python loop)",
    "scenario.prefix_reuse": "0.5 s new, 30 ms reused (H100, Transformers or an engine, not said)",
}
"""The figures that each scenario is shown beside."""


def scenario_rows(results: Iterable[Result]) -> list[dict[str, str]]:
    """One row a scenario: what was measured here, beside the published figure."""
    rows = []
    for result in measured(results):
        if not str(result["kernel"]).startswith("scenario."):
            continue
        found = []
        for name, values in result["samples"].items():
            quantity, _, unit = name.rpartition("_")
            if unit == "count":
                found.append(f"{values[0]:,.0f} {quantity}")
            else:
                longest = f", longest {max(values) * 1e3:,.1f}" if "gap" in name else ""
                found.append(f"{quantity} {statistics.median(values) * 1e3:,.1f} ms{longest}")
        shape = {k: v for k, v in result["shape"].items() if k != "model"}
        rows.append(
            {
                "scenario": str(result["kernel"]).partition(".")[2],
                "model": str(result["shape"]["model"]),
                "at": " ".join(f"{k}={v}" for k, v in shape.items()),
                "here": "; ".join(found),
                "published": SEEDS.get(str(result["kernel"]), ""),
            }
        )
    return rows


def table(rows: Sequence[Mapping[str, str]], title: str) -> str:
    """Rows as a plain table; nothing for no rows."""
    if not rows:
        return ""
    names = list(rows[0])
    widths = [max(len(n), *(len(r[n]) for r in rows)) for n in names]
    lines = [title, "  ".join(n.ljust(w) for n, w in zip(names, widths, strict=True))]
    lines += ["  ".join(r[n].ljust(w) for n, w in zip(names, widths, strict=True)).rstrip() for r in rows]
    return "\n".join(lines) + "\n\n"


def cost_rows(results: Iterable[Result], most: int = 12) -> list[dict[str, str]]:
    """Where the session's time went, a row a kernel, the dearest first.

    Parameters
    ----------
    results
        Of the session.
    most
        Rows at most. [1]
    """
    spent: dict[str, list[float]] = {}
    for result in results:
        spent.setdefault(str(result["kernel"]), []).append(float(result["took_s"]))
    dearest = sorted(spent.items(), key=lambda item: -sum(item[1]))[:most]
    return [
        {"kernel": k, "cases": str(len(v)), "took s": f"{sum(v):.1f}", "longest s": f"{max(v):.1f}"} for k, v in dearest
    ]


def report(results: Sequence[Result]) -> str:
    """Everything at a glance."""
    text = table(kernel_rows(results), "Kernels")
    text += table(whole_rows(results), "Whole steps against the sum of their kernels")
    text += table(scenario_rows(results), "Scenarios, beside the published figure")
    failed = [
        {"outcome": str(r["outcome"]), "case": str(r["key"]), "reason": str(r["reason"])[:120]}
        for r in results
        if r["outcome"] != "measured"
    ]
    kinds: dict[tuple[str, str, str], list[str]] = {}
    for row in failed:
        kinds.setdefault((row["outcome"], row["case"].split(" ")[0], row["reason"]), []).append(row["case"])
    rows = [
        {"outcome": o, "kernel": k, "cases": str(len(cases)), "reason": reason}
        for (o, k, reason), cases in kinds.items()
    ]
    return text + table(rows, "Not measured") + table(cost_rows(results), "Where the time went")
