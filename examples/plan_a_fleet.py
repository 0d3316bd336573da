"""Plan a fleet for three traffic levels and print which GPU is cheapest at each.

python examples/plan_a_fleet.py
"""

import sizing


def main() -> None:
    for rate in (2, 20, 200):
        plan = sizing.plan(
            "Qwen/Qwen3-8B",
            workload=sizing.Workload(request_rate_per_s=rate, input_tokens=2_000, output_tokens=400),
            slo=sizing.Slo(ttft_s=1.0, tpot_s=0.020),
            gpus=("h100", "h200", "b200", "mi300x"),
        )
        best = plan.require()
        print(
            f"{rate:>4} requests/s: {best.total_gpus:>3} {best.deployment.gpu.id} "
            f"({best.serving_gpus} serving + {best.spare_gpus} spare), "
            f"{best.cost.usd_per_million_output_tokens:.3f} USD per million output tokens"
        )


if __name__ == "__main__":
    main()
