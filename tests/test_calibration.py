"""The record of constants: files, names, classes, draws, bounds."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from sizing.calibration import (
    ANY,
    BOUNDS,
    BY_FORMAT,
    FAMILIES,
    KERNEL_FORMATS,
    Table,
    calibration,
    family_keys,
    read_tables,
    rule_of_thumb,
    write_tables,
)
from sizing.catalog import gpu, gpus
from sizing.catalog.files import data_file
from sizing.engines.timing import engine_timing
from sizing.errors import CalibrationError, UnknownFile

MEASURED = ("a100-80-sxm", "h100-sxm", "h200-sxm", "b200-hgx", "l40s")


def test_every_constant_of_every_record_has_bounds_and_a_default_inside_them() -> None:
    for kind in FAMILIES.values():
        for item in fields(kind):
            bound = BOUNDS[item.name]
            assert bound.low <= getattr(kind(), item.name) <= bound.high, (kind, item.name)


def test_rule_of_thumb_keeps_its_two_shares_for_good() -> None:
    cal = calibration("rule-of-thumb", gpu("b200-hgx"), "trtllm")
    assert cal.ideal
    assert cal.gemm("bf16").memory_fraction == 0.70
    assert cal.gemm("nvfp4").compute_fraction == 0.50
    assert cal.gemm("bf16").fixed_s == 0.0
    assert cal.engine_time.step_s == 0.0
    assert cal.draws(8).families["gemm.bf16"].memory_fraction == 0.70


def test_rule_of_thumb_refuses_shares_that_are_none() -> None:
    with pytest.raises(CalibrationError, match=r"mbu: 1\.2 is not allowed"):
        rule_of_thumb(mbu=1.2)


@pytest.mark.parametrize("name", gpus())
@pytest.mark.parametrize("engine", ["vllm", "trtllm", "sglang", "transformers", "nim"])
def test_every_gpu_has_constants_within_physical_bounds(name: str, engine: str) -> None:
    cal = calibration("measured", gpu(name), engine)
    assert set(cal.families) == {key for key, _ in family_keys()}
    for constant in cal.constants():
        bound = BOUNDS[constant.name]
        assert bound.low <= constant.value <= bound.high, (name, constant)


@pytest.mark.parametrize("name", MEASURED)
def test_a_measured_gpu_says_what_its_constants_were_fitted_on(name: str) -> None:
    cal = calibration("measured", gpu(name), "vllm")
    evidence = cal.evidence["gemm.bf16"]
    assert evidence.basis == "fitted"
    assert "gemm.bf16" in evidence.fitted_on
    assert evidence.date >= "2026-11-29"
    assert 0.02 < cal.spread("gemm.bf16") < 0.35
    assert cal.notes == ()


@pytest.mark.parametrize(
    ("name", "like"), [("mi300x", "H100"), ("a10", "L40S"), ("a100-80-pcie", "A100"), ("gb200-nvl72", "B200")]
)
def test_a_gpu_without_tables_takes_its_class_marked_assumed_and_wider(name: str, like: str) -> None:
    cal = calibration("measured", gpu(name), "vllm")
    evidence = cal.evidence["gemm.bf16"]
    assert evidence.basis == "assumed"
    assert like in evidence.fitted_on
    assert name in cal.notes[0]
    h100 = calibration("measured", gpu("h100-sxm"), "vllm")
    assert evidence.spreads["scale"] > h100.evidence["gemm.bf16"].spreads["scale"]


# -- fewer watts for the peak ----------------------------------------------------------------------------


def share(name: str, key: str = "gemm.bf16") -> float:
    """Share of the peak. [1]"""
    return float(calibration("measured", gpu(name), "vllm").families[key].compute_fraction)  # type: ignore[union-attr]


# Board power and dense BF16 peak of the data sheets, of the part and of the one that stands for its class.
@pytest.mark.parametrize(
    ("name", "watts", "tera", "like", "like_watts", "like_tera"),
    [
        ("h100-pcie", 350, 756.5, "h100-sxm", 700, 989.4), ("h100-nvl", 400, 835.0, "h100-sxm", 700, 989.4),
        ("a100-80-pcie", 300, 312.0, "a100-80-sxm", 400, 312.0),
        ("a100-40-pcie", 250, 312.0, "a100-80-sxm", 400, 312.0),
        ("l4", 72, 121.0, "l40s", 350, 362.05),
    ],
)  # fmt: skip
def test_fewer_watts_for_the_peak_leave_less_of_it(
    name: str, watts: float, tera: float, like: str, like_watts: float, like_tera: float
) -> None:
    ratio = (watts / tera) / (like_watts / like_tera)
    assert 0.2 < ratio < 0.8
    for key in ("gemm.bf16", "gemm.fp8", "moe.bf16", "attention_prefill"):
        assert share(name, key) / share(like, key) == pytest.approx(ratio**0.6, rel=1e-3), key
    one, other = (calibration("measured", gpu(n), "vllm") for n in (name, like))
    assert one.gemm("bf16").memory_fraction == other.gemm("bf16").memory_fraction
    assert one.gemm("bf16").fixed_s == other.gemm("bf16").fixed_s


def test_the_law_of_watts_by_hand_for_h100_pcie() -> None:
    # 350 W / 756.5 TF over 700 W / 989.4 TF = 0.6539; to the power 0.6: exp(0.6 ln 0.6539) = 0.7750
    assert share("h100-pcie") / share("h100-sxm") == pytest.approx(0.7750, abs=2e-4)


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("gh200-96", "h100-sxm"), ("gh200-144", "h100-sxm"), ("h200-nvl", "h100-sxm"), ("h20-96", "h100-sxm"),
        ("h800-sxm", "h100-sxm"), ("b300-hgx", "b200-hgx"), ("gb200-nvl72", "b200-hgx"), ("gb300-nvl72", "b200-hgx"),
        ("a100-40-sxm", "a100-80-sxm"), ("rtx4090", "l40s"), ("a10", "l40s"),
    ],
)  # fmt: skip
def test_as_many_watts_leave_the_share_as_it_is(name: str, like: str) -> None:
    assert share(name) == share(like)


def test_measured_parts_keep_their_own_share_and_other_classes_know_no_watts() -> None:
    tables = read_tables(data_file("calibration/h200-sxm.toml").read_text(), "h200-sxm")[1]
    assert share("h200-sxm") == tables["vllm"]["gemm.bf16"].values["compute_fraction"]
    assert share("mi300x") / share("h100-sxm") == pytest.approx(0.65)
    # RTX PRO 4500: 200 W for 219 TF against L40S's 350 for 362, on top of its class's 1.35
    assert share("rtxpro4500") / share("l40s") == pytest.approx(1.35 * (200 / 219 / (350 / 362.05)) ** 0.6, rel=1e-3)
    assert share("rtxpro6000-server") / share("l40s") == pytest.approx(1.35)  # 71 offline runs on it, classes.toml


@pytest.mark.parametrize("name", MEASURED)
@pytest.mark.parametrize("engine", ["vllm", "trtllm"])
def test_a_gpu_and_engine_have_fewer_than_forty_numbers_the_libraries_and_the_engines_ten_among_them(
    name: str, engine: str
) -> None:
    _, tables = read_tables(data_file(f"calibration/{name}.toml").read_text(), name)
    kernels = [n for of in (engine, ANY) for table in tables[of].values() for n in table.values if n != "scale"]
    own = engine_timing(engine).values
    assert len(own) <= 10
    assert len(kernels) + len(own) < 40


def test_no_constant_is_keyed_by_a_model() -> None:
    for name in MEASURED:
        _, tables = read_tables(data_file(f"calibration/{name}.toml").read_text(), name)
        for of_engine in tables.values():
            for key in of_engine:
                family, _, kernel_format = key.partition(".")
                assert family in FAMILIES
                assert not kernel_format or kernel_format in BY_FORMAT[family]


def test_draws_are_joint_repeatable_and_inside_the_bounds() -> None:
    cal = calibration("measured", gpu("h100-sxm"), "vllm")
    one, same, other = cal.draws(64, seed=1), cal.draws(64, seed=1), cal.draws(64, seed=2)
    drawn = one.gemm("bf16").memory_fraction
    assert np.shape(drawn) == (64, 1)
    assert np.array_equal(drawn, same.gemm("bf16").memory_fraction)
    assert not np.array_equal(drawn, other.gemm("bf16").memory_fraction)
    assert np.all(np.asarray(drawn) <= 1.0)
    assert np.shape(cal.draws(5, axes=3).gemm("bf16").fixed_s) == (5, 1, 1, 1)
    logs = np.log(np.asarray(cal.draws(4000, seed=0).gemm("bf16").fixed_s)[:, 0] / cal.gemm("bf16").fixed_s)
    assert np.std(logs) == pytest.approx(cal.evidence["gemm.bf16"].spreads["fixed_s"], rel=0.1)


def test_a_file_goes_on_top_of_the_measured_constants(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('gpu = "h100-sxm"\n[vllm.gemm]\nbasis = "fitted end to end"\nmemory_fraction = [0.6, 0.05]\n')
    chip = gpu("h100-sxm")
    mine, shipped = calibration(path, chip, "vllm"), calibration("measured", chip, "vllm")
    assert mine.name == "mine.toml"
    assert {mine.gemm(f).memory_fraction for f in KERNEL_FORMATS} == {0.6}
    assert mine.evidence["gemm.fp8"].basis == "fitted end to end"
    assert mine.gemm("bf16").fixed_s == shipped.gemm("bf16").fixed_s
    assert mine.families["attention_decode"] == shipped.families["attention_decode"]
    assert calibration(path, chip, "trtllm").families == calibration("measured", chip, "trtllm").families


def test_a_file_holds_for_the_gpu_that_it_names_or_for_all(tmp_path: Path) -> None:
    body, b200 = "[vllm.gemm]\nmemory_fraction = 0.6\n", gpu("b200-hgx")
    named, general = tmp_path / "named.toml", tmp_path / "general.toml"
    named.write_text(f'gpu = "h100-sxm"\n{body}')
    general.write_text(body)
    kept = calibration(named, b200, "vllm")
    assert kept.families == calibration("measured", b200, "vllm").families
    assert "is for h100-sxm" in kept.notes[-1]
    assert calibration(general, b200, "vllm").gemm("bf16").memory_fraction == 0.6


def test_what_is_written_is_what_is_read() -> None:
    table = Table(values={"fixed_s": 2.5e-6}, spreads={"fixed_s": 0.1}, notes={"basis": "fitted"}, residual=0.2)
    text = write_tables("h100-sxm", {"vllm": {"gemm.fp8": table}})
    assert read_tables(text, "here") == ("h100-sxm", {"vllm": {"gemm.fp8": table}})


BAD = [
    ("[vllm.gemm\n", "not a TOML file"),
    ("schema = 9\n[vllm.gemm]\nfixed_s = 1e-6\n", "schema must be 1"),
    ("", "no table of constants"),
    ("vllm = 3\n", "not a table of an engine"),
    ("gpu = 3\n[vllm.gemm]\nfixed_s = 1e-6\n", "gpu must be an id"),
    ("[vllm.gem]\nfixed_s = 1e-6\n", "no such family.*nearest: gemm"),
    ('[vllm."gemm.fp7"]\nfixed_s = 1e-6\n', "no such format"),
    ("[vllm.gemm]\nmemory_fracton = 0.5\n", "memory_fracton: no such constant.*nearest: memory_fraction"),
    (
        "[vllm.gemm]\nmemory_fraction = 1.3\n",
        r"memory_fraction \[1\]: 1.3 is not allowed; give a number from 0.05 to 1",
    ),
    ("[vllm.gemm]\nfixed_s = -1e-6\n", "fixed_s.*-1e-06 is not allowed"),
    ("[vllm.gemm]\nfixed_s = nan\n", "fixed_s.*nan is not allowed"),
    ('[vllm.gemm]\nfixed_s = "fast"\n', "fixed_s.*'fast' is not allowed"),
    ("[vllm.gemm]\nfixed_s = true\n", "True is not allowed"),
    ("[vllm.gemm]\nfixed_s = [1e-6, 0.1, 3]\n", r"give \[value, spread\]"),
    ("[vllm.gemm]\nfixed_s = [1e-6, -0.1]\n", "spread: -0.1 is not allowed"),
    ('[vllm.gemm]\nbasis = "guessed"\n', "basis: 'guessed' is not allowed"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_bad_file_is_refused_with_table_constant_and_value(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(CalibrationError, match=message) as caught:
        calibration(path, gpu("h100-sxm"))
    assert "bad.toml" in str(caught.value)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(CalibrationError, match="can't be read as text"):
        calibration(path, gpu("h100-sxm"))


def test_unknown_names_and_files_say_what_there_is() -> None:
    with pytest.raises(CalibrationError, match=r"no 'measurd'.*nearest: measured"):
        calibration("measurd", gpu("h100-sxm"))
    with pytest.raises(UnknownFile, match=r"no file 'nowhere/mine\.toml'"):
        calibration("nowhere/mine.toml", gpu("h100-sxm"))


def test_a_class_may_keep_its_share_of_the_peak_for_some_formats():
    there, here = (calibration("measured", gpu(name), "vllm") for name in ("h100-sxm", "mi355x"))
    share = {key: here.families[key].compute_fraction / there.families[key].compute_fraction
             for key in ("gemm.bf16", "gemm.fp8", "gemm.nvfp4")}  # fmt: skip
    assert share == pytest.approx({"gemm.bf16": 0.65, "gemm.fp8": 0.65, "gemm.nvfp4": 1.0})
