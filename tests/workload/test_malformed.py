"""Damaged traces: each fault is counted by reason, or refused naming the file and the line."""

import gzip
import math
from pathlib import Path

import pytest
from tests.workload.generated import AZURE, azure_2023, mooncake_rows, objects, write

from sizing.errors import InputError, UnknownFile
from sizing.workload import read_trace

GOOD = [f"2023-11-16 18:17:{i:02d}.5000000,{100 + i},{10 + i}" for i in range(20)]
HUGE = "9" * 400


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("2023-11-16 18:18:00.5", "fields missing"),
        ("2023-11-16 18:18:00.5,100", "fields missing"),
        ("2023-11-16 18:18:00.5,100,10,7", "too many fields"),
        ("2023-11-16 18:18:00.5,-100,10", "negative number"),
        ("2023-11-16 18:18:00.5,100,-1", "negative number"),
        ("2023-11-16 18:18:00.5,,10", "not a number"),
        ("2023-11-16 18:18:00.5,many,10", "not a number"),
        ("2023-11-16 18:18:00.5,nan,10", "not a number"),
        ("2023-11-16 18:18:00.5,inf,10", "not a number"),
        ("2023-11-16 18:18:00.5,1e999,10", "not a number"),
        (f"2023-11-16 18:18:00.5,{HUGE},10", "not a number"),
        ("2023-11-16 18:18:00.5,1000000000000,10", "more than 100,000,000 tokens"),
        ("yesterday,100,10", "not a number"),
        ("2023-13-45 99:99:99.5,100,10", "not a number"),
        ("NaT,100,10", "not a number"),
        (",100,10", "not a number"),
        ("2023-11-16 18:18:00.5,100,0", "failed request (no output tokens)"),
        ("2023-11-16 18:18:00.5,0,0", "failed request (no output tokens)"),
        ("2023-11-16 18:18:00.5,0,10", "no input tokens"),
        ("\x00\x01\x02", "fields missing"),
    ],
)
def test_a_wrong_row_is_counted_with_its_line(tmp_path: Path, row: str, reason: str) -> None:
    path = write(tmp_path / "a.csv", [AZURE, *GOOD[:10], row, *GOOD[10:]])
    if "\x00" in row:
        with pytest.raises(InputError, match=r"a\.csv: line 12 is not text"):
            read_trace(path)
        return
    trace = read_trace(path)
    assert len(trace) == 20
    assert trace.skipped == {reason: 1}
    assert trace.first_lines == {reason: 12}
    assert any(reason in note and "line 12" in note for note in trace.notes)
    assert trace.input_tokens.tolist() == [100 + i for i in range(20)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{not json", "not a JSON object"),
        ("[1, 2, 3]", "not a JSON object"),
        ("null", "not a JSON object"),
        ('{"timestamp": 0}', "not a number"),
        ('{"timestamp": 0, "input_length": "many", "output_length": 3}', "not a number"),
        ('{"timestamp": 0, "input_length": NaN, "output_length": 3}', "not a number"),
        ('{"timestamp": 0, "input_length": Infinity, "output_length": 3}', "not a number"),
        ('{"timestamp": 1e300, "input_length": 5, "output_length": 3}', "time beyond 30,000 years"),
        ('{"timestamp": null, "input_length": 5, "output_length": 3}', "not a number"),
        ('{"timestamp": true, "input_length": 5, "output_length": 3}', "not a number"),
        ('{"timestamp": 0, "input_length": [5], "output_length": 3}', "not a number"),
        ('{"timestamp": 0, "input_length": -5, "output_length": 3}', "negative number"),
        (f'{{"timestamp": 0, "input_length": {HUGE}, "output_length": 3}}', "not a number"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 0}', "failed request (no output tokens)"),
        ("[" * 100_000, "not a JSON object"),
    ],
)
def test_a_wrong_object_is_counted_with_its_line(tmp_path: Path, line: str, reason: str) -> None:
    path = objects(tmp_path / "m.jsonl", mooncake_rows(30))
    lines = path.read_text().splitlines()
    write(path, [*lines[:7], line, *lines[7:]])
    trace = read_trace(path)
    assert (len(trace), trace.skipped, trace.first_lines) == (30, {reason: 1}, {reason: 8})


def test_hashes_of_the_wrong_type_lose_only_themselves(tmp_path: Path) -> None:
    rows = mooncake_rows(30)
    for row, wrong in zip(rows, (None, "abc", {"a": 1}, 7, [None, 1], [1.5, 2.5], [10**30]), strict=False):
        row["hash_ids"] = wrong
    trace = read_trace(objects(tmp_path / "m.jsonl", rows))
    assert len(trace) == 30
    assert trace.requests.reused_tokens.sum() > 0


@pytest.mark.parametrize("missing", ["TIMESTAMP", "ContextTokens", "GeneratedTokens"])
def test_a_missing_column_is_refused_with_its_line(tmp_path: Path, missing: str) -> None:
    header = AZURE.replace(missing, "Other")
    path = write(tmp_path / "a.csv", [header, *GOOD])
    with pytest.raises(InputError, match=rf"a\.csv: line 1: no column '{missing.lower()}'"):
        read_trace(path, "azure")
    with pytest.raises(InputError, match="line 1") as refused:
        read_trace(path)
    assert "azure: CSV with TIMESTAMP" in str(refused.value)


def test_arrivals_out_of_order_are_sorted_and_told(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "a.csv", [AZURE, *reversed(GOOD)]))
    assert trace.input_tokens.tolist() == [100 + i for i in range(20)]
    assert any("19 requests were out of order" in note for note in trace.notes)


def test_equal_arrivals_keep_their_order_and_are_told(tmp_path: Path) -> None:
    rows = [f"2023-11-16 18:17:00.5,{100 + i},5" for i in range(5)]
    trace = read_trace(write(tmp_path / "a.csv", [AZURE, *rows, *GOOD[1:]]))
    assert trace.input_tokens[:5].tolist() == [100, 101, 102, 103, 104]
    assert any("4 requests arrive at the same time" in note for note in trace.notes)


def test_a_gzip_cut_short_is_read_as_far_as_it_goes_and_told(tmp_path: Path) -> None:
    import numpy as np

    random = np.random.Generator(np.random.PCG64(0))
    rows = [
        f"2023-11-16 {i // 3600:02d}:{i // 60 % 60:02d}:{i % 60:02d}.0,{random.integers(9999) + 1},7"
        for i in range(9000)
    ]
    whole = gzip.compress("\n".join([AZURE, *rows]).encode())
    path = tmp_path / "a.csv.gz"
    path.write_bytes(whole[: len(whole) // 2])
    trace = read_trace(path)
    assert 1000 < len(trace) < 8900
    assert trace.skipped == {"gzip cut short, the rest is lost": 1}
    line = trace.first_lines["gzip cut short, the rest is lost"]
    assert line == len(trace) + 1


def test_a_damaged_gzip_is_refused_with_a_line(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(azure_2023(tmp_path / "x.csv", 5000).read_bytes()))
    whole[len(whole) // 2 : len(whole) // 2 + 40] = b"\xff" * 40
    path = tmp_path / "a.csv.gz"
    path.write_bytes(bytes(whole))
    with pytest.raises(InputError, match=r"a\.csv\.gz.*(damaged gzip after line|not UTF-8)"):
        read_trace(path)


@pytest.mark.parametrize("data", [b"", b"\n\n\n", b"   ", b"\xef\xbb\xbf", gzip.compress(b""), b"\x1f\x8b"])
def test_an_empty_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.csv.*empty"):
        read_trace(path)


@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n\x1a\n\x00\x00\x00", bytes(range(256)) * 20, b"PK\x03\x04" + b"\x00" * 100]
)
def test_a_binary_file_is_refused_with_a_line(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.csv: line \d+ is not text"):
        read_trace(path)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_marked_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.csv"
    text = "\n".join([AZURE, *GOOD])
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(encoding, b"")
    path.write_bytes(mark + text.encode(encoding))
    assert len(read_trace(path)) == 20


def test_a_wrong_encoding_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("\n".join([AZURE, *GOOD[:5], "é,1,2", *GOOD[5:]]).encode("latin-1"))
    with pytest.raises(InputError, match=r"a\.csv: line 7 is not UTF-8"):
        read_trace(path)


def test_windows_line_ends_and_quotes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = ['"2023-11-16 18:17:00.5","100","10"', "2023-11-16 18:17:01.5,101,10"]
    path.write_bytes("\r\n".join([AZURE, *rows]).encode())
    trace = read_trace(path)
    assert (len(trace), trace.requests.span_s) == (2, pytest.approx(1.0))


def test_a_file_of_mostly_wrong_rows_is_refused_with_the_first_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [AZURE, GOOD[0], "x,y,z", "x,y,z"])
    with pytest.raises(InputError, match=r"a\.csv: 2 of 3 rows can't be used, the first at line 3: not a number"):
        read_trace(path)
    only_head = write(tmp_path / "b.csv", [AZURE])
    with pytest.raises(InputError, match=r"b\.csv: no row can be used"):
        read_trace(only_head)


def test_failures_alone_are_refused_as_no_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [AZURE, "2023-11-16 18:17:00.5,100,0"])
    with pytest.raises(InputError, match=r"no row can be used, the first at line 2: failed request"):
        read_trace(path)


def test_no_such_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UnknownFile, match="no such trace file"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(InputError, match="folder"):
        read_trace(tmp_path)
    with pytest.raises(InputError, match="can't be read"):
        read_trace("a\x00b")


def test_text_that_is_no_trace_is_refused_with_what_would_be(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", ["Dear all,", "the trace is in the other file."])
    with pytest.raises(InputError, match=r"a\.txt: line 1: 'Dear all,'") as refused:
        read_trace(path)
    assert "mooncake: JSON lines" in str(refused.value)


def test_one_request_is_a_trace_without_a_rate(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "a.csv", [AZURE, GOOD[0]]))
    summary = trace.summary()
    assert (len(trace), math.isnan(summary.rate_per_s)) == (1, True)
    with pytest.raises(InputError, match="rate"):
        trace.to_workload()


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sizing.workload.source.LONGEST_LINE_BYTES", 1 << 20)
    path = tmp_path / "a.csv"
    path.write_text(AZURE + "\n" + "7" * (5 << 20))
    with pytest.raises(InputError, match="line 2 is longer"):
        read_trace(path)


def test_the_one_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ["arrival_s,prompt_tokens", "0,100"])
    with pytest.raises(InputError, match=r"line 1: 'arrival_s,prompt_tokens' .* \(it lacks output_tokens\)"):
        read_trace(path)
