"""A plan as text. One file a format; a format registers itself under the name that ``--format`` takes."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sizing.registry import Registry

if TYPE_CHECKING:
    from sizing.answer import Plan

REPORTS: Registry[Callable[["Plan"], str]] = Registry("report format", "sizing.reports")


def report(plan: "Plan", format: str = "table") -> str:
    """A plan as text in a registered format (``table``, ``csv``, ``json``, ``md``).

    Raises
    ------
    InputError
        Unknown format.
    """
    return REPORTS.get(format)(plan)
