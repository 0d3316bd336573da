"""Constants from kernel tables: known constants come back, held-out shapes hold, files round-trip."""

import numpy as np
import pytest

from sizing.calibration import ANY, BOUNDS, calibration, read_tables
from sizing.catalog import gpu
from sizing.errors import InputError
from sizing.fitting import kernels
from sizing.fitting.kernel_plan import PLANS
from sizing.fitting.kernel_report import calibration_text, constant_rows, fit_notes, fit_rows, of_gpus
from sizing.fitting.kernels import FamilyFit, fit_kernels
from sizing.validation.kernel_tables import KernelTable
from sizing.validation.kernel_times import predicted_s

H100 = gpu("h100-sxm")
NOISE = 0.03


def made(operation: str, sizes: dict[str, np.ndarray], engine: str = "vllm", **truth: dict[str, float]) -> KernelTable:
    """A table as a GPU with known constants would give it, three percent of noise on each row."""
    cal = calibration("measured", H100, "vllm")
    for family, values in truth.items():
        cal = cal.with_constants(family.replace("__", "."), **values)
    rows = len(next(iter(sizes.values())))
    table = KernelTable(
        gpu="h100-sxm", engine=engine, operation=operation, kernel=np.full(rows, "made"),
        sizes={n: np.asarray(v, dtype=float) for n, v in sizes.items()}, time_s=np.ones(rows), excluded={},
    )  # fmt: skip
    noise = np.exp(NOISE * np.random.default_rng(5).standard_normal(rows))
    return KernelTable(
        gpu=table.gpu, engine=engine, operation=operation, kernel=table.kernel, sizes=table.sizes,
        time_s=predicted_s(table, H100, cal) * noise, excluded={},
    )  # fmt: skip


def products(rows: int = 500) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    n = rng.choice([512, 1024, 2048, 4096, 8192, 16384], rows)
    k = rng.choice([1024, 2048, 4096, 8192, 16384], rows)
    return {"m": 2.0 ** rng.integers(0, 15, rows), "n": n, "k": k}


GEMM = {"fixed_s": 4e-6, "memory_fraction": 0.70, "compute_fraction": 0.62, "depth_s": 1.1e-9}
DECODE = {"fixed_s": 9e-6, "memory_fraction": 0.78, "unit_s": 5e-6, "smoothness": 0.75, "narrow": 1.0}


def decodes(rows: int = 500) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    kv_heads = rng.choice([1, 2, 4, 8], rows)
    return {
        "batch": 2.0 ** rng.integers(0, 10, rows), "length": 2.0 ** rng.integers(4, 16, rows),
        "heads": kv_heads * rng.choice([4, 8], rows), "kv_heads": kv_heads, "kv_bytes": np.full(rows, 2.0),
    }  # fmt: skip


@pytest.fixture(scope="module")
def fits() -> list[FamilyFit]:
    return fit_kernels(
        [made("gemm.bf16", products(), gemm__bf16=GEMM), made("attention_decode", decodes(), attention_decode=DECODE)]
    )


def test_known_constants_come_back_within_a_tenth(fits: list[FamilyFit]) -> None:
    found = {(key, name): value for fit in fits for key, values in fit.values.items() for name, value in values.items()}
    for name in ("fixed_s", "compute_fraction", "memory_fraction"):
        assert found["gemm.bf16", name] == pytest.approx(GEMM[name], rel=0.10), name
    assert found["gemm.bf16", "depth_s"] == pytest.approx(GEMM["depth_s"], rel=0.20)
    for name in ("fixed_s", "memory_fraction", "unit_s"):
        assert found["attention_decode", name] == pytest.approx(DECODE[name], rel=0.10), name


def test_a_kernel_of_another_kind_is_recognised_by_its_constants() -> None:
    # grouped heads cost three times, long contexts are added up by a second kernel, at most 32 heads share
    truth = {**DECODE, "shared": 3.0, "split_s": 6e-6, "shared_heads": 32.0}
    sizes = decodes(1200)
    rng = np.random.default_rng(3)
    sizes["heads"] = sizes["kv_heads"] * rng.choice([1, 1, 4, 8, 64], 1200)
    (fit,) = fit_kernels([made("attention_decode", sizes, attention_decode=truth)])
    found = fit.values["attention_decode"]
    assert found["shared_heads"] == 32.0
    assert found["shared"] == pytest.approx(3.0, rel=0.15)
    assert found["split_s"] == pytest.approx(6e-6, rel=0.15)


def test_a_format_that_differs_keeps_a_constant_of_its_own() -> None:
    sizes = {"m": 2.0 ** np.arange(4, 15), "n": 2048.0, "k": 768.0, "experts": 128.0, "top_k": 8.0,
             "local_experts": 128.0, "balanced": 1.0}  # fmt: skip
    columns = {n: np.broadcast_to(np.asarray(v, dtype=float), (11,)).repeat(12) for n, v in sizes.items()}
    truth = {"moe__bf16": {"compute_fraction": 0.7}, "moe__fp8_block": {"compute_fraction": 0.3}}
    tables = [made(f"moe.{name}", columns, **truth) for name in ("bf16", "fp8_block")]
    (fit,) = fit_kernels(tables)
    own = {key: values["compute_fraction"] for key, values in fit.values.items() if "compute_fraction" in values}
    assert own.get("moe.bf16", own["moe"]) == pytest.approx(0.7, rel=0.1)
    assert own.get("moe.fp8_block", own["moe"]) == pytest.approx(0.3, rel=0.1)


def test_what_must_go_is_what_the_tables_miss_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second kernel of 30 us that adds up long contexts shows more than heads that cost a fifth more."""
    truth = {**DECODE, "shared": 1.2, "split_s": 3e-5}
    table = made("attention_decode", decodes(1200), attention_decode=truth)
    (whole,) = fit_kernels([table])
    optional = set(whole.gains)
    assert ("attention_decode", "split_s") in optional
    assert len(optional) > 1
    monkeypatch.setattr(kernels, "MOST", sum(map(len, whole.values.values())) - len(optional) + 1)
    (few,) = fit_kernels([table])
    assert set(few.gains) == {("attention_decode", "split_s")}
    monkeypatch.setattr(kernels, "MOST", 0)
    (least,) = fit_kernels([table])
    assert not least.gains
    assert set(least.values["attention_decode"]) >= {"fixed_s", "memory_fraction", "unit_s"}  # these never go


def test_no_gpu_and_engine_has_more_numbers_than_there_is_room_for() -> None:
    from sizing.catalog.files import data_file
    from sizing.fitting.kernels import MOST

    for name in ("a100-80-sxm", "h100-sxm", "h200-sxm", "b200-hgx", "l40s"):
        _, tables = read_tables(data_file(f"calibration/{name}.toml").read_text(), name)
        count = {e: sum(len(t.values) - ("scale" in t.values) for t in of.values()) for e, of in tables.items()}
        for engine in count.keys() - {ANY}:
            assert count[engine] + count[ANY] <= MOST, (name, engine)


def test_errors_come_down_to_the_noise_on_shapes_not_seen(fits: list[FamilyFit]) -> None:
    # the median of |noise| is 0.6745 sigma
    for fit in fits:
        for name, (median, _) in fit.held_out.items():
            assert median == pytest.approx(0.6745 * NOISE, rel=0.35), name
            assert fit.before[name][0] > 2 * median
        assert all(0.02 < r < 0.045 for r in fit.residual.values())


def test_constants_stay_inside_their_bounds_and_carry_a_spread(fits: list[FamilyFit]) -> None:
    for fit in fits:
        for key, values in fit.values.items():
            for name, value in values.items():
                assert BOUNDS[name].low <= value <= BOUNDS[name].high
                assert 0.0 <= fit.spreads[key][name] <= 1.0


def test_a_fit_does_not_depend_on_the_calibration_that_was_there() -> None:
    table = made("gemm.bf16", products(200), gemm__bf16=GEMM)
    one, two = (fit_kernels([table], base=base)[0] for base in ("measured", "rule-of-thumb"))
    for name in ("memory_fraction", "depth_s"):
        assert one.values["gemm.bf16"][name] == pytest.approx(two.values["gemm.bf16"][name], rel=0.05)


def test_the_file_reads_back_and_predicts_as_the_fit_did(fits: list[FamilyFit]) -> None:
    from sizing.calibration import applied

    text = calibration_text(fits, date="2026-11-29")
    chip, tables = read_tables(text, "made")
    assert chip == "h100-sxm"
    assert tables["vllm"]["gemm.bf16"].notes["basis"] == "fitted"
    assert "500 rows of gemm.bf16" in tables["vllm"]["gemm.bf16"].notes["fitted_on"]
    cal = applied(calibration("measured", H100, "vllm"), tables, "vllm")
    assert cal.gemm("bf16").compute_fraction == pytest.approx(GEMM["compute_fraction"], rel=0.10)
    assert cal.spread("gemm.bf16") == pytest.approx(NOISE, rel=0.4)


def test_reports_give_old_and_new_side_by_side(fits: list[FamilyFit]) -> None:
    rows = fit_rows(fits)
    assert [row["operation"] for row in rows] == ["gemm.bf16", "attention_decode"]
    assert all(row["median_%"] < row["old_median_%"] for row in rows)
    constants = constant_rows(fits)
    shipped = calibration("measured", H100, "vllm").gemm("bf16").compute_fraction
    mine = next(r for r in constants if (r["family"], r["constant"]) == ("gemm.bf16", "compute_fraction"))
    assert mine["old"] == pytest.approx(shipped, rel=1e-3)
    assert fit_notes(fits)[0].startswith("h100-sxm vllm: ")


def test_one_file_is_one_gpu() -> None:
    one = made("gemm.bf16", products(10), gemm__bf16=GEMM)
    other = KernelTable(gpu="b200-hgx", engine=ANY, operation="nccl.gather", kernel=one.kernel, sizes=one.sizes,
                        time_s=one.time_s, excluded={})  # fmt: skip
    assert of_gpus([one, other], ["h100"], writes=True) == [one]
    with pytest.raises(InputError, match="choose one with --gpu"):
        of_gpus([one, other], None, writes=True)
    with pytest.raises(InputError, match="no table of l40s"):
        of_gpus([one, other], ["l40s"], writes=False)


def test_every_constant_that_a_plan_moves_belongs_to_its_family() -> None:
    from sizing.calibration import FAMILIES

    for plan in PLANS:
        for family in plan.families:
            names = set(FAMILIES[family].__dataclass_fields__)
            assert {*plan.shared, *plan.own, *plan.optional, *plan.own_optional} <= names
