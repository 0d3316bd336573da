"""Every CUDA kernel's set-up and calls at the sizes of the default suite, without a GPU.

Tensors live on torch's meta device: shapes, strides, types and the operations' own rules (those of CUDA, which torch
takes a meta tensor to be on) are checked, no memory is filled. What the tensors would take is counted, so that a case
that a GPU cannot hold is found here.
"""

import dataclasses
import sys
import types
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from profilers.bench import Bench, Limits, open_bench
from profilers.decoder import layers, model, plain
from profilers.estimates.effort import EFFORTS
from profilers.estimates.machine import MACHINES, PaperBench
from profilers.estimates.whole import whole
from profilers.kernel import Case, kernels
from profilers.kernels import attention_flash, attention_sdpa, decoder, gemm_fp8_block, mla, scenarios
from profilers.operations import Step
from profilers.plan import make_plan, plan_cases
from profilers.shapes import read_shape
from profilers.table import table_cases
from profilers.timing import Timing

META = torch.device("meta")
HOPPER, BLACKWELL = (9, 0), (10, 0)
SMALL_GPU, LARGE_GPU = 80e9 * 0.97, 143771 * 2**20 * 0.99  # H100 80 GB, H200 as its driver says; less the context
ELSEWHERE = ("launch.", "loading.", "collective.", "scenario.transformers")  # files, processes, another library's model


class Memory(TorchDispatchMode):
    """Bytes that tensors on the meta device would take, now and at most."""

    def __init__(self):
        super().__init__()
        self.held, self.now, self.peak = {}, 0, 0
        self.drawn = 0  # random numbers

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket._qualified_op_name.partition("::")[2]
        if name == "_weight_int4pack_mm":  # its meta asks for a fake tensor's device
            x, w, group, scales = args
            assert (w.ndim, w.dtype, scales.shape[:2]) == (4, torch.int32, (x.shape[1] // group, w.shape[0] * 8))
            out = x.new_empty(x.shape[0], w.shape[0] * 8)
        else:
            out = func(*args, **kwargs)
        if name == "randn":
            self.drawn += out.numel()
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage):
        key = storage._cdata
        if key in self.held and not self.held[key][0].expired():
            return
        self.held[key] = (StorageWeakRef(storage), storage.nbytes())
        self.now += storage.nbytes()
        if self.now > self.peak:  # at most that much: what is gone is taken off only when it matters
            self.peak = max(self.peak, self.live())

    def live(self):
        self.held = {k: v for k, v in self.held.items() if not v[0].expired()}
        self.now = sum(size for _, size in self.held.values())
        return self.now


class MetaBench(Bench):
    """A GPU of that capability and memory, of which what tensors hold is taken."""

    cuda, cache_bytes, crowded = True, 50 << 20, False
    capability, total, memory = HOPPER, LARGE_GPU, None

    @property
    def free_bytes(self):
        return int(self.total - self.memory.live())

    def synchronize(self):
        return None

    def release(self):
        return None


def bench_on(capability, total, memory):
    made = type("This", (MetaBench,), {"capability": capability, "total": total, "memory": memory})
    return made(device=META, limits=Limits())


def _all_of_it(tensor, as_tuple=False):
    assert as_tuple
    return tuple(torch.empty(tensor.numel(), dtype=torch.int64, device=META) for _ in tensor.shape)


def _mask(queries, keys):
    return torch.empty(1, 1, dtype=torch.bool, device=META).expand(queries, keys)


@pytest.fixture
def gpuless(monkeypatch):
    """Stand-ins for what needs a driver or an installed library; none of them looks at data."""
    monkeypatch.setattr(torch, "compile", lambda f, **_: f)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda t: t)
    monkeypatch.setattr(torch.Tensor, "__bool__", lambda t: True)
    monkeypatch.setattr(torch.Tensor, "__float__", lambda t: 0.0)
    monkeypatch.setattr(torch.Tensor, "__int__", lambda t: 1 << 40)  # a length: slices are cut at the end
    monkeypatch.setattr(torch.Tensor, "cpu", lambda t: t)
    monkeypatch.setattr(torch.Tensor, "unique", lambda t: t.flatten())
    monkeypatch.setattr(torch.Tensor, "nonzero", _all_of_it)
    monkeypatch.setattr(torch.Tensor, "tolist", lambda t: torch.zeros(t.shape, dtype=torch.int64).numpy().tolist())
    for module in (layers, plain, attention_sdpa, mla):  # its own kind of tensor, which no dispatch mode lets be made
        monkeypatch.setattr(
            module, "causal_lower_right", lambda q, k: torch.empty(1, 1, dtype=bool, device=META).expand(q, k)
        )
    monkeypatch.setattr(model, "_compiled", lambda layer, bench: layer)
    monkeypatch.setattr(scenarios, "_on_device", lambda call, bench: {})
    once = lambda call, bench, **_: (call(), Timing(samples_s=(1.0,), calls_per_sample=1, mode="graph"))[1]  # noqa: E731
    monkeypatch.setattr(decoder, "time_step", once)
    monkeypatch.setattr(scenarios, "time_step", once)
    monkeypatch.setattr(scenarios, "gaps", lambda calls, bench: [float(calls[-1]() is not None)])
    flash = lambda query, keys, values, **_: torch.empty_like(query)  # noqa: E731
    monkeypatch.setattr(attention_flash, "_library", lambda: (flash, "page_table", "flash_attn 3"))
    wrapper = types.SimpleNamespace(plan=lambda *_, **__: None, run=lambda query, *_: torch.empty_like(query))
    for_pages = lambda *_, **__: wrapper  # noqa: E731
    library = types.SimpleNamespace(
        BatchDecodeWithPagedKVCacheWrapper=for_pages, BatchPrefillWithPagedKVCacheWrapper=for_pages,
        mla=types.SimpleNamespace(BatchMLAPagedAttentionWrapper=for_pages),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "flashinfer", library)
    for name in ("vllm", "vllm.model_executor", "vllm.model_executor.layers"):
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace())
    fused = types.SimpleNamespace(fused_experts=lambda x, *_: torch.empty_like(x))
    monkeypatch.setitem(sys.modules, "vllm.model_executor.layers.fused_moe", fused)
    return monkeypatch


def set_up(case, capability, total, memory=None):
    """Build a case, check it, call it; the most memory that took [B], or why it is not supported."""
    memory = memory or Memory()
    bench = bench_on(capability, total, memory)
    with memory, torch.inference_mode():
        made = kernels()[case.kernel].build(case, bench)
        if hasattr(made, "calls"):
            made.check()
            for call in (made.calls[0], made.calls[-1]):
                call()
    return memory.peak


def default_cases():
    """Of the suite what tells something of its own: of whole decoders the largest steps, of a stall few chunks."""
    host = ("copy.host", "copy.device")  # their other side is real memory
    found = []
    for case in plan_cases(make_plan("default")):
        shape = case.shape
        if case.kernel.startswith((*ELSEWHERE, *host)) or ".flex" in case.kernel:
            continue
        large = shape.get("sequences") == 128 or shape.get("new_tokens") == 8192
        first = shape.get("mode") in ("graph", "eager") and large
        if case.kernel == "decoder.step" and not first and not (case.priority == 1 and "compiled" in shape["mode"]):
            continue
        if case.kernel == "scenario.prefill_stall":
            case = dataclasses.replace(case, shape={**shape, "chunk": 16384})
        found.append(case)
    return found


CASES = default_cases()


@pytest.mark.parametrize("name", sorted({case.kernel for case in CASES}))
def test_cuda_takes_every_case_of_the_default_suite_and_80_gb_hold_it(name, gpuless):
    capability = BLACKWELL if name == "gemm.nvfp4" else HOPPER
    for case in (c for c in CASES if c.kernel == name):
        peak = set_up(case, capability, SMALL_GPU)
        assert 0 < peak < SMALL_GPU, (case.key, peak / 1e9)


class Launches(TorchDispatchMode):
    """Operations that do work."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += not func.is_view and "empty" not in func.name()
        return func(*args, **(kwargs or {}))


ESTIMATED = ("gemm.", "attention_", "mla_", "batched_gemm.", "moe.bf16", "moe.fp8", "sampling.")


@pytest.mark.parametrize("name", sorted({c.kernel for c in CASES if c.kernel.startswith(ESTIMATED)}))
def test_estimate_draws_rotates_and_launches_what_the_set_up_does(name, gpuless):
    """Numbers drawn within 5 % (what is drawn of a paged table left out), as many memories, launches within 2."""
    machine = dataclasses.replace(MACHINES["h100-sxm"], memory_bytes=SMALL_GPU + 1e9)
    capability = BLACKWELL if name == "gemm.nvfp4" else HOPPER
    found = [c for c in CASES if c.kernel == name]
    for case in found[:: max(1, len(found) // 8)]:
        memory = Memory()
        bench = bench_on(capability, SMALL_GPU, memory)
        with memory, torch.inference_mode():
            made = kernels()[case.kernel].build(case, bench)
        effort = EFFORTS[case.kernel.partition(".")[0]](case, PaperBench(machine))
        assert effort.random_elements == pytest.approx(memory.drawn, rel=0.05), case.key
        assert effort.calls == pytest.approx(len(made.calls), abs=1, rel=0.1), case.key
        with Memory(), Launches() as launches, torch.inference_mode():
            made.calls[0]()
        assert launches.count / 2.0 <= effort.operations, case.key


@pytest.mark.parametrize("model_name", ["Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V2-Lite"])
def test_estimate_of_a_whole_decoder_counts_its_weights_cache_and_launches(model_name, gpuless):
    step = Step(sequences=32, new_tokens=1, history=1023)
    memory = Memory()
    with memory, torch.inference_mode():
        made = decoder.decoder_for(read_shape(model_name), bench_on(HOPPER, LARGE_GPU, memory), step)
    effort = whole(model_name, step, PaperBench(MACHINES["h200-sxm"])).set_up(step)
    assert effort["random_elements"] + effort["shared_elements"] == pytest.approx(memory.drawn, rel=0.01)
    with Memory(), Launches() as launches, torch.inference_mode():
        made.step(step)()
    told = whole(model_name, step, PaperBench(MACHINES["h200-sxm"])).operations()
    assert told == pytest.approx(launches.count, rel=0.05)


def test_cuda_takes_every_shape_of_a_published_table(gpuless):
    table = Path(__file__).parents[2] / "data" / "measured" / "kernels.csv"
    cases = list(table_cases(table, "h200-sxm"))
    assert len(cases) > 300
    for case in cases:
        peak = set_up(case, HOPPER, SMALL_GPU)
        assert 0 < peak < SMALL_GPU, (case.key, peak / 1e9)


def test_a_large_decoder_keeps_all_its_layers_on_141_gb_and_fewer_on_80(gpuless):
    """Qwen3-32B: 64 layers, 32.8e9 weights of 2 bytes, 262,144 B of cache a token (2 x 64 x 8 x 128 x 2)."""
    step = Step(sequences=128, new_tokens=1, history=1023)
    need = 2 * 32.8e9 + 128 * 1024 * 262144
    assert SMALL_GPU < need < LARGE_GPU
    layers_of = {}
    for total in (SMALL_GPU, LARGE_GPU):
        memory = Memory()
        with memory, torch.inference_mode():
            made = decoder.decoder_for(read_shape("Qwen/Qwen3-32B"), bench_on(HOPPER, total, memory), step)
            made.step(step)()
        layers_of[total] = made.shape.layers
        assert memory.peak < total
    assert layers_of[LARGE_GPU] == 64
    assert 40 < layers_of[SMALL_GPU] < 64


@pytest.mark.parametrize("kernel", ["attention_decode.flex", "attention_prefill.flex"])
def test_flex_attention_takes_its_real_sizes(kernel):
    """By its CPU front end, on tensors without memory."""
    cases = [c for c in plan_cases(make_plan("default")) if c.kernel == kernel]
    assert cases
    for case in cases:
        with FakeTensorMode():
            work = kernels()[kernel].build(case, open_bench("cpu", toy=True))
            out = work.calls[-1]()
        s = case.shape
        assert out.shape == (s["batch"], s["heads"], s.get("tokens", 1), s["head_dim"])


def test_block_scales_that_cuda_would_refuse_are_refused_here(gpuless):
    """The test's own eyes: scales of the wrong order must not pass."""
    case = Case(kernel="gemm.fp8_block", shape={"m": 256, "n": 4096, "k": 4096})
    gpuless.setattr(gemm_fp8_block, "quantise", lambda x, rows: (
        x.to(torch.float8_e4m3fn), torch.ones(x.shape[1] // 128, x.shape[0] // rows, device=META), x))  # fmt: skip
    with pytest.raises(RuntimeError, match="scale a must have shape"):
        set_up(case, HOPPER, LARGE_GPU)
