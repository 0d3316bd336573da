import csv
import io
import json
import subprocess
import sys

import pytest

from sizing.cli import run


def output(capsys, *words):
    code = run(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_memory_prints_lines_that_sum_and_the_engines_wording(capsys):
    words = ("memory", "--model", "Qwen/Qwen3-8B", "--gpu", "h100", "--tp", "2", "--input", "2k", "--output", "400")
    code, out, _ = output(capsys, *words, "--format", "json")
    assert code == 0
    document = json.loads(out)
    rows = next(value for value in document.values() if isinstance(value, list) and isinstance(value[0], dict))
    assert sum(row["bytes"] for row in rows[:-1]) == pytest.approx(rows[-1]["bytes"], abs=len(rows))
    assert "h100 taken as h100-sxm" in out
    assert "GPU KV cache size:" in out
    assert "Maximum concurrency for 40,960 tokens per request:" in out
    assert "requests of 2,400 tokens" in out


def test_memory_says_what_does_not_fit(capsys):
    code, out, _ = output(capsys, "memory", "--model", "meta-llama/Llama-3.1-70B-Instruct", "--gpu", "h100")
    assert code == 0
    assert "does not fit" in out


@pytest.mark.parametrize(
    ("extra", "named", "expected"),
    [
        (("--gpu", "h900"), "h900", 4),
        (("--kv", "fp9"), "fp9", 2),
        (("--weights", "bf17"), "bf17", 2),
        (("--tp", "1.5"), "--tp", 2),
        (("--engine", "vlm"), "vllm", 2),
        (("--memory-rule", "guess"), "guess", 2),
        (("--memory-utilization", "1.2"), "1.2", 2),
        (("--max-model-len", "-3"), "-3", 2),
        (("--catalog", "nowhere.toml"), "nowhere.toml", 4),
    ],
)
def test_memory_refuses_in_one_line(capsys, extra, named, expected):
    code, out, err = output(capsys, "memory", "--model", "Qwen/Qwen3-8B", *extra)
    assert code == expected
    assert out == ""
    assert named in err
    assert "Traceback" not in err


def test_gpus_lists_filters_and_shows_sources(capsys):
    code, out, _ = output(capsys, "gpus", "--format", "csv", "--vendor", "amd", "--min-memory", "190GB")
    assert code == 0
    listed = {row["gpu"] for row in csv.DictReader(io.StringIO(out))}
    assert {"mi300x", "mi325x", "mi355x"} <= listed
    assert "mi250x" not in listed
    code, out, _ = output(capsys, "gpus", "b200")
    assert code == 0
    assert "b200 taken as b200-hgx" in out
    assert "sources disagree" in out
    assert "180,000,000,000" in out


def test_gpus_takes_a_users_catalogue(capsys, tmp_path):
    from sizing.catalog.overlay import forget_overlays

    file = tmp_path / "mine.toml"
    file.write_text('[gpus.labcard]\nlike = "l40s"\n', encoding="utf-8")
    try:
        code, out, _ = output(capsys, "gpus", "labcard", "--catalog", str(file))
    finally:
        forget_overlays()
    assert code == 0
    assert "labcard" in out


def test_an_unknown_gpu_is_not_replaced(capsys):
    code, _, err = output(capsys, "gpus", "h2000")
    assert code == 4
    assert "h200-sxm" in err


def test_the_package_runs_as_the_command():
    words = ("gpus", "h100-sxm", "--format", "csv")
    ways = (["-m", "sizing"], ["-c", "from sizing.cli import main; main()"])
    found, usual = (
        subprocess.run([sys.executable, *way, *words], capture_output=True, text=True, check=True).stdout
        for way in ways
    )
    assert found == usual
    assert "memory_bytes,8e+10,byte,datasheet" in found
