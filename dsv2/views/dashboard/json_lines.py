"""Parts of the progress, the summary and reports as objects of JSON, and values of watermarks as texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from dsv2.base.quantities import time_text
from dsv2.watermark.event_time import EVENT_TIME, LONG_MAX, LONG_MIN
from dsv2.watermark.value_text import ShownValue

Line: TypeAlias = Mapping[str, Any]
"""The attributes of a part, and texts for the page."""


def line_of(part: object, **others: object) -> Line:
    """Return the attributes of ``part``. ``others``: Further ones, and those that are texts on the page."""
    return {**msgspec.to_builtins(part), **others}


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
