"""From a config.json to a Model."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from sizing.architecture.config import Config
from sizing.architecture.kinds import feed_forwards, mixers
from sizing.architecture.kinds.attention import hidden_size
from sizing.architecture.model import CheckpointFormat, Model
from sizing.architecture.parts import Layer, Linear
from sizing.architecture.patterns import feed_forward_kind, layer_count, mixer_kind
from sizing.architecture.traits import Traits, traits_of
from sizing.errors import InputError, UnknownFile


#: A config.json larger than this is not one [B].
LARGEST_FILE_BYTES = 32 * 1024**2
NESTED = ("text_config", "llm_config", "language_config", "language_model_config")
DTYPES = {
    "bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "half": "fp16", "float": "fp32", "auto": "bf16",
}  # fmt: skip


def read_model(path_or_name: str | Path) -> Model:
    """Model from a catalogue name, a Hugging Face id, a folder with config.json, or a config.json.

    Parameters
    ----------
    path_or_name
        ``"Qwen/Qwen3-8B"``, ``"qwen3-8b"``, ``"models/mine"``, ``"models/mine/config.json"``.

    Raises
    ------
    UnknownModel
        Neither a file, nor a folder, nor a known name; the message names the nearest.
    InputError
        The config cannot be read as a model.
    """
    path = Path(path_or_name)
    if path.suffix == ".json" or path.is_dir():
        return _from_path(path)
    from sizing.catalog.models import model_facts

    facts = model_facts(str(path_or_name))
    model = model_from_config(facts.config, name=facts.name, source=facts.source)
    return model.with_warnings(*facts.notes)


def _from_path(path: Path) -> Model:
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise UnknownFile(f"no file {file}; give a config.json, a folder that has one, or a model's name")
    name = path.name if path.is_dir() else (path.stem if path.name != "config.json" else path.absolute().parent.name)
    return model_from_config(read_json(file), name=name.replace("--", "/"), source=str(file))


def read_json(file: Path) -> dict[str, object]:
    """A JSON object from a file of bounded size.

    Raises
    ------
    InputError
        Too large, not UTF-8, not JSON, nested too deep, or not an object.
    """
    if file.stat().st_size > LARGEST_FILE_BYTES:
        raise InputError(f"{file} is {file.stat().st_size:,} bytes; a config.json has at most {LARGEST_FILE_BYTES:,}")
    try:
        value = json.loads(file.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text (byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON: {str(error)[:200]}") from error
    if not isinstance(value, dict):
        raise InputError(f"{file} holds a {type(value).__name__}; a config.json is an object")
    return value


def model_from_config(config: Mapping[str, object], name: str = "model", source: str = "") -> Model:
    """Model from the contents of a config.json.

    Parameters
    ----------
    config
        The parsed file.
    name
        What to call the model.
    source
        Where it came from, kept for reports.

    Raises
    ------
    InputError
        A size is missing, of the wrong type, or out of range.
    """
    if not isinstance(config, Mapping):
        raise InputError(f"a config.json is an object, got {type(config).__name__}")
    warnings: list[str] = []
    text = _text_level(config, warnings)
    traits = _traits(text, config)
    layers, pattern = _layers(text, traits)
    embedding, head, tied = _ends(text, traits)
    hidden = hidden_size(text)
    return Model(
        name=name,
        model_type=text.text("model_type"),
        architecture=str(next(iter(text.items("architectures") or ["?"]))),
        hidden_size=hidden,
        vocab_size=embedding.inputs,
        tied_embeddings=tied,
        max_positions=text.optional("max_position_embeddings", "n_positions", "seq_length", kind="positions"),
        layers=layers,
        pattern=pattern,
        embedding=embedding,
        head=head,
        other_parameters=hidden * (2 if traits.norm_bias else 1),
        checkpoint=CheckpointFormat(),
        native_dtype=_dtype(text),
        warnings=tuple(warnings),
        source=source,
        config=dict(config),
    )


def _text_level(config: Mapping[str, object], warnings: list[str]) -> Config:
    """The text model's fields, those of the outer level standing in where it has none."""
    top = Config(config, "", warnings)
    inner = top.level(*NESTED)
    if inner is None:
        return top
    outer = {key: value for key, value in config.items() if not isinstance(value, Mapping)}
    merged = {**outer, **{key: value for key, value in inner.raw.items() if value is not None}}
    if config.get("tie_word_embeddings") is not None:
        merged["tie_word_embeddings"] = config["tie_word_embeddings"]
    return Config(merged, inner.where, warnings)


def _traits(text: Config, config: Mapping[str, object]) -> Traits:
    model_type = text.text("model_type")
    traits = traits_of(model_type)
    if not traits.known:
        outer = Config(config).text("model_type")
        traits = traits_of(outer) if outer != model_type else traits
    if not traits.known:
        text.warn(
            f"model type {model_type!r} is not known: biases, norms and ties are read as in Llama, layers from"
            " the fields that the config shares with known ones"
        )
    missing = {key: value for key, value in traits.defaults.items() if text.raw.get(key) is None}
    if missing:
        text.raw = {**text.raw, **missing}
    return traits


def _layers(text: Config, traits: Traits) -> tuple[tuple[Layer, ...], tuple[int, ...]]:
    norm = hidden_size(text) * (2 if traits.norm_bias else 1) if traits.norm_weight else 0
    order: list[Layer] = []
    for index in range(layer_count(text)):
        mixer = mixers.get(mixer_kind(text, traits, index))(text, traits, index)
        feed = feed_forwards.get(feed_forward_kind(text, traits, index))(text, traits, index)
        order.append(Layer(mixer=mixer, feed_forward=feed, norm_parameters=norm * traits.norms))
    return grouped(order)


def grouped(order: list[Layer]) -> tuple[tuple[Layer, ...], tuple[int, ...]]:
    """Equal layers together with their counts, and which kind each layer is."""
    kinds: dict[Layer, int] = {}
    pattern = tuple(kinds.setdefault(layer, len(kinds)) for layer in order)
    counts = Counter(pattern)
    layers = tuple(
        Layer(
            mixer=layer.mixer,
            feed_forward=layer.feed_forward,
            norm_parameters=layer.norm_parameters,
            count=counts[kind],
            indices=tuple(at for at, of in enumerate(pattern) if of == kind),
        )
        for layer, kind in kinds.items()
    )
    return layers, pattern


def _ends(text: Config, traits: Traits) -> tuple[Linear, Linear | None, bool]:
    hidden = hidden_size(text)
    vocabulary = text.integer("vocab_size", "padded_vocab_size", required=True, kind="vocabulary")
    tied = text.flag("tie_word_embeddings", default=traits.tied)
    embedding = Linear(
        name="embed_tokens", inputs=vocabulary, outputs=hidden, shard="row", quantized=False, role="embedding"
    )
    head = Linear(name="lm_head", inputs=hidden, outputs=vocabulary, quantized=False, role="head")
    return embedding, head, tied


def _dtype(text: Config) -> str:
    name = text.text("dtype", "torch_dtype", default="bfloat16").removeprefix("torch.")
    return DTYPES.get(name, "bf16")
