"""Rows for people: the list of accelerators, and one accelerator with its sources."""

from sizing.catalog.gpus import gpu, gpus, resolve_gpu
from sizing.catalog.prices import price, quotes


def gpu_rows(vendor: str | None = None, least_memory_bytes: float = 0.0) -> list[dict[str, object]]:
    """One row an accelerator, in the units people use.

    Parameters
    ----------
    vendor
        Only of this vendor, in any case.
    least_memory_bytes
        Only with at least so much memory by the data sheet. [byte]
    """
    rows = []
    for name in gpus():
        chip = gpu(name)
        if (vendor and chip.vendor.lower() != vendor.lower()) or chip.memory_bytes < least_memory_bytes:
            continue
        usd = price(name)
        peaks = chip.peak_flops_per_s
        rows.append({
            "gpu": name,
            "vendor": chip.vendor,
            "memory_gb": round(chip.memory_bytes / 1e9, 1),
            "usable_gb": round(chip.usable_memory_bytes / 1e9, 1),
            "bandwidth_tb_s": round(chip.memory_bandwidth_bytes_per_s / 1e12, 3),
            "bf16_tflops": _tera(peaks.get("bf16", peaks.get("fp16"))),
            "fp8_tflops": _tera(peaks.get("fp8")),
            "fp4_tflops": _tera(peaks.get("fp4")),
            "link_gb_s": round(chip.link_bytes_per_s / 1e9, 1),
            "domain_gpus": chip.link_domain_gpus,
            "tdp_w": chip.tdp_w or "",
            "usd_per_hour": "" if usd is None else round(float(usd.value), 3),
        })  # fmt: skip
    return rows


def gpu_facts(name: str) -> tuple[list[dict[str, object]], list[str], str]:
    """Every value of one accelerator with unit, basis and source; notes; a title.

    Parameters
    ----------
    name
        Id, short name, or the name a log prints.
    """
    found, note = resolve_gpu(name)
    chip = gpu(found)
    rows: list[dict[str, object]] = []
    for key, fact in chip.facts.items():
        rows.append({"fact": key, "value": fact.value, "unit": fact.unit, "basis": fact.basis, "source": fact.source})
    usd = price(found)
    if usd is not None:
        rows.append({"fact": "usd_per_hour", "value": usd.value, "unit": usd.unit, "basis": usd.basis,
                     "source": usd.source})  # fmt: skip
    notes = [note] if note else []
    if chip.conflicts:
        notes.append(f"sources disagree: {chip.conflicts}")
    for quote in quotes(found):
        cost = quote.usd_per_hour if quote.usd_per_hour is not None else f"{quote.low}-{quote.high}"
        notes.append(f"{quote.provider} {quote.instance}: {cost} USD/h, {quote.kind}, {quote.date}".replace(" :", ":"))
    return rows, notes, f"{found}: {chip.name}, {chip.vendor} {chip.architecture}"


def _tera(value: float | None) -> object:
    return "" if value is None else round(value / 1e12, 1)
