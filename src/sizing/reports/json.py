"""A plan as JSON with a schema version."""

from sizing.answer import Plan
from sizing.reports import REPORTS
from sizing.reports.tabular import json_text


@REPORTS.register("json")
def json(plan: Plan) -> str:
    """The whole plan as one strict JSON document."""
    return json_text(plan.to_dict())
