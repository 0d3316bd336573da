"""Looking models up on the hub, with a client of our own in place of the network."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sizing import hub
from sizing.architecture import read_model
from sizing.errors import UnknownModel

CONFIG = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
          "intermediate_size": 128, "vocab_size": 1000, "tie_word_embeddings": False}  # fmt: skip


class EntryNotFoundError(Exception):
    """The hub has the model but not the file."""


class LocalEntryNotFoundError(Exception):
    """Offline, and the file is not in the cache."""


class GatedRepoError(Exception):
    """The model wants its terms accepted."""


def client(monkeypatch: pytest.MonkeyPatch, folder: Path, failure: type[Exception] | None = None) -> list[str]:
    asked: list[str] = []

    def hf_hub_download(*, repo_id: str, filename: str) -> str:
        asked.append(f"{repo_id} {filename}")
        if failure is not None:
            raise failure("no network\nand more")
        if not (folder / filename).exists():
            raise EntryNotFoundError(filename)
        return str(folder / filename)

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=hf_hub_download))
    return asked


def test_a_model_that_the_catalogue_lacks_is_looked_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))
    asked = client(monkeypatch, tmp_path)
    model = read_model("someone/brand-new-3b")
    assert asked == ["someone/brand-new-3b config.json", "someone/brand-new-3b hf_quant_config.json"]
    assert (model.name, model.checkpoint.name) == ("someone/brand-new-3b", "fp8")
    assert model.source == "https://huggingface.co/someone/brand-new-3b/blob/main/config.json"


def test_a_model_of_the_catalogue_is_not_looked_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = client(monkeypatch, tmp_path)
    assert read_model("Qwen/Qwen3-8B").num_layers == 36
    assert asked == []


@pytest.mark.parametrize(
    ("failure", "says"),
    [(LocalEntryNotFoundError, "resolve/main/config.json"), (GatedRepoError, "HF_TOKEN"), (OSError, "no network")],
)
def test_without_the_network_the_message_says_what_to_download(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failure: type[Exception], says: str
) -> None:
    client(monkeypatch, tmp_path, failure)
    with pytest.raises(UnknownModel, match=says) as caught:
        read_model("someone/brand-new-3b")
    assert "\n" not in str(caught.value)


def test_without_the_client_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UnknownModel, match=r"pip install 'sizing\[hub\]'"):
        read_model("someone/brand-new-3b")


def test_a_model_without_config_is_said_to_have_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    client(monkeypatch, tmp_path)
    with pytest.raises(UnknownModel, match=r"no config\.json"):
        read_model("someone/brand-new-3b")


def test_names_that_are_no_ids_are_not_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = client(monkeypatch, tmp_path)
    for name in ("brand-new-3b", "../../etc/passwd", "a/b/c", "a b/c"):
        with pytest.raises(UnknownModel):
            read_model(name)
    assert asked == []


def test_bytes_from_the_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    client(monkeypatch, tmp_path)
    assert hub.weight_bytes("someone/brand-new-3b") is None
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 123}, "weight_map": {}}))
    assert hub.weight_bytes("someone/brand-new-3b") == 123
    index.write_text("{}")
    assert hub.weight_bytes("someone/brand-new-3b") is None
