"""Read a trace of your own, see what it holds, plan for its average and for its busiest minute.

python examples/read_a_trace.py [TRACE]
"""

import sys
from pathlib import Path

import sizing
from sizing.workload import Gamma, Profile, read_trace, shape
from sizing.workload.describe import bars
from sizing.workload.statistics import counts_by


def a_log(path: Path) -> Path:
    """Half an hour of chat, as a gateway could log it: this stands in for your own file."""
    quiet_then_busy = Profile(factors=(0.6, 0.8, 1.0, 1.8, 1.2, 0.6), step_s=300.0, stream=Gamma(cv=1.5))
    chat = shape("chat", 60.0)
    traffic = sizing.Workload(
        request_rate_per_s=60.0,
        input_tokens=chat.input_tokens,
        output_tokens=chat.output_tokens,
        arrivals=quiet_then_busy,
    )
    drawn = traffic.sample_for(1800.0, seed=1)
    rows = zip(drawn.arrival_s, drawn.input_tokens, drawn.output_tokens, strict=True)
    lines = ["arrival_s,input_tokens,output_tokens", *(f"{t:.6f},{i},{o}" for t, i, o in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else a_log(Path("requests.csv"))
    trace = read_trace(path)
    seen = trace.summary()
    print(f"{path}: {seen.requests:,} requests, read as {trace.kind}; left out: {dict(trace.skipped) or 'none'}")
    print(f"{seen.rate_per_s:.1f} requests/s, {seen.peak_minute_per_s:.1f} in the busiest minute, CV {seen.gap_cv:.2f}")
    print(f"input p50 {seen.input.p50:,.0f}, p95 {seen.input.p95:,.0f}; output p50 {seen.output.p50:,.0f}")
    print(f"requests by minute |{bars(counts_by(trace.arrival_s, 60.0))}|")
    for rate in ("mean", "peak-minute"):
        plan = sizing.plan("Qwen/Qwen3-8B", workload=trace.to_workload(rate=rate), gpus=("h100", "l40s"))
        best = plan.require()
        print(f"planned for the {rate}: {best.total_gpus} {best.deployment.gpu.id}, {best.serving_gpus} serving")


if __name__ == "__main__":
    main()
