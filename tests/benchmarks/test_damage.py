"""Damaged result files: whatever is wrong inside, one explained error or points, never a traceback."""

import copy
import importlib.util
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from sizing.benchmarks import read_benchmark
from sizing.benchmarks.startup_log import read_startup_log
from sizing.errors import SizingError

_spec = importlib.util.spec_from_file_location("benchmark_samples", Path(__file__).with_name("samples.py"))
s = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(s)

SAMPLES = {
    "vllm": s.vllm_serve(), "sglang": s.sglang(), "guidellm": s.guidellm(), "guidellm-1": s.guidellm(1),
    "aiperf": s.aiperf(), "genai": s.genai_perf(), "inference-perf": s.inference_perf(), "llmperf": s.llmperf(),
    "inferencex": s.inferencex(), "llmd": s.llmd(), "llmd-0.1": s.llmd("0.1"), "dynamo": s.dynamo_decode(),
}  # fmt: skip
WRONG = [
    None,
    True,
    -1,
    0,
    1e308,
    "",
    "x",
    "12",
    [],
    [1],
    {},
    {"mean": "y"},
    float("nan"),
    float("inf"),
    "\x00",
    10**400,
]


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    keys = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = []
    for key, inner in keys:
        found += [(*path, key), *places(inner, (*path, key))]
    return found


def damaged(document: dict[str, object], rng: random.Random) -> dict[str, object]:
    """A copy with one to three values replaced or removed."""
    made = copy.deepcopy(document)
    for _ in range(rng.randint(1, 3)):
        spots = places(made)
        if not spots:
            break
        *path, last = rng.choice(spots)
        holder = made
        for key in path:
            holder = holder[key]
        if rng.random() < 0.3:
            del holder[last]
        else:
            holder[last] = rng.choice(WRONG)
    return made


def refusal(read: Callable[[Path], object], file: Path) -> str | None:
    """Message of the refusal; None when the file was read. Any other exception fails the test."""
    try:
        read(file)
    except SizingError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", SAMPLES)
def test_wrong_values_are_explained(name: str, tmp_path: Path) -> None:
    rng, file = random.Random(f"damage {name}"), tmp_path / "damaged.json"
    refused = 0
    for _ in range(120):
        file.write_text(json.dumps(damaged(SAMPLES[name], rng)))
        message = refusal(read_benchmark, file)
        refused += message is not None
        assert message is None or ("damaged.json" in message and "\n" not in message)
    assert refused > 0


@pytest.mark.parametrize("content", [s.mlperf(), s.VLLM_BLOCK, s.SGLANG_BLOCK], ids=["mlperf", "vllm", "sglang"])
def test_cut_and_scrambled_text(content: str, tmp_path: Path) -> None:
    rng, file = random.Random(7), tmp_path / "cut.txt"
    tried = 0
    for _ in range(80):
        lines = content.splitlines()
        kept = [
            line if rng.random() < 0.8 else line.replace(":", rng.choice(["", ": -", ": x", ":: ", ": 1e999"]))
            for line in lines
        ]
        file.write_text("\n".join(kept[: rng.randint(1, len(kept))]))
        for read in (read_benchmark, read_startup_log):
            assert "cut.txt" in (refusal(read, file) or "cut.txt")
            tried += 1
    assert tried == 160


def test_archives_cut_short(tmp_path: Path) -> None:
    whole, file = s.npz(s.dynamo_decode()), tmp_path / "raw_data.npz"
    rng = random.Random(3)
    for _ in range(40):
        damaged_bytes = bytearray(whole)
        for _ in range(rng.randint(1, 30)):
            damaged_bytes[rng.randrange(len(whole))] = rng.randrange(256)
        file.write_bytes(bytes(damaged_bytes[: rng.randint(10, len(whole))]))
        assert "raw_data.npz" in (refusal(read_benchmark, file) or "raw_data.npz")
