"""Every format read to the same point, its traps, and real files where ../shared has them."""

import importlib.util
import json
from pathlib import Path

import pytest

from sizing.benchmarks import formats, llmd_report, read_benchmark
from sizing.benchmarks.export import llmd_text
from sizing.errors import InputError, SizingError, UnknownFile

_spec = importlib.util.spec_from_file_location("benchmark_samples", Path(__file__).with_name("samples.py"))
s = importlib.util.module_from_spec(_spec)  # the result files written below
_spec.loader.exec_module(s)


def written(folder: Path, name: str, content: str | bytes) -> Path:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


CLOSED_LOOP = {
    "vllm-serve": ("run.json", s.text(s.vllm_serve())),
    "vllm-sweep": ("summary.json", s.text([s.vllm_serve(run_number=0)])),
    "sglang": ("result.jsonl", s.text(s.sglang()) + "\n"),
    "guidellm": ("benchmarks.json", s.text(s.guidellm())),
    "aiperf": ("profile_export_aiperf.json", s.text(s.aiperf())),
    "genai-perf": ("profile_export_genai_perf.json", s.text(s.genai_perf())),
    "llmperf": ("x_summary.json", s.text(s.llmperf())),
    "llmd": ("report.json", s.text(s.llmd())),
    "pasted": ("note.txt", s.VLLM_BLOCK),
}


@pytest.mark.parametrize("kind", CLOSED_LOOP)
def test_every_tool_gives_the_same_point(kind: str, tmp_path: Path) -> None:
    (point,) = read_benchmark(written(tmp_path, *CLOSED_LOOP[kind]))
    assert point.format == kind
    assert point.load.kind == "closed"
    assert point.load.concurrency == s.CONCURRENCY
    assert point.ttft_s == pytest.approx(s.TTFT_S)
    assert point.tpot_s == pytest.approx(s.TPOT_S)
    assert (point.input_tokens, point.output_tokens) == (s.ISL, s.OSL)
    assert point.request_throughput_per_s == pytest.approx(s.RATE_PER_S)
    assert point.output_tokens_per_s == pytest.approx(s.RATE_PER_S * s.OSL)
    assert point.completed == s.COMPLETED
    assert point.usable, point.refusals
    assert len(point.sha256) == 64


def test_both_guidellm_schemas_and_its_two_token_times(tmp_path: Path) -> None:
    for schema in (1, 2):
        (point,) = read_benchmark(written(tmp_path, f"v{schema}.json", s.text(s.guidellm(schema))))
        assert point.model == "example/model-8b"
        assert point.tpot_s == pytest.approx(s.TPOT_S)  # not the one of 10.39 ms that includes TTFT
        assert point.ttft is not None
        assert point.ttft.percentiles_s[99.9] == pytest.approx(s.TTFT_S * 2)


def test_llmd_versions_read_the_units_each_metric_states(tmp_path: Path) -> None:
    for version in ("0.1", "0.2", "0.2.1"):
        (point,) = read_benchmark(written(tmp_path, f"{version}.json", s.text(s.llmd(version))))
        assert point.ttft_s == pytest.approx(s.TTFT_S)
        assert (point.gpu, point.gpus, point.tp, point.engine) == ("H200", 4, 4, "vllm")
        assert point.duration_s == pytest.approx(13.3)
    with pytest.raises(InputError, match=r"version is '0.7'"):
        read_benchmark(written(tmp_path, "new.json", s.text({**s.llmd(), "version": "0.7"})))


def test_export_reads_back_the_same(tmp_path: Path) -> None:
    (point,) = read_benchmark(written(tmp_path, "r.jsonl", s.text(s.sglang())), gpu="H100")
    (again,) = read_benchmark(written(tmp_path, "export.yaml", llmd_text([point])))
    for field in (
        "ttft_s",
        "tpot_s",
        "e2e_s",
        "input_tokens",
        "output_tokens",
        "tp",
        "gpu",
        "model",
        "engine",
        "completed",
    ):
        assert getattr(again, field) == pytest.approx(getattr(point, field)), field
    assert again.load.concurrency == point.load.concurrency
    assert llmd_report(point)["version"] == "0.2.1"


def test_vllm_rate_text_and_metadata(tmp_path: Path) -> None:
    (point,) = read_benchmark(
        written(
            tmp_path,
            "r.json",
            s.text(s.vllm_serve(request_rate="12", max_concurrency=None, tp="8", gpu="H100")),
        )
    )
    assert point.load.kind == "open"
    assert point.load.request_rate_per_s == 12.0
    assert (point.tp, point.gpu) == (8, "H100")


def test_vllm_appended_lines_and_bom(tmp_path: Path) -> None:
    lines = "\n".join(s.text(s.vllm_serve(max_concurrency=c)) for c in (1, 4, 16))
    points = read_benchmark(written(tmp_path, "all.jsonl", b"\xef\xbb\xbf" + lines.encode()))
    assert [p.load.concurrency for p in points] == [1, 4, 16]
    assert [p.index for p in points] == [0, 1, 2]


def test_sweep_folder_reads_runs_once(tmp_path: Path) -> None:
    for n, concurrency in enumerate((1, 8)):
        folder = tmp_path / f"BENCH--c={concurrency}"
        folder.mkdir()
        written(folder, f"run={n}.json", s.text(s.vllm_serve(max_concurrency=concurrency)))
        written(folder, "summary.json", s.text([s.vllm_serve(max_concurrency=concurrency, run_number=n)]))
    written(tmp_path, "summary.csv", "run_number,mean_ttft_ms,request_throughput\n0,1,1\n")
    assert sorted(p.load.concurrency or 0 for p in read_benchmark(tmp_path)) == [1, 8]


def test_sweep_table(tmp_path: Path) -> None:
    row = s.vllm_serve(run_number=0)
    table = ",".join(row) + "\n" + ",".join(str(v) for v in row.values()) + "\n"
    (point,) = read_benchmark(written(tmp_path, "summary.csv", table))
    assert point.format == "vllm-sweep"
    assert point.ttft_s == pytest.approx(s.TTFT_S)


def test_llmperf_token_time_includes_ttft_and_is_recomputed(tmp_path: Path) -> None:
    (point,) = read_benchmark(written(tmp_path, "s.json", s.text(s.llmperf())))
    assert point.tpot is not None
    assert point.tpot.mean_s == pytest.approx(s.E2E_S / s.OSL)
    assert point.tpot_s == pytest.approx(s.TPOT_S)
    assert any("first token's wait" in w for w in point.warnings)


def test_halved_token_time_of_inference_perf_is_recognised(tmp_path: Path) -> None:
    (halved,) = read_benchmark(written(tmp_path, "stage_0.json", s.text(s.inference_perf(0.5))))
    assert halved.tpot_definition == "halved"
    assert halved.tpot_s == pytest.approx(s.TPOT_S)
    (sound,) = read_benchmark(written(tmp_path, "stage_1.json", s.text(s.inference_perf(1.0))))
    assert sound.tpot_definition == "after_first_token"
    assert (sound.load.kind, sound.load.request_rate_per_s, sound.index) == ("open", s.RATE_PER_S, 1)


@pytest.mark.parametrize(
    "load",
    [{"achieved_rate": s.RATE_PER_S * 0.96}, {"schedule_delay": {"p99": 0.051}}],
)
def test_a_saturated_client_is_refused(load: dict[str, object], tmp_path: Path) -> None:
    (point,) = read_benchmark(written(tmp_path, "stage_0.json", s.text(s.inference_perf(**load))))
    assert not point.usable
    assert "the client is the bottleneck" in point.refusals[0]


def test_a_client_just_within_the_limits_is_kept(tmp_path: Path) -> None:
    load = {"achieved_rate": s.RATE_PER_S * 0.971, "schedule_delay": {"p99": 0.049}}
    (point,) = read_benchmark(written(tmp_path, "stage_0.json", s.text(s.inference_perf(**load))))
    assert point.usable, point.refusals


def test_overload_is_refused_but_a_short_tail_is_not(tmp_path: Path) -> None:
    fields = {
        "max_concurrency": None,
        "completed": 1200,
        "total_output_tokens": 1200 * s.OSL,
        "total_input_tokens": 1,
    }
    overload = s.vllm_serve(request_rate=20.0, request_throughput=12.0, **fields)
    (point,) = read_benchmark(written(tmp_path, "o.json", s.text(overload)))
    assert not point.usable
    tail = s.vllm_serve(request_rate=12.0, request_throughput=1200 / (100 + s.E2E_S * 1.5), **fields)
    (kept,) = read_benchmark(written(tmp_path, "t.json", s.text(tail)))
    assert kept.usable, kept.refusals


def test_mlperf_counts_only_when_valid(tmp_path: Path) -> None:
    (valid,) = read_benchmark(written(tmp_path, "mlperf_log_summary.txt", s.mlperf()))
    assert valid.usable
    assert valid.load.kind == "open"
    assert valid.ttft_s == pytest.approx(s.TTFT_S)
    assert valid.tpot_s == pytest.approx(s.TPOT_S)
    assert valid.output_tokens == pytest.approx(s.OSL)
    (invalid,) = read_benchmark(written(tmp_path, "bad.txt", s.mlperf("INVALID")))
    assert not invalid.usable
    assert "INVALID" in invalid.refusals[0]


def test_inferencex_seconds_per_gpu_rates_and_mean_lengths(tmp_path: Path) -> None:
    (point,) = read_benchmark(written(tmp_path, "agg.json", s.text(s.inferencex())))
    assert point.ttft_s == pytest.approx(s.TTFT_S)
    assert point.output_tokens_per_s == pytest.approx(s.RATE_PER_S * s.OSL)
    assert (point.input_tokens, point.length_range) == (pytest.approx(0.9 * s.ISL), 0.8)
    assert (point.gpus, point.weights, point.engine) == (4, "fp8", "vllm")
    with pytest.raises(InputError, match="agentic"):
        read_benchmark(written(tmp_path, "a.json", s.text(s.inferencex(scenario_type="agentic-coding"))))


def test_aiperf_prefers_the_servers_token_count(tmp_path: Path) -> None:
    export = s.aiperf(
        usage_completion_tokens={"unit": "tokens", "avg": 102.6},
        usage_prompt_tokens={"unit": "tokens", "avg": 600.0},
    )
    (point,) = read_benchmark(written(tmp_path, "p.json", s.text(export)))
    assert point.output_tokens == 102.6
    assert point.tpot_s == pytest.approx((s.E2E_S - s.TTFT_S) / 101.6)


def test_aiperf_reads_the_unit_of_each_metric(tmp_path: Path) -> None:
    export = s.aiperf(time_to_first_token={"unit": "sec", "avg": s.TTFT_S})
    (point,) = read_benchmark(written(tmp_path, "p.json", s.text(export)))
    assert point.ttft_s == pytest.approx(s.TTFT_S)
    bad = s.aiperf(time_to_first_token={"unit": "fortnights", "avg": 1.0})
    with pytest.raises(InputError, match=r"time_to_first_token.*fortnights"):
        read_benchmark(written(tmp_path, "b.json", s.text(bad)))


@pytest.mark.parametrize("name", ["raw_data.npz", "decode_raw_data.json"])
def test_dynamo_decode_batches(name: str, tmp_path: Path) -> None:
    arrays = s.dynamo_decode()
    content: str | bytes = s.npz(arrays) if name.endswith("npz") else s.text(arrays)
    one, many = read_benchmark(written(tmp_path, name, content))
    assert (one.load.concurrency, many.load.concurrency) == (1.0, 64.0)
    assert (one.tpot_s, many.tpot_s) == (0.008, 0.012)
    assert many.context_tokens == 1000.0
    assert many.usable, many.refusals


def test_dynamo_prefill_and_ragged_arrays(tmp_path: Path) -> None:
    arrays = {"prefill_isl": [100, 1000], "prefill_ttft": [20.0, 38.5], "prefill_thpt_per_gpu": [5000, 26000]}
    first, second = read_benchmark(written(tmp_path, "p.json", s.text(arrays)))
    assert first.load.kind == "prefill"
    assert (second.input_tokens, second.ttft_s) == (1000.0, pytest.approx(0.0385))
    with pytest.raises(InputError, match="differ in length"):
        read_benchmark(written(tmp_path, "r.json", s.text({**arrays, "prefill_ttft": [1.0]})))


def test_pasted_blocks_with_quotes_and_command(tmp_path: Path) -> None:
    command = "vllm bench serve --model example/model-8b --max-concurrency 16 --tensor-parallel-size 2\n"
    quoted = "\n".join("> " + line for line in s.VLLM_BLOCK.splitlines())
    vllm, sglang = read_benchmark(
        written(tmp_path, "issue.md", f"Look:\n```\n{command}{quoted}\n```\n{s.SGLANG_BLOCK}")
    )
    assert (vllm.model, vllm.tp, vllm.engine) == ("example/model-8b", 2, "vllm")
    assert vllm.output_tokens_per_s == 1536.0
    assert vllm.tpot_s == pytest.approx(s.TPOT_S)
    assert sglang.engine == "sglang"
    assert sglang.load.concurrency == 16
    assert sglang.tpot_s == pytest.approx(s.TPOT_S)  # no TPOT in the block: from the means


def test_offline_and_static_vllm_benches(tmp_path: Path) -> None:
    rate = {
        "elapsed_time": 10.0,
        "num_requests": 100,
        "total_num_tokens": 64000,
        "requests_per_second": 10.0,
        "tokens_per_second": 6400.0,
    }
    (offline,) = read_benchmark(written(tmp_path, "t.json", s.text(rate)))
    assert (offline.load.kind, offline.request_throughput_per_s) == ("offline", 10.0)
    static = {"avg_latency": 1.33, "latencies": [1.33], "percentiles": {"50": 1.33, "99": 1.4}}
    (bare,) = read_benchmark(written(tmp_path, "l.json", s.text(static)))
    assert "give --concurrency" in bare.refusals[0]
    (told,) = read_benchmark(tmp_path / "l.json", concurrency=8.0, input_tokens=32.0, output_tokens=128.0)
    assert told.usable
    assert told.load.concurrency == 8.0


def test_hints_are_never_scored(tmp_path: Path) -> None:
    k6 = {
        "metrics": {
            "http_req_duration": {"values": {"avg": 1330.0, "med": 1300.0, "p(95)": 1500.0}},
            "http_reqs": {"values": {"rate": 12.0, "count": 160}},
        }
    }
    (point,) = read_benchmark(written(tmp_path, "k6.json", s.text(k6)))
    assert not point.usable
    assert point.e2e_s == pytest.approx(1.33)
    assert {name for name, _, hint in formats() if hint} == {"k6", "locust"}


def test_unstreamed_responses_lose_their_ttft(tmp_path: Path) -> None:
    line = s.sglang(mean_ttft_ms=0.0, median_ttft_ms=0.0, p99_ttft_ms=0.0)
    (point,) = read_benchmark(written(tmp_path, "r.jsonl", s.text(line)))
    assert point.ttft is None
    assert point.tpot_s is None
    assert any("not streamed" in w for w in point.warnings)


def test_token_time_that_disagrees_with_its_means_is_warned_of(tmp_path: Path) -> None:
    (point,) = read_benchmark(written(tmp_path, "r.json", s.text(s.vllm_serve(mean_tpot_ms=8.9))))
    assert any("TPOT from the means is 10.00 ms, the file says 8.90 ms" in w for w in point.warnings)
    (close,) = read_benchmark(written(tmp_path, "c.json", s.text(s.vllm_serve(mean_tpot_ms=9.2))))
    assert close.warnings == ()


def test_facts_fill_in_and_contradictions_are_named(tmp_path: Path) -> None:
    file = written(tmp_path, "r.jsonl", s.text(s.sglang()))
    (point,) = read_benchmark(file, tp=4, gpu="h100")
    assert (point.tp, point.gpu) == (4, "h100")
    assert any("tp: the file says 2, you say 4" in w for w in point.warnings)
    with pytest.raises(InputError, match="no field 'color'"):
        read_benchmark(file, color="red")


MALFORMED = {
    "broken JSON": (b'{"mean_ttft_ms": 1,\n "request_throughput": }', r"line 2.*broken JSON"),
    "broken line": (s.text(s.sglang()).encode() + b"\n{oops\n", r"line 2: broken JSON line"),
    "text for a number": (s.text(s.vllm_serve(mean_ttft_ms="fast")).encode(), r"mean_ttft_ms is 'fast'"),
    "truth for a number": (s.text(s.vllm_serve(completed=True)).encode(), r"completed is True"),
    "negative": (s.text(s.vllm_serve(p99_ttft_ms=-1.0)).encode(), r"p99_ttft_ms is -1"),
    "infinite latency": (b'{"mean_ttft_ms": Infinity, "request_throughput": 1}', r"mean_ttft_ms is inf"),
    "huge": (b'{"mean_ttft_ms": 1' + b"0" * 400 + b', "request_throughput": 1}', r"too large"),
    "a rate in words": (s.text(s.vllm_serve(request_rate="fast")).encode(), r"request_rate is 'fast'"),
    "a fraction of a request": (s.text(s.vllm_serve(completed=1.5)).encode(), r"completed is 1.5"),
    "a list for a mapping": (
        b'{"benchmarks": [{"metrics": {"request_latency": [1]}}]}',
        r"request_latency is \[1\]",
    ),
    "nothing known": (b'{"hello": 1}', r"not a benchmark result"),
    "plain words": (b"these are my results: good\n", r"not a benchmark result"),
    "binary": (bytes(range(256)), r"not a benchmark result"),
    "broken archive": (b"PK\x03\x04rubbish", r"not a benchmark result"),
    "deep nesting": (b"[" * 100000 + b"]" * 100000, r"nested too deeply"),
    "empty": (b"  \n", r"empty"),
    "an empty list": (b"[]", r"not a benchmark result"),
    "wrong encoding": ('{"Größe": 1}'.encode("latin-1"), r"not a benchmark result"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_files_give_one_clear_message(case: str, tmp_path: Path) -> None:
    content, message = MALFORMED[case]
    with pytest.raises(InputError, match=message) as caught:
        read_benchmark(written(tmp_path, "result.json", content))
    assert "result.json" in str(caught.value)


def test_missing_file_folder_and_kind(tmp_path: Path) -> None:
    with pytest.raises(UnknownFile):
        read_benchmark(tmp_path / "none.json")
    with pytest.raises(UnknownFile):
        read_benchmark(tmp_path)
    file = written(tmp_path, "r.json", s.text(s.vllm_serve()))
    with pytest.raises(InputError, match=r"no benchmark format 'vlm-serve'.*vllm-serve"):
        read_benchmark(file, kind="vlm-serve")
    assert read_benchmark(file, kind="vllm-serve")[0].format == "vllm-serve"


def test_yaml_that_is_broken_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 3.*broken YAML"):
        read_benchmark(written(tmp_path, "r.yaml", "version: 0.2\nscenario: [\n"))


# --- real files -------------------------------------------------------------------------------------------

REAL = {
    # name: (format, points, TTFT s, TPOT s), the numbers as the files print them
    "aiperf_0.13.0_profile_export_aiperf_MOCK.csv": ("aiperf-csv", 1, 0.09116, 0.00669),
    "guidellm_0.8.1_benchmarks_MOCK.json": ("guidellm", 2, 0.08055, 0.00827),
    "guidellm_0.8.1_benchmarks_MOCK.csv": ("guidellm-csv", 2, 0.08055, 0.00827),
    "inference_perf_kubecon_vllm_stage3_lifecycle_metrics.json": ("inference-perf", 1, 0.05055, 0.01583),
    "inference_perf_lifecycle_llmd_fixture.yaml": ("inference-perf", 1, 0.03333, 0.00928),
    "inferencex_agg_MOCK.json": ("inferencex", 1, 0.08342, 0.00818),
    "inferencex_experimental_glm5_h200_REAL.json": ("inferencex-experimental", 1, 2.09038, 0.11806),
    "llmd_benchmark_report_v0_2_1_example.yaml": ("llmd", 1, 0.03686, 0.03686),
    "llmperf_summary_real.json": ("llmperf", 1, 0.25382, 0.00945),
    "mlperf_loadgen_6.0.17_log_summary_server_tokens_MOCK.txt": ("mlperf", 1, 0.02557, 0.00201),
    "sglang_0.5.23_bench_serving_MOCK.jsonl": ("sglang", 1, 0.08065, 0.00818),
    "vllm_0.32_bench_serve_save-detailed_MOCK.json": ("vllm-serve", 1, 0.08461, 0.00817),
    "vllm_bench_serve_inferencex-fork_MOCK.json": ("vllm-serve", 1, 0.08342, 0.00818),
}


@pytest.mark.parametrize("name", REAL)
def test_real_files(name: str, shared: Path) -> None:
    kind, count, ttft_s, tpot_s = REAL[name]
    points = read_benchmark(shared / "ecosystem" / "formats" / name)
    assert (points[0].format, len(points)) == (kind, count)
    assert points[0].ttft_s == pytest.approx(ttft_s, abs=6e-6)
    assert points[0].tpot_s == pytest.approx(tpot_s, abs=6e-6)


def test_real_dynamo_archive_and_text_agree(shared: Path) -> None:
    folder = shared / "ecosystem" / "formats"
    archive = read_benchmark(folder / "dynamo_profiler_H200_TP1_decode_raw_data.npz")
    listed = read_benchmark(folder / "dynamo_profiler_H200_TP1_decode_raw_data.json")
    assert [p.tpot_s for p in archive] == [p.tpot_s for p in listed]
    assert len(archive) == 41
    assert archive[0].load.concurrency == pytest.approx(1.0)


def test_no_file_of_the_collection_gives_a_traceback(shared: Path) -> None:
    unread = {"README.md", "inference_perf_kubecon_h100_all_stages.csv"}  # the second is derived, no tool's
    for file in sorted((shared / "ecosystem" / "formats").iterdir()):
        if file.name in unread:
            with pytest.raises(SizingError, match=file.name):
                read_benchmark(file)
        else:
            assert len(read_benchmark(file)) > 0, file.name


def test_samples_are_json() -> None:
    assert json.loads(s.text(s.llmd()))["version"] == "0.2.1"


def test_the_reference_page_names_every_format() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "benchmark-formats.md"
    text = page.read_text(encoding="utf-8")
    assert [name for name, _, _ in formats() if f"| `{name}` |" not in text] == []
