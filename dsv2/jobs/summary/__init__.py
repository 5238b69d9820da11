"""The numbers of a job that views and metrics show, derived from its progress in one place."""

from dsv2.jobs.summary.history import History, Moment
from dsv2.jobs.summary.summary import JobSummary, OperatorSummary, summarize

__all__ = ("History", "JobSummary", "Moment", "OperatorSummary", "summarize")
