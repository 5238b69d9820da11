"""A report on the holders of a watermark, from the plan and the progress of a job.

``JobHandle.watermarks`` is the usual entry point. ``report_watermarks`` also works with progress that was stored.
"""

from dsv2.jobs.watermark_report.model import (
    Cause,
    ChannelWatermark,
    InputWatermark,
    OperatorWatermark,
    Step,
    WatermarkReport,
)
from dsv2.jobs.watermark_report.report import report_watermarks

__all__ = (
    "Cause",
    "ChannelWatermark",
    "InputWatermark",
    "OperatorWatermark",
    "Step",
    "WatermarkReport",
    "report_watermarks",
)
