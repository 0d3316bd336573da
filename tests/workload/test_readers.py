"""Every trace format: told by its content, units, dialects, compression, progress."""

import gzip
import json
import time
from pathlib import Path

import numpy as np
import pytest
from tests.workload.generated import azure_2023, azure_2024, mooncake_rows, objects, write

from sizing.errors import InputError, UnknownFile
from sizing.workload import read_trace, trace_kinds


def test_azure_2023(tmp_path: Path) -> None:
    trace = read_trace(azure_2023(tmp_path / "a.csv"))
    assert (trace.kind, len(trace), trace.start) == ("azure", 50, "2023-11-16 00:00:00+00:00")
    assert np.allclose(trace.arrival_s, np.arange(50))
    assert trace.input_tokens[:2].tolist() == [100, 101]
    assert not trace.skipped


def test_azure_2024_mixes_stamps_with_and_without_a_fraction(tmp_path: Path) -> None:
    trace = read_trace(azure_2024(tmp_path / "a.csv"))
    assert (trace.kind, len(trace)) == ("azure", 50)
    assert trace.arrival_s[:4] == pytest.approx([0, 1.25, 2, 3.25], abs=1e-7)


def test_azure_multimodal_columns_are_found_by_name(tmp_path: Path) -> None:
    path = write(
        tmp_path / "lmm.csv",
        ["TIMESTAMP,NumImages,ContextTokens,GeneratedTokens", "2024-10-01 00:00:00.5+00:00,2,300,20"],
    )
    trace = read_trace(path)
    assert trace.input_tokens.tolist() == [300]
    assert any("images" in note for note in trace.notes)


def test_a_stamp_far_from_the_others_does_not_wrap_around(tmp_path: Path) -> None:
    """Year 9999 is beyond nanoseconds in 64 bits."""
    rows = ["2023-11-16 18:17:03.9,1,1", "9999-01-01 00:00:00.0,1,1"]
    trace = read_trace(write(tmp_path / "a.csv", ["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    assert trace.requests.span_s == pytest.approx(251_650_000_000, rel=0.01)


@pytest.mark.parametrize("version", [1, 3])
def test_burstgpt_columns_go_by_name_and_failures_are_counted(tmp_path: Path, version: int) -> None:
    session = ["Session ID", "Elapsed time"] if version == 3 else []
    head = ["Timestamp", *session, "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type"]
    more = [["s1", "2.5"], ["s1", "1.5"], ["s2", "0.0"]] if version == 3 else [[], [], []]
    rows = [
        ["5", *more[0], "ChatGPT", "472", "18", "490", "Conversation log"],
        ["45", *more[1], "GPT-4", "1087", "230", "1317", "API log"],
        ["118", *more[2], "GPT-4", "0", "0", "0", "Conversation log"],
    ]
    trace = read_trace(write(tmp_path / "b.csv", [",".join(r) for r in [head, *rows]]))
    assert trace.kind == "burstgpt"
    assert trace.arrival_s.tolist() == [0, 40]
    assert trace.skipped == {"failed request (no output tokens)": 1}
    assert trace.first_lines == {"failed request (no output tokens)": 4}
    if version == 3:
        assert trace.session.tolist() == [0, 0]
        assert trace.turn.tolist() == [0, 1]


@pytest.mark.parametrize("name", ["m.jsonl", "m.jsonl.gz"])
def test_mooncake_ticks_are_spread_and_said_so(tmp_path: Path, name: str) -> None:
    trace = read_trace(objects(tmp_path / name, mooncake_rows(400)), seed=3)
    assert trace.kind == "mooncake"
    assert trace.blocks.block_tokens == 512
    assert any("every 3,000 ms" in note and "seed 3" in note for note in trace.notes)
    assert np.unique(trace.arrival_s).size / 400 > 0.9
    original = np.arange(400) // 10 * 3.0
    moved = trace.arrival_s - trace.arrival_s[0] + 3.0 - original
    assert np.all((moved > -0.01) & (moved < 6.01))
    again = read_trace(tmp_path / name, seed=3)
    assert np.array_equal(trace.arrival_s, again.arrival_s)


def test_mooncake_reuse_and_tree_by_hand(tmp_path: Path) -> None:
    """A common block 0 (512 tokens), two conversations of two turns, one request of its own."""
    rows = [
        {"timestamp": 0, "input_length": 1500, "output_length": 9, "hash_ids": [0, 1, 2]},
        {"timestamp": 10, "input_length": 1000, "output_length": 9, "hash_ids": [0, 3]},
        {"timestamp": 20, "input_length": 2000, "output_length": 9, "hash_ids": [0, 1, 2, 4]},
        {"timestamp": 30, "input_length": 1536, "output_length": 9, "hash_ids": [0, 3, 5]},
        {"timestamp": 40, "input_length": 600, "output_length": 9, "hash_ids": [7, 8]},
    ]
    requests = read_trace(objects(tmp_path / "m.jsonl", rows)).requests
    assert requests.reused_tokens.tolist() == [0, 512, 1536, 1024, 0]
    # edges: block 0; blocks 1, 2; block 3. Blocks of one request alone (4, 5, 7, 8) are in none.
    assert requests.shared_tokens.tolist() == [1500, 1000, 1536, 1024, 0]
    assert requests.chain[4] == -1
    root = requests.chain_parent[requests.chain[0]]
    assert requests.chain_parent[root] == -1
    assert requests.chain[0] == requests.chain[2] != requests.chain[1] == requests.chain[3]
    assert requests.chain_start_tokens[requests.chain[0]] == 512


def test_dynamo_names_header_and_local_hashes(tmp_path: Path) -> None:
    header = {"schema": "agentic_mooncake", "version": 2, "block_size": 64, "hash_id_scope": "local", "source": "x"}
    rows = [
        {"created_time": 0, "input_tokens": 128, "output_tokens": 5, "hash_ids": [1, 2], "session_id": "a"},
        {"created_time": 500, "input_tokens": 128, "output_tokens": 5, "hash_ids": [1, 2], "session_id": "b"},
        {"created_time": 900, "input_tokens": 192, "output_tokens": 5, "hash_ids": [1, 2, 3], "session_id": "a"},
    ]
    trace = read_trace(objects(tmp_path / "d.jsonl", [header, *rows]))
    assert (trace.kind, trace.blocks.block_tokens, len(trace)) == ("mooncake", 64, 3)
    assert trace.requests.reused_tokens.tolist() == [0, 0, 128]
    assert trace.session.tolist() == [0, 1, 0]
    assert trace.turn.tolist() == [0, 0, 1]
    assert trace.arrival_s.tolist() == [0.0, 0.5, 0.9]


def test_hashes_may_be_texts(tmp_path: Path) -> None:
    rows = [{"timestamp": i, "input_length": 1000, "output_length": 5, "hash_ids": ["a", f"b{i}"]} for i in range(3)]
    assert read_trace(objects(tmp_path / "m.jsonl", rows)).requests.reused_tokens.tolist() == [0, 512, 512]


def test_qwen_bailian_is_in_seconds_with_blocks_of_16(tmp_path: Path) -> None:
    rows = [
        {"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "turn": 1, "hash_ids": [1, 2]},
        {"chat_id": 2, "parent_chat_id": 1, "timestamp": 61.5, "turn": 2, "hash_ids": [1, 2, 3, 4]},
        {"chat_id": 3, "parent_chat_id": -1, "timestamp": 62.0, "turn": 1, "hash_ids": [9]},
        {"chat_id": 4, "parent_chat_id": 2, "timestamp": 90.0, "turn": 3, "hash_ids": [1, 2, 3, 4, 5]},
    ]
    rows = [{"input_length": 16 * len(r["hash_ids"]), "output_length": 7, "type": "text", **r} for r in rows]
    trace = read_trace(objects(tmp_path / "q.jsonl", rows))
    assert trace.kind == "qwen-bailian"
    assert trace.arrival_s.tolist() == [0.0, 61.0, 61.5, 89.5]
    assert trace.session.tolist() == [0, 0, 1, 0]
    assert trace.turn.tolist() == [0, 1, 0, 2]
    assert trace.requests.reused_tokens.tolist() == [0, 32, 0, 64]


def test_vllm_timed_trace_is_in_seconds(tmp_path: Path) -> None:
    rows = [
        {"timestamp": i * 0.5, "input_length": 160, "output_length": 7, "hash_ids": list(range(i, i + 10))}
        for i in range(5)
    ]
    trace = read_trace(objects(tmp_path / "v.jsonl", rows))
    assert (trace.kind, trace.blocks.block_tokens) == ("vllm-timed", 16)
    assert trace.arrival_s.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]
    as_mooncake = read_trace(tmp_path / "v.jsonl", "mooncake")
    assert as_mooncake.arrival_s.tolist() == pytest.approx([0.0, 0.0005, 0.001, 0.0015, 0.002])


def test_aiperf_turns_count_only_what_is_new(tmp_path: Path) -> None:
    rows = [
        {"session_id": "s", "input_length": 1000, "output_length": 10, "hash_ids": [0, 1], "timestamp": 0.0},
        {"session_id": "s", "input_length": 50, "output_length": 20, "hash_ids": [2], "delay": 1500},
        {"session_id": "s", "input_length": 60, "output_length": 30, "hash_ids": [3], "delay": 500},
        {"session_id": "t", "input_length": 700, "output_length": 30, "hash_ids": [9, 4], "timestamp": 0.0},
    ]
    trace = read_trace(objects(tmp_path / "a.jsonl", rows))
    assert trace.kind == "aiperf"
    assert trace.closed_loop
    order = np.lexsort((trace.turn, trace.session))
    assert trace.input_tokens[order].tolist() == [1000, 1060, 1140, 700]
    assert trace.requests.pause_s[order].tolist() == [0, 1.5, 0.5, 0]
    before = trace.requests.after[order[1]]
    assert trace.input_tokens[before] == 1000
    with pytest.raises(InputError, match="--rps"):
        trace.to_workload()


def test_aiperf_export_of_a_run(tmp_path: Path) -> None:
    rows = [
        {
            "metadata": {"request_start_ns": 1_000_000_000 * (i + 5), "x_correlation_id": f"c{i // 2}"},
            "metrics": {"input_sequence_length": {"value": 128}, "output_sequence_length": {"value": 40}},
        }
        for i in range(4)
    ]
    trace = read_trace(objects(tmp_path / "profile_export.jsonl", rows))
    assert (trace.kind, trace.arrival_s.tolist()) == ("aiperf", [0, 1, 2, 3])
    assert trace.input_tokens.tolist() == [128] * 4


def servegen(folder: Path, lengths: str = "{100: 0.5, 200: 0.5}") -> Path:
    trace = write(
        folder / "chunk-0-trace.csv", ["0,0,0,,0,0", "600,2.0,1.5,Gamma,0.44,1.1", "1200,1.0,0.8,Weibull,1.3,2"]
    )
    data = {
        "0": {"input_tokens": "{}", "output_tokens": "{}"},
        "600": {"input_tokens": lengths, "output_tokens": "{7: 1.0}"},
    }
    (folder / "chunk-0-dataset.json").write_text(json.dumps(data, indent=1))
    return trace


def test_servegen_draws_from_rates_and_distributions(tmp_path: Path) -> None:
    path = servegen(tmp_path)
    trace = read_trace(path, seed=1)
    assert trace.kind == "servegen"
    assert len(trace) == pytest.approx(1800, rel=0.15)
    assert set(np.unique(trace.input_tokens).tolist()) == {100, 200}
    assert trace.requests.span_s <= 1200
    other_half = read_trace(tmp_path / "chunk-0-dataset.json", seed=1)
    assert np.array_equal(trace.arrival_s, other_half.arrival_s)
    assert any("drawn" in note for note in trace.notes)


@pytest.mark.parametrize("packed", [("trace.csv",), ("dataset.json",), ("trace.csv", "dataset.json")])
def test_servegen_reads_either_half_packed(tmp_path: Path, packed: tuple[str, ...]) -> None:
    path = servegen(tmp_path)
    plain = read_trace(path)
    for half in packed:
        file = path.with_name(path.name.replace("trace.csv", half))
        file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    found = read_trace(path if path.exists() else path.with_name(path.name + ".gz"))
    assert np.array_equal(found.arrival_s, plain.arrival_s)


@pytest.mark.parametrize("text", ["__import__('os').getcwd()", "{1: ", "[1, 2]", "{'a': 1}", "{1: -1.0}", "{1: 1e999}"])
def test_servegen_never_evaluates_what_it_reads(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="window 600"):
        read_trace(servegen(tmp_path, text))


def test_servegen_needs_both_halves(tmp_path: Path) -> None:
    path = servegen(tmp_path)
    (tmp_path / "chunk-0-dataset.json").unlink()
    with pytest.raises(UnknownFile, match=r"chunk-0-dataset\.json"):
        read_trace(path)


def test_vidur_copies_with_and_without_arrivals(tmp_path: Path) -> None:
    timed = write(tmp_path / "t.csv", ["arrived_at,num_prefill_tokens,num_decode_tokens", "1.5,10,3", "2.0,20,4"])
    assert read_trace(timed).arrival_s.tolist() == [0, 0.5]
    bare = write(tmp_path / "u.csv", ["num_prefill_tokens,num_decode_tokens,pd_ratio", "10,3,3.3", "20,4,5"])
    trace = read_trace(bare)
    assert (trace.kind, trace.timed, len(trace)) == ("vidur", False, 2)
    with pytest.raises(InputError, match="--rps"):
        trace.to_workload()


@pytest.mark.parametrize(
    "lines",
    [
        ["input_tokens,arrival_s,output_tokens,session", "10,5.0,3,a", "20,7.5,4,a"],
        ["timestamp,prompt_tokens,completion_tokens", "2025-01-01T00:00:05,10,3", "2025-01-01T00:00:07.5,20,4"],
        ['"arrival_s","input_tokens","output_tokens"', '"5","10","3"', '"7.5","20","4"'],
        ['{"arrival_s": 5, "input_tokens": 10, "output_tokens": 3}', '{"time": 7.5, "isl": 20, "osl": 4}'],
    ],
)
def test_a_log_of_your_own(tmp_path: Path, lines: list[str]) -> None:
    trace = read_trace(write(tmp_path / "mine.log", lines))
    assert trace.kind == "plain"
    assert trace.arrival_s.tolist() == [0.0, 2.5]
    assert (trace.input_tokens.tolist(), trace.output_tokens.tolist()) == ([10, 20], [3, 4])


def test_zones_count(tmp_path: Path) -> None:
    rows = ["2024-05-10T02:00:00+02:00,1,1", "2024-05-09T19:00:05-05:00,2,1", "2024-05-10T00:00:07Z,3,1"]
    trace = read_trace(write(tmp_path / "z.csv", ["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    assert trace.arrival_s.tolist() == [0, 5, 7]


def test_kinds_are_listed_and_near_names_suggested(tmp_path: Path) -> None:
    assert set(trace_kinds()) >= {
        "aiperf", "azure", "burstgpt", "mooncake", "plain", "qwen-bailian", "servegen", "vidur", "vllm-timed",
    }  # fmt: skip
    with pytest.raises(InputError, match="mooncake"):
        read_trace(azure_2023(tmp_path / "a.csv"), "moncake")


def test_gzip_by_content_and_in_several_members(tmp_path: Path) -> None:
    plain = azure_2023(tmp_path / "a.csv").read_bytes()
    path = tmp_path / "b.csv"
    path.write_bytes(gzip.compress(plain[:700]) + gzip.compress(plain[700:]))
    assert len(read_trace(path)) == 50


def test_progress_sees_every_chunk(tmp_path: Path) -> None:
    seen = []

    def watch(chunks, total: int, description: str):
        for chunk in chunks:
            seen.append((len(chunk), total, description))
            yield chunk

    path = azure_2023(tmp_path / "a.csv", 40_000)
    read_trace(path, progress=watch)
    assert sum(n for n, _, _ in seen) == path.stat().st_size
    assert all(total == len(seen) and "a.csv" in text for _, total, text in seen)


def test_a_million_rows_are_read_in_seconds(tmp_path: Path) -> None:
    """A tenth of it here; the whole is 2.0 s of CPU on an idle core."""
    path = azure_2023(tmp_path / "a.csv", 1000)
    body = path.read_text().split("\n", 1)[1]
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + (body + "\n") * 100)
    begun = time.process_time()
    assert len(read_trace(path)) == 100_000
    assert time.process_time() - begun < 1.0
