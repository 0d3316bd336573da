"""From a trace to a workload file and back; shipped shapes; the command."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from tests.workload.generated import azure_2023, mooncake_rows, objects, write

from sizing.cli import run
from sizing.errors import InputError, UnknownFile
from sizing.workload import (
    Arrivals,
    Gamma,
    Lognormal,
    Poisson,
    Profile,
    Workload,
    diurnal,
    ramp,
    read_trace,
    read_workload,
    weekly,
)
from sizing.workload.arrivals import arrivals_from_record
from sizing.workload.files import workload_text
from sizing.workload.fit import fit_arrivals, fit_lengths
from sizing.workload.given import traffic_from
from sizing.workload.shapes import shape, shapes

SHAPES = ("chat", "long-chat", "reasoning", "rag", "rag-shared", "summarisation", "code", "agents")


def traced(folder: Path, workload: Workload, n: int) -> Path:
    """A plain log of sampled requests."""
    drawn = workload.sample(n, seed=9)
    rows = zip(drawn.arrival_s, drawn.input_tokens, drawn.output_tokens, strict=True)
    lines = [f"{a:.9f},{i},{o}" for a, i, o in rows]
    return write(folder / "log.csv", ["arrival_s,input_tokens,output_tokens", *lines])


def test_a_fit_recovers_what_made_the_trace(tmp_path: Path) -> None:
    truth = Workload(
        request_rate_per_s=8.0,
        input_tokens=Lognormal(mean_tokens=1500, cv=0.8, most_tokens=20_000),
        output_tokens=Lognormal(mean_tokens=250, cv=1.2, most_tokens=4_000),
        arrivals=Profile(factors=(0.5, 1.0, 1.5, 1.0), step_s=900.0, stream=Gamma(cv=2.0)),
        correlation=0.5,
    )
    found = read_trace(traced(tmp_path, truth, 28_800)).to_workload(lengths="lognormal")
    assert found.request_rate_per_s == pytest.approx(8.0, rel=0.05)
    assert found.mean_input_tokens == pytest.approx(truth.mean_input_tokens, rel=0.02)
    assert found.output_length.std == pytest.approx(truth.output_length.std, rel=0.1)
    assert found.correlation == pytest.approx(0.5, abs=0.03)
    assert found.arrivals.gap_cv == pytest.approx(2.0, rel=0.1)
    assert found.peak_rate_per_s == pytest.approx(12.0, rel=0.3)


def test_a_steady_stream_has_little_profile() -> None:
    times = Poisson().sample_s(np.random.Generator(np.random.PCG64(0)), 100_000, 20.0)
    found = fit_arrivals(times)
    assert found.gap_cv == pytest.approx(1.0, abs=0.03)
    assert found.peak_to_mean < 1.15
    assert fit_arrivals(times[:2]) == Poisson()


def test_the_busiest_minute_is_a_steady_rate(tmp_path: Path) -> None:
    trace = read_trace(azure_2023(tmp_path / "a.csv", 3000))
    mean, peak = trace.to_workload(), trace.to_workload(rate="peak-minute")
    assert mean.request_rate_per_s == pytest.approx(3000 / 2999)
    assert peak.request_rate_per_s == pytest.approx(1.0, rel=0.02)
    assert not isinstance(peak.arrivals, Profile)
    with pytest.raises(InputError, match="peak-minute"):
        trace.to_workload(rate="peak-minut")
    with pytest.raises(InputError, match="lognormal"):
        trace.to_workload(lengths="lognorm")


def test_reuse_goes_into_the_workload(tmp_path: Path) -> None:
    trace = read_trace(objects(tmp_path / "m.jsonl", mooncake_rows(400)))
    traffic = trace.to_workload()
    assert traffic.prefix_hit_share == pytest.approx(trace.summary().reused_share)
    assert traffic.mean_new_tokens == pytest.approx(traffic.mean_input_tokens * (1 - traffic.prefix_hit_share))


def test_lengths_alone_need_no_arrivals(tmp_path: Path) -> None:
    path = write(tmp_path / "v.csv", ["num_prefill_tokens,num_decode_tokens", "10,3", "20,5", "30,7"])
    traffic = fit_lengths(read_trace(path), 4.0)
    assert (traffic.request_rate_per_s, traffic.arrivals) == (4.0, Poisson())
    assert traffic.mean_input_tokens == pytest.approx(20)
    given = traffic_from(path, request_rate_per_s=4.0)
    assert given.workload == traffic
    assert "no request rate" in given.notes[0]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("form", ["toml", "json"])
def test_a_workload_file_reads_back_the_same(tmp_path: Path, name: str, form: str) -> None:
    traffic = shape(name, 12.5)
    path = tmp_path / f"w.{form}"
    path.write_text(workload_text(traffic, form), encoding="utf-8")
    assert read_workload(path) == traffic
    assert traffic_from(path).workload == traffic
    assert traffic_from(path, request_rate_per_s=3).workload.request_rate_per_s == 3


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "no request_rate_per_s"),
        ("schema = 'sizing.workload'\nversion = 99", "version 99"),
        ("request_rate_per_s = 'fast'\ninput_tokens = 1\noutput_tokens = 1", "request_rate_per_s"),
        ("request_rate_per_s = -1\ninput_tokens = 1\noutput_tokens = 1", "request_rate_per_s"),
        ("request_rate_per_s = nan\ninput_tokens = 1\noutput_tokens = 1", "request_rate_per_s"),
        ("request_rate_per_s = 1\ninput_tokens = 1\noutput_tokens = 1\nimput = 3", "input_tokens"),
        ("request_rate_per_s = 1\ninput_tokens = {kind = 'fixd'}\noutput_tokens = 1", "fixed"),
        ("request_rate_per_s = 1\ninput_tokens = 1\noutput_tokens = 1\narrivals = 'poisson'", "arrivals"),
        ("request_rate_per_s = 1\ninput_tokens = 1\noutput_tokens = 1\nsessions = {turn = 3}", "sessions"),
        ("request_rate_per_s = 1\ninput_tokens = 1\noutput_tokens = 1\nprefix = 7", "prefix"),
        ("this is not toml", "neither TOML nor JSON"),
        ("{" * 100_000, "neither TOML nor JSON"),
    ],
)
def test_a_wrong_workload_file_is_refused_by_name(tmp_path: Path, text: str, names: str) -> None:
    path = tmp_path / "w.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=names) as refused:
        read_workload(path)
    assert "w.toml" in str(refused.value)


def test_a_workload_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnknownFile):
        read_workload(tmp_path / "none.toml")


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_samples_to_what_it_states(name: str) -> None:
    traffic = shape(name, 10.0)
    assert len(traffic.source) > 40
    drawn = traffic.sample(60_000, seed=3)
    assert drawn.input_tokens.mean() == pytest.approx(traffic.mean_input_tokens, rel=0.04)
    assert drawn.output_tokens.mean() == pytest.approx(traffic.mean_output_tokens, rel=0.04)


def test_shapes_are_those_of_their_sources() -> None:
    """Means printed in ecosystem/report.md, 1: Azure, Mooncake, ServeGen, AIPerf; p50 and p95 of ServeGen."""
    assert tuple(shapes()) == SHAPES
    published = {"chat": (1155, 211), "code": (2048, 28), "long-chat": (12035, 343), "reasoning": (1268, 1527)}
    for name, (inputs, outputs) in published.items():
        traffic = shape(name)
        assert (traffic.mean_input_tokens, traffic.mean_output_tokens) == pytest.approx((inputs, outputs), rel=0.04)
    reasoning = shape("reasoning")
    assert reasoning.output_length.quantile([0.5, 0.95, 0.99]) == pytest.approx([792, 5701, 12607])
    assert reasoning.input_length.quantile([0.5, 0.95, 0.99]) == pytest.approx([208, 6714, 23423])
    assert shape("agents").mean_input_tokens == pytest.approx(96_700, rel=0.03)
    assert shape("agents").ideal_prefix_share > 0.9
    with pytest.raises(InputError, match="chat"):
        shape("chatt")


def test_the_command_shows_fits_and_reads_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = azure_2023(tmp_path / "a.csv", 3000)
    assert run(["workload", str(log), "--fit", str(tmp_path / "w.toml")]) == 0
    shown = capsys.readouterr().out
    assert "azure trace" in shown
    assert "peak to mean by minute" in shown
    assert "█" in shown
    assert run(["workload", str(tmp_path / "w.toml"), "--format", "json"]) == 0
    rows = {r["quantity"]: r["value"] for r in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["rate, mean"] == pytest.approx(3000 / 2999, rel=1e-5)
    assert run(["workload", str(log), "--format", "csv", "--out", str(tmp_path / "o.csv")]) == 0
    assert (tmp_path / "o.csv").read_text().startswith("quantity,value,unit")
    assert run(["workload", "--format", "md"]) == 0
    assert "| agents |" in capsys.readouterr().out
    assert run(["workload", "--shape", "agents", "--rps", "120/min"]) == 0
    assert "pause between turns" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "names"),
    [
        (["none.csv"], 4, "none.csv"),
        (["--shape", "chta"], 2, "chat"),
        (["{log}", "--kind", "azur"], 2, "azure"),
        (["{log}", "--rps", "-3"], 2, "--rps"),
        (["{log}", "--rps", "0"], 2, "--rps"),
        (["{log}", "--fit", "/nowhere/at/all.toml"], 2, "all.toml"),
        (["{log}", "--fit", "{folder}/w.toml", "--lengths", "normal"], 2, "lognormal"),
        (["{log}", "--format", "xlsx"], 2, "xlsx"),
        (["{folder}"], 2, "folder"),
    ],
)
def test_the_command_refuses_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, names: str
) -> None:
    log = azure_2023(tmp_path / "a.csv", 300)
    assert run(["workload", *(w.format(log=log, folder=tmp_path) for w in words)]) == code
    captured = capsys.readouterr()
    assert names in captured.err
    assert captured.err.count("\n") == 1


def test_a_plan_from_a_trace_says_what_it_read(tmp_path: Path) -> None:
    rows = azure_2023(tmp_path / "a.csv", 3000).read_text().splitlines()
    path = write(tmp_path / "b.csv", [*rows[:9], "oops", *rows[9:]])
    given = traffic_from(path)
    assert "3,000 requests (azure)" in given.notes[0]
    assert any("planned for 1 requests/s" in note for note in given.notes)
    assert any("1 left out: fields missing (first at line 10)" in note for note in given.notes)
    assert not math.isnan(given.trace.summary().rate_per_s)


@pytest.mark.parametrize(
    ("kind", "same"),
    [
        ({"kind": "diurnal", "amplitude": 0.6, "cv": 2}, diurnal(0.6, cv=2)),
        ({"kind": "weekly", "weekend": 0.3}, weekly(weekend=0.3)),
        ({"kind": "ramp", "start": 1, "end": 3, "duration_s": 3600}, ramp(1, 3, 3600)),
    ],
)
def test_profiles_are_written_by_hand_with_their_few_numbers(kind: dict[str, object], same: Arrivals) -> None:
    assert arrivals_from_record(kind) == same


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"kind": "diurnal", "amplitud": 1}, "unknown field 'amplitud'; give amplitude, peak_hour, cv, steps"),
        ({"kind": "ramp", "start": 1}, "ramp: end is missing"),
        ({"kind": "ramp", "start": -1, "end": 1, "duration_s": 10}, "start: -1 is not allowed"),
        ({"kind": "gamma", "cv": "x"}, "cv: 'x' is not allowed"),
    ],
)
def test_a_wrong_field_of_arrivals_is_named(record: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        arrivals_from_record(record)
