"""What the benchmarks share: the session, the measuring, the report."""

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
