"""What a session would take, said without a GPU."""

import re
from pathlib import Path

import pytest
import torch

from profilers.__main__ import main
from profilers.estimates.effort import EFFORTS
from profilers.estimates.machine import MACHINES, PaperBench
from profilers.estimates.session import estimate
from profilers.kernels import elementwise
from profilers.plan import make_plan, plan_cases
from sizing.catalog import gpu


@pytest.mark.parametrize("name", list(MACHINES))
def test_machines_are_those_of_the_catalogue(name):
    chip, machine = gpu(name), MACHINES[name]
    assert machine.memory_bytes == chip.process_memory_bytes
    assert machine.memory_bytes_per_s == chip.memory_bandwidth_bytes_per_s
    assert machine.pcie_bytes_per_s == chip.pcie_bytes_per_s
    assert machine.cache_bytes == chip.l2_bytes
    peaks = chip.peak_flops_per_s
    assert (machine.fp32_flops_per_s, machine.bf16_flops_per_s, machine.fp8_flops_per_s) == (
        peaks["fp32"], peaks["bf16"], peaks["fp8"])  # fmt: skip


def test_command_prints_each_group_by_phase_and_their_sum_without_a_gpu(capsys):
    assert main(["--suite", "default", "--estimate", "h200-sxm"]) == 0
    title, names, *lines = capsys.readouterr().out.strip().splitlines()
    assert title == "Estimated seconds of --suite default on one h200-sxm"
    rows = {line[:35].strip(): [float(x) for x in re.findall(r"\d+\.\d", line)] for line in lines}
    total = rows.pop("total")
    assert len(total) == len(re.split(r"\s{2,}", names)) - 2
    assert {"start", "products", "attention", "experts", "whole decoders", "scenarios"} <= set(rows)
    assert sum(r[-1] for r in rows.values()) == pytest.approx(total[-1], abs=0.1 * len(rows))
    assert sum(total[:-1]) == pytest.approx(total[-1], abs=0.1 * len(total))
    assert main(["--suite", "compact", "--estimate", "--list", "--only", "gemm.bf16"]) == 0
    assert " s  gemm.bf16 m=1 n=4096 k=4096\n" in capsys.readouterr().out
    assert main(["--estimate", "h1"]) == 2
    assert "choose one of h100-sxm, h200-sxm" in capsys.readouterr().err


def test_every_case_of_every_suite_has_an_estimate():
    for suite in ("default", "compact", "decoder", "scenarios"):
        cases = plan_cases(make_plan(suite))
        spent = estimate(cases, MACHINES["h100-sxm"])
        assert [s.key for s in spent[1:]] == [c.key for c in cases]
        assert all(0.0 < s.total_s < 30.0 for s in spent)


@pytest.mark.parametrize("name", list(MACHINES))
def test_default_suite_of_one_hopper_gpu_leaves_a_tenth_of_five_minutes(name):
    spent = estimate(plan_cases(make_plan("default")), MACHINES[name])
    assert sum(s.total_s for s in spent) < 0.9 * 300.0


def test_what_identifies_constants_is_done_in_the_first_third():
    """Were every assumption three times too good, five minutes would still hold it."""
    cases = plan_cases(make_plan("default"))
    spent = estimate([c for c in cases if c.priority == 0], MACHINES["h100-sxm"])
    assert sum(s.total_s for s in spent) < 100.0


def test_compiled_by_itself_comes_last_of_its_kind_for_it_forgets_what_was_compiled_before():
    cases = plan_cases(make_plan("default"))
    compiled = [i for i, c in enumerate(cases) if c.compiles]
    assert compiled
    fused = [i for i, c in enumerate(cases) if c.kernel.startswith("elementwise.")]
    assert max(fused) < min(compiled)
    assert {c.priority for c in cases[: compiled[0]]} == {0, 1}
    modes = {(c.shape["model"], c.shape["mode"]) for c in cases if c.kernel == "decoder.step"}
    models = {model for model, _ in modes}
    assert len(models) == 4
    assert {(model, mode) for model in models for mode in ("graph", "eager", "compiled_graph", "compiled")} == modes


def test_whole_suite_of_decoders_compiles_every_step():
    shapes = [c.shape for c in plan_cases(make_plan("decoder")) if c.kernel == "decoder.step"]
    assert len(shapes) == 4 * (3 * 3 + 2 * 2)


def test_weights_are_drawn_once_for_the_steps_of_a_model_in_a_row():
    """A prompt's own cache is small: its set-up is the weights, or next to nothing."""
    cases = [c for c in plan_cases(make_plan("default")) if c.kernel == "decoder.step" and not c.compiles]
    spent = dict(zip([c.key for c in cases], estimate(cases, MACHINES["h200-sxm"])[1:], strict=True))
    prompts = [c for c in cases if c.shape["new_tokens"] == 2048]
    assert len(prompts) == 4
    for case in prompts:
        alone = estimate([case], MACHINES["h200-sxm"])[1]
        assert spent[case.key].phases["set-up"] < 0.05 < 0.15 < alone.phases["set-up"]
        assert spent[case.key].phases["check"] == 0.0 < alone.phases["check"]


def test_fused_kernels_compile_as_often_as_the_estimate_says():
    """Real sizes on tensors without memory: one graph a kernel for any number of tokens, another for one token."""
    compiled = []

    def backend(graph, example):
        compiled.append(case.kernel)
        return graph.forward

    def rows(*shape):
        return torch.empty(shape, dtype=torch.bfloat16, device="meta")

    tensors = {
        "add_rms_norm": (elementwise.add_rms_norm, lambda t, w: (rows(t, w), rows(t, w), rows(w))),
        "silu_mul": (elementwise.silu_mul, lambda t, w: (rows(t, w), rows(t, w))),
        "rope": (elementwise.rotate, lambda t, w: (rows(t, w), rows(t, w // 2), rows(t, w // 2))),
        "fp8_quantise": (elementwise.fp8_quantise, lambda t, w: (rows(t, w),)),
    }
    cases = [c for c in plan_cases(make_plan("default")) if c.kernel.startswith("elementwise.")]
    torch.compiler.reset()
    with torch.inference_mode():
        for case in cases:
            operation, made = tensors[case.kernel.partition(".")[2]]
            arguments = made(int(case.shape["tokens"]), int(case.shape["width"]))
            torch.compile(operation, dynamic=True, backend=backend)(*arguments)
    torch.compiler.reset()
    told = {name for case in cases for name in EFFORTS["elementwise"](case, PaperBench(MACHINES["h100-sxm"])).compiled}
    assert len(compiled) == len(told) == 7


def test_documented_figures_are_those_that_the_command_prints(capsys):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "profile-your-gpu.md").read_text(encoding="utf-8")
    told = {
        name: float(now) for name, now in re.findall(r"^\| ([a-z ,]+) \| [\d.]+ \| ([\d.]+) \|$", page, re.MULTILINE)
    }
    told["total"] = float(re.search(r"\*\*all\*\* \| \*\*[\d.]+\*\* \| \*\*([\d.]+)\*\*", page)[1])
    assert main(["--estimate"]) == 0
    printed = {line[:35].strip(): line.split()[-1] for line in capsys.readouterr().out.splitlines() if line}
    same = sorted(set(told) & set(printed))
    assert len(same) >= 9
    assert {name: told[name] for name in same} == pytest.approx({n: float(printed[n]) for n in same}, abs=0.5)
