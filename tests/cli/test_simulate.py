"""`size-inference simulate`: modes, pipes, and the document that JSON gives."""

import gzip
import io
import json
import sys

import pytest

from sizing.cli import run
from sizing.schema import SimulationDocument
from sizing.workload import Workload, diurnal, read_workload, workload_text

TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(
    f"{k / 2},{100 + k},{5 + k % 3}\n" for k in range(40)
)
SHORT = ("simulate", "--requests", "300", "--replications", "2", "--replicas", "1", "--rps", "2")


def output(capsys, *words):
    code = run(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def document(capsys, *words):
    code, out, err = output(capsys, *words, "--format", "json")
    assert code == 0, err
    found = json.loads(out)
    if words[0] == "simulate":
        SimulationDocument.model_validate(found)
    return found


def pipe(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))


def test_the_document_holds_question_assumptions_workload_and_answer(capsys):
    d = document(capsys, *SHORT, "--slo-tpot", "30ms", "--percentile", "95", "--cv", "2")
    assert (d["schema"], d["schema_version"]) == ("sizing.simulation", 1)
    q = d["question"]
    assert (q["gpu"], q["replicas"], q["requests"], q["slo"]["tpot_s"]) == ("h100-sxm", 1, 300, 0.03)
    assert q["slo"]["tpot_percentile"] == 95
    assert q["scheduler"]["kv_reservation"] == "paged"
    assert {a["name"] for a in d["assumptions"]} == {"model", "gpu", "engine", "input", "output", "slo_ttft"}
    assert d["workload"]["request_rate_per_s"] == 2
    assert d["workload"]["arrivals"]["cv"] == 2
    ttft = d["summary"]["ttft_s"]
    assert 0 < ttft["p50"]["value"] <= ttft["p99"]["value"]
    assert ttft["mean"]["low"] <= ttft["mean"]["value"] <= ttft["mean"]["high"]
    assert d["targets"]["attained"] is True
    assert d["targets"]["tpot_s"]["value"] == pytest.approx(d["summary"]["tpot_s"]["p95"]["value"])
    assert [r["requests"] for r in d["replicas"]] == [300]
    assert d["replicas"][0]["output_tokens"] == 300 * 400
    assert any("warm-up" in note for note in d["notes"])


def test_ranks_of_attention_each_have_the_engines_limits(capsys):
    """vLLM runs 256 sequences and 2,048 tokens a rank where they are so set; the replica's are four times that."""
    words = (*SHORT, "--model", "Qwen/Qwen3-30B-A3B", "--max-num-seqs", "256", "--max-num-batched-tokens", "2048")
    q = document(capsys, *words, "--dp", "4", "--ep", "4")["question"]
    assert q["gpus_per_replica"] == 4
    assert (q["scheduler"]["max_num_seqs"], q["scheduler"]["max_num_batched_tokens"]) == (1024, 8192)


def test_replicas_share_the_requests(capsys):
    d = document(capsys, *SHORT[:5], "--replicas", "3", "--rps", "6")
    assert sum(r["requests"] for r in d["replicas"]) == 300
    assert all(r["prefilled_tokens"] == 2000 * r["requests"] for r in d["replicas"])


def test_rates_and_users_give_a_line_each(capsys):
    rates = document(capsys, *SHORT[:-2], "--rates", "1,4/s")["runs"]
    assert [r["request_rate_per_s"] for r in rates] == [1, 4]
    assert rates[0]["summary"]["tpot_s"]["mean"]["value"] < rates[1]["summary"]["tpot_s"]["mean"]["value"]
    users = document(capsys, *SHORT[:-2], "--concurrency", "1,16")["runs"]
    assert [r["concurrency"] for r in users] == [1, 16]
    alone, many = (r["summary"] for r in users)
    assert alone["requests_present"]["value"] == pytest.approx(1, abs=0.02)
    assert many["requests_per_s"]["value"] > 4 * alone["requests_per_s"]["value"]
    code, out, _ = output(capsys, *SHORT[:-2], "--rates", "1,4", "--format", "csv")
    assert code == 0
    assert len(out.splitlines()) == 3


def test_one_number_of_users_is_told_in_full_and_pauses_count(capsys):
    d = document(capsys, *SHORT[:-2], "--concurrency", "4", "--pause", "10s")
    latency = d["summary"]["latency_s"]["mean"]["value"]
    assert d["load"] == {"concurrency": 4}
    assert d["summary"]["requests_per_s"]["value"] == pytest.approx(4 / (latency + 10), rel=0.05)


def test_search_gives_both_answers(capsys):
    d = document(capsys, *SHORT, "--sustainable", "--percentile", "95")
    found = d["sustainable"]
    assert found["request_rate_per_s"] < found["too_much_per_s"] <= 1.02 * found["request_rate_per_s"]
    assert found["closed_form"]["request_rate_per_s"] == pytest.approx(found["request_rate_per_s"], rel=0.25)
    assert d["summary"]["tpot_s"]["p95"]["value"] <= 0.020
    share = document(capsys, *SHORT, "--goodput", "90%")["sustainable"]
    assert share["goodput_share"] == 0.9


def test_policies_are_compared_by_the_rate_they_carry(capsys, tmp_path):
    made = tmp_path / "chat.toml"
    assert run(["workload", "--shape", "chat", "--rps", "3", "--fit", str(made)]) == 0
    capsys.readouterr()
    rows = document(capsys, "simulate", "--requests", "800", "--replications", "1", "--replicas", "1", "--trace",
                    str(made), "--compare-policies", "--slo-ttft", "20s", "--slo-tpot", "200ms", "--max-model-len",
                    "16k")["policies"]  # fmt: skip
    carried = {(r["batching"], r["kv_reservation"]): r["requests_per_s"] for r in rows}
    assert carried["continuous", "paged"] > 1.5 * carried["continuous", "longest"]
    assert carried["continuous", "longest"] > 1.5 * carried["static", "longest"]
    assert rows[0]["over_first"] == 1.0


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_from_standard_input(capsys, monkeypatch, tmp_path, packed):
    content = gzip.compress(TRACE.encode()) if packed else TRACE.encode()
    pipe(monkeypatch, content)
    piped = document(capsys, "simulate", "--trace", "-", "--warm-up", "0")
    (tmp_path / "trace.csv").write_bytes(content)
    filed = document(capsys, "simulate", "--trace", str(tmp_path / "trace.csv"), "--warm-up", "0")
    assert piped["summary"] == filed["summary"]
    assert piped["workload"]["requests"] == 40
    assert piped["workload"]["file"] == "-"


def test_a_trace_sent_by_users(capsys, tmp_path):
    (tmp_path / "trace.csv").write_text(TRACE)
    d = document(capsys, "simulate", "--trace", str(tmp_path / "trace.csv"), "--concurrency", "2", "--replicas", "1")
    rate, latency = (d["summary"][name] for name in ("requests_per_s", "latency_s"))
    assert rate["value"] * latency["mean"]["value"] == pytest.approx(2, rel=0.05)  # Little's law


def test_a_plan_file_from_standard_input_for_both_jobs(capsys, monkeypatch):
    text = b"model: Qwen/Qwen3-8B\ngpu: [h200, h100]\nrps: 3\nslo-tpot: 40ms\nspares: 1\n"
    pipe(monkeypatch, text)
    d = document(capsys, "simulate", "--config", "-", "--requests", "200", "--replicas", "1")
    assert (d["question"]["gpu"], d["workload"]["request_rate_per_s"]) == ("h200-sxm", 3)
    assert any("the first of h200, h100" in note for note in d["notes"])
    pipe(monkeypatch, text)
    plan = document(capsys, "--config", "-")
    assert plan["request_rate_per_s"] == 3


def test_a_workload_file_is_sampled(capsys, tmp_path):
    made = tmp_path / "chat.toml"
    assert run(["workload", "--shape", "chat", "--rps", "3", "--fit", str(made)]) == 0
    capsys.readouterr()
    d = document(capsys, "simulate", "--trace", str(made), "--requests", "200", "--replications", "2")
    assert d["workload"]["request_rate_per_s"] == 3
    assert d["replications"] == 2


def test_whole_prompts_hold_up_those_that_decode(capsys):
    split = document(capsys, *SHORT)["summary"]["itl_s"]
    whole = document(capsys, *SHORT, "--no-chunked-prefill")
    assert whole["question"]["scheduler"]["mixed"] is whole["question"]["scheduler"]["chunked"] is False
    assert whole["summary"]["itl_s"]["p99"]["value"] > split["p99"]["value"]


def test_separate_pools_pay_for_the_link(capsys):
    words = (*SHORT, "--prefill-replicas", "1", "--kv-link")
    fast, slow = (document(capsys, *words, link) for link in ("100GB/s", "1GB/s"))
    assert slow["question"]["kv_link_bytes_per_s"] == 1e9
    moved_bytes = 2000 * 2 * 36 * 8 * 128 * 2  # Qwen3-8B: keys and values, 36 layers, 8 heads of 128, BF16
    later_s = slow["summary"]["ttft_s"]["mean"]["value"] - fast["summary"]["ttft_s"]["mean"]["value"]
    assert later_s == pytest.approx(moved_bytes * (1e-9 - 1e-11), rel=0.05)


def test_failures_are_events(capsys):
    d = document(capsys, *SHORT[:5], "--replicas", "2", "--rps", "6", "--event", "10s,fail,1", "--event", "20s,start,1")
    assert d["question"]["events"] == ["10s,fail,1", "20s,start,1"]
    assert d["summary"]["unfinished"]["value"] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rates", "1", "--concurrency", "2"), "--concurrency and --rates: give one of them"),
        (("--rates", "1,x"), "--rates: 'x'"),
        (("--concurrency", "0"), "--concurrency: '0'"),
        (("--event", "3s"), "--event: '3s' is not allowed; write time,kind,replica"),
        (("--event", "3s,burn,0"), "kind: 'burn' is not known"),
        (("--event", "3s,fail,9"), "replica: 9"),
        (("--requests", "0"), "requests: 0"),
        (("--prefill-replicas", "1", "--kv-link", "0GB/s"), "--kv-link"),
        (("--concurrency", "2", "--prefill-replicas", "1"), "closed loop cannot be simulated on separate pools"),
        (("--config", "-"), "--config"),
    ],
)
def test_bad_input_is_one_line(capsys, monkeypatch, words, said):
    pipe(monkeypatch, b"[not a mapping")
    code, out, err = output(capsys, "simulate", *words)
    assert code == 2
    assert out == ""
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_a_trace_has_its_own_rate(capsys, monkeypatch):
    for words, said in (
        (("--rates", "1"), "a trace has its own rate"),
        (("--rps", "2"), "a trace is replayed as it is"),
    ):
        pipe(monkeypatch, TRACE.encode())
        code, _, err = output(capsys, "simulate", "--trace", "-", *words)
        assert code == 2
        assert said in err
    pipe(monkeypatch, b"")
    code, _, err = output(capsys, "simulate", "--trace", "-")
    assert code == 2
    assert "standard input: the file is empty" in err


def lines(capsys, *words):
    code, out, err = output(capsys, *words)
    assert code == 0, err
    return out.splitlines()


def test_a_shape_is_simulated_and_planned_by_its_name(capsys):
    d = document(capsys, "simulate", "--shape", "rag-shared", "--rps", "2", "--replicas", "1", "--requests", "400")
    assert d["workload"]["prefix"]["groups"] == 150
    assert d["summary"]["prefix_hit_share"]["value"] > 0.2
    told = lines(capsys, "--shape", "rag-shared", "--rps", "2", "--gpu", "h100", "--slo-tpot", "30ms")
    assert "7,200 tokens in" in told[0]
    assert any("an unlimited prefix cache would hold 83%" in line for line in told)
    assert output(capsys, "--shape", "chat", "--trace", "x.csv")[0] == 2
    assert output(capsys, "simulate", "--shape", "chta")[0] == 2


def test_bursts_given_beside_a_shape_win(capsys):
    d = document(capsys, *SHORT, "--shape", "chat", "--cv", "3")
    assert d["workload"]["arrivals"] == {"kind": "gamma", "cv": 3}
    told = [lines(capsys, "--rps", "20", "--gpu", "h100", "--percentile", "99", "--cv", cv, "-q") for cv in "13"]
    few, many = (int(text[0].removeprefix("Cheapest: ").split()[0]) for text in told)
    assert few < many


def test_each_target_can_have_a_percentile_of_its_own(capsys):
    d = document(capsys, *SHORT, "--ttft-percentile", "99", "--tpot-percentile", "50")
    assert (d["question"]["slo"]["ttft_percentile"], d["question"]["slo"]["tpot_percentile"]) == (99, 50)
    assert "percentile" not in {a["name"] for a in d["assumptions"]}
    told = lines(capsys, "--rps", "20", "--gpu", "h100", "--ttft-percentile", "99")
    assert "TTFT p99, TPOT mean" in told[0]
    assert any(line.startswith("percentile ") for line in told)


def test_gaps_pooled_and_windows_are_judged(capsys):
    pooled = document(capsys, *SHORT, "--statistic", "itl", "--percentile", "99")
    assert "ITL" in pooled["question"]["slo"]["in_words"]
    assert pooled["targets"]["tpot_s"]["value"] == pytest.approx(pooled["summary"]["itl_s"]["p99"]["value"])
    worst = document(capsys, *SHORT, "--window", "20s")
    whole = document(capsys, *SHORT)
    assert worst["targets"]["ttft_s"]["value"] > whole["targets"]["ttft_s"]["value"]


def test_whether_the_targets_hold_is_said_in_words(capsys):
    assert any(line.startswith("targets hold: TTFT ") for line in lines(capsys, *SHORT))
    assert any(line.startswith("targets missed: ") for line in lines(capsys, *SHORT, "--slo-tpot", "1ms"))
    refused = lines(capsys, *SHORT, "--input", "100k")
    assert any(line.startswith("targets missed: TTFT infinite") for line in refused)
    assert next(line for line in refused if line.startswith("ttft_mean_s")).split()[1] == "inf"


def test_one_short_run_has_no_intervals(capsys):
    d = document(capsys, "simulate", "--requests", "100", "--replications", "1", "--replicas", "1", "--rps", "2")
    ttft = d["summary"]["ttft_s"]["p50"]
    assert (ttft["low"], ttft["high"]) == (None, None)
    assert ttft["value"] > 0
    assert any("too short" in note for note in d["notes"])


def test_a_rate_that_is_not_used_is_not_assumed(capsys):
    words = ("simulate", "--requests", "300", "--replications", "2", "--replicas", "1")
    for mode in (("--rates", "1,2"), ("--concurrency", "2")):
        assert "rps" not in {a["name"] for a in document(capsys, *words, *mode)["assumptions"]}


def test_who_would_come_after_the_horizon_is_no_miss(capsys):
    d = document(capsys, "simulate", "--rps", "2", "--replicas", "1", "--horizon", "300s", "--replications", "2")
    assert 0 < d["summary"]["unfinished"]["value"] < 30  # those of the last seconds, of 600


def test_a_trace_without_times_comes_at_the_rate_that_is_given(capsys, tmp_path):
    path = tmp_path / "untimed.csv"
    path.write_text("num_prefill_tokens,num_decode_tokens\n" + "100,20\n" * 300)
    at_once = document(capsys, "simulate", "--trace", str(path), "--replicas", "1")
    by_rate = document(capsys, "simulate", "--trace", str(path), "--replicas", "1", "--rps", "5")
    assert any("all its requests are there at the start" in note for note in at_once["notes"])
    assert by_rate["summary"]["ttft_s"]["p50"]["value"] < at_once["summary"]["ttft_s"]["p50"]["value"]
    assert by_rate["workload"]["span_s"] == pytest.approx(300 / 5, rel=0.2)


def test_what_is_not_replayed_of_a_workload_is_said(capsys, tmp_path):
    shared = document(capsys, *SHORT, "--shape", "long-chat", "--max-model-len", "131072")
    assert any("it is not known who shares what" in note for note in shared["notes"])
    day = tmp_path / "day.toml"
    day.write_text(workload_text(Workload(
        request_rate_per_s=2, input_tokens=500, output_tokens=50, arrivals=diurnal(0.5)), "toml"))  # fmt: skip
    d = document(capsys, "simulate", "--trace", str(day), "--replicas", "1", "--requests", "300")
    assert any("of a profile of 86,400 s were replayed" in note for note in d["notes"])


def test_a_trace_is_looked_at_and_fitted_from_a_pipe(capsys, monkeypatch, tmp_path):
    pipe(monkeypatch, gzip.compress(TRACE.encode()))
    fitted = tmp_path / "fitted.toml"
    told = lines(capsys, "workload", "-", "--no-plot", "--fit", str(fitted), "--rps", "7")
    assert told[0] == "standard input: vidur trace"
    assert told[-1] == f"written: {fitted}, 7 requests/s"
    assert read_workload(fitted).request_rate_per_s == 7


def test_a_fit_at_a_rate_of_ones_own_keeps_the_bursts(capsys, tmp_path):
    path, fitted = tmp_path / "bursts.csv", tmp_path / "fitted.toml"
    rows = [f"{60 * k + j / 100},100,10" for k in range(60) for j in range(10)]
    path.write_text("arrival_s,input_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    lines(capsys, "workload", str(path), "--fit", str(fitted), "--rps", "3")
    assert read_workload(fitted).arrivals.gap_cv > 2


def test_a_folder_and_a_fit_that_has_no_place_are_refused_in_one_line(capsys, tmp_path):
    code, _, err = output(capsys, "workload", str(tmp_path))
    assert (code, err) == (2, f"size-inference: {tmp_path}: this is a folder; give a trace file\n")
    code, _, err = output(capsys, "workload", "--shape", "chat", "--fit", str(tmp_path / "no" / "x.toml"))
    assert code == 2
    assert err.startswith("size-inference: --fit: ")
    assert output(capsys, "workload", "--fit", "x.toml")[0] == 2
