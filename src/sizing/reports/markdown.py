"""A plan as Markdown, for wikis and pull requests."""

from sizing.answer import Plan
from sizing.reports import REPORTS
from sizing.reports.table import assumption_rows, headline, row, verdict
from sizing.reports.tabular import markdown_text


@REPORTS.register("md")
def markdown(plan: Plan) -> str:
    """Verdict, candidates, rejected ones, assumptions and notes."""
    parts = [f"## {verdict(plan)}\n\n{headline(plan)}\n"]
    if plan.evaluations:
        parts.append(markdown_text([row(e) for e in plan.evaluations], "", ()))
    if plan.rejected:
        rows = [{k: r.to_record()[k] for k in ("gpu", "layout", "reason", "remedy")} for r in plan.rejected]
        parts.append(markdown_text(rows, "Infeasible", ()))
    if plan.assumptions:
        parts.append(markdown_text(assumption_rows(plan), "Assumed", plan.notes))
    return "\n".join(parts)
