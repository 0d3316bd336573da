"""Settings that a row states in words: in its notes, or in the server's command line quoted there."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

GIB = 2.0**30
WHOLE = {
    "max_num_seqs": r"max[-_]num[-_]seqs|max[-_]running[-_]requests|max[-_]batch[-_]size",
    "max_num_batched_tokens": r"max[-_]num[-_]batched[-_]tokens|chunked[-_]prefill[-_]size|max[-_]num[-_]tokens",
    "dp": r"(?<=--)(?:dp(?:-size)?|data-parallel-size)",
    "ep": r"(?<=--)(?:ep(?:-size)?|expert-parallel-size)",
}
"""Spellings of settings that are whole numbers."""
SHARE = r"gpu[-_]memory[-_]utilization|gpu util|mem[-_]fraction[-_]static"
ATTENTION_DP = r"(?:enable[-_])?(?:dp[-_ ]attention|attention[-_]dp)"
EXPERTS_SPREAD = r"--ep\b|(?<!no-)enable[-_]expert[-_]parallel"
OFF = r"(?![ =:]+(?:false|off|no|0)\b)"
"""What turns a switch off, after its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What a row says of its engine beside the columns; None where it says nothing.

    Attributes
    ----------
    max_num_seqs, max_num_batched_tokens
        Limits of a step. [request], [token]
    memory_utilization
        Share of the memory that the engine may use. [1]
    kv_bytes
        Room for the KV cache on each GPU. [byte]
    kv
        Format of the cache.
    dp, ep
        Data-parallel and expert-parallel ranks. [gpu]
    attention_dp
        Whether attention runs data-parallel.
    experts_spread
        Whether experts are spread over the ranks.
    legacy
        Whether vLLM's first engine runs.
    gpus_computed
        Whether the number of GPUs is a product of the layout's columns and not a count.
    """

    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    memory_utilization: float | None = None
    kv_bytes: float | None = None
    kv: str | None = None
    dp: int | None = None
    ep: int | None = None
    attention_dp: bool = False
    experts_spread: bool = False
    legacy: bool = False
    gpus_computed: bool = False


def stated(row: Mapping[str, str]) -> Stated:
    """Settings in a row's ``notes`` and ``deploy``.

    Parameters
    ----------
    row
        Cells by column; what was measured is not looked at.
    """
    text = f"{row.get('notes') or ''} {row.get('deploy') or ''}"
    numbers = {name: _whole(pattern, text) for name, pattern in WHOLE.items()}
    share = re.search(rf"(?:{SHARE})[ =:]+(0?\.\d+)", text)
    room = re.search(r"\bKV (\d+(?:\.\d+)?) GiB", text)
    return Stated(
        **numbers, memory_utilization=float(share[1]) if share else None,
        kv_bytes=float(room[1]) * GIB if room else None,
        kv="fp8" if re.search(r"kv[-_]cache[-_]dtype[ =:]+fp8", text) else None,
        attention_dp=bool(re.search(ATTENTION_DP + OFF, text, re.IGNORECASE)),
        experts_spread=numbers["ep"] != 1 and bool(re.search(f"(?:{EXPERTS_SPREAD}){OFF}", text, re.IGNORECASE)),
        legacy="VLLM_USE_V1=0" in text, gpus_computed="num_gpus=tp*pp*dp" in text,
    )  # fmt: skip


def _whole(pattern: str, text: str) -> int | None:
    found = re.search(rf"(?<![\w-])(?:--)?(?:{pattern})[ =:]+(\d+)\b(?![,.]\d)", text)
    return int(found[1]) if found and int(found[1]) > 0 else None
