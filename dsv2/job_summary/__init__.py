"""The numbers of a job that views and metrics show, derived from its progress in one place."""

from dsv2.job_summary.history import History, Moment
from dsv2.job_summary.summary import JobSummary, OperatorSummary, summarize

__all__ = ("History", "JobSummary", "Moment", "OperatorSummary", "summarize")
