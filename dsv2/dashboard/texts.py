"""The values of watermarks as texts, which several pages show."""

from __future__ import annotations

from dsv2.watermark.event_time import EVENT_TIME, LONG_MAX, LONG_MIN
from dsv2.watermark.shown import ShownValue
from dsv2.watermark_report.units import time_text

__all__ = ("watermark_text",)


def watermark_text(identifier: str, value: ShownValue | None) -> str:
    """Return the value of a watermark as a text: event time in UTC, others as they are; "" for None."""
    if value is None:
        return ""
    if identifier != EVENT_TIME or not isinstance(value, int):
        return str(value)
    if value >= LONG_MAX:
        return "end of input"
    if value <= LONG_MIN:
        return ""
    return time_text(value).replace("T", " ").removesuffix("Z")
