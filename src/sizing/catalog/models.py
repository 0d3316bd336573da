"""The model catalogue: config facts by name, forgiving of how people write names."""

import re
from dataclasses import dataclass
from functools import lru_cache

from sizing.catalog.tables import read_table, table_names
from sizing.errors import UnknownModel, nearest


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What the catalogue knows of a model.

    Parameters
    ----------
    name
        Hugging Face id.
    config
        The fields of its config.json that bear on sizes.
    source
        Where they were read.
    quality
        ``verbatim``, ``mirror``, ``preset``, ``fixture``, ``abridged`` or ``reconstructed``.
    notes
        What the name asked for that the catalogue answered otherwise.
    """

    name: str
    config: dict[str, object]
    source: str = ""
    quality: str = ""
    notes: tuple[str, ...] = ()


def models() -> tuple[str, ...]:
    """Ids of the models in the catalogue, sorted."""
    return tuple(sorted(table_names("models.toml"), key=str.lower))


def plain(name: str) -> str:
    """A name without owner, case and punctuation."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower().rsplit("/", 1)[-1]).strip("-")


@lru_cache(maxsize=1)
def _by_plain_name() -> dict[str, str]:
    return {plain(name): name for name in reversed(table_names("models.toml"))}


def model_facts(name: str) -> ModelFacts:
    """Facts of the model of that name.

    Raises
    ------
    UnknownModel
        No such model; the message names the nearest.
    """
    found = name if name in table_names("models.toml") else _by_plain_name().get(plain(name))
    table = read_table("models.toml", found) if found else None
    if found is None or table is None:
        raise UnknownModel(
            f"no model {name!r} in the catalogue, and no such file or folder{nearest(name, models())}."
            " List them with `size-inference models`, or give the folder of its config.json"
        )
    source, quality = str(table.pop("source", "")), str(table.pop("quality", ""))
    return ModelFacts(name=found, config=table, source=source, quality=quality)


def shipping_facts(name: str) -> dict[str, object]:
    """What is known of one checkpoint's files that neither its config nor its type says.

    Parameters
    ----------
    name
        Hugging Face id.
    """
    return read_table("checkpoints.toml", name) or {}
