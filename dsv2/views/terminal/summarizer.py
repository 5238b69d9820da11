"""Summaries of a job whose progress is looked at from time to time."""

from __future__ import annotations

from dsv2.graph import Plan
from dsv2.jobs.progress import JobProgress
from dsv2.jobs.summary import History, JobSummary, summarize
from dsv2.jobs.summary.pressure import WINDOW
from dsv2.plan_view.view import view_of


class Summarizer:
    """Summarizes the progress of one job. ``plan``: Its plan."""

    def __init__(self, plan: Plan) -> None:
        self._view = view_of(plan)
        self._history = History(WINDOW).describe(self._view)

    def summary(self, progress: JobProgress) -> JobSummary:
        """Summarize ``progress``."""
        self._history.add(progress)
        return summarize(self._view, progress, self._history.moments)
