"""Predictions beside a load test: ratios, summaries, deployments, and what must be asked for."""

import dataclasses
import json
from pathlib import Path

import pytest

from sizing.benchmarks.point import BenchPoint, Latency, Load
from sizing.cli import run
from sizing.deployment import EngineSettings
from sizing.errors import InputError
from sizing.validation.bench import Prediction, compare, comparison_rows, summarise, summary_notes, usable
from sizing.validation.bench_predictor import (
    joint_predictor,
    load_of,
    predicted,
    ran_on,
    serving_predictor,
    shipped_calibration,
)


def point(concurrency: float = 16, **changes: object) -> BenchPoint:
    made = BenchPoint(
        format="test",
        source="made.json",
        sha256="0" * 64,
        load=Load(kind="closed", concurrency=concurrency),
        ttft=Latency(mean_s=0.1),
        tpot=Latency(mean_s=0.01),
        tpot_definition="after_first_token",
        input_tokens=1000.0,
        output_tokens=200.0,
        model="Qwen/Qwen3-8B",
        gpu="h100-sxm",
        tp=1,
        engine="vllm",
    )
    return dataclasses.replace(made, **changes)


def test_ratios_errors_and_summary() -> None:
    points = [point(8), point(16)]
    shown = compare(points, [Prediction(tpot_s=0.012, ttft_s=0.1), Prediction(tpot_s=0.008)])
    assert [(row.metric, round(row.ratio, 3)) for row in shown] == [("tpot_s", 1.2), ("ttft_s", 1.0), ("tpot_s", 0.8)]
    tpot, ttft = summarise(shown)
    assert (tpot.count, tpot.median, tpot.bias) == (2, pytest.approx(0.2), pytest.approx(0.0))
    assert ttft.median == pytest.approx(0.0)
    assert summary_notes([tpot]) == ["tpot: median error 20.0%, bias +0.0%, p90 20.0%, 2 points"]
    rows = comparison_rows(shown)
    assert rows[0]["tpot_ratio"] == 1.2
    assert rows[1]["ttft_ms"] is None
    with pytest.raises(InputError, match="1 points but 0 predictions"):
        compare(points[:1], [])


def test_ttft_is_left_out_where_kv_room_starves() -> None:
    shown = compare([point()], [Prediction(tpot_s=0.01, ttft_s=9.0, starved=True)])
    assert [row.metric for row in shown] == ["tpot_s"]


def test_refused_points_are_not_scored() -> None:
    assert usable([point(), point().refused("no")]) == (point(),)
    with pytest.raises(InputError, match="no point of the benchmark can be used: too late"):
        usable([point().refused("too late")])


def test_deployment_of_a_point() -> None:
    ran = ran_on(point(gpu="NVIDIA-H100-80GB-HBM3", tp=None, gpus=2, engine="SGLang", weights="fp8"))
    assert ran.deployment.gpu.id == "h100-sxm"
    assert ran.deployment.settings.engine == "sglang"
    assert ran.deployment.formats.weights == "fp8"
    settings = EngineSettings(memory_utilization=0.8, max_num_seqs=64)
    told = ran_on(point(engine="TensorRT-LLM"), settings).deployment.settings
    assert (told.engine, told.memory_utilization, told.max_num_seqs) == ("trtllm", 0.8, 64)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"model": None}, "give --model"),
        ({"gpu": None}, "give --gpu"),
        ({"disaggregated": True}, "only colocated"),
    ],
)
def test_what_a_point_lacks_is_asked_for(changes: dict[str, object], wanted: str) -> None:
    with pytest.raises(InputError, match=wanted):
        ran_on(point(**changes))


def test_load_is_shared_by_replicas() -> None:
    assert load_of(point(16), 4.0).users == 4.0
    rate = point(load=Load(kind="open", request_rate_per_s=20.0), completed=100)
    assert load_of(rate, 2.0).request_rate_per_s == 10.0
    assert load_of(rate, 2.0).requests == 50.0


def test_prediction_takes_the_planners_path() -> None:
    ran = ran_on(point())
    predictor, constants = serving_predictor(ran), shipped_calibration(ran)
    one, many = predictor([point(1), point(64)], constants)
    assert one.tpot_s < many.tpot_s
    assert one.output_tokens_per_s < many.output_tokens_per_s
    assert one.e2e_s == pytest.approx(one.ttft_s + 199 * one.tpot_s)
    floor_s = 8.19e9 * 2 / 3.35e12  # weights of Qwen3-8B in BF16 over the H100's datasheet bandwidth
    assert floor_s < one.tpot_s < 3 * floor_s
    slower = constants.with_constants("engine", step_s=constants.engine_time.step_s + 5e-3)
    assert predictor([point(1)], slower)[0].tpot_s == pytest.approx(one.tpot_s + 5e-3, rel=0.05)


def test_static_points() -> None:
    ran = ran_on(point())
    predictor, constants = serving_predictor(ran), shipped_calibration(ran)
    decode = point(load=Load(kind="static", concurrency=8), context_tokens=1100.0, input_tokens=None)
    prefill = point(load=Load(kind="prefill", concurrency=1), input_tokens=4000.0)
    found = predictor([decode, prefill], constants)
    assert found[0].tpot_s == pytest.approx(float(predictor([point(8)], constants)[0].tpot_s or 0), rel=0.5)
    floor_s = 4000 * 2 * 6.9e9 / 989e12  # FLOPs of the layers' weights over the H100's dense BF16 peak
    assert floor_s < found[1].ttft_s < 5 * floor_s


def test_constants_belong_to_one_gpu_and_engine() -> None:
    with pytest.raises(InputError, match=r"several GPUs \(h100-sxm, h200-sxm\)"):
        joint_predictor([point(), point(gpu="h200")])
    predictor, _ = joint_predictor([point(), point(tp=2)])
    constants = shipped_calibration(ran_on(point()))
    single, pair = predictor([point(), point(tp=2)], constants)
    assert pair.tpot_s < single.tpot_s


def test_points_without_an_answer_are_told() -> None:
    kept, found, reasons = predicted([point(), point(gpu="unobtainium")])
    assert (len(kept), len(found), len(reasons)) == (1, 1, 1)
    assert "unobtainium" in reasons[0]


# --- the verbs --------------------------------------------------------------------------------------------


def result(folder: Path) -> Path:
    """Three concurrencies of a run whose times are twice as long as rough arithmetic has them."""
    lines = []
    for concurrency, tpot_ms, ttft_ms in ((1, 9.0, 60.0), (8, 10.0, 110.0), (32, 14.0, 220.0)):
        e2e_ms = ttft_ms + 199 * tpot_ms
        lines.append(
            {
                "model_id": "Qwen/Qwen3-8B", "backend": "vllm", "request_rate": "inf", "max_concurrency": concurrency,
                "completed": 320, "total_input_tokens": 320000, "total_output_tokens": 64000,
                "request_throughput": concurrency / e2e_ms * 1e3, "mean_ttft_ms": ttft_ms, "mean_tpot_ms": tpot_ms,
                "mean_e2el_ms": e2e_ms,
            }
        )  # fmt: skip
    file = folder / "run.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines))
    return file


def test_validate_bench_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, export = result(tmp_path), tmp_path / "llmd.yaml"
    words = ["validate", "bench", str(file), "--gpu", "h100", "--format", "json", "--export", str(export)]
    assert run(words) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["load"] for row in shown["rows"]] == ["concurrency 1", "concurrency 8", "concurrency 32"]
    assert shown["rows"][0]["tpot_ms"] == 9.0
    assert any(note.startswith("tpot: median error") for note in shown["notes"])
    assert any("alone would bring" in note or "no single constant" in note for note in shown["notes"])
    assert export.read_text().count("version: 0.2.1") == 3


def test_validate_bench_names_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "bench", str(result(tmp_path))]) == 2
    assert "give --gpu" in capsys.readouterr().err
    assert run(["validate", "bench", str(tmp_path / "none.json"), "--gpu", "h100"]) == 4
    assert run(["validate", "bench", str(result(tmp_path)), "--gpu", "h100", "--tp", "half"]) == 2
    assert "--tp" in capsys.readouterr().err


def test_held_out_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = result(tmp_path).read_text().splitlines()
    middle = json.loads(lines[1]) | {"max_concurrency": 4, "mean_tpot_ms": 9.5, "mean_ttft_ms": 90.0}
    (tmp_path / "four.jsonl").write_text("\n".join([*lines, json.dumps(middle)]))
    words = ["validate", "bench", str(tmp_path / "four.jsonl"), "--gpu", "h100", "--held-out", "--format", "json"]
    assert run(words) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["metric"] for row in rows} == {"tpot_s", "ttft_s"}
    assert all(row["points"] == 1 for row in rows)


def test_options_of_held_out_ask_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["validate", "bench", str(result(tmp_path)), "--gpu", "h100"]
    assert run([*words, "--lowest", "--runs", "3"]) == 2
    assert capsys.readouterr().err == "size-inference: --lowest, --runs: give --held-out with it\n"


def test_validate_log_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(
        "vLLM API server version 0.19.0\nModel loading took 15.27 GiB\nAvailable KV cache memory: 57.0 GiB\n"
    )
    assert run(["validate", "log", str(log), "--model", "Qwen/Qwen3-8B", "--gpu", "h100", "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "line,unit,log,predicted,difference,error"
    log.write_text("nothing here")
    assert run(["validate", "log", str(log), "--model", "Qwen/Qwen3-8B"]) == 2


def test_calibrate_bench_writes_a_file_that_every_command_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, made = result(tmp_path), tmp_path / "mine.toml"
    words = ["calibrate", "bench", str(file), "--gpu", "h100", "--format", "json", "--out", str(made)]
    assert run(words) == 0
    shown = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in shown["rows"]}
    assert {"step_s", "sequence_s", "memory_scale", "compute_scale", "first_token_s"} <= set(rows)
    assert "link_scale" not in rows  # one GPU has no collectives
    assert all(row["identified"] in ("yes", "no") for row in rows.values())
    assert any("not identified" in note or "identified every" in note for note in shown["notes"])
    text = made.read_text()
    assert 'basis = "fitted end to end"' in text
    assert "run.jsonl (sha256 " in text

    assert run(["validate", "bench", str(file), "--gpu", "h100", "--format", "json", "--no-explain"]) == 0
    before = json.loads(capsys.readouterr().out)["rows"]
    words = ["validate", "bench", str(file), "--gpu", "h100", "--format", "json", "--calibration", str(made)]
    assert run(words) == 0
    after = json.loads(capsys.readouterr().out)["rows"]

    def worst(lines: list[dict[str, float]], metric: str) -> float:
        return max(abs(line[metric] - 1.0) for line in lines)

    assert worst(after, "tpot_ratio") < 0.5 * worst(before, "tpot_ratio")
    assert worst(after, "tpot_ratio") < 0.10

    assert run(["calibrate", "bench", str(file), "--gpu", "h100", "--calibration", str(made)]) == 0
    assert run(["calibrate", "bench", str(file), "--gpu", "h100", "--calibration", "rule-of-thumb"]) == 2
    assert "can't begin from" in capsys.readouterr().err


def test_calibrate_bench_refuses_a_saturated_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = json.loads(result(tmp_path).read_text().splitlines()[0])
    line |= {"request_rate": 50.0, "max_concurrency": None, "request_throughput": 2.0}
    (tmp_path / "late.json").write_text(json.dumps(line))
    assert run(["calibrate", "bench", str(tmp_path / "late.json"), "--gpu", "h100"]) == 2
    assert "no point of the benchmark can be used" in capsys.readouterr().err
