"""A session that dies is carried on with; budgets, locks and changed machines."""

import math
import signal
import subprocess
import sys
import time

import pytest

from profilers.__main__ import main, seconds
from profilers.measurements import MeasurementFile, read_measurements, whole_lines
from profilers.shapes import BadInput

HEADER = {
    "environment": {"device": {"name": "x"}, "driver": "1", "libraries": {}, "cuda": None, "toy": True},
    "plan": {},
}
ONLY = ["--only", "copy", "--only", "gemm", "--only", "elementwise", "--only", "sampling"]


def test_killed_session_is_carried_on_without_losing_or_repeating_a_result(tmp_path, capsys):
    out = tmp_path / "killed.jsonl"
    partial = tmp_path / "killed.jsonl.partial"
    words = ["--device", "cpu", "--out", str(out), *ONLY]
    process = subprocess.Popen([sys.executable, "-m", "profilers", *words], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if partial.exists() and partial.read_bytes().count(b"\n") >= 4:
            break
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not out.exists()
    kept, good = whole_lines(partial.read_bytes())
    assert len(kept) >= 4
    with partial.open("ab") as file:
        file.write(b'{"record":"result","key":"torn')  # the line that was being written
    assert main(words) == 0
    assert f"carrying on; {len(kept) - 1} cases" in capsys.readouterr().err
    content = out.read_bytes()
    _, results, end = read_measurements(out)
    assert whole_lines(content[:good])[0] == kept
    assert len({r["key"] for r in results}) == len(results) == end["results"]
    assert end["not_measured"] == []


def test_budget_leaves_out_the_end_of_the_plan_and_says_so(tmp_path, capsys):
    out = tmp_path / "short.jsonl"
    assert main(["--device", "cpu", "--budget", "0.001s", "--out", str(out), "--only", "copy"]) == 0
    _, results, end = read_measurements(out)
    assert len(results) == 1
    assert [k.split()[0] for k in end["not_measured"]] == [
        "copy.device_to_host",
        "copy.hbm",
        "copy.hbm_read",
        "copy.host_to_device",
    ]
    assert "4 left out by --budget" in capsys.readouterr().out


def test_two_sessions_never_write_one_file(tmp_path):
    first = MeasurementFile(tmp_path / "a.jsonl", HEADER)
    with pytest.raises(BadInput, match="another session"):
        MeasurementFile(tmp_path / "a.jsonl", HEADER)
    first.close()


@pytest.mark.parametrize(
    ("part", "value", "named"),
    [("environment", {**HEADER["environment"], "driver": "2"}, "driver"), ("plan", {"suite": "compact"}, "plan")],
)
def test_another_machine_or_plan_never_joins_a_file(tmp_path, part, value, named):
    MeasurementFile(tmp_path / "a.jsonl", HEADER).close()
    with pytest.raises(BadInput, match=rf"another {named}.*remove"):
        MeasurementFile(tmp_path / "a.jsonl", {**HEADER, part: value})


def test_unfinished_file_is_not_read_as_a_profile(tmp_path):
    file = MeasurementFile(tmp_path / "a.jsonl", HEADER)
    file.add({"key": "k", "outcome": "measured"})
    file.close()
    with pytest.raises(BadInput, match="not a finished profile"):
        read_measurements(tmp_path / "a.jsonl.partial")


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90.0), ("90s", 90.0), ("5m", 300.0), ("1.5h", 5400.0), ("none", math.inf)]
)
def test_budget_is_read_with_its_unit(text, expected):
    assert seconds(text) == expected


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--budget", "soon"], "--budget soon"),
        (["--budget", "0s"], "--budget 0s"),
        (["--device", "tpu"], "--device tpu"),
        (["--device", "cuda:99"], "visible to torch"),
        (["--device", "cpu", "--suite", "all"], "--suite all"),
        (["--device", "cpu", "--only", "gemmm"], "--only gemmm"),
        (["--device", "cpu", "--model", "nobody/nothing"], "--model nobody/nothing"),
        (["--device", "cpu", "--tp", "0"], "--tp 0"),
        (["--device", "cpu", "--tp", "7", "--model", "Qwen/Qwen3-8B"], "--tp 7"),
        (["--device", "cpu", "--disk", "/no/such/folder"], "--disk"),
        (["--device", "cpu", "--out", "/no/such/folder/x.jsonl"], "no folder"),
    ],
)
def test_bad_input_is_one_clear_line(words, named, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_failing_kernel_is_noted_and_the_session_goes_on(tmp_path, monkeypatch):
    import torch

    from profilers import kernel as registry
    from profilers.bench import open_bench
    from profilers.kernel import Case, Kernel
    from profilers.session import run_session

    def out_of_memory(case, bench):
        raise torch.OutOfMemoryError("no room for 1 TiB\nsecond line")

    def broken(case, bench):
        raise RuntimeError("bad launch")

    for name, build in (("fake.oom", out_of_memory), ("fake.broken", broken)):
        monkeypatch.setitem(registry._KERNELS, name, Kernel(name=name, cases=lambda plan: [], build=build))
    cases = [Case(kernel=n, shape={"n": 1}) for n in ("fake.oom", "fake.broken")]
    cases.append(Case(kernel="sampling.greedy", shape={"sequences": 2, "vocabulary": 16}))
    file = MeasurementFile(tmp_path / "a.jsonl", HEADER)
    assert run_session(cases, open_bench("cpu", toy=True), file, 60.0, lambda text: None) == []
    assert [r["outcome"] for r in file.results] == ["oom", "failed", "measured"]
    assert file.results[0]["reason"] == "OutOfMemoryError: no room for 1 TiB"
    file.close()


def test_wrong_result_is_noted_as_wrong(tmp_path, monkeypatch):
    from profilers import kernel as registry
    from profilers.bench import open_bench
    from profilers.kernel import Case, Kernel, Work
    from profilers.session import measure_case

    work = Work(
        calls=[lambda: None], check=lambda: 0.5, tolerance=0.01, flops=1.0, moved_bytes=1.0, implementation="off"
    )
    monkeypatch.setitem(
        registry._KERNELS, "fake.off", Kernel(name="fake.off", cases=lambda p: [], build=lambda c, b: work)
    )
    found = measure_case(Case(kernel="fake.off", shape={}), open_bench("cpu", toy=True))
    assert (found["outcome"], found["reason"]) == ("wrong", "error 0.5 of the largest value; 0.01 is allowed")
