"""Write a spreadsheet with one row for each model and GPU.

python examples/spreadsheet_report.py [FILE]
"""

import csv
import sys
from pathlib import Path

import sizing

MODELS = ("Qwen/Qwen3-8B", "Qwen/Qwen3-32B", "meta-llama/Llama-3.1-70B-Instruct")


def main(path: str = "fleet.csv") -> None:
    workload = sizing.Workload(request_rate_per_s=20, input_tokens=2_000, output_tokens=400)
    rows = []
    for model in MODELS:
        plan = sizing.plan(model, workload=workload, slo=sizing.Slo(ttft_s=2.0, tpot_s=0.040))
        rows += [{"model": model, **record} for record in plan.to_records()]
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} rows in {path}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
