"""Event time over channels and inputs as in Flink's tests. See also the recordings of Flink.

tests/proofs/event_time_cases.py compares it with a model in every state.
"""

from __future__ import annotations

from typing import Any

import pytest

from dsv2.extension.event_time import (
    EventTimeExtension,
)
from dsv2.watermark import WatermarkHandlingResult
from dsv2.watermark.event_time import EVENT_TIME, IDLE_STATUS, LONG_MAX
from tests.support import ACTIVE, ENDED, IDLE, Driver, driven, one_input, two_inputs, watermark

DECLARED = (
    EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION,
    EventTimeExtension.IDLE_STATUS_WATERMARK_DECLARATION,
)


def pair(**callbacks: Any) -> Driver:
    """Two inputs of one channel each."""
    function = two_inputs(declare_watermarks=lambda: DECLARED, **callbacks)
    return driven(lambda numbers: numbers.connect_and_process(numbers, function).with_uid("f"))


def time(value: int) -> Any:
    return watermark(value, EVENT_TIME)


def test_maximum_event_time_is_forwarded() -> None:
    """A source may send it even if its stream has no end."""
    driver = pair()
    driver.send(time(LONG_MAX), channel=0)
    driver.send(time(LONG_MAX), channel=1)
    assert driver.sent_to("out") == [time(LONG_MAX)]
    driver.send(ENDED, channel=0)
    driver.send(ENDED, channel=1)
    assert driver.sent_to("out") == [time(LONG_MAX), ENDED]


@pytest.mark.parametrize("poll", [True, False])
def test_plain_function_may_hold_back_idleness(poll: bool) -> None:
    """As in Flink: a function without event time sees the idle status like any other watermark."""
    seen = []

    def on_watermark(signal: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        seen.append((signal.identifier, signal.value))
        return WatermarkHandlingResult.POLL if poll else WatermarkHandlingResult.PEEK

    function = one_input(declare_watermarks=lambda: DECLARED, on_watermark=on_watermark)
    driver = driven(lambda numbers: numbers.process(function).with_uid("f"))
    driver.send(time(1), IDLE, ACTIVE, ENDED)
    assert seen == [(EVENT_TIME, 1), (IDLE_STATUS, True), (IDLE_STATUS, False), (EVENT_TIME, LONG_MAX)]
    assert driver.sent_to("out") == ([ENDED] if poll else [time(1), IDLE, ACTIVE, ENDED])


def test_undeclared_idleness_is_not_shown_to_functions() -> None:
    def on_watermark(*args: Any) -> Any:
        raise AssertionError

    driver = driven(lambda numbers: numbers.process(one_input(on_watermark=on_watermark)).with_uid("f"))
    driver.send(IDLE, ENDED)
    assert driver.sent_to("out") == [IDLE, ENDED]
