"""How a checkpoint stores each matrix, from every form of quantisation record that models come with.

Understood are ``quantization_config`` of FP8 (per tensor, per channel, in blocks), ModelOpt, compressed-tensors, AWQ,
GPTQ, AutoRound, bitsandbytes, MXFP4, Quark, FBGEMM and MLX, ModelOpt's ``hf_quant_config.json``, and formats named
in the model's name. Embeddings, heads, routers and norms stay in 16 bit unless a record names them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sizing.architecture.config import Config
from sizing.architecture.module_names import Matcher, indexed, matcher, spellings
from sizing.architecture.parts import Linear
from sizing.errors import InputError
from sizing.formats import weight_format

EXCLUDED = (
    "ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers", "exclude", "llm_int8_skip_modules",
    "modules_to_not_quantize",
)  # fmt: skip
#: Longest list of modules that is read.
MOST_PATTERNS = 400_000


@dataclass(kw_only=True)
class Quantization:
    """Formats by module, resolved layer by layer.

    Parameters
    ----------
    name
        Format of the quantised matrices, None when nothing is quantised.
    method
        What wrote the checkpoint.
    native
        16- or 32-bit format of the rest.
    kv
        KV format the checkpoint asks for.
    experts_only
        Format of routed experts where it differs from ``name``.
    everything
        Whether embeddings and heads are quantised too (MLX).
    left_alone
        Patterns as written.
    """

    name: str | None = None
    method: str = ""
    native: str = "bf16"
    kv: str | None = None
    experts_only: str | None = None
    everything: bool = False
    left_alone: tuple[str, ...] = ()
    _layer_rules: dict[int, list[tuple[Matcher, str, str | None]]] = field(default_factory=dict)
    _general: list[tuple[Matcher, str | None]] = field(default_factory=list)
    _listed_only: bool = False
    _numbered: bool = False
    _mtp_alone: bool = False
    _cache: dict[tuple[object, ...], str] = field(default_factory=dict)

    def add(self, pattern: str, format: str | None, config: Config) -> None:
        """Enter a rule: matching modules are stored in a format (None: left alone)."""
        place = indexed(pattern)
        if place is not None:
            before, index, rest = place
            if any(word in before for word in ("visual", "vision", "audio")):
                return
            found = matcher(rest)
            if "mtp" in before:
                self._mtp_alone = self._mtp_alone or format is None
            elif found is not None:
                self._layer_rules.setdefault(index, []).append((found, rest, format))
            return
        if format is None and pattern.startswith("mtp"):
            self._mtp_alone = True
        found = matcher(pattern)
        if found is None:
            config.warn(f"quantization pattern {pattern[:80]!r} was not understood and is ignored")
            return
        self._numbered = self._numbered or any(letter.isdigit() for letter in pattern)
        self._general.append((found, format))

    def format_of(self, linear: Linear, index: int | None, *, mtp: bool = False) -> str:
        """Format that the checkpoint stores a matrix in.

        Parameters
        ----------
        linear
            The matrix.
        index
            Its layer; None for embeddings and heads.
        mtp
            Whether the layer is a multi-token prediction module.
        """
        if self.name is None and not self._layer_rules and not self._general:
            return self.native
        if mtp and self._mtp_alone:
            return self.native
        rules = self._layer_rules.get(index, ()) if index is not None else ()
        key = (
            linear.name, linear.quantized, tuple((rest, format) for _, rest, format in rules),
            index if self._numbered else None,
        )  # fmt: skip
        if key not in self._cache:
            self._cache[key] = self._resolve(linear, index, rules)
        return self._cache[key]

    def signature(self, index: int) -> tuple[object, ...]:
        """What decides the formats of a layer: two layers of equal signature are stored alike."""
        if not self._layer_rules and not self._numbered:
            return ()
        rules = tuple((rest, format) for _, rest, format in self._layer_rules.get(index, ()))
        return (rules, index if self._numbered else None)

    def _resolve(self, linear: Linear, index: int | None, rules: object) -> str:
        inside = spellings(linear.name)
        matched: list[str | None] = []
        for found, _, format in self._layer_rules.get(index, []) if index is not None else []:
            if any(found(path) for path in inside):
                matched.append(format)
        prefix = "" if index is None else f"model.layers.{index}."
        full = [f"{prefix}{path}" for path in inside] if prefix else list(inside)
        for found, format in self._general:
            if any(found(path) for path in full):
                matched.append(format)
        if None in matched:
            return self.native
        named = next((format for format in matched if format is not None), None)
        if named is not None:
            return named
        if self._listed_only or self.name is None:
            return self.native
        if self.experts_only is not None and linear.role == "expert":
            return self.experts_only
        if linear.role in {"embedding", "head"}:
            return self.name if self.everything else self.native
        return self.name if linear.quantized else self.native


def read_quantization(
    config: Config, top: Config, native: str, sibling: Mapping[str, object] | None = None, named: str | None = None
) -> Quantization:
    """Formats of a checkpoint from its config, a sibling ``hf_quant_config.json``, or its name.

    Parameters
    ----------
    config, top
        The text level and the outer level.
    native
        16- or 32-bit format of what is not quantised.
    sibling
        Contents of ``hf_quant_config.json``.
    named
        Format that the model's name asks for, used when no record is there.
    """
    record = top.level("quantization_config", "compression_config") or config.level(
        "quantization_config", "compression_config"
    )
    if record is None and sibling is not None:
        record = Config(sibling, "hf_quant_config", top.warnings).level("quantization")
    if record is None:
        record = _mlx(top)
    if record is not None and record.raw:
        return _from_record(record, config, native)
    if named is not None:
        top.warn(f"no quantization record: {named} weights are taken from the model's name")
        made = Quantization(name=weight_format(named).name, method="by name", native=native)
        if named.startswith("nvfp4") and config.has("kv_lora_rank"):  # as NVIDIA's own checkpoints of such models
            for pattern in ("*self_attn*", "*shared_experts*", "mtp*"):
                made.add(pattern, None, top)
        return made
    return Quantization(native=native)


def _mlx(top: Config) -> Config | None:
    record = top.raw.get("quantization")
    if isinstance(record, Mapping) and "bits" in record:
        return Config({**record, "quant_method": "mlx"}, "quantization", top.warnings)
    return None


def _from_record(record: Config, config: Config, native: str) -> Quantization:
    method = record.text("quant_method") or ("modelopt" if record.has("quant_algo") else "")
    reader = METHODS.get(method.lower().replace("_", "-"))
    if reader is None:
        reader = _compressed_tensors if record.has("config_groups") else _by_bits
    made = reader(record)
    made.method, made.native = method or "unnamed", native
    made.kv = made.kv or _kv(record)
    excluded = _names(record, *EXCLUDED)
    for pattern in excluded:
        made.add(pattern, None, record)
    made.left_alone = tuple(excluded[:2000])
    experts = config.text("expert_dtype")
    if experts in {"fp4", "mxfp4"} and made.name is not None and made.name.startswith("fp8"):
        made.experts_only = "mxfp4"
    return made


def _names(record: Config, *keys: str) -> list[str]:
    values = record.items(*keys) or []
    return [value for value in values[:MOST_PATTERNS] if isinstance(value, str) and value]


def _kv(record: Config) -> str | None:
    scheme = record.get("kv_cache_scheme", "kv_cache_quant_algo", "kv_cache_dtype", "kv_cache_quant")
    if isinstance(scheme, Mapping):
        bits = Config(scheme).integer("num_bits", default=8, kind="small")
        return {4: "nvfp4", 8: "fp8" if scheme.get("type") == "float" else "int8"}.get(bits)
    if isinstance(scheme, str):
        word = scheme.lower()
        return "fp8" if "fp8" in word else "nvfp4" if "fp4" in word else "int8" if "int8" in word else None
    return None


def _fp8(record: Config) -> Quantization:
    block = record.items("weight_block_size")
    if block:
        return Quantization(name="fp8_block_ue8m0" if record.text("scale_fmt") == "ue8m0" else "fp8_block")
    return Quantization(name="fp8")


ALGORITHMS = {
    "FP8": "fp8", "NVFP4": "nvfp4", "W4A16_NVFP4": "nvfp4_w4a16", "NVFP4_AWQ": "nvfp4", "W4A8_NVFP4_FP8": "nvfp4",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8_channel", "FP8_PB_WO": "fp8_block", "FP8_PB_REAL": "fp8_block",
    "FP8_BLOCK_SCALES": "fp8_block", "W4A16_AWQ": "int4", "INT4_AWQ": "int4", "W4A8_AWQ": "int4", "W4A16": "int4",
    "W8A16": "int8_w8a16", "W8A8_SQ_PER_CHANNEL": "int8", "INT8_SQ": "int8", "W8A8": "int8", "MXFP8": "mxfp8",
    "MXFP4": "mxfp4", "W4A8_MXFP4_FP8": "mxfp4",
}  # fmt: skip


def _algorithm(record: Config, name: str) -> str | None:
    format = ALGORITHMS.get(name.upper())
    if format is None and name:
        record.warn(f"quant_algo {name!r} is not known: those weights are counted in 16 bit")
    return format


def _modelopt(record: Config) -> Quantization:
    algorithm = record.text("quant_algo")
    if algorithm.upper() in {"MIXED_PRECISION", "MIXED"}:
        return _mixed(record)
    if algorithm:
        return Quantization(name=_algorithm(record, algorithm))
    return _compressed_tensors(record)


def _mixed(record: Config) -> Quantization:
    made = Quantization(_listed_only=True)
    layers = record.level("quantized_layers")
    if layers is None:
        return _compressed_tensors(record)
    counts: dict[str, int] = {}
    for path, how in list(layers.raw.items())[:MOST_PATTERNS]:
        if ".experts." in path and ".experts.0." not in path and ".experts.*" not in path:
            digits = path.split(".experts.", 1)[1].split(".", 1)[0]
            if digits.isdigit():
                continue
        algorithm = how.get("quant_algo") if isinstance(how, Mapping) else how
        format = _algorithm(record, algorithm if isinstance(algorithm, str) else "")
        if format is not None:
            counts[format] = counts.get(format, 0) + 1
            made.add(path, format, record)
    made.name = max(counts, key=lambda format: counts[format]) if counts else None
    return made


def _compressed_tensors(record: Config) -> Quantization:
    groups = record.level("config_groups")
    if groups is None:
        return _by_bits(record)
    made = Quantization()
    wholesale: str | None = None
    for name in groups.raw:
        group = groups.level(name)
        format = _group_format(group) if group is not None else None
        if group is None or format is None:
            continue
        targets = _names(group, "targets")
        if not targets or any(target in {"Linear", "MoE", "FusedMoE"} for target in targets):
            wholesale = wholesale or format
        for target in targets:
            if target not in {"Linear", "MoE", "FusedMoE", "Attention"}:
                made.add(target, format, record)
        made.name = made.name or format
    made.name, made._listed_only = wholesale or made.name, wholesale is None
    return made


def _group_format(group: Config) -> str | None:
    """Format of one group of a compressed-tensors record."""
    weights = group.level("weights")
    if weights is None:
        return None
    bits = weights.integer("num_bits", default=8, kind="small")
    size = weights.integer("group_size", default=0, low=-1, kind="small")
    activations = group.level("input_activations")
    if weights.text("type", default="int") == "float":
        if bits == 8:
            if weights.text("strategy") == "block" or weights.has("block_structure"):
                return "fp8_block"
            return "mxfp8" if size == 32 else "fp8_channel" if weights.text("strategy") == "channel" else "fp8"
        if size == 32:
            return "mxfp4" if activations is None else "mxfp4_a4"
        return "nvfp4" if activations is not None else "nvfp4_w4a16"
    if bits == 8 and size <= 0:
        return "int8_w8a16" if activations is None else "int8"
    return _integer_format(bits, size, symmetric=weights.flag("symmetric", default=True))


def _integer_format(bits: int, size: int, *, symmetric: bool) -> str | None:
    if not 2 <= bits <= 8:
        return None
    if size <= 0:
        return "int8_w8a16" if bits == 8 else f"int{bits}_channel"
    return f"int{bits}_g{size}{'_sym' if symmetric else ''}"


def _by_bits(record: Config) -> Quantization:
    """AWQ, GPTQ, AutoRound and whatever else states bits and group size."""
    bits = record.integer("bits", "w_bit", "nbits", "weight_bits", default=0, low=0, kind="small")
    if not bits:
        record.warn(
            f"quantization method {record.text('quant_method') or 'unnamed'!r} is not known and states no bits:"
            " weights are counted in 16 bit"
        )
        return Quantization()
    size = record.integer("group_size", "q_group_size", "weight_group_size", default=128, low=-1, kind="small")
    method = record.text("quant_method").lower()
    symmetric = "awq" not in method and "gptq" not in method and record.flag("sym", default=True)
    if method == "awq" and record.has("zero_point") and not record.flag("zero_point"):
        symmetric = True
    format = _integer_format(bits, size, symmetric=symmetric)
    if format is None:
        raise InputError(f"quantization_config bits must lie in 2 to 8, got {bits}")
    return Quantization(name=format)


def _bitsandbytes(record: Config) -> Quantization:
    if record.flag("load_in_8bit", "_load_in_8bit"):
        return Quantization(name="bnb_int8")
    return Quantization(name="nf4")


def _mxfp4(record: Config) -> Quantization:
    return Quantization(name="mxfp4")


def _fbgemm(record: Config) -> Quantization:
    return Quantization(name="fp8_channel")


def _quark(record: Config) -> Quantization:
    level = record.level("global_quant_config")
    weight = level.level("weight") if level is not None else None
    kind = weight.text("dtype") if weight is not None else ""
    table = {"fp4": "mxfp4_a4", "mxfp4": "mxfp4_a4", "fp8_e4m3": "fp8", "fp8": "fp8", "int8": "int8", "int4": "int4",
             "uint4": "int4", "fp6_e2m3": "mxfp6", "fp6_e3m2": "mxfp6"}  # fmt: skip
    if kind not in table:
        record.warn(f"Quark weight type {kind!r} is not known: weights are counted in 16 bit")
    return Quantization(name=table.get(kind))


def _mlx_record(record: Config) -> Quantization:
    bits = record.integer("bits", default=4, low=2, kind="small")
    size = record.integer("group_size", default=64, low=1, kind="small")
    return Quantization(name=f"int{min(bits, 8)}_g{size}", everything=True)


METHODS = {
    "fp8": _fp8, "modelopt": _modelopt, "modelopt-fp4": _modelopt, "modelopt-mixed": _modelopt, "nvfp4": _modelopt,
    "compressed-tensors": _compressed_tensors, "bitsandbytes": _bitsandbytes, "mxfp4": _mxfp4, "quark": _quark,
    "fbgemm-fp8": _fbgemm, "awq": _by_bits, "gptq": _by_bits, "gptq-marlin": _by_bits, "awq-marlin": _by_bits,
    "auto-round": _by_bits, "intel/auto-round": _by_bits, "hqq": _by_bits, "mlx": _mlx_record,
}  # fmt: skip
