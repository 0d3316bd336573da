"""Kernels of libraries that a CPU does not have, run on stand-ins with the libraries' own signatures.

The stand-ins compute plain attention from the paged cache as the libraries document it, so a wrong table,
layout or argument shows as a wrong result.
"""

import itertools
import sys
import types

import pytest
import torch

from profilers.attentions import reference
from profilers.bench import open_bench
from profilers.kernel import Case, Unsupported, kernels

DECODE = {"batch": 3, "context": 40, "heads": 4, "kv_heads": 2, "head_dim": 16}
LONG = {**DECODE, "context": 300}
PREFILL = {"batch": 2, "tokens": 24, "history": 16, "heads": 4, "kv_heads": 2, "head_dim": 16}


def _sequence(cache, pages, length):
    return cache[pages.long()].flatten(0, 1)[:length].transpose(0, 1)


def _attend(query, keys, values):
    return reference(query.transpose(0, 1), keys, values).transpose(0, 1).to(query.dtype)


def _flash_attn(query, k_cache, v_cache, *, cache_seqlens, causal, block_table=None, page_table=None):
    assert causal
    table = block_table if block_table is not None else page_table
    rows = []
    for i, length in enumerate(cache_seqlens.tolist()):
        keys, values = (_sequence(c, table[i], length) for c in (k_cache, v_cache))
        rows.append(_attend(query[i], keys, values))
    return torch.stack(rows)


def _flash_forward(
    query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, *,
    window_size_left, window_size_right, seqused_k, block_table,
):  # fmt: skip
    """As torch's own call of it: ``torch.nn.attention.varlen`` with a causal window."""
    assert (cum_seq_k, dropout_p, is_causal, return_debug_mask) == (None, 0.0, True, False)
    assert (window_size_left, window_size_right) == (-1, 0)
    assert max_k == int(seqused_k.max())
    starts = cum_seq_q.tolist()
    assert max_q == max(b - a for a, b in itertools.pairwise(starts))
    rows = []
    for i, length in enumerate(seqused_k.tolist()):
        keys, values = (_sequence(c, block_table[i], length) for c in (key, value))
        rows.append(_attend(query[starts[i] : starts[i + 1]], keys, values))
    return torch.cat(rows), None, None, None, None


class _FlashInfer:
    """Paged wrappers: plan the pages, then run on a query and a cache."""

    def __init__(self, workspace, layout="NHD", use_tensor_cores=False):
        assert (workspace.dtype, layout) == (torch.uint8, "NHD")

    def run(self, query, cache):
        rows = []
        for i in range(len(self.starts) - 1):
            pages = self.pages[self.starts[i] : self.starts[i + 1]]
            length = (len(pages) - 1) * self.page + int(self.last[i])
            keys, values = (_sequence(c, pages, length) for c in cache)
            rows.append(_attend(query[self.query_starts[i] : self.query_starts[i + 1]], keys, values))
        return torch.cat(rows)


class _Decode(_FlashInfer):
    def plan(self, starts, pages, last, heads, kv_heads, width, page, *, q_data_type, kv_data_type):
        self.starts, self.pages, self.last, self.page = starts.tolist(), pages, last, page
        self.query_starts = list(range(len(self.starts)))


class _Prefill(_FlashInfer):
    def plan(self, queries, starts, pages, last, heads, kv_heads, width, page, *, causal, q_data_type, kv_data_type):
        assert causal
        self.starts, self.pages, self.last, self.page = starts.tolist(), pages, last, page
        self.query_starts = queries.tolist()


class _Latent:
    def __init__(self, workspace):
        self.workspace = workspace

    def plan(self, queries, starts, pages, lengths, heads, latent, rope, page, causal, scale, q_type, kv_type):
        self.starts, self.pages, self.lengths, self.scale = starts.tolist(), pages, lengths.tolist(), scale

    def run(self, query, rotary, vectors, keys):
        rows = []
        for i, length in enumerate(self.lengths):
            pages = self.pages[self.starts[i] : self.starts[i + 1]].long()
            vector, key = (c[pages].flatten(0, 1)[:length].float() for c in (vectors, keys))
            score = query[i].float() @ vector.t() + rotary[i].float() @ key.t()
            rows.append((score * self.scale).softmax(1) @ vector)
        return torch.stack(rows)


def _fused_experts(hidden_states, w1, w2, topk_weights, topk_ids):
    """As vLLM documents it: w1 [experts, 2 width, hidden], w2 [experts, hidden, width]."""
    assert topk_ids.dtype == torch.int32
    out = torch.zeros(hidden_states.shape)
    for token, x in enumerate(hidden_states.float()):
        for share, expert in zip(topk_weights[token], topk_ids[token].tolist(), strict=True):
            gate, up = (w1[expert].float() @ x).chunk(2)
            out[token] += share * (w2[expert].float() @ (torch.nn.functional.silu(gate) * up))
    return out.to(hidden_states.dtype)


@pytest.fixture
def libraries(monkeypatch):
    flash = types.SimpleNamespace(flash_attn_with_kvcache=_flash_attn)
    infer = types.SimpleNamespace(
        BatchDecodeWithPagedKVCacheWrapper=_Decode,
        BatchPrefillWithPagedKVCacheWrapper=_Prefill,
        mla=types.SimpleNamespace(BatchMLAPagedAttentionWrapper=_Latent),
    )
    monkeypatch.setitem(sys.modules, "flash_attn", flash)
    monkeypatch.setitem(sys.modules, "flashinfer", infer)
    for name in ("vllm", "vllm.model_executor", "vllm.model_executor.layers"):
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace())
    fused = types.SimpleNamespace(fused_experts=_fused_experts)
    monkeypatch.setitem(sys.modules, "vllm.model_executor.layers.fused_moe", fused)
    from profilers.kernels import attention_varlen

    monkeypatch.setattr(attention_varlen, "_flash", lambda bench: _flash_forward)
    return monkeypatch


@pytest.mark.parametrize(
    ("kernel", "shape"),
    [
        *((f"attention_decode.{name}", s) for name in ("flash_attn", "flashinfer", "varlen") for s in (DECODE, LONG)),
        *((f"attention_prefill.{name}", PREFILL) for name in ("flash_attn", "flashinfer", "varlen")),
        *((f"attention_prefill.{name}", {**PREFILL, "history": 0}) for name in ("flash_attn", "flashinfer", "varlen")),
        ("mla_decode.flashinfer", {"batch": 3, "context": 100, "heads": 4, "latent": 32, "rope": 8}),
    ],
)
def test_library_gets_the_cache_as_it_wants_it(kernel, shape, libraries):
    torch.manual_seed(3)
    work = kernels()[kernel].build(Case(kernel=kernel, shape=shape), open_bench("cpu", toy=True))
    assert work.check() <= work.tolerance
    for call in work.calls:
        assert call().isfinite().all()
    assert work.facts["page_tokens"] > 0


def test_fused_experts_get_weights_and_routes_as_they_want_them(libraries):
    torch.manual_seed(3)
    shape = {"tokens": 6, "hidden": 64, "intermediate": 32, "experts": 4, "top_k": 2}
    work = kernels()["moe.bf16_vllm"].build(Case(kernel="moe.bf16_vllm", shape=shape), open_bench("cpu", toy=True))
    assert work.check() <= work.tolerance


def test_third_version_of_flash_attention_comes_first(libraries):
    third = types.SimpleNamespace(
        flash_attn_with_kvcache=lambda *a, page_table, **o: _flash_attn(*a, page_table=page_table, **o)
    )
    libraries.setitem(sys.modules, "flash_attn_interface", third)
    work = kernels()["attention_decode.flash_attn"].build(
        Case(kernel="attention_decode.flash_attn", shape=DECODE), open_bench("cpu", toy=True)
    )
    assert work.implementation == "flash_attn 3"
    assert work.check() <= work.tolerance


def test_flash_attention_of_this_torch_takes_the_arguments_that_are_passed():
    from profilers.kernels.attention_varlen import _flash

    names = [a.name for a in torch.ops.aten._flash_attention_forward.default._schema.arguments]
    assert names[:7] == ["query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k"]
    assert names[7:10] == ["dropout_p", "is_causal", "return_debug_mask"]
    assert {"window_size_left", "window_size_right", "seqused_k", "block_table"} <= set(names)
    with pytest.raises(Unsupported, match="runs on CUDA only"):
        _flash(open_bench("cpu", toy=True))


def test_missing_library_is_named():
    with pytest.raises(Unsupported, match="flash-attn, which is not installed"):
        kernels()["attention_decode.flash_attn"].build(
            Case(kernel="attention_decode.flash_attn", shape=DECODE), open_bench("cpu", toy=True)
        )
