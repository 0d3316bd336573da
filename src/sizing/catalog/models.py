"""The model catalogue: config facts by name, forgiving of how people write names."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

from sizing.catalog.names import essential, format_in_name, is_sixteen_bit, plain, without_format
from sizing.catalog.overlay import layers, on_change
from sizing.catalog.tables import read_table, table_names
from sizing.errors import InputError, UnknownModel, near_names

__all__ = ["ModelFacts", "format_in_name", "model_facts", "models", "resolve_model", "shipping_facts"]


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What the catalogue knows of a model.

    Parameters
    ----------
    name
        What the model is called: the name asked for, where it carries a number format, else the id.
    id
        Hugging Face id of the entry.
    config
        The fields of its config.json that bear on sizes.
    source
        Where they were read.
    quality
        ``verbatim``, ``mirror``, ``preset``, ``fixture``, ``abridged``, ``reconstructed``, ``class default``, ``user``.
    named_format
        Weight format that the name carries; it counts where the config has no record of quantisation.
    notes
        What a short name was taken for.
    """

    name: str
    id: str
    config: dict[str, object]
    source: str = ""
    quality: str = ""
    named_format: str | None = None
    notes: tuple[str, ...] = ()


def models() -> tuple[str, ...]:
    """Ids of the models in the catalogue, the user's own among them, sorted."""
    return tuple(sorted(_names(), key=str.lower))


@lru_cache(maxsize=1)
def _names() -> dict[str, None]:
    own = {name: None for _, entries in layers("models") for name in entries}
    return {**own, **dict.fromkeys(table_names("models.toml"))}


@lru_cache(maxsize=1)
def _aliases() -> dict[str, str]:
    table = read_table("model_aliases.toml", "aliases") or {}
    return {plain(short): str(name) for short, name in table.items()}


@lru_cache(maxsize=1)
def _by_plain_name() -> dict[str, str]:
    return {plain(name): name for name in reversed(_names())}


@lru_cache(maxsize=1)
def _by_essentials() -> dict[tuple[str, ...], list[str]]:
    found: dict[tuple[str, ...], list[str]] = {}
    for name in _names():
        found.setdefault(essential(without_format(name)), []).append(name)
    return found


def _forget() -> None:
    for known in (_names, _by_plain_name, _by_essentials):
        known.cache_clear()


on_change(_forget)


def resolve_model(name: str) -> tuple[str, str | None]:
    """Id of the entry that a name means, and the weight format the name asks for where the entry has none of it.

    The name itself is tried first, then in any case, without owner, as an alias, and at last without number
    formats, dates and tuning variants.

    Raises
    ------
    UnknownModel
        No such model; the message names the nearest.
    """
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"a model is a name, a folder or a config.json, got {name!r}")
    exact = _exactly(name)
    wanted = format_in_name(name)
    if exact is not None:
        return exact, (wanted if format_in_name(exact) is None else None)
    bare = without_format(name)
    found = _exactly(bare) if bare != name else None
    found = found or _nearly(bare)
    if found is None:
        raise _unknown(name)
    return found, (wanted if format_in_name(found) is None else None)


def _exactly(name: str) -> str | None:
    if name in _names():
        return name
    low = plain(name)
    return _by_plain_name().get(low) or _aliases().get(low)


def _nearly(name: str) -> str | None:
    parts = essential(name)
    candidates = _by_essentials().get(parts, [])
    low = plain(name)
    ranked = sorted(
        candidates,
        key=lambda each: (format_in_name(each) is not None, -SequenceMatcher(None, low, plain(each)).ratio(), each),
    )
    return ranked[0] if ranked else None


def _unknown(name: str) -> UnknownModel:
    near = near_names(name[:200], _names())
    shown = f"; nearest: {', '.join(near)}" if near else ""
    return UnknownModel(
        f"no model {name[:200]!r} in the catalogue, and no such file or folder{shown}."
        " List them with `size-inference models`, or give the folder of its config.json"
    )


def model_facts(name: str) -> ModelFacts:
    """Facts of the model of that name.

    Raises
    ------
    UnknownModel
        No such model; the message names the nearest.
    """
    found, format = resolve_model(name)
    table, file = _entry(found)
    source = str(table.pop("source", "")) or file
    quality = str(table.pop("quality", "")) or ("user" if file else "")
    table.pop("published", None)
    if format or (is_sixteen_bit(name) and not is_sixteen_bit(found)):
        table = _without_record(table, format)
    notes = (f"{name!r} is taken for {found}",) if essential(name) != essential(found) or format else ()
    return ModelFacts(
        name=name if format else found,
        id=found,
        config=table,
        source=source,
        quality=quality,
        named_format=format or format_in_name(found),
        notes=notes if plain(name) != plain(found) else (),
    )


def _without_record(config: dict[str, object], format: str | None) -> dict[str, object]:
    """The config without its record of quantisation, unless that is of the format's own family."""
    record = config.get("quantization_config")
    if isinstance(record, Mapping):
        if format and format[:3] in str(record).lower():
            return config
        return {key: value for key, value in config.items() if key not in {"quantization_config", "expert_dtype"}}
    text = config.get("text_config")
    if isinstance(text, dict) and "quantization_config" in text:
        return {**config, "text_config": _without_record(text, format)}
    return config


def _entry(name: str) -> tuple[dict[str, object], str]:
    """The entry of that name with the user's overrides, and the user's file if it has any."""
    table, file = dict(read_table("models.toml", name) or {}), ""
    for path, entries in layers("models"):
        own = entries.get(name)
        if isinstance(own, Mapping):
            table, file = {**table, **own}, path
    return table, file


def shipping_facts(name: str) -> dict[str, object]:
    """What is known of one checkpoint's files that neither its config nor its type says.

    Parameters
    ----------
    name
        Hugging Face id.
    """
    return read_table("checkpoints.toml", name) or {}
