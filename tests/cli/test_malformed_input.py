"""Two hundred ways to get it wrong: each gives one line, the right exit code, and nothing is lost."""

from pathlib import Path

import pytest

from sizing.cli import run

NONSENSE = (
    "abc",
    "",
    " ",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "-1",
    "20 parsecs",
    "1/0",
    "20;rm",
    "0x14",
    "٣٤ms",
    "💥",
)
OPTIONS = {
    "--rps": (*NONSENSE, "0", "20ms"),
    "--input": (*NONSENSE, "0", "2000ms"),
    "--output": (*NONSENSE, "0", "0.5"),
    "--slo-tpot": (*NONSENSE, "0", "20GB"),
    "--slo-ttft": (*NONSENSE, "0ms", "1/s"),
    "--utilization": (*NONSENSE, "0", "1.5", "85"),
    "--memory-utilization": (*NONSENSE, "0", "1.01"),
    "--spares": (*NONSENSE, "1.5", "2000000000"),
    "--tp": (*NONSENSE, "0", "1.5", "3000"),
    "--dp": (*NONSENSE, "0", "1.5", "3000"),
    "--percentile": (*NONSENSE, "0", "100"),
    "--price": (*NONSENSE, "h100=", "h100=abc"),
}
CASES = [(name, value) for name, values in OPTIONS.items() for value in values]


def outcome(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(list(words))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def assert_one_clear_line(error: str, *mentioned: str) -> None:
    assert error.startswith("size-inference: ")
    assert error.count("\n") == 1
    assert "Traceback" not in error
    for text in mentioned:
        assert text in error, error


@pytest.mark.parametrize(("name", "value"), CASES)
def test_a_bad_quantity_names_option_and_value(
    name: str, value: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = tmp_path / "plan.json"
    kept.write_text("an older answer")
    code, out, error = outcome(capsys, f"{name}={value}", "--out", str(kept))
    assert (code, out) == (2, "")
    assert_one_clear_line(error, name)
    assert kept.read_text() == "an older answer"


@pytest.mark.parametrize(
    ("words", "code", "mentioned"),
    [
        (("--gpu", "h1000"), 4, "h100"),
        (("--gpu", ""), 4, "GPU"),
        (("--model", "Qwen/Qwen3-8Bx"), 4, "Qwen/Qwen3-8B"),
        (("--model", "no/such/folder"), 4, "no/such/folder"),
        (("--calibration", "rule-of-thump"), 2, "rule-of-thumb"),
        (("--method", "adding"), 2, "additive"),
        (("--format", "yaml"), 2, "json"),
        (("--weights", "bf17"), 2, "bf16"),
        (("--kv", "fp9"), 2, "fp8"),
        (("--engine", "vlm"), 2, "vllm"),
        (("--trace", "no-such-trace.csv"), 4, "no-such-trace.csv"),
        (("--config", "no-such-plan.yaml"), 4, "no-such-plan.yaml"),
        (("--catalog", "no-such-catalog.toml"), 4, "no-such-catalog.toml"),
        (("--rsp", "20"), 2, "--rps"),
        (("--rps",), 2, "--rps"),
        (("gpsu",), 2, "gpus"),
        (("--price", "3", "--price", "4"), 2, "--price"),
        (("--ep", "4"), 2, "tp 4"),  # experts on GPUs that no replica has
        (("--tp", "2", "--dp", "2", "--ep", "8"), 2, "tp x dp = 4"),
        (("schema", "plane"), 2, "plan"),
        (("--out", "no/such/folder/plan.json", "--format", "json"), 2, "no/such/folder"),
        (("--out", ".", "--format", "json"), 2, "folder"),
    ],
)
def test_a_bad_name_gives_the_nearest(
    words: tuple[str, ...], code: int, mentioned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    got, out, error = outcome(capsys, *words)
    assert got == code, error
    assert out == ""
    assert_one_clear_line(error, mentioned)


BAD_BYTES = {
    "empty": b"",
    "binary": bytes(range(256)) * 8,
    "utf16": '{"model_type": "llama"}'.encode("utf-16"),
    "list": b"[1, 2, 3]",
    "number": b"7",
    "broken": b'{"model_type": "llama", ',
    "deep": b"[" * 20_000,
    "deep mapping": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "missing keys": b'{"model_type": "llama"}',
    "nulls": b"\x00" * 1000,
    "wrong types": b'{"model_type": "llama", "hidden_size": "wide", "num_hidden_layers": [32]}',
    "negative": b'{"model_type": "llama", "hidden_size": -4096, "num_hidden_layers": 32, "num_attention_heads": 32,'
    b' "vocab_size": 32000, "intermediate_size": 11008}',
}


@pytest.mark.parametrize("kind", BAD_BYTES)
def test_a_bad_config_json_is_refused(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(BAD_BYTES[kind])
    for model in (path, tmp_path):
        code, out, error = outcome(capsys, "--model", str(model))
        assert (code, out) == (2, ""), error
        assert_one_clear_line(error, "config.json")


@pytest.mark.parametrize("kind", [k for k in BAD_BYTES if k not in ("empty",)])
def test_a_bad_plan_file_is_refused(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.yaml"
    path.write_bytes(BAD_BYTES[kind])
    code, out, error = outcome(capsys, "--config", str(path))
    assert (code, out) == (2, ""), error
    assert_one_clear_line(error, "--config")


@pytest.mark.parametrize("kind", BAD_BYTES)
@pytest.mark.parametrize("option", ["--calibration", "--trace", "--catalog"])
def test_a_bad_file_is_refused(option: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / ("bad.toml" if option != "--trace" else "bad.csv")
    path.write_bytes(BAD_BYTES[kind])
    code, out, error = outcome(capsys, option, str(path))
    if option == "--catalog" and kind == "empty":
        assert code == 0
        return
    assert (code, out) == (2, ""), error
    assert_one_clear_line(error, path.name)


def test_an_empty_plan_file_is_an_empty_question(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("{}\n")
    code, out, _ = outcome(capsys, "--config", str(path), "--quiet", "--gpu", "h100")
    assert code == 0
    assert "h100-sxm" in out


@pytest.mark.parametrize(
    ("text", "mentioned"),
    [
        ("rsp: 20\n", "rps"),
        ("rps: [20]\n", "rps"),
        ("rps: true\n", "rps"),
        ("rps: twenty\n", "--rps"),
        ("slo_tpot: -20ms\n", "--slo-tpot"),
        ("rps: 20\n rps: 30\n: :\n", "YAML"),
        ("!!python/object/apply:os.system ['true']\n", "YAML"),
    ],
)
def test_a_bad_plan_file_names_the_key(
    text: str, mentioned: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    code, out, error = outcome(capsys, "--config", str(path))
    assert (code, out) == (2, "")
    assert_one_clear_line(error, mentioned)


def test_an_output_file_that_cannot_be_replaced_survives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = outcome(capsys, "--out", str(tmp_path / "no" / "plan.txt"))
    assert code == 2
    assert_one_clear_line(error, "--out")
    assert list(tmp_path.iterdir()) == []


def test_there_are_two_hundred_of_them() -> None:
    assert len(CASES) + 20 + 2 * len(BAD_BYTES) + len(BAD_BYTES) - 1 + 3 * len(BAD_BYTES) + 7 >= 200
