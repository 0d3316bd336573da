"""From a config.json to a Model."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from sizing.architecture.config import Config
from sizing.architecture.defaults import settled_traits
from sizing.architecture.ends import (
    POSITIONS,
    embeddings,
    layer_extras,
    norm_elements,
    outside_layers,
    shipped_besides,
)
from sizing.architecture.kinds import feed_forwards, mixers
from sizing.architecture.kinds.attention import hidden_size
from sizing.architecture.model import CheckpointFormat, Model
from sizing.architecture.mtp import mtp_layers
from sizing.architecture.parts import Layer, Linear
from sizing.architecture.patterns import kinds_of, layer_count
from sizing.architecture.quantization import Quantization, read_quantization
from sizing.architecture.traits import Traits
from sizing.architecture.vision import towers_of
from sizing.catalog.models import format_in_name, model_facts, shipping_facts
from sizing.catalog.overlay import on_change
from sizing.errors import InputError, UnknownFile, UnknownModel
from sizing.hub import fetch_config, is_hub_id

#: A config.json larger than this is not one [B].
LARGEST_FILE_BYTES = 32 * 1024**2
NESTED = ("text_config", "llm_config", "language_config", "language_model_config", "thinker_config")
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
    try:
        return _catalogued(str(path_or_name))
    except UnknownModel as unknown:
        return _from_hub(str(path_or_name), unknown)


@lru_cache(maxsize=64)
def _catalogued(name: str) -> Model:
    """A model of the catalogue."""
    facts = model_facts(name)
    model = model_from_config(facts.config, name=facts.name, source=facts.source, named=facts.named_format)
    return model.with_warnings(*facts.notes)


on_change(_catalogued.cache_clear)


def _from_hub(name: str, unknown: UnknownModel) -> Model:
    """A model that the catalogue lacks, from the hub where its client is installed."""
    if not is_hub_id(name):
        raise unknown
    try:
        config = fetch_config(name)
    except UnknownModel as error:
        raise UnknownModel(f"{unknown}; {error}") from error
    model = _from_path(config)
    return replace(model, name=name, source=f"https://huggingface.co/{name}/blob/main/config.json")


def _from_path(path: Path) -> Model:
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise UnknownFile(f"no file {file}; give a config.json, a folder that has one, or a model's name")
    name = path.name if path.is_dir() else (path.stem if path.name != "config.json" else path.absolute().parent.name)
    name = name.replace("--", "/", 1)
    beside = file.with_name("hf_quant_config.json")
    sibling = read_json(beside) if beside.is_file() else None
    try:
        return model_from_config(
            read_json(file), name=name, source=str(file), sibling=sibling, named=format_in_name(name)
        )
    except InputError as error:
        raise error if str(file) in str(error) else InputError(f"{file}: {error}") from error


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


def model_from_config(
    config: Mapping[str, object],
    name: str = "model",
    source: str = "",
    *,
    sibling: Mapping[str, object] | None = None,
    named: str | None = None,
) -> Model:
    """Model from the contents of a config.json.

    Parameters
    ----------
    config
        The parsed file.
    name
        What to call the model.
    source
        Where it came from, kept for reports.
    sibling
        Contents of the ``hf_quant_config.json`` beside it.
    named
        Weight format that the model's name asks for; counts where no quantisation record is there.

    Raises
    ------
    InputError
        A size is missing, of the wrong type, or out of range.
    """
    if not isinstance(config, Mapping):
        raise InputError(f"a config.json is an object, got {type(config).__name__}")
    top = Config(config)
    text = _text_level(top)
    architecture = str(next(iter(top.items("architectures") or text.items("architectures") or [""])))
    traits = settled_traits(text, top)
    traits = _headless(traits, architecture) if text.where == "" else traits
    quantization = read_quantization(text, top, _dtype(text), sibling, named)
    model = replace(
        _text_model(text, traits, quantization, name),
        model_type=text.text("model_type") or top.text("model_type"),
        architecture=architecture,
        towers=towers_of(top.level("thinker_config") or top, hidden_size(text), architecture),
        source=source,
        config=dict(config),
    )
    return replace(model, warnings=tuple(top.warnings))


def _text_model(text: Config, traits: Traits, quantization: Quantization, name: str) -> Model:
    """The text model with its head, its modules for multi-token prediction, and how the files store them."""
    layers, pattern = grouped(_stored(_layers(text, traits), quantization))
    embedding, head, tied = embeddings(text, traits)
    embedding = embedding.with_format(quantization.format_of(embedding, None))
    facts = shipping_facts(name)
    traits = replace(traits, mtp_copies=facts.get("mtp_copies", traits.mtp_copies) is True)
    norm = norm_elements(text, traits) * traits.norms + layer_extras(text)
    modules, besides = mtp_layers(text, traits, norm, embedding.inputs)
    checkpoint = CheckpointFormat(
        name=_mostly(layers, quantization.native),
        method=quantization.method,
        kv=quantization.kv,
        left_alone=quantization.left_alone,
    )
    extra, missing, note = shipped_besides(text, traits, layers, embedding.parameters, facts)
    return Model(
        name=name,
        model_type="",
        hidden_size=hidden_size(text),
        vocab_size=embedding.inputs,
        tied_embeddings=tied,
        max_positions=text.optional(*POSITIONS, kind="positions"),
        layers=layers,
        pattern=pattern,
        embedding=embedding,
        head=head and head.with_format(quantization.format_of(head, None)),
        other_parameters=outside_layers(text, traits, len(pattern)),
        mtp_layers=grouped(_stored(modules, quantization, len(pattern)))[0],
        mtp_other_parameters=besides,
        checkpoint=replace(checkpoint, extra_parameters=extra, missing_parameters=missing, extra_note=note),
        native_dtype=quantization.native,
        state_dtype=_state_dtype(text),
        encoder_only=traits.mixer == "encoder",
    )


def _text_level(top: Config) -> Config:
    """The text model's fields, those of the outer level standing in where it has none."""
    inner = top.level(*NESTED)
    if inner is None:
        return _flattened(top)
    deeper = inner.level(*NESTED)  # a thinker that holds a text model of its own
    inner = inner if deeper is None else deeper
    outer = {key: value for key, value in top.raw.items() if not isinstance(value, Mapping)}
    merged = {**outer, **{key: value for key, value in inner.raw.items() if value is not None or key not in outer}}
    if top.raw.get("tie_word_embeddings") is not None:
        merged["tie_word_embeddings"] = top.raw["tie_word_embeddings"]
    return _flattened(Config(merged, inner.where, top.warnings))


def _flattened(config: Config) -> Config:
    """The level with the fields of its halves (DBRX, MPT) where it has none of its own."""
    found: dict[str, object] = {}
    for half in ("attn_config", "ffn_config"):
        level = config.raw.get(half)
        if isinstance(level, Mapping):
            found = {**level, **found}
    return Config({**found, **config.raw}, config.where, config.warnings) if found else config


def _headless(traits: Traits, architecture: str) -> Traits:
    """Classes that embed, classify or score have no head over the vocabulary."""
    bare = architecture.endswith("Model") and not architecture.endswith(("LMHeadModel", "LMModel"))
    scoring = architecture.endswith(("ForSequenceClassification", "ForTokenClassification", "RewardModel"))
    return replace(traits, headless=True) if bare or scoring else traits


def _stored(layers: list[Layer], quantization: Quantization, mtp_from: int | None = None) -> list[Layer]:
    """The layers with each matrix in the format that the checkpoint stores it in."""
    first, mtp = mtp_from or 0, mtp_from is not None
    done: dict[tuple[object, ...], Layer] = {}
    stored = []
    for at, layer in enumerate(layers):
        key = (id(layer), quantization.signature(first + at))
        if key not in done:
            done[key] = _stored_layer(layer, quantization, first + at, mtp=mtp)
        stored.append(done[key])
    return stored


def _mostly(layers: tuple[Layer, ...], native: str) -> str:
    """Format of the largest part of the quantised matrices, the native one where there is none."""
    sizes: Counter[str] = Counter()
    for layer in layers:
        for linear in layer.linears:
            if linear.format != native:
                sizes[linear.format] += linear.parameters * layer.count
    return sizes.most_common(1)[0][0] if sizes else native


def _stored_layer(layer: Layer, quantization: Quantization, index: int, *, mtp: bool) -> Layer:
    def stored(linears: tuple[Linear, ...]) -> tuple[Linear, ...]:
        return tuple(linear.with_format(quantization.format_of(linear, index, mtp=mtp)) for linear in linears)

    mixer = replace(layer.mixer, linears=stored(layer.mixer.linears))
    feed_forward = replace(layer.feed_forward, linears=stored(layer.feed_forward.linears))
    return replace(layer, mixer=mixer, feed_forward=feed_forward)


def _layers(text: Config, traits: Traits) -> list[Layer]:
    norms = norm_elements(text, traits) * traits.norms + layer_extras(text)
    order: list[Layer] = []
    alike: dict[tuple[str, str], Layer] = {}
    equal: dict[Layer, Layer] = {}
    uniform = _uniform(text) and traits.mixer != "compressed"
    for index in range(layer_count(text)):
        own = text if uniform else text.at_layer(index)
        kinds = kinds_of(own, traits, index)
        if not uniform or kinds not in alike:
            mixer, feed = kinds
            layer = Layer(
                mixer=mixers.get(mixer)(own, traits, index),
                feed_forward=feed_forwards.get(feed)(own, traits, index),
                norm_parameters=norms,
            )
            alike[kinds] = equal.setdefault(layer, layer)
        order.append(alike[kinds])
    return order


#: Lists that say which kind a layer is, not what size it has.
_KIND_LISTS = frozenset(
    {
        "layer_types", "layers_block_type", "mlp_layer_types", "no_rope_layers", "attn_type_list", "moe_layer_freq",
        "mlp_only_layers", "moe_layers", "attn_layer_indices", "full_attn_idxs", "full_attention_layers", "block_types",
        "_block_types", "hybrid_layer_pattern", "cross_attention_layers", "architectures",
    }
)  # fmt: skip


def _uniform(text: Config) -> bool:
    """Whether layers of one kind are all of one size: no field lists a value for each layer."""
    if text.has("per_layer_config", "num_kv_shared_layers", "compress_rates", "compress_ratios"):
        return False
    return not any(isinstance(value, list) and key not in _KIND_LISTS for key, value in text.raw.items())


def grouped(order: list[Layer]) -> tuple[tuple[Layer, ...], tuple[int, ...]]:
    """Equal layers together with their counts, and which kind each layer is."""
    kinds: dict[Layer, int] = {}
    seen = {id(layer): kinds.setdefault(layer, len(kinds)) for layer in {id(each): each for each in order}.values()}
    pattern = tuple(seen[id(layer)] for layer in order)
    counts = Counter(pattern)
    layers = tuple(replace(layer, count=counts[kind]) for layer, kind in kinds.items())
    return layers, pattern


def _dtype(text: Config) -> str:
    name = text.text("dtype", "torch_dtype", default="bfloat16").removeprefix("torch.")
    if name not in DTYPES:
        text.warn(f"dtype {name!r} is not known: bf16 assumed")
    return DTYPES.get(name, "bf16")


def _state_dtype(text: Config) -> str:
    name = text.text("mamba_ssm_cache_dtype", "mamba_ssm_dtype", default="float32").removeprefix("torch.")
    return DTYPES.get(name, "fp32")
