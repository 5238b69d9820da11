"""Builds the report on a watermark."""

from __future__ import annotations

from dsv2.explain import PlanView
from dsv2.progress import JobProgress
from dsv2.watermark_report.model import WatermarkReport

__all__ = ("report_watermarks",)


def report_watermarks(
    view: PlanView, progress: JobProgress, now_ms: int, identifier: str = "event-time", operator: str | None = None
) -> WatermarkReport:
    """Report the values of a watermark, and what holds it back. A pure function.

    Args:
        view: The plan of the job, ``plan.explain().view``.
        progress: The progress of the job.
        now_ms: The time, in ms since the epoch.
        identifier: The identifier of the watermark; ``event-time`` for event time.
        operator: The uid or the name of an operator. None: all operators that receive the watermark or wait for it.

    Raises:
        ConfigurationError: The watermark is not declared, or there is no such operator.
    """
    raise NotImplementedError
