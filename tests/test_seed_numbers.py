"""Every exact figure of the project's seeds, through the public API, with its inputs and printed digits.

Source: the two seed texts, as reconstructed in the project's notes of seed numbers (2026-11).
"""

import math

import pytest

import sizing

GIB = 2**30


def deployment(model: str, gpu: str, **formats: str) -> sizing.Deployment:
    return sizing.Deployment(
        model=sizing.read_model(model), gpu=sizing.gpu(gpu), formats=sizing.NumberFormats(**formats),
        settings=sizing.EngineSettings(memory_utilization=0.9),
    )  # fmt: skip


def test_292_operations_per_byte() -> None:
    b200 = sizing.gpu("b200-hgx")  # 2,250 TFLOP/s dense BF16 over 7.7 TB/s
    assert round(b200.peak_flops_per_s["bf16"] / b200.memory_bandwidth_bytes_per_s) == 292


def test_23040_bytes_per_token_of_smollm2_135m() -> None:
    assert sizing.read_model("HuggingFaceTB/SmolLM2-135M").kv_bytes_per_token("bf16") == 23_040


def test_121_requests_of_8k_on_one_b200() -> None:
    # The data sheet's 180 GB, not the 192.3e9 bytes that the driver reports; 0.9 of it less 16.38 GB of weights
    budget = sizing.memory_budget(deployment("Qwen/Qwen3-8B", "b200-hgx", kv="bf16"), memory_rule="datasheet")
    assert budget.max_requests(8192) == pytest.approx(120.55, abs=0.005)
    assert round(budget.max_requests(8192)) == 121


def test_a_real_b200_holds_more_than_its_data_sheet_says() -> None:
    b200 = sizing.gpu("b200-hgx")
    assert b200.memory_bytes == 180e9
    assert b200.usable_memory_bytes == pytest.approx(192.27e9, abs=0.005e9)  # 183,359 MiB, nvidia-smi


def test_70b_shrinks_from_140_to_35_gb_before_scales() -> None:
    assert 70e9 * sizing.weight_format("bf16").element_bits / 8 == 140e9
    assert 70e9 * sizing.weight_format("nvfp4").element_bits / 8 == 35e9
    assert 70e9 * sizing.weight_format("nvfp4").bytes_per_weight == pytest.approx(39.4e9, abs=0.05e9)


def test_the_real_checkpoint_shrinks_2_6_times() -> None:
    model = sizing.read_model("Qwen/Qwen3-8B")  # embeddings and head stay in BF16
    assert model.weights_bytes("bf16") / model.weights_bytes("nvfp4") == pytest.approx(2.6, abs=0.05)


@pytest.mark.parametrize(("tokens_per_s", "usd"), [(146.4, 7.59), (7407.0, 0.15)])
def test_stop_5_cost_per_million_tokens_at_4_usd_an_hour(tokens_per_s: float, usd: float) -> None:
    assert sizing.usd_per_million_tokens(4.0, tokens_per_s) == pytest.approx(usd, abs=0.005)


def test_cache_of_32k_tokens_is_1_75_gib() -> None:
    cache = 32_768 * sizing.read_model("Qwen/Qwen2.5-7B").kv_bytes_per_token("bf16")
    assert cache / GIB == 1.75


@pytest.mark.parametrize(("network_bytes_per_s", "times"), [(50e9, 7), (12.5e9, 27)])
def test_network_takes_7_to_27_times_the_nvlink_transfer(network_bytes_per_s: float, times: int) -> None:
    # the seed's own "1.8 GiB" in 5.7 ms over NVLink; 400 and 100 Gb/s networks
    assert round(sizing.transfer_s(1.8 * GIB, network_bytes_per_s) / 5.7e-3) == times


def test_an_interruption_every_3_hours() -> None:
    assert round(sizing.interruption_interval_s(54 * 86_400, 419) / 3600) == 3  # 3.09 h


def test_75_percent_while_eight_replicas_roll_two_at_a_time() -> None:
    assert sizing.rollout(8, 2, 0).capacity_share == 0.75


def test_nvlink_is_18_times_one_nic() -> None:
    b200 = sizing.gpu("b200-hgx")  # 900 GB/s each way over 400 Gb/s
    assert b200.link_bytes_per_s / b200.nic_bytes_per_s == 18


def test_a_70b_needs_two_80_gb_gpus_for_its_weights() -> None:
    weights = 70e9 * sizing.weight_format("bf16").bytes_per_weight
    assert math.ceil(weights / sizing.gpu("h100-sxm").memory_bytes) == 2


def test_deepseeks_fleet_in_nodes() -> None:
    # 608e9 tokens in and 168e9 out a day at 73.7k and 14.8k tokens/s a node; 226.75 reported
    nodes = sizing.additive_replicas(608e9 / 86_400, 168e9 / 86_400, 73.7e3, 14.8e3)
    assert nodes == pytest.approx(226.9, abs=0.05)


QUESTION = {
    "workload": sizing.Workload(request_rate_per_s=20, input_tokens=2000, output_tokens=400),
    "slo": sizing.Slo(ttft_s=1.0, tpot_s=0.020),
    "gpus": ("h100-sxm", "b200-hgx"),
}


def totals(**changes: object) -> dict[str, int]:
    answer = sizing.plan("Qwen/Qwen3-8B", **{**QUESTION, "calibration": "rule-of-thumb", **changes})
    return {e.deployment.gpu.id: e.total_gpus for e in answer.evaluations}


@pytest.mark.parametrize("method", ["additive", "time-share"])
def test_six_h100_or_four_b200(method: str) -> None:
    assert totals(method=method) == {"h100-sxm": 6, "b200-hgx": 4}


@pytest.mark.parametrize("method", ["additive", "time-share"])
@pytest.mark.parametrize(
    ("mbu", "mfu", "utilization"),
    [
        (0.62, 0.5, 0.85),
        (0.785, 0.5, 0.85),
        (0.7, 0.38, 0.85),
        (0.7, 0.63, 0.85),
        (0.7, 0.5, 0.755),
        (0.7, 0.5, 0.87),
    ],
)
def test_the_headline_is_robust_one_input_at_a_time(method: str, mbu: float, mfu: float, utilization: float) -> None:
    constants = sizing.rule_of_thumb(mbu=mbu, mfu=mfu)
    targets = sizing.Targets(utilization=utilization, spares=2)
    assert totals(method=method, calibration=constants, targets=targets) == {"h100-sxm": 6, "b200-hgx": 4}


def test_the_headline_fails_without_headroom() -> None:
    constants = sizing.rule_of_thumb(mbu=0.80, mfu=0.50)
    targets = sizing.Targets(utilization=1.0, spares=2)
    got = totals(method="additive", calibration=constants, targets=targets)
    assert got == {"h100-sxm": 5, "b200-hgx": 3}
