"""Common parts of event-time programs: the generator, and a function that emits what it receives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dsv2.extension.event_time import EventTimeExtension
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.watermark import Watermark, WatermarkHandlingResult

T = TypeVar("T")

END_OF_TIME = 2**63 - 1
EVENT_TIME = EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION
IDLE_STATUS = EventTimeExtension.IDLE_STATUS_WATERMARK_DECLARATION


def per_event(extract: Callable[[T], int]) -> OneInputStreamProcessFunction[T, T]:
    """A generator with a watermark after every record that advances event time."""
    builder = EventTimeExtension.new_watermark_generator_builder(extract)
    return builder.per_event_watermark().build_as_process_function()


class TimeRecorder(OneInputStreamProcessFunction[Any, tuple[int, str, Any]]):
    """A plain function that sees event time and idleness like any other watermark. Emits (subtask, what, value)."""

    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...

    def on_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        what = "idle" if EventTimeExtension.is_idle_status_watermark(watermark) else "time"
        output.collect((ctx.task_info.index_of_this_subtask, what, watermark.value))
        return WatermarkHandlingResult.PEEK
