"""A plan as CSV for spreadsheets: one row a candidate, the unit in each column's name."""

from sizing.answer import Plan
from sizing.reports import REPORTS
from sizing.reports.tabular import csv_text


@REPORTS.register("csv")
def csv(plan: Plan) -> str:
    """Feasible candidates first, then one row for each rejected one with its reason."""
    question = {
        "model": plan.model.name,
        "request_rate_per_s": plan.workload.request_rate_per_s,
        "input_tokens": plan.workload.mean_input_tokens,
        "output_tokens": plan.workload.mean_output_tokens,
        "slo_ttft_s": plan.slo.ttft_s,
        "slo_tpot_s": plan.slo.tpot_s,
        "calibration": plan.calibration,
    }
    blank = dict.fromkeys(plan.columns())
    rows = [{"status": "feasible", **blank, **r, "remedy": None, **question} for r in plan.to_records()]
    for refused in plan.rejected:
        record = refused.to_record()
        known = {"gpu": record["gpu"], "layout": record["layout"], "limited_by": record["limit"]}
        remedy = f"{record['reason']}; {record['remedy']}"
        rows.append({"status": "infeasible", **blank, **known, "remedy": remedy, **question})
    return csv_text(rows)
