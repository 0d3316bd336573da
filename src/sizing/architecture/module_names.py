"""Names that checkpoints give modules, and patterns over them, matched in bounded time.

A quantised checkpoint lists modules it leaves alone (or treats otherwise) as plain names, as shell patterns, or as
regular expressions after ``re:``. The regular expressions come from a stranger's file: only a subset that cannot
backtrack without bound is honoured, the rest is reported as not understood.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

#: A pattern with a literal layer index: what stands before it, the index, what comes after.
_INDEXED = re.compile(
    r"^(?P<before>[\w.]*?)\b(?:layers|blocks|h|layer)\.(?P<index>\d{1,4})(?P<after>$|[.*].*)", re.DOTALL
)
#: Characters that a regular expression may hold between its ``.*`` parts.
_TAME = re.compile(r"(?:[\w.\-/:^$]|\\[.dw]|\\d\+|\\w\+|\[[\w\-]{1,40}\]\+?|\((?:\?:)?[\w\\.|\-]{1,200}\)\??)*")
_SPECIAL = frozenset("*?[]")
#: Other spellings of parts of a path, by the spelling that we use.
_SPELLINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("self_attn.", ("attn.", "attention.", "self_attention.", "mixer.", "linear_attn.", "temporal_block.")),
    ("linear_attn.", ("mixer.", "self_attn.", "attn.")),
    ("mamba.", ("mixer.", "linear_attn.", "ssm.")),
    ("mlp.experts.", (
        "mlp.experts.0.", "experts.", "experts.0.", "block_sparse_moe.experts.", "block_sparse_moe.experts.0.",
        "mixer.experts.", "mixer.experts.0.", "ffn.experts.", "ffn.experts.0.", "feed_forward.experts.",
        "feed_forward.experts.0.", "moe.experts.",
    )),
    ("mlp.shared_experts.", (
        "mlp.shared_expert.", "shared_mlp.", "mixer.shared_experts.", "ffn.shared_experts.", "shared_expert.",
        "block_sparse_moe.shared_experts.", "feed_forward.shared_expert.", "mlp.shared_mlp.", "moe.shared_experts.",
    )),
    ("mlp.gate", ("mlp.router", "block_sparse_moe.gate", "mixer.gate", "ffn.gate", "feed_forward.router", "router",
                  "router.proj", "gate", "mlp.gate.wg", "block_sparse_moe.router")),
    ("mlp.", ("ffn.", "feed_forward.", "mixer.", "block_sparse_moe.")),
)  # fmt: skip
_LAST: dict[str, tuple[str, ...]] = {
    "q_proj": ("qkv_proj", "query_key_value", "c_attn", "Wqkv", "wq"),
    "k_proj": ("qkv_proj", "query_key_value", "c_attn", "Wqkv", "wk"),
    "v_proj": ("qkv_proj", "query_key_value", "c_attn", "Wqkv", "wv"),
    "o_proj": ("dense", "out_proj", "c_proj", "wo"),
    "gate_proj": ("gate_up_proj", "w1", "linear_fc1", "c_fc"),
    "up_proj": ("gate_up_proj", "w3", "fc1", "dense_h_to_4h"),
    "down_proj": ("w2", "fc2", "dense_4h_to_h", "output_linear"),
    "in_proj_qkv": ("in_proj_qkvz", "in_proj"),
    "in_proj_z": ("in_proj_qkvz",),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
    "q_a_proj": ("wq_a", "fused_wqa_wkv", "fused_qkv_a_proj"),
    "q_b_proj": ("wq_b",),
    "kv_proj": ("wkv", "fused_wqa_wkv"),
    "kv_a_proj_with_mqa": ("wkv_a", "fused_qkv_a_proj"),
    "kv_b_proj": ("wkv_b",),
    "o_a_proj": ("wo_a",),
    "o_b_proj": ("wo_b",),
    "weights_proj": ("indexers_proj",),
}


@dataclass(frozen=True, slots=True)
class Matcher:
    """A pattern over module paths: pieces that must follow one another, anything between them.

    Parameters
    ----------
    pieces
        Compiled pieces, in order.
    anchored
        Whether the first piece must stand at the start.
    text
        The pattern as written.
    """

    pieces: tuple[re.Pattern[str], ...]
    anchored: bool
    text: str

    def __call__(self, path: str) -> bool:
        """Whether the path matches; time grows with its length only."""
        at = 0
        for number, piece in enumerate(self.pieces):
            found = piece.match(path, at) if number == 0 and self.anchored else piece.search(path, at)
            if found is None:
                return False
            at = found.end()
        return True


@lru_cache(maxsize=4096)
def matcher(pattern: str) -> Matcher | None:
    """Matcher of a name, a shell pattern or ``re:`` expression; None when it is not of the tame kind."""
    if len(pattern) > 400:
        return None
    if pattern.startswith("re:"):
        body = pattern[3:]
        parts = body.split(".*")
        if len(parts) > 12 or not all(_TAME.fullmatch(part) for part in parts):
            return None
        try:
            pieces = tuple(re.compile(part) for part in parts if part)
        except re.error:
            return None
        return Matcher(pieces, anchored=bool(parts[0]), text=pattern)
    parts = pattern.split("*")
    if len(parts) > 12:
        return None
    ends = (r"(?:^|\.)" if parts[0] else "", r"(?:\.|$)" if parts[-1] else "")
    texts = [re.escape(part) for part in parts]
    texts[0], texts[-1] = ends[0] + texts[0], texts[-1] + ends[1]
    return Matcher(tuple(re.compile(text) for text in texts if text), anchored=False, text=pattern)


def indexed(pattern: str) -> tuple[str, int, str] | None:
    """Prefix, layer index and rest of a pattern that names one layer, else None."""
    if pattern.startswith("re:"):
        return None
    found = _INDEXED.match(pattern)
    if found is None or _SPECIAL & set(found["before"]):
        return None
    return found["before"], int(found["index"]), found["after"].lstrip(".") or "*"


@lru_cache(maxsize=1024)
def spellings(name: str) -> tuple[str, ...]:
    """Paths inside a layer that checkpoints may call a module of ours, our own first."""
    paths = [name]
    for ours, theirs in _SPELLINGS:
        if name.startswith(ours) if ours.endswith(".") else name == ours:
            paths += [other + name[len(ours) :] for other in theirs]
            break
    more = []
    for path in paths:
        head, _, last = path.rpartition(".")
        more += [f"{head}.{other}" if head else other for other in _LAST.get(last, ())]
    return (*paths, *more)
