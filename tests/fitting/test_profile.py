"""Constants from a profile: a made-up GPU's are found again; a bad file is refused with the reason."""

import csv
import dataclasses
import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
import synthetic
from synthetic import CHIP, TRUTH, record, write_profile

from profilers.__main__ import main
from profilers.shapes import BadInput
from profilers.table import table_cases
from sizing.calibration import calibration
from sizing.catalog import gpu
from sizing.cli import run
from sizing.errors import CalibrationError, UnknownFile
from sizing.fitting.profile import calibrate_profile
from sizing.fitting.profile_file import Case
from sizing.fitting.profile_report import model_rows, profile_text
from sizing.fitting.profile_table import table_matches


@pytest.fixture(scope="module")
def profile(made_up, tmp_path_factory):
    return write_profile(tmp_path_factory.mktemp("profile") / "gpu.jsonl", made_up)


@pytest.fixture(scope="module")
def fitted(profile):
    return calibrate_profile(profile, None, "vllm", "measured")


def test_known_constants_come_back_within_their_spread(fitted):
    found = {(f.family, c.name): c for f in fitted[0].families for c in f.constants}
    for family, constants in TRUTH.items():
        for name, truth in constants.items():
            constant = found[family, name]
            assert abs(math.log(constant.new / truth)) <= 3.0 * constant.spread, (family, name, constant)
            assert constant.spread < 0.10


def test_spreads_hold_what_they_promise(fitted):
    """Two of three within one spread, 95 % within two, if errors are normal; constants left alone count too."""
    base = synthetic.true_calibration()
    off = [
        abs(math.log(c.new / float(getattr(base.families[f.family], c.name)))) / c.spread
        for f in fitted[0].families
        for c in f.constants
        if float(getattr(base.families[f.family], c.name)) > 0
    ]
    assert len(off) >= 20
    assert np.mean(np.array(off) <= 1.0) >= 0.60
    assert np.mean(np.array(off) <= 2.0) >= 0.90


def test_fitted_kernels_predict_whole_steps_that_the_old_constants_miss(fitted):
    steps = fitted[0].steps
    assert len(steps) == 5
    old = [abs(s.old_s / s.measured_s - 1) for s in steps]
    new = [abs(s.new_s / s.measured_s - 1) for s in steps]
    assert max(new) < 0.04  # noise of 1 % on each of two sides
    assert np.median(old) > 0.08


def test_slower_implementation_of_the_same_shape_does_not_count(fitted):
    decode = next(f for f in fitted[0].families if f.family == "attention_decode")
    assert decode.error_new < 0.02  # flex and varlen are 30 % slower in this profile


def test_written_file_gives_the_same_constants_to_every_engine(fitted, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(profile_text(fitted[0], "measured"), encoding="utf-8")
    for engine in ("vllm", "trtllm"):
        read = calibration(path, gpu(CHIP), engine)
        for family in TRUTH:
            want, got = fitted[0].calibration.families[family], read.families[family]
            for item in dataclasses.fields(want):
                assert getattr(got, item.name) == pytest.approx(getattr(want, item.name), rel=1e-3)  # 4 digits kept
            assert read.evidence[family].basis == "fitted"
            assert "NVIDIA H100 80GB HBM3" in read.evidence[family].fitted_on
    untouched = calibration("measured", gpu(CHIP), "vllm")
    assert calibration(path, gpu(CHIP), "vllm").families["all_reduce"] == untouched.families["all_reduce"]


def test_second_fit_on_top_of_the_first_changes_little(profile, fitted, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(profile_text(fitted[0], "measured"), encoding="utf-8")
    again, _ = calibrate_profile(profile, None, "vllm", str(path))
    for part in again.families:
        assert part.error_old == pytest.approx(part.error_new, abs=0.005)
        assert all(c.new == pytest.approx(c.old, rel=3 * c.spread) for c in part.constants)


def test_few_bad_cases_are_left_out_and_named(made_up, tmp_path):
    cases = [r for r in made_up if r["kernel"] == "gemm.bf16"]
    hot = record("hot", "gemm.bf16", {"m": 3, "n": 4096, "k": 4096}, 1.0, throttle=["hw_thermal_slowdown"])
    loose = record("loose", "gemm.bf16", {"m": 5, "n": 4096, "k": 4096}, 1.0, scatter=0.4)
    path = write_profile(
        tmp_path / "p.jsonl", [*cases, hot, loose, {**hot, "key": "oom", "outcome": "oom", "samples": {}}]
    )
    fit, notes = calibrate_profile(path, None, "vllm", "measured")
    assert "left out: 1 throttled, 1 unsteady, 1 oom" in notes
    assert fit.families[0].cases == len({json.dumps(c["shape"], sort_keys=True) for c in cases})


SHAPE = {"m": 4096, "n": 4096, "k": 4096}
GOOD = [record(f"ok {i}", "gemm.bf16", {**SHAPE, "m": 2**i}, 1e-4) for i in range(8)]


@pytest.mark.parametrize(
    ("results", "options", "reason"),
    [
        (
            [record(f"t{i}", "gemm.bf16", SHAPE, 1e-3, throttle=["hw_slowdown"]) for i in range(4)],
            {},
            "the GPU throttled in 100%",
        ),
        (
            [record(f"s{i}", "gemm.bf16", SHAPE, 1e-3, scatter=0.3) for i in range(4)],
            {},
            "samples scatter by over 10 % in",
        ),
        ([*GOOD, record("fast", "gemm.bf16", SHAPE, 1e-4, flops=2 * 4096**3)], {}, "above the peak of h100-sxm"),
        ([*GOOD, record("read", "copy.hbm", {"bytes": 1}, 1e-4, moved=4e8)], {}, "above the peak of h100-sxm"),
        ([*GOOD, *({**r, "outcome": "wrong"} for r in GOOD[:2])], {}, "2 cases computed a wrong result"),
        (GOOD, {"toy": True}, "is a dry run"),
        (GOOD, {"kind": "cpu"}, "is a dry run"),
        ([], {}, "holds no measured case"),
        (GOOD[:3], {}, "no family has 4 cases"),
        ([{**GOOD[0], "samples": {"time_s": [0.0, 0.0]}}], {}, "times must be above 0"),
        ([{k: v for k, v in GOOD[0].items() if k != "sensors"}], {}, "a record lacks 'sensors'"),
    ],
)
def test_bad_profile_is_refused_with_the_reason(results, options, reason, tmp_path):
    path = write_profile(tmp_path / "p.jsonl", results, **options)
    with pytest.raises(CalibrationError, match=reason):
        calibrate_profile(path, None, "vllm", "measured")


def _sealed(lines: list[bytes]) -> bytes:
    end = {"record": "end", "sha256": hashlib.sha256(b"".join(lines)).hexdigest()}
    return b"".join([*lines, json.dumps(end).encode() + b"\n"])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is not a file of profile-inference"),
        (b"\x00\xff\n", "a line is not JSON"),
        (b"[" * 100_000 + b"\n", "a line is not JSON"),
        (b'{"format":"other"}\n', "is not a file of profile-inference"),
        (_sealed([b'{"format":"sizing-profile","version":2}\n']), "is version 2; this reader knows version 1"),
        (b'{"format":"sizing-profile","version":1}\n', "is not finished"),
        (_sealed([b'{"format":"sizing-profile","version":1}\n']), "a record lacks 'environment'"),
        (_sealed([b'{"format":"sizing-profile","version":1}\n']).replace(b"1}", b"1 }"), "was changed"),
    ],
)
def test_file_that_is_no_profile_is_refused(content, reason, tmp_path, capsys):
    path = tmp_path / "p.jsonl"
    path.write_bytes(content)
    assert run(["calibrate", "profile", str(path)]) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1


def test_missing_file_and_unknown_gpu_are_told_apart(profile, capsys):
    with pytest.raises(UnknownFile):
        calibrate_profile(Path("/no/such/file.jsonl"), None, "vllm", "measured")
    assert run(["calibrate", "profile", str(profile), "--gpu", "h1000"]) == 4
    assert "h1000" in capsys.readouterr().err


def test_rule_of_thumb_is_no_place_to_begin(profile):
    with pytest.raises(CalibrationError, match="can't begin from 'rule-of-thumb'"):
        calibrate_profile(profile, None, "vllm", "rule-of-thumb")


def test_command_shows_old_against_new_and_writes_a_file_that_the_planner_takes(profile, tmp_path, capsys):
    out = tmp_path / "mine.toml"
    assert run(["calibrate", "profile", str(profile), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "old against new" in printed
    assert f"written: {out}" in printed
    assert "Whole decoder steps" in printed
    assert "Whole decoders by model" in printed
    assert "Beside published tables" in printed
    before = out.read_bytes()
    assert run(["calibrate", "profile", str(profile), "--out", str(tmp_path / "no" / "x.toml")]) == 2
    assert out.read_bytes() == before


def test_decoders_are_summed_up_by_model_and_kind_of_step(fitted):
    fit = fitted[0]
    rows = model_rows(fit)
    assert [(row["metric"], row["steps"]) for row in rows] == [("TPOT", 3), ("TTFT", 2)]
    off = sorted(abs(s.new_s / s.measured_s - 1) for s in fit.steps if s.decodes)
    assert rows[0]["new"] == f"{off[1]:.1%}"
    assert float(rows[0]["new"].rstrip("%")) < 8.0 < float(rows[0]["median error old"].rstrip("%"))


def test_compiled_steps_alone_judge_a_model_that_has_them(fitted):
    """Steps at 1 and 128 users as launched take a fifth longer; the step of 32 users is compiled."""

    def run(step):
        compiled = step.step.startswith("32 x 1 ")
        slower = 1.0 if compiled or not step.decodes else 1.2
        mode = "compiled_graph" if compiled else step.mode
        return dataclasses.replace(step, mode=mode, measured_s=slower * step.measured_s)

    fit = dataclasses.replace(fitted[0], steps=tuple(run(s) for s in fitted[0].steps))
    tpot, ttft = model_rows(fit)
    assert (tpot["metric"], tpot["steps"], ttft["steps"]) == ("TPOT", 1, 2)
    assert float(str(tpot["new"]).rstrip("%")) < 4.0


TABLE = """gpu,engine,operation,kernel,m,n,k,batch,length,heads,kv_heads,kv_bytes,time_s,source
h100-sxm,vllm,gemm.bf16,x,16,4096,4096,,,,,,1e-05,table
h100-sxm,vllm,gemm.bf16,x,64,4096,4096,,,,,,2e-05,table
h100-sxm,vllm,gemm.bf16,x,64,8,8,,,,,,9,table
h200-sxm,vllm,gemm.bf16,x,16,4096,4096,,,,,,5,table
h100-sxm,vllm,attention_decode,x,,,,8,2048,32,8,2,4e-05,table
h100-sxm,vllm,attention_decode,x,,,,8,2048,32,8,1,9,table
h100-sxm,vllm,attention_prefill,x,,,,1,512,32,8,2,5e-05,table
h100-sxm,trtllm,attention_prefill,x,,,,1,512,32,8,2,9,table
"""


def _case(kernel, shape, time_s):
    return Case(key=kernel, kernel=kernel, implementation="", shape=shape, time_s=time_s, spread=0.0, cold=True,
                throttle=(), flops=0.0, moved_bytes=0.0, facts={})  # fmt: skip


def test_a_profile_stands_beside_the_published_rows_of_its_chip_and_shapes(tmp_path):
    path = tmp_path / "kernels.csv"
    path.write_text(TABLE)
    heads = {"heads": 32, "kv_heads": 8, "head_dim": 128}
    cases = [
        _case("gemm.bf16", {"m": 16, "n": 4096, "k": 4096}, 1.1e-5),
        _case("gemm.bf16", {"m": 64, "n": 4096, "k": 4096}, 1.6e-5),
        _case("attention_decode.sdpa", {"batch": 8, "context": 2048, **heads}, 6e-5),
        _case("attention_decode.varlen", {"batch": 8, "context": 2048, **heads}, 5e-5),
        _case("attention_decode.varlen", {"batch": 8, "context": 2048, **heads, "head_dim": 64}, 1e-5),
        _case("attention_prefill.sdpa", {"batch": 1, "tokens": 512, "history": 0, **heads}, 5e-5),
        _case("attention_prefill.sdpa", {"batch": 1, "tokens": 512, "history": 512, **heads}, 1e-6),
    ]
    gemm, decode, prefill = table_matches(cases, "h100-sxm", path)
    assert (gemm.operation, gemm.shapes, gemm.source) == ("gemm.bf16", 2, "table")
    assert gemm.ratio[1] == pytest.approx(0.95)  # between 1.1 and 0.8
    assert gemm.difference == pytest.approx(0.15)
    assert (decode.shapes, decode.ratio[1]) == (1, pytest.approx(1.25))  # the faster of the two
    assert (prefill.shapes, prefill.difference) == (1, pytest.approx(0.0))
    assert table_matches(cases, "b200-hgx", path) == ()


def test_the_profiler_measures_at_the_shapes_of_the_shipped_table(capsys):
    """What it lists for a chip is what the fit then finds beside it."""
    from sizing.catalog.files import data_file

    table = data_file("measured/kernels.csv")
    cases = [_case(c.kernel, c.shape, 1.0) for c in table_cases(table, "h200-sxm")]
    matches = table_matches(cases, "h200-sxm")
    assert {m.operation for m in matches} == {"gemm.bf16", "attention_prefill", "attention_decode"}
    assert all(m.shapes >= 40 for m in matches)
    with pytest.raises(BadInput, match=r"--chip h900: the table has no 16-bit rows of it by vllm; it has .*h100-sxm"):
        list(table_cases(table, "h900"))
    assert main(["--device", "cpu", "--table", str(table), "--list"]) == 2
    assert "say whose rows with --chip" in capsys.readouterr().err
    command = ["--device", "cpu", "--suite", "table", "--table", str(table), "--chip", "h200-sxm"]
    assert main([*command, "--list"]) == 0
    assert "gemm.bf16 m=" in capsys.readouterr().out
    assert main(command) == 2
    assert "leave it out of a dry run" in capsys.readouterr().err
    assert main(["--device", "cpu", "--suite", "table"]) == 2
    assert "give the table with --table" in capsys.readouterr().err


def test_reader_and_profiler_agree_on_format_and_version():
    import profilers
    from sizing.fitting import profile_file

    assert (profile_file.FORMAT, profile_file.VERSION) == (profilers.FORMAT, profilers.FORMAT_VERSION)


def test_every_sixteen_bit_kernel_of_a_step_has_a_prediction():
    from profilers.operations import Step, step_operations
    from profilers.shapes import read_shape
    from sizing.fitting.profile_kernels import family

    for model in ("Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V2-Lite"):
        for step in (Step(sequences=8, new_tokens=1, history=99), Step(sequences=1, new_tokens=64, history=0)):
            missing = [o.family for o in step_operations(read_shape(model), step) if family(o.family, o.shape) is None]
            assert missing == []


def test_interval_of_a_new_step_holds_what_the_made_up_gpu_takes(fitted):
    """80 % intervals from the written spreads hold the true time of shapes that were not measured, and are narrow."""
    from sizing import roofline

    chip, truth, found = gpu(CHIP), synthetic.true_calibration(), fitted[0].calibration
    m = np.array([3.0, 24.0, 96.0, 384.0, 1536.0, 6144.0])
    n, k = np.array([[3072.0], [9728.0]]), np.array([[2560.0], [2560.0]])
    true = roofline.gemm_s(m, n, k, "bf16", chip, truth)
    drawn = roofline.gemm_s(m, n, k, "bf16", chip, found.draws(200, seed=3, axes=2))
    low, high = np.quantile(drawn, [0.1, 0.9], axis=0)
    assert np.mean((low <= true) & (true <= high)) >= 0.8
    assert np.median(high / low) < 1.10


def test_stand_in_is_fitted_for_the_check_but_not_written_unless_asked(made_up, tmp_path, capsys):
    moe = [{**r, "implementation": "torch grouped_mm"} for r in made_up if r["kernel"] == "moe.bf16"]
    rest = [r for r in made_up if r["kernel"] == "gemm.bf16"]
    path = write_profile(tmp_path / "p.jsonl", [*moe, *rest])
    fit, _ = calibrate_profile(path, None, "vllm", "measured")
    assert {f.family: f.stand_in for f in fit.families} == {"moe.bf16": "torch grouped_mm", "gemm.bf16": ""}
    assert '[any."moe.bf16"]' not in profile_text(fit, "measured")
    assert '[any."moe.bf16"]' in profile_text(fit, "measured", stand_ins=True)
    assert run(["calibrate", "profile", str(path)]) == 0
    assert "moe.bf16: only torch grouped_mm was measured, which no engine runs" in capsys.readouterr().out


def test_file_of_stand_ins_alone_is_not_written(made_up, tmp_path):
    moe = [{**r, "implementation": "torch grouped_mm"} for r in made_up if r["kernel"] == "moe.bf16"]
    fit, _ = calibrate_profile(write_profile(tmp_path / "p.jsonl", moe), None, "vllm", "measured")
    with pytest.raises(CalibrationError, match="--stand-ins"):
        profile_text(fit, "measured")


def _published(chip):
    """Times of a chip's kernels as published (data/measured/kernels.csv), as if they had been profiled."""
    from sizing.catalog.files import data_file

    found = []
    with data_file("measured/kernels.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if (row["gpu"], row["engine"]) != (chip, "vllm"):
                continue
            number = {k: int(float(v)) for k, v in row.items() if v and k in ("m", "n", "k", "batch", "length")}
            heads = {k: int(float(row[k] or 0)) for k in ("heads", "kv_heads")} | {"head_dim": 128}
            if row["operation"] == "gemm.bf16":
                kernel, shape = "gemm.bf16", {k: number[k] for k in "mnk"}
            elif row["operation"] == "attention_decode" and float(row["kv_bytes"]) == 2.0:
                kernel, shape = "attention_decode.x", {"batch": number["batch"], "context": number["length"], **heads}
            elif row["operation"] == "attention_prefill" and float(row["kv_bytes"]) == 2.0:
                sizes = {"batch": number["batch"], "tokens": number["length"], "history": 0}
                kernel, shape = "attention_prefill.x", {**sizes, **heads}
            else:
                continue
            found.append(record(f"{kernel} {shape}", kernel, shape, float(row["time_s"]), noise=0.0))
    return found


@pytest.mark.parametrize(
    ("chip", "device"),
    [("h100-sxm", "NVIDIA H100 80GB HBM3"), ("h200-sxm", "NVIDIA H200"), ("b200-hgx", "NVIDIA B200")],
)
def test_profile_of_published_kernels_is_explained_within_the_published_errors(chip, device, tmp_path):
    """AIConfigurator 0.12 (vLLM 0.24 kernels); errors to reach: 5 % for products, 8 % for attention, with margin."""
    path = write_profile(tmp_path / "p.jsonl", _published(chip), device=device)
    fit, _ = calibrate_profile(path, None, "vllm", "measured")
    errors = {f.family: f.error_new for f in fit.families}
    most = {"gemm.bf16": 0.08, "attention_decode": 0.10, "attention_prefill": 0.10}
    assert {name for name, limit in most.items() if errors[name] > limit} == set()
    assert all(f.error_new <= f.error_old + 0.01 for f in fit.families)
