"""Code shared by the benchmarks: the session, measurements, and the report."""

from benchmarks.common.measure import Sample, batch_progress, batch_seconds, checkpoint, spark_session
from benchmarks.common.report import Arguments, Report, conditions

__all__ = (
    "Arguments",
    "Report",
    "Sample",
    "batch_progress",
    "batch_seconds",
    "checkpoint",
    "conditions",
    "spark_session",
)
