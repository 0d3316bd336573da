"""What a session would take, said without a GPU."""

import re

import pytest

from profilers.__main__ import main
from profilers.estimates.machine import MACHINES
from profilers.estimates.session import estimate
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
