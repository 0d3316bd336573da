"""Parameter counts of every shipped row, through the command and in Python."""

import csv
import json
from pathlib import Path

import pytest

from sizing.errors import InputError, UnknownFile
from sizing.validation.parameters import TOLERANCES, count_row, error_of, error_table, read_rows

#: Rows that differ from what the framework builds, each for a reason that the output states.
KNOWN = {
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct",  # the framework's default tower is not the one shipped
    "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "mistralai/Mistral-Small-3.1-24B-Instruct-2503",  # the framework ties what the checkpoint ships untied
}


def test_every_shipped_row() -> None:
    rows = read_rows(None)
    counts = [count_row(row) for row in rows]
    assert len(rows) == 165
    assert all(count.parameters for count in counts)
    for metric, least in (("parameters", 0.97), ("checkpoint_parameters", 0.95)):
        errors = [error_of(row, count, metric) for row, count in zip(rows, counts, strict=True)]
        known = [abs(error) <= TOLERANCES[metric] for error in errors if error is not None]
        assert sum(known) / len(known) >= least
    assert {count.id for count in counts if count.reason} == KNOWN
    assert all(
        "size of" in count.reason or "less than the encoders" in count.reason for count in counts if count.reason
    )


def test_the_error_table_sums_up() -> None:
    rows = read_rows(None)[:20]
    table = error_table(rows, [count_row(row) for row in rows])
    every = [line for line in table if line["kind"] == "all"]
    assert [line["count"] for line in every] == ["checkpoint_parameters", "parameters"]
    assert {line["within_percent"] for line in every} == {100.0}


def test_bytes_of_files_are_compared_where_a_row_states_them() -> None:
    rows = [
        {"id": "tiiuae/falcon-180B", "checkpoint_bytes": "359045130240"},  # model.safetensors.index.json
        {"id": "Qwen/Qwen3-8B", "checkpoint_bytes": "1"},
    ]
    counts = [count_row(row) for row in rows]
    assert counts[0].reason == ""
    assert "checkpoint_bytes differs" in counts[1].reason
    assert [line["count"] for line in error_table(rows, counts) if line["kind"] == "all"] == ["checkpoint_bytes"]


def test_rows_without_measured_values_are_counted_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id\nQwen/Qwen3-8B\nno/such-model-here\n")
    rows = read_rows(tmp_path / "rows.csv")
    counts = [count_row(row) for row in rows]
    assert counts[0].parameters == 8_190_735_360
    assert counts[1].parameters is None
    assert "no model" in counts[1].reason
    assert error_table(rows, counts) == []


def test_configs_come_before_the_catalogue(tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
              "intermediate_size": 128, "vocab_size": 1000, "tie_word_embeddings": True}  # fmt: skip
    (tmp_path / "Qwen--Qwen3-8B.json").write_text(json.dumps(config))
    (tmp_path / "bad--config.json").write_text("[]")
    assert count_row({"id": "Qwen/Qwen3-8B"}, tmp_path).parameters == 2 * (4 * 64 * 64 + 3 * 64 * 128 + 128) + 64_064
    assert "list" in count_row({"id": "bad/config"}, tmp_path).reason


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"\xff\xfe\x00id", b""])
def test_files_that_are_no_table(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows.csv").write_bytes(content)
    with pytest.raises(InputError):
        read_rows(tmp_path / "rows.csv")
    with pytest.raises(UnknownFile):
        read_rows(tmp_path / "absent.csv")


def test_the_command_writes_rows_and_prints_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sizing.cli.validate_parameters import command

    (tmp_path / "rows.csv").write_text(
        "id,transformers_meta_total,safetensors_total\nQwen/Qwen3-8B,8190735360,8190735360\n"
    )
    command(tmp_path / "rows.csv", None, tmp_path / "out.csv", "json")
    printed = json.loads(capsys.readouterr().out)
    assert printed["rows"][0]["within_percent"] == 100.0
    with (tmp_path / "out.csv").open() as file:
        row = next(csv.DictReader(file))
    assert (row["id"], row["parameters"], row["reason"]) == ("Qwen/Qwen3-8B", "8190735360", "")


def test_models_command_lists_and_shows(capsys: pytest.CaptureFixture[str]) -> None:
    from sizing.cli.models import command

    command(None, "mixtral", "moe", None, "json", None, None)
    listed = {row["model"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert listed["mistralai/Mixtral-8x7B-v0.1"]["parameters_b"] == 46.7
    command("deepseek-v3", None, None, None, "json", None, None)
    shown = json.loads(capsys.readouterr().out)
    facts = {row["fact"]: row["value"] for row in shown["rows"]}
    assert facts["parameters"] == 671_026_404_352
    assert any("source:" in note for note in shown["notes"])
    command(None, None, "sparse", "1000G", "csv", None, None)
    assert "DeepSeek-V3.2" in capsys.readouterr().out
