import csv
import time

import pytest

from sizing.catalog import gpu, gpus, price, quotes, resolve_gpu
from sizing.errors import UnknownGpu

# Data sheet memory [GB], driver's memory [MiB], bandwidth [GB/s], dense BF16 and FP8 peaks [TFLOP/s]; the
# vendor's sheets and nvidia-smi, as collected in the sources that data/sources.toml names.
GOLDEN = {
    "h100-sxm": (80, 81_559, 3350, 989.4, 1978.9),
    "h200-sxm": (141, 143_771, 4800, 989.4, 1978.9),
    "b200-hgx": (180, 183_359, 7700, 2250, 4500),
    "mi300x": (192, 196_592, 5300, 1307.4, 2614.9),
    "l40s": (48, 46_068, 864, 362.05, 733),
    "gb200-nvl72": (186, 189_471, 8000, 2500, 5000),
    "gh200-96": (96, 97_871, 4000, 989.4, 1978.9),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_facts_are_those_of_the_sheets(name):
    label, mib, bandwidth, bf16, fp8 = GOLDEN[name]
    chip = gpu(name)
    assert chip.memory_bytes == label * 1e9
    assert chip.usable_memory_bytes == mib * 2**20
    assert chip.memory_bandwidth_bytes_per_s == pytest.approx(bandwidth * 1e9)
    assert chip.peak_flops_per_s["bf16"] == pytest.approx(bf16 * 1e12)
    assert chip.peak_flops_per_s["fp8"] == pytest.approx(fp8 * 1e12)


def test_peaks_are_dense_where_others_took_sparse_ones():
    assert gpu("gh200-96").peak_flops_per_s["bf16"] == pytest.approx(989e12, rel=1e-3)  # not 1,979
    assert gpu("l40s").peak_flops_per_s["fp8"] == pytest.approx(733e12)  # not 1,466


def test_label_and_usable_memory_are_two_facts():
    b200 = gpu("b200-hgx")
    assert b200.memory_bytes == 180e9
    assert b200.usable_memory_bytes == pytest.approx(192.3e9, rel=1e-3)
    assert b200.process_memory_bytes < b200.usable_memory_bytes
    assert "182" not in b200.facts["memory_bytes"].note
    assert "192 GB" in b200.conflicts


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("h100", "h100-sxm"), ("b200", "b200-hgx"), ("H100-80GB-HBM3", "h100-sxm"), ("a100", "a100-80-sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100-80-sxm"), ("NVIDIA A100-SXM4-40GB", "a100-40-sxm"), ("MI300X", "mi300x"),
        ("H100-SXM-80GB", "h100-sxm"), ("B200-SXM-180GB", "b200-hgx"), ("GB200", "gb200-nvl72"),
        ("NVIDIA H100 NVL", "h100-nvl"), ("H200-NVL-141GB", "h200-nvl"), ("H20-3e-141GB", "h20-141"),
        ("RTX-PRO-6000-Blackwell-SE", "rtxpro6000-server"), ("AMD Instinct MI300X", "mi300x"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"), ("DGX Spark (GB10)", "gb10"), ("8xH100", "h100-sxm"),
        ("Tesla T4", "t4"), ("TPU v5e", "tpu-v5e"), ("H100 PCIe", "h100-pcie"), ("L40S", "l40s"), ("L4", "l4"),
    ],
)  # fmt: skip
def test_names_of_people_and_logs_resolve(said, meant):
    found, note = resolve_gpu(said)
    assert found == meant
    assert said.lower() == meant or f"taken as {meant}" in note


@pytest.mark.parametrize("said", ["h900", "h100-16gb", "H100 turbo", "MI250", "", "sm75", "h1000", "a10000", "🙂"])
def test_an_unknown_gpu_is_never_replaced_by_another(said):
    with pytest.raises(UnknownGpu, match="no GPU"):
        gpu(said)


def test_near_names_are_suggested():
    with pytest.raises(UnknownGpu, match="mi300x"):
        gpu("mi300y")


def test_every_value_has_a_basis_and_a_source():
    for name in gpus():
        facts = gpu(name).facts
        assert {"memory_bytes", "usable_memory_bytes", "memory_bandwidth_bytes_per_s"} <= set(facts)
        for key, fact in facts.items():
            assert fact.basis in {"datasheet", "measured", "assumed"}, (name, key)
            assert fact.source, (name, key)


def test_peaks_rise_from_wide_to_narrow_formats():
    for name in gpus():
        peaks = gpu(name).peak_flops_per_s
        ladder = [peaks[f] for f in ("bf16", "fp8", "fp4") if f in peaks]
        assert ladder == sorted(ladder), name
        assert 0 < min(peaks.values()) <= max(peaks.values()) < 2e16, name


def test_every_accelerator_of_the_reference_is_here(shared):
    with (shared / "catalog" / "gpus.csv").open(encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == 41
    for row in rows:
        chip = gpu(row["id"])
        assert chip.memory_bytes == float(row["mem_label_gb"]) * 1e9
        assert chip.memory_bandwidth_bytes_per_s == pytest.approx(float(row["mem_bw_gb_s"]) * 1e9)
        for column, key in (
            ("bf16_tflops", "bf16"),
            ("fp8_tflops", "fp8"),
            ("fp4_tflops", "fp4"),
            ("int8_tops", "int8"),
        ):
            expected = float(row[column]) * 1e12 if row[column] else None
            assert chip.peak_flops_per_s.get(key) == (None if expected is None else pytest.approx(expected))
        if row["mem_smi_mib"]:
            assert chip.usable_memory_bytes == float(row["mem_smi_mib"]) * 2**20
        assert bool(row["conflicts"]) == bool(chip.conflicts)


def test_price_is_the_median_of_current_on_demand_quotes():
    # AWS 14.24, Lambda 6.89, Nebius 5.50, RunPod 5.98, Spheron 6.03, packet.ai 3.75 -> (5.98 + 6.03) / 2
    assert price("b200").value == pytest.approx(6.005)
    # AWS 6.88, Lambda 3.99, Crusoe 3.90, Nebius 2.95, market 2.95, RunPod 2.69 -> (2.95 + 3.90) / 2
    assert price("h100-sxm").value == pytest.approx(3.425)
    assert price("h100-sxm").basis == "quoted"
    kinds = {quote.kind for quote in quotes("h100-sxm")}
    assert {"on-demand (stale)", "capacity block"} <= kinds


def test_no_quote_means_no_price():
    assert price("tpu-v7") is None
    assert quotes("tpu-v7") == ()


def test_loading_one_accelerator_takes_milliseconds():
    from sizing.catalog.gpus import _forget

    best = 1.0
    for _ in range(5):
        _forget()
        begun = time.perf_counter()
        gpu("h100-sxm")
        best = min(best, time.perf_counter() - begun)
    assert best < 0.01
