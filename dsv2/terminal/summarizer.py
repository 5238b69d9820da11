"""Summaries of a job whose progress is looked at from time to time."""

from __future__ import annotations

from dsv2.graph import Operator, Plan
from dsv2.job_summary import History, JobShape, JobSummary, OperatorShape, summarize
from dsv2.job_summary.pressure import WINDOW
from dsv2.printable import printable
from dsv2.progress import JobProgress

__all__ = ("Summarizer",)


class Summarizer:
    """Summarizes the progress of one job. ``plan``: Its plan."""

    def __init__(self, plan: Plan) -> None:
        self._shape = JobShape(tuple(_shape(plan, operator) for operator in plan.operators))
        self._history = History(self._shape.chained, WINDOW)

    def summary(self, progress: JobProgress) -> JobSummary:
        """Summarize ``progress``."""
        self._history.add(progress)
        return summarize(self._shape, progress, self._history.moments)


def _shape(plan: Plan, operator: Operator) -> OperatorShape:
    name = operator.name if operator.automatic_uid else operator.uid
    edges = plan.edges_out_of[operator.id]
    chained = tuple(plan.operators[edge.target].uid for edge in edges if plan.is_chained(edge))
    return OperatorShape(operator.uid, printable(name), operator.kind.value, chained)
