"""Accelerators: facts with basis and source, found by the names people and logs use."""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sizing.catalog.facts import Fact, source_text
from sizing.catalog.overlay import layers, on_change
from sizing.catalog.tables import read_table, table_names, table_texts
from sizing.errors import InputError, UnknownGpu, near_names, nearest

FILE = "gpus.toml"
UNITS = {
    "memory_bytes": "byte", "usable_memory_bytes": "byte", "process_memory_bytes": "byte",
    "memory_bandwidth_bytes_per_s": "byte/s", "sm_count": "", "l2_bytes": "byte",
    "link_bytes_per_s": "byte/s", "link_domain_gpus": "gpu", "pcie_bytes_per_s": "byte/s",
    "nic_bytes_per_s": "byte/s", "tdp_w": "W", "gpus_per_node": "gpu", "gpus_per_rack": "gpu",
}  # fmt: skip
TEXTS = (
    "name", "vendor", "architecture", "compute_capability", "form_factor", "memory_type", "tensor_formats",
    "sparsity", "link_name", "pcie_gen", "nic_note", "tdp_note", "node_note", "conflicts", "measured",
    "process_memory_source", "family",
)  # fmt: skip
LISTS = ("words", "assumed")
PEAKS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8", "int4")
GROUPS = {
    "memory_bytes": "memory", "usable_memory_bytes": "memory", "process_memory_bytes": "memory",
    "memory_bandwidth_bytes_per_s": "memory", "sm_count": "compute", "l2_bytes": "compute",
    "link_bytes_per_s": "link", "link_domain_gpus": "link", "pcie_bytes_per_s": "link",
    "nic_bytes_per_s": "link", "tdp_w": "link", "gpus_per_node": "link", "gpus_per_rack": "link",
}  # fmt: skip
NEEDED = ("memory_bytes", "memory_bandwidth_bytes_per_s", "peak_flops_per_s")
NOISE = frozenset({"nvidia", "amd", "tesla", "gpu", "instinct", "accelerator", "card", "series", "the"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One kind of accelerator.

    Attributes
    ----------
    memory_bytes
        Data sheet figure, decimal. [byte]
    usable_memory_bytes
        What the driver reports (nvidia-smi's total). [byte]
    process_memory_bytes
        What a process sees (``cudaMemGetInfo`` total); engines take their share of this. [byte]
    memory_bandwidth_bytes_per_s
        Peak of the memory. [byte/s]
    peak_flops_per_s
        Dense peaks by number format: fp32, tf32, fp16, bf16, fp8, fp6, fp4, int8, int4. [FLOP/s]
    sm_count, l2_bytes
        Multiprocessors (CUs, cores); second-level cache. [1], [byte]
    link_bytes_per_s, link_domain_gpus
        Scale-up link of one GPU and direction; GPUs that reach each other over it. [byte/s], [gpu]
    pcie_bytes_per_s, nic_bytes_per_s
        Per GPU and direction; 0 where not known. [byte/s]
    tdp_w
        Board power. [W]
    gpus_per_node
        GPUs in the usual server. [gpu]
    facts
        Every value above with unit, basis and source.
    """

    id: str
    name: str
    vendor: str = ""
    architecture: str = ""
    compute_capability: str = ""
    form_factor: str = ""
    memory_type: str = ""
    memory_bytes: float
    usable_memory_bytes: float
    process_memory_bytes: float
    memory_bandwidth_bytes_per_s: float
    peak_flops_per_s: Mapping[str, float]
    sm_count: int = 0
    l2_bytes: float = 0.0
    link_name: str = "none"
    link_bytes_per_s: float = 0.0
    link_domain_gpus: int = 1
    pcie_gen: str = ""
    pcie_bytes_per_s: float = 0.0
    nic_bytes_per_s: float = 0.0
    tdp_w: float = 0.0
    gpus_per_node: int = 8
    gpus_per_rack: int = 0
    conflicts: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict, repr=False, compare=False)

    def __hash__(self) -> int:
        """Hash by id, so that an accelerator can be a key."""
        return hash(self.id)


@functools.cache
def gpus() -> tuple[str, ...]:
    """Ids of every accelerator: the shipped ones in file order, then the user's own."""
    own = [name for _, entries in layers("gpus") for name in entries]
    return tuple(dict.fromkeys([*table_names(FILE), *own]))


def gpu(name: str) -> Gpu:
    """Accelerator of that id, short name, or name as a log prints it.

    Raises
    ------
    UnknownGpu
        Nothing is meant by that name; the nearest ones are suggested. No other is taken in its place.
    """
    return _load(resolve_gpu(name)[0])


def resolve_gpu(name: str) -> tuple[str, str]:
    """Which accelerator a name means, and a note when the name was short of it.

    Parameters
    ----------
    name
        ``h100-sxm``, ``h100``, ``NVIDIA H100 80GB HBM3``, ``B200-SXM-180GB``.

    Returns
    -------
    id, note
        The note is empty when the name is the id; ``h100 taken as h100-sxm (H100 SXM5 80GB)`` otherwise.
    """
    if name in gpus():
        return name, ""
    asked = str(name).strip()
    if asked.lower() in gpus():
        return asked.lower(), ""
    fits = _fitting(_words(asked))
    if not fits:
        raise UnknownGpu(_unknown(asked))
    found = fits[0]
    others = f"; also possible: {', '.join(fits[1:])}" if fits[1:] else ""
    return found, f"{asked} taken as {found} ({_table(found)['name']}){others}"


def _unknown(name: str) -> str:
    from sizing.units import shown

    names = gpus()
    near = near_names(name, names) or near_names(re.sub(r"\d+ ?g[bi]+", "", name.lower()), names)
    hint = f"; nearest: {', '.join(near)}" if near else ""
    return f"no GPU {shown(name)} in the catalogue{hint} (size-inference gpus lists all; --catalog adds one)"


def _words(name: str) -> tuple[str, ...]:
    """Words of a name in lower case, split at anything but letters and digits, without vendor names."""
    text = re.sub(r"(\d)\s*gi?b\b", r"\1gb", name.lower())
    text = re.sub(r"^(?:\d+\s*x\s+|\d+x(?=[a-z]+\d))", "", text)
    return tuple(w for w in re.findall(r"[a-z0-9]+", text) if w not in NOISE)


def _fitting(words: tuple[str, ...]) -> list[str]:
    """Accelerators whose family is in the words and that know every other word, in file order."""
    return [i for i, (family, known) in _keys().items() if _fits(words, family, known)]


def _fits(words: tuple[str, ...], family: str, known: frozenset[str]) -> bool:
    """Whether one word, or consecutive words joined, is the family, and all others are known."""
    for start in range(len(words)):
        for end in range(start + 1, min(start + 4, len(words)) + 1):
            if "".join(words[start:end]) in family.split("|"):
                return all(w in known for w in words[:start] + words[end:])
    return False


@functools.cache
def _keys() -> dict[str, tuple[str, frozenset[str]]]:
    """Family and known words by id; the shipped file is only scanned for these two lines."""
    keys = {}
    for name, text in table_texts(FILE).items():
        family = re.search(r'^family = "(.*)"$', text, re.MULTILINE)
        words = re.search(r"^words = \[(.*)\]$", text, re.MULTILINE)
        known = re.findall(r'"(.*?)"', words[1]) if words else ()
        keys[name] = (family[1] if family else name, frozenset(known))
    for _, entries in layers("gpus"):
        for name, entry in entries.items():
            before = keys.get(name, (name.lower().replace("-", ""), frozenset()))
            given = entry.get("words")
            words_given = frozenset(map(str, given)) if isinstance(given, list) else before[1]
            keys[name] = (str(entry.get("family", before[0])).lower(), words_given)
    return keys


@functools.cache
def _table(name: str) -> dict[str, Any]:
    """Values of one accelerator, the user's files merged over the shipped ones."""
    table: dict[str, Any] = dict(read_table(FILE, name) or {})
    for file, entries in layers("gpus"):
        if name not in entries:
            continue
        entry = dict(entries[name])
        if like := entry.pop("like", None):
            table = _base(file, name, str(like)) | {"name": name}
        checked = {key: _checked(file, name, key, value) for key, value in entry.items()}
        peaks = {**table.get("peak_flops_per_s", {}), **checked.pop("peak_flops_per_s", {})}
        named = set(checked) | {f"peak.{p}" for p in entry.get("peak_flops_per_s", {})}
        owned = {**table.get("owned", {}), **dict.fromkeys(named, file)}
        table |= checked | {"peak_flops_per_s": peaks, "owned": owned}
        if "memory_bytes" in checked:
            for later in ("usable_memory_bytes", "process_memory_bytes"):
                table[later] = checked.get(later, checked["memory_bytes"])
        missing = [key for key in NEEDED if not table.get(key)]
        if missing:
            lacks = ", ".join(missing)
            raise InputError(f'{file}: gpus.{name} lacks {lacks}; give it, or like = "h100-sxm"')
    table.setdefault("name", name)
    return table


def _base(file: str, name: str, like: str) -> dict[str, Any]:
    """Values of the accelerator that a user's entry is like."""
    found = resolve_gpu(like)[0]
    try:
        if found == name:
            raise RecursionError
        return dict(_table(found))
    except RecursionError:
        raise InputError(f"{file}: gpus.{name}.like is {like!r}, which leads back to {name} itself") from None


def _checked(file: str, name: str, key: str, value: Any) -> Any:
    """A user's value, checked; sizes may be written as text (80GB)."""
    where = f"{file}: gpus.{name}.{key}"
    if key == "peak_flops_per_s":
        if not isinstance(value, dict):
            raise InputError(f"{where} is {value!r}; give a table such as {{bf16 = 989e12}}")
        for peak in value:
            if peak not in PEAKS:
                raise InputError(f"{where}.{peak} is not known; choose from {', '.join(PEAKS)}")
        return {peak: _positive(f"{where}.{peak}", flops) for peak, flops in value.items()}
    if key in UNITS:
        if isinstance(value, str) and UNITS[key] == "byte":
            from sizing.units import size_bytes

            value = size_bytes(value)
        number = _positive(where, value)
        return int(number) if UNITS[key] in ("", "gpu") else number
    if key in TEXTS:
        return str(value)
    if key in LISTS and isinstance(value, list):
        return [str(v) for v in value]
    if key == "sources":
        return value
    known = (*UNITS, *TEXTS, *LISTS, "peak_flops_per_s", "sources", "like")
    raise InputError(f"{where} is not known{nearest(key, known)}")


def _positive(where: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e21:
        raise InputError(f"{where} is {value!r}; give a number above 0")
    return float(value)


@functools.cache
def _load(name: str) -> Gpu:
    table = _table(name)
    memory = table["memory_bytes"]
    usable = table.get("usable_memory_bytes", memory)
    taken = {"id", "memory_bytes", "usable_memory_bytes", "process_memory_bytes"}
    given = {k: v for k, v in table.items() if k in Gpu.__dataclass_fields__ and k not in taken}
    return Gpu(
        id=name,
        memory_bytes=memory,
        usable_memory_bytes=usable,
        process_memory_bytes=table.get("process_memory_bytes", usable),
        facts=Facts(table),
        **given,
    )


class Facts(Mapping[str, Fact]):
    """Values of an accelerator as facts, made when asked for; peaks are named ``peak.bf16``."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self._table = table

    def __iter__(self) -> Any:
        """Names of the values, then of the peaks."""
        yield from (key for key in UNITS if key in self._table)
        yield from (f"peak.{p}" for p in self._table.get("peak_flops_per_s", ()))

    def __len__(self) -> int:
        """How many values."""
        return sum(1 for _ in self)

    def __getitem__(self, key: str) -> Fact:
        """One value with unit, basis, source and the conflicts between sources."""
        table = self._table
        peak = key.removeprefix("peak.")
        value = table["peak_flops_per_s"][peak] if key.startswith("peak.") else table[key]
        unit = "FLOP/s" if key.startswith("peak.") else UNITS[key]
        if key in table.get("owned", {}):
            return Fact(value, unit, "user", table["owned"][key])
        sources = table.get("sources", {})
        pages = sources.get(GROUPS.get(key, "compute"), []) or sources.get("all", [])
        assumed = table.get("assumed", ())
        if "all" in assumed or key in assumed:
            return Fact(value, unit, "assumed", source_text("general-knowledge"), table.get("conflicts", ""))
        if key == "process_memory_bytes":
            return Fact(value, unit, "measured", table.get("process_memory_source", ""))
        basis = "measured" if key == "usable_memory_bytes" else "datasheet"
        return Fact(value, unit, basis, source_text(pages), table.get("conflicts", ""))


def _forget() -> None:
    for cached in (gpus, _keys, _table, _load):
        cached.cache_clear()


on_change(_forget)
