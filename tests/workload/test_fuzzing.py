"""Damaged at random: every file gives a trace that makes sense, or one clear refusal."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from tests.workload.generated import azure_2023, azure_2024, mooncake_rows, objects, write
from tests.workload.test_readers import servegen

from sizing.errors import SizingError
from sizing.workload import read_trace, read_workload
from sizing.workload.files import workload_text
from sizing.workload.shapes import shape

CASES = 60


def turns(path: Path) -> Path:
    rows = [
        {"session_id": f"s{i % 5}", "input_length": 100 + i, "output_length": 9, "hash_ids": [i], "delay": 10 * i}
        for i in range(30)
    ]
    return objects(path, rows)


def bursts(path: Path) -> Path:
    head = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
    return write(path, [head, *(f"{i},s{i % 3},1.5,GPT-4,{10 + i},{i % 4},{i},API log" for i in range(40))])


def chats(path: Path) -> Path:
    rows = [
        {"chat_id": i, "parent_chat_id": i - 3 if i > 3 else -1, "timestamp": i * 0.7, "input_length": 16 * (i + 1),
         "output_length": 5, "type": "text", "turn": 1 + i // 3, "hash_ids": list(range(i + 1))}
        for i in range(30)
    ]  # fmt: skip
    return objects(path, rows)


MAKERS = {
    "a23.csv": azure_2023,
    "a24.csv": azure_2024,
    "m.jsonl": lambda p: objects(p, mooncake_rows(40)),
    "turns.jsonl": turns,
    "burst.csv": bursts,
    "chats.jsonl": chats,
    "chunk-0-trace.csv": lambda p: servegen(p.parent),
}
NASTY = (
    b"\x00",
    b"\xff",
    b"\n",
    b",",
    b'"',
    b"-",
    b"nan",
    b"1e999",
    b"{",
    b"]",
    b"null",
    b"9" * 30,
    b"\xe2\x80\xa8",
    b"\r",
)


def damaged(data: bytes, random: np.random.Generator) -> bytes:
    for _ in range(int(random.integers(1, 8))):
        at = int(random.integers(0, len(data) + 1))
        length = int(random.integers(0, 40))
        how = random.integers(4)
        if how == 0:
            data = data[:at] + data[at + length :]
        elif how == 1:
            data = data[:at] + NASTY[int(random.integers(len(NASTY)))] + data[at:]
        elif how == 2:
            data = data[:at] + data[at : at + length] * 2 + data[at + length :]
        else:
            other = int(random.integers(0, len(data) + 1))
            data = data[:at] + data[other : other + length] + data[at + length :]
    return data


def outcome(call):
    """What a call gives, or the message it refuses with."""
    try:
        return call(), ""
    except SizingError as refused:
        return None, str(refused)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("zipped", [False, True])
def test_a_damaged_trace_is_read_or_refused(tmp_path: Path, name: str, zipped: bool) -> None:
    path = MAKERS[name](tmp_path / name)
    whole = path.read_bytes()
    read = 0
    for seed in range(CASES):
        random = np.random.Generator(np.random.PCG64(seed))
        path.write_bytes(damaged(gzip.compress(whole) if zipped else whole, random))
        trace, refusal = outcome(lambda: read_trace(path))
        if trace is None:
            assert name.rsplit("-", 1)[0] in refusal
            assert "\n" not in refusal
            continue
        summary = trace.summary()
        read += 1
        assert np.all(np.diff(trace.arrival_s) >= 0)
        assert np.all(np.isfinite(trace.arrival_s))
        assert trace.input_tokens.min() >= 1
        assert trace.output_tokens.min() >= 1
        assert not summary.reused_share < 0
        assert not summary.reused_share > 1
        traffic, refusal = outcome(trace.to_workload)
        assert "rate" in refusal if traffic is None else traffic.request_rate_per_s > 0
    assert zipped or read >= CASES // 10


@pytest.mark.parametrize("name", ["chat", "agents", "rag-shared"])
@pytest.mark.parametrize("form", ["toml", "json"])
def test_a_damaged_workload_file_is_read_or_refused(tmp_path: Path, name: str, form: str) -> None:
    path = tmp_path / f"w.{form}"
    whole = workload_text(shape(name, 5.0), form).encode()
    for seed in range(CASES):
        path.write_bytes(damaged(whole, np.random.Generator(np.random.PCG64(seed))))
        traffic, refusal = outcome(lambda: read_workload(path))
        assert "w." in refusal if traffic is None else traffic.mean_input_tokens > 0
