"""Windows under an error policy: what becomes of a window of which a callback has failed."""

from __future__ import annotations

from typing import Any

import pytest

from dsv2 import ErrorPolicy
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import (
    OneInputWindowStreamProcessFunction,
    TriggerContext,
    TriggerResult,
    WindowStrategy,
    WindowTrigger,
)
from dsv2.extension.window.process_functions import windowed
from dsv2.testing import OneInputHarness, StampedRecord
from tests.durations import ms

SKIP = ErrorPolicy().skip(ValueError)
EVENT = EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION


def one_key(record: int) -> int:
    return 0


class FailsFirst(OneInputWindowStreamProcessFunction[int, Any]):
    """Emits the records of a window. The window with a single record fails."""

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        output.collect(sorted(window.get_all_records()))
        if len(window.get_all_records()) == 1:
            raise ValueError

    def on_clear(self, output: Any, ctx: Any, window: Any) -> None:
        output.collect("removed")


class EachTen(WindowTrigger[int]):
    """Fires at 10, 20 and 30 ms, and fails at ``failing``."""

    def __init__(self, failing: int) -> None:
        self._failing = failing

    def on_record(self, record: int, timestamp: int | None, ctx: TriggerContext) -> TriggerResult:
        for time in (10, 20, 30):
            ctx.register_event_timer(time)
        return TriggerResult.CONTINUE

    def on_event_time(self, timestamp: int, ctx: TriggerContext) -> TriggerResult:
        ctx.state = (ctx.state or 0) + 1
        if timestamp == self._failing:
            raise ValueError
        return TriggerResult.FIRE


class Tells(OneInputWindowStreamProcessFunction[int, Any]):
    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        output.collect(window.get_all_records())

    def on_clear(self, output: Any, ctx: Any, window: Any) -> None:
        output.collect("removed")


def harness_of(strategy: WindowStrategy, function: Any, policy: ErrorPolicy = SKIP) -> OneInputHarness[int, Any]:
    return OneInputHarness(windowed(strategy, function), key=one_key, error_policy=policy)


def test_window_that_failed_is_removed() -> None:
    harness = harness_of(WindowStrategy.tumbling(ms(10)), FailsFirst())
    harness.input.push_all([StampedRecord(1, 1), EVENT.new_watermark(9), StampedRecord(2, 2)])
    assert harness.output.records == []
    assert harness.progress.counters["errors_skipped"] == 1


def test_window_that_failed_is_kept_for_late_records() -> None:
    harness = harness_of(WindowStrategy.tumbling(ms(10)).with_allowed_lateness(ms(20)), FailsFirst())
    harness.input.push_all([StampedRecord(1, 1), EVENT.new_watermark(9)])
    assert harness.output.records == []
    harness.input.push_all([StampedRecord(2, 2)])
    assert harness.output.records == [[1, 2]]
    harness.input.push_all([EVENT.new_watermark(29)])
    assert harness.output.records == [[1, 2], "removed"]


@pytest.mark.parametrize("jumps", [[35], [15, 25, 35], [25, 35]], ids=str)
@pytest.mark.parametrize("failing", [10, 20, 30])
def test_each_timer_of_a_trigger_is_skipped_alone(failing: int, jumps: list[int]) -> None:
    harness = harness_of(WindowStrategy.tumbling(ms(35)).with_trigger(EachTen(failing)), Tells())
    harness.input.push_all([StampedRecord(1, 1)])
    for time in jumps:
        harness.input.push_all([EVENT.new_watermark(time)])
    assert harness.output.records == [[1], [1], "removed"]
    assert harness.progress.counters["errors_skipped"] == 1


def test_timers_of_a_trigger_are_repeated_alone() -> None:
    policy = ErrorPolicy().retry(ValueError, times=2).skip(ValueError)
    harness = harness_of(WindowStrategy.tumbling(ms(35)).with_trigger(EachTen(20)), Tells(), policy)
    harness.input.push_all([StampedRecord(1, 1), EVENT.new_watermark(35)])
    assert harness.output.records == [[1], [1], "removed"]
    assert harness.progress.counters == {"errors_retried": 2, "errors_skipped": 1}
