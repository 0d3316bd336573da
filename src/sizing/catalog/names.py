"""How people write model names: case, owners, dates, variants, and the number formats that names carry."""

import re
from functools import lru_cache

#: What a name says about number formats, most specific first: pattern -> weight format ("": the pattern's group).
FORMATS: tuple[tuple[str, str], ...] = (
    (r"w4a16[-_.]?nvfp4|nvfp4[-_.]?w4a16|nvfp4a16", "nvfp4_w4a16"),
    (r"nvfp4|nv[-_]fp4|w4a4|fp4", "nvfp4"),
    (r"mx[-_]?fp4(?:[-_]moe[-_]quant)?", "mxfp4"),
    (r"mx[-_]?fp8", "mxfp8"),
    (r"fp8[-_.]?(?:block|blocks)(?:[-_.]?dynamic)?|block[-_.]?fp8|fp8pb", "fp8_block"),
    (r"fp8[-_.]?dynamic|dynamic[-_.]?fp8|fp8[-_.]?kv|fp8dyn", "fp8_channel"),
    (r"fp8[-_.]?static[-_.]?pertensor|fp8|w8a8[-_.]?fp8|float8", "fp8"),
    (r"(?:quantized[-_.])?w8a8|int8[-_.]?w8a8|smoothquant", "int8"),
    (r"(?:quantized[-_.])?w8a16|int8|gptq[-_.]?(?:int8|8bit)|8bit", "int8_w8a16"),
    (r"(?:quantized[-_.])?w4a16", "int4_g128_sym"),
    (r"gptq[-_.]?(?:int4|4bit)|gptq|awq[-_.]?(?:int4|4bit)|int4[-_.]?awq|awq|int4[-_.]?gptq|autoround", "int4"),
    (r"unsloth[-_.]?bnb[-_.]?4bit|bnb[-_.]?4bit|bnb[-_.]?nf4|nf4|qlora", "nf4"),
    (r"bnb[-_.]?8bit", "bnb_int8"),
    (r"(?:gguf[-_.])?(q[2-8]_(?:k(?:_[sml])?|[01]))|(?:gguf[-_.])?(iq4_(?:nl|xs))", ""),
    (r"gguf", "q4_k_m"),
    (r"(?:mlx[-_.])?int4|4bit|mlx[-_.]?4bit", "int4_g64"),
    (r"bf16|bfloat16", "bf16"),
    (r"fp16|float16", "fp16"),
)
#: A name without any of these carries no format.
_HINTS = ("fp", "int", "awq", "gptq", "bit", "nf4", "w4", "w8", "gguf", "q2", "q3", "q4", "q5", "q6", "q8", "bf16",
          "float", "quant", "autoround", "qlora")  # fmt: skip


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(rf"[-_.:/ ](?:{pattern})(?=$|[-_.:/ ])"), format) for pattern, format in FORMATS)


#: Parts of a name that say how a model was tuned, not what it is made of.
VARIANTS = frozenset(
    {
        "instruct", "chat", "it", "base", "hf", "pt", "preview", "thinking", "reasoning", "sft", "dpo", "rlhf", "post",
        "unsloth", "gguf", "mlx", "meta", "nvidia", "latest", "model", "quantized", "distilled", "dynamic", "text",
        "finetuned", "original", "abliterated", "community", "release", "v0.1", "v0.2", "v0.3", "v1", "v1.0", "v2",
        "captioner", "speculator", "eagle", "eagle3", "torchao", "qat",
    }
)  # fmt: skip


def format_in_name(name: str) -> str | None:
    """Weight format that a model's name carries, such as ``fp8_channel`` for ``...-FP8-dynamic``, or None."""
    last = "-" + name.rsplit("/", 1)[-1].lower()
    if not any(hint in last for hint in _HINTS):
        return None
    for pattern, format in _patterns():
        found = pattern.search(last)
        if found is not None:
            named = format or next((group for group in found.groups() if group), "")
            if named not in {"bf16", "fp16"}:
                return named
    return None


def is_sixteen_bit(name: str) -> bool:
    """Whether a name says that nothing is quantised (``-BF16``, ``-fp16``)."""
    return re.search(r"[-_.:/ ](?:bf16|bfloat16|fp16|float16)(?=$|[-_.:/ ])", name.lower()) is not None


def without_format(name: str) -> str:
    """The name with every number format cut out."""
    owner, slash, last = name.rpartition("/")
    last = "-" + last
    if not any(hint in last.lower() for hint in _HINTS):
        return name.strip()
    for _ in range(3):
        for pattern, _format in _patterns():
            found = pattern.search(last.lower())
            if found is not None:
                last = last[: found.start()] + last[found.end() :]
    return owner + slash + last.strip("-_.: ")


def plain(name: str) -> str:
    """A name without owner, case and punctuation; a letter run and the number after it are parted."""
    last = name.strip().lower().rsplit("/", 1)[-1]
    last = re.sub(r"(?<=\d)_(?=\d(?![\d.]*[bm](?:[^a-z]|$)))", ".", last)
    last = re.sub(r"[^a-z0-9.]+", "-", last)
    last = re.sub(r"([a-z]{3,})(\d)", r"\1-\2", last)
    return last.strip("-.")


def essential(name: str) -> tuple[str, ...]:
    """Parts of a name that say what the model is made of, sorted: no variants, no dates."""
    parts = [part for part in plain(name).split("-") if part and part not in VARIANTS]
    kept = [
        part for part in parts if not re.fullmatch(r"(?:20)?2\d(?:0\d|1[0-2])|(?:0\d|1[0-2])[0-3]\d|20[23]\d", part)
    ]
    if len(kept) < len(parts):  # a date in two parts: 08-2024, 03-25
        kept = [part for part in kept if not re.fullmatch(r"0\d|1[0-2]", part)]
    return tuple(sorted(kept))
