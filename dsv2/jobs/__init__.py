"""Jobs: handles, options, progress and listeners."""

from dsv2.jobs.handle import JobHandle, JobResult, JobStatus, OnChange, Trigger
from dsv2.jobs.listener import JobListener
from dsv2.jobs.options import JobOptions
from dsv2.jobs.progress import (
    BatchProgress,
    ChannelProgress,
    HistogramProgress,
    InputProgress,
    JobProgress,
    OperatorProgress,
    SplitProgress,
    SubtaskProgress,
)

__all__ = (
    "BatchProgress",
    "ChannelProgress",
    "HistogramProgress",
    "InputProgress",
    "JobHandle",
    "JobListener",
    "JobOptions",
    "JobProgress",
    "JobResult",
    "JobStatus",
    "OnChange",
    "OperatorProgress",
    "SplitProgress",
    "SubtaskProgress",
    "Trigger",
)
