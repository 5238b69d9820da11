"""A check that the watermarks in the progress of a finished job have ended."""

from __future__ import annotations

from dsv2.graph import Plan
from dsv2.jobs import JobProgress
from dsv2.jobs.watermark_report import Cause, report_watermarks
from dsv2.plan_view.view import view_of


def unended(plan: Plan, progress: JobProgress) -> list[str]:
    """Return what is said about the watermarks of ``plan`` that have not ended."""
    view = view_of(plan)
    own = [one for one in view.watermarks if not one.identifier.startswith("BUILTIN_API_")]
    identifiers = {one.identifier for one in own if not one.key_type}  # a per-key watermark holds no function back
    reports = [report_watermarks(view, progress, 0, identifier) for identifier in ("event-time", *sorted(identifiers))]
    found = [operator for report in reports for operator in report.operators]
    return [f"{operator.uid}: {operator.sentence}" for operator in found if operator.cause is not Cause.ENDED]
