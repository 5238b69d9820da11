"""The report on a watermark of a job that this process has started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsv2.graph import Plan
from dsv2.progress import JobProgress

if TYPE_CHECKING:
    from dsv2.watermark_report import WatermarkReport

__all__ = ("watermarks_of",)


def watermarks_of(
    plan: Plan, progress: JobProgress, now_ms: int, identifier: str, operator: str | None
) -> WatermarkReport:
    """Report on a watermark of ``plan``. Parameters and errors: those of ``report_watermarks``."""
    from dsv2.watermark_report import report_watermarks  # with explanations, which are loaded only when they are used

    return report_watermarks(plan.explain().view, progress, now_ms, identifier, operator)
