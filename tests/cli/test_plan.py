"""The main job from the command line: formats, exit codes, files, and what goes where."""

import csv
import io
import json
from pathlib import Path

import pytest

import sizing
from sizing.cli import run
from sizing.schema import PlanDocument

QUESTION = ("--rps", "20", "--slo-tpot", "20ms")


def outcome(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(list(words))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.mark.parametrize("constants", ["rule-of-thumb", "measured"])
def test_six_h100_and_four_b200(constants: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys, *QUESTION, "--calibration", constants, "--format", "json")
    assert code == 0
    document = json.loads(out)
    PlanDocument.model_validate(document)
    totals = {c["gpu"]: c["total_gpus"] for c in document["candidates"]}
    assert (totals["h100-sxm"], totals["b200-hgx"]) == (6, 4)
    costs = [c["usd_per_hour"] for c in document["candidates"] if c["usd_per_hour"] is not None]
    assert costs == sorted(costs)
    named = {a["name"] for a in document["assumptions"]}
    assert {"model", "weights", "input", "output", "slo_ttft", "memory_utilization", "utilization", "spares"} <= named
    assert not {"rps", "slo_tpot"} & named
    assert all(a["basis"] and a["source"] for a in document["assumptions"])


def test_csv_opens_in_a_spreadsheet(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys, *QUESTION, "--format", "csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 5
    assert {"gpu", "total_gpus", "ttft_s", "tpot_s", "usd_per_hour"} <= set(rows[0])
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row.values() if cell)


def test_infeasible_is_an_answer_with_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, error = outcome(capsys, "--gpu", "h100", "--slo-tpot", "1ms")
    assert code == 3
    assert "infeasible" in out
    assert "Remedy" in out
    assert error == ""
    code, out, error = outcome(capsys, "--gpu", "h100", "--slo-tpot", "1ms", "--format", "json")
    assert (code, json.loads(out)["status"]) == (3, "infeasible")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("gpu", "weights", "advised"),
    [("h200", "bf16", "fp8"), ("h200", "fp8", None), ("b200", "fp8", "nvfp4"), ("b200", "nvfp4", None)],
)
def test_fewer_bits_are_advised_only_where_there_are_fewer(
    gpu: str, weights: str, advised: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = outcome(capsys, "-m", "llama-3.3-70b", "--gpu", gpu, "--tp", "1", "--weights", weights,
                        "--slo-tpot", "1ms")  # fmt: skip
    remedy = next(line for line in out.splitlines() if "Remedy" in line)
    assert ("--weights" in remedy) == (advised is not None)
    assert advised is None or f"(--weights {advised})" in remedy


def test_an_engine_that_would_not_start_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("-m", "llama-3.1-8b", "--gpu", "rtx4090", "--rps", "1", "--tp", "1", "--slo-tpot", "50ms")
    _, out, _ = outcome(capsys, *asked)
    assert "rtx4090: vllm refuses to start with a context of 131,072 tokens" in " ".join(out.split())
    _, out, _ = outcome(capsys, *asked, "--engine", "sglang")
    assert "refuses to start" not in out


def test_a_layout_that_engines_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys, "--gpu", "h100", "--tp", "3")
    assert code == 3
    assert "heads can't be split" in out


def test_a_file_is_replaced_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.md"
    path.write_text("old")
    code, out, _ = outcome(capsys, *QUESTION, "--format", "md", "--out", str(path))
    assert (code, out) == (0, "")
    assert path.read_text().startswith("## Cheapest: ")
    assert [p.name for p in tmp_path.iterdir()] == ["plan.md"]


def test_a_bare_target_is_milliseconds_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys, "--rps", "20", "--slo-tpot", "20", "--gpu", "b200")
    assert code == 0
    assert "Note: --slo-tpot 20: a bare number means milliseconds" in out
    assert "Note: b200 taken as b200-hgx" in out


def test_options_beside_a_plan_file_win(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("rps: 20\nslo-tpot: 20ms\ngpu: [h100]\nprice: {h100: 4}\ncalibration: rule-of-thumb\n")
    code, out, _ = outcome(capsys, "--config", str(path), "--spares", "0", "--format", "json")
    assert code == 0
    only = json.loads(out)["candidates"][0]
    assert (only["gpu"], only["spare_gpus"], only["total_gpus"]) == ("h100-sxm", 0, 4)
    assert only["usd_per_hour"] == 16.0
    assert only["usd_per_million_output_tokens"] == pytest.approx(16e6 / 3600 / 8000, rel=1e-12)


def test_explain_can_be_redone_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(capsys, *QUESTION, "--gpu", "h100", "--calibration", "rule-of-thumb", "--explain")
    assert code == 0
    # (0.02 s x 3.35e12 B/s x 0.7 - 15.14e9 B) / (2,200 x 147,456 B) = 97.9 requests; 28.965 TFLOP / 494.7 TFLOP/s
    assert "97.9 requests" in out
    assert "58.550 ms" in out
    # 1 / (58.550 ms + 400 x 20 ms / 97.9) = 7.130/s; 20 / (0.85 x 7.130) = 3.300
    assert "7.130/s" in out
    assert "= 3.300, rounded up = 4" in out
    assert "x 1 = 6" in out


def test_verify_replays_the_answer_and_its_neighbours() -> None:
    answer = sizing.plan("Qwen/Qwen3-8B", gpus=("h100",), verify=True)
    assert answer.verification is not None
    planned = answer.require().fleet.replicas
    rows = answer.verification.to_records()
    assert [r["replicas"] for r in rows] == [planned - 1, planned, planned + 1]
    assert answer.verification.agrees
    assert any("simulation agrees" in note for note in answer.notes)


def test_pareto_keeps_what_nothing_beats() -> None:
    answer = sizing.plan("Qwen/Qwen3-8B")
    kept = answer.pareto("usd_per_hour", "tpot_s")
    assert answer.best in kept
    for e in kept:
        assert not any(
            o.to_record()["usd_per_hour"] < e.to_record()["usd_per_hour"]  # type: ignore[operator]
            and o.to_record()["tpot_s"] < e.to_record()["tpot_s"]  # type: ignore[operator]
            for o in answer.evaluations
        )


def test_a_group_called_bare_shows_its_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, error = outcome(capsys, "validate")
    assert (code, out) == (2, "")
    assert "memory" in error
    assert error.count("\n") > 5


def test_attention_may_be_data_parallel(capsys: pytest.CaptureFixture[str]) -> None:
    """Latent attention: a copy of the cache on each tensor-parallel GPU, a part on each rank."""
    question = (
        "--model",
        "deepseek-ai/DeepSeek-R1",
        "--gpu",
        "h200",
        "--rps",
        "20",
        "--slo-tpot",
        "50ms",
        "--format",
        "json",
    )
    layouts = {"TP8": ("--tp", "8"), "DP8 EP8": ("--dp", "8", "--ep", "8")}
    found = {}
    for layout, words in layouts.items():
        code, out, _ = outcome(capsys, *question, *words)
        (only,) = json.loads(out)["candidates"]
        assert (code, only["layout"], only["gpus_per_replica"]) == (0, layout, 8)
        found[layout] = only["requests_per_s_per_replica"]
    assert found["DP8 EP8"] > found["TP8"]
