"""Every kernel at toy size on a CPU: it runs, it computes what it should, its file is whole."""

import hashlib
import json
import math
import stat
from pathlib import Path

import pytest

from profilers.__main__ import main
from profilers.kernel import kernels
from profilers.measurements import read_measurements
from profilers.shapes import BadInput

NEEDS_MORE = {
    "attention_decode.flash_attn": "flash-attn",
    "attention_prefill.flash_attn": "flash-attn",
    "attention_decode.flashinfer": "flashinfer",
    "attention_prefill.flashinfer": "flashinfer",
    "mla_decode.flashinfer": "flashinfer",
    "moe.bf16_vllm": "vllm",
    "scenario.transformers": "transformers",
    "attention_decode.varlen": "CUDA",
    "attention_prefill.varlen": "CUDA",
}
"""Kernels that no CPU has, and what their refusal must name; test_libraries.py runs them on stand-ins."""


@pytest.mark.parametrize("name", sorted(kernels()))
def test_every_kernel_runs_at_toy_size_and_is_right(session, name):
    results = [r for r in session.results if r["kernel"] == name]
    assert results, f"{name} has no case in the default suite"
    for result in results:
        if name in NEEDS_MORE and result["outcome"] != "measured":
            assert (result["outcome"], NEEDS_MORE[name] in result["reason"]) == ("unsupported", True)
            continue
        assert result["outcome"] == "measured", result["reason"]
        assert result["error"] <= result["tolerance"]
        assert all(math.isfinite(s) and s > 0 for samples in result["samples"].values() for s in samples)


def test_session_ends_well_and_says_what_to_do_next(session):
    assert session.code == 0
    assert f"size-inference calibrate profile {session.out}" in session.printed
    assert "Whole steps against the sum of their kernels" in session.printed
    assert "2,398 kernels" in session.printed


def test_every_kernel_of_a_step_was_measured_so_that_the_sum_is_whole(session):
    rows = session.printed.partition("Whole steps")[2].partition("Scenarios")[0]
    assert "not measured" not in rows


def test_file_holds_environment_samples_and_a_digest_over_all_before_it(session):
    content = session.out.read_bytes()
    lines = content.splitlines(keepends=True)
    assert session.header["format"] == "sizing-profile"
    assert session.header["version"] == 1
    assert {"device", "driver", "libraries", "cuda", "toy"} <= set(session.header["environment"])
    assert session.end["results"] == len(lines) - 2 == len({r["key"] for r in session.results})
    assert session.end["sha256"] == hashlib.sha256(b"".join(lines[:-1])).hexdigest()
    assert not session.out.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
    assert not list(session.out.parent.glob("*.partial"))


def test_file_tells_nothing_of_who_measured(session):
    import getpass
    import re
    import socket

    words = set(re.findall(r"[A-Za-z0-9_.-]+", json.dumps(session.header)))
    assert not {socket.gethostname(), getpass.getuser()} & words
    assert "/" not in json.dumps(session.header["environment"])


def test_changed_file_is_refused(session, tmp_path):
    changed = tmp_path / "changed.jsonl"
    changed.write_bytes(session.out.read_bytes().replace(b'"took_s":0', b'"took_s":1', 1))
    with pytest.raises(BadInput, match="digest"):
        read_measurements(changed)


def test_finished_file_is_never_measured_over(session, capsys):
    before = session.out.read_bytes()
    assert main(["--device", "cpu", "--out", str(session.out)]) == 2
    assert "never changed; give another name" in capsys.readouterr().err
    assert session.out.read_bytes() == before


def test_dry_run_cannot_become_a_calibration(session):
    from sizing.cli import run

    assert run(["calibrate", "profile", str(session.out)]) == 2


DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_documented_format_names_every_field(session):
    text = (DOCS / "reference" / "measurement-format.md").read_text(encoding="utf-8")
    fields = {*session.end, *session.header["plan"]} | {k for r in session.results for k in r}
    fields |= {k for r in session.results for k in r.get("facts", {}) if k not in ("kernels", "message")}
    fields |= {k for r in session.results for k in r["sensors"]} | {k for r in session.results for k in r["shape"]}
    assert [f for f in sorted(fields - {"record"}) if f"`{f}`" not in text] == []


def test_how_to_names_every_family():
    text = (DOCS / "how-to" / "profile-your-gpu.md").read_text(encoding="utf-8")
    assert [k.family for k in kernels().values() if f"`{k.family}" not in text] == []
