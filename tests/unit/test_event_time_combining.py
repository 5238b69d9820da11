"""Event time over channels and inputs as in Flink's tests. See also the recordings of Flink.

tests/property/test_event_time_and_its_flag.py compares it with a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import pytest

from dsv2.extension.event_time import (
    EventTimeExtension,
    OneInputEventTimeStreamProcessFunction,
    TwoInputNonBroadcastEventTimeStreamProcessFunction,
)
from dsv2.extension.window import WindowStrategy, reduce
from dsv2.testing import HarnessInput, IdleStatus, OneInputHarness, StampedRecord, TwoInputNonBroadcastHarness
from dsv2.watermark import WatermarkHandlingResult
from dsv2.watermark.event_time import EVENT_TIME, IDLE_STATUS, LONG_MAX, EventTimeCombiner
from tests.support import ACTIVE, ENDED, IDLE, Driver, driven, one_input, two_inputs, watermark

DECLARED = (
    EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION,
    EventTimeExtension.IDLE_STATUS_WATERMARK_DECLARATION,
)


# A step of Flink's tests: channel or input, an event time or an idle status, and the complete output so far.
Step: TypeAlias = tuple[int, int | bool, list[Any]]


def replay(harness: Any, inputs: Sequence[tuple[HarnessInput[Any], int]], steps: Sequence[Step]) -> None:
    """Compare the output with ``steps``. ``inputs`` has input and channel for each number in the steps."""
    for number, value, expected in steps:
        one, channel = inputs[number]
        if isinstance(value, bool):
            one.push_idle(value, channel=channel)
        else:
            one.push_event_time(value, channel=channel)
        assert [*map(in_short, harness.output.elements)] == expected, (number, value)


def in_short(element: Any) -> Any:
    """A record, an event time or an idle status."""
    if isinstance(element, IdleStatus):
        return element.idle
    return element.record if isinstance(element, StampedRecord) else element.value


@pytest.mark.parametrize(
    "steps",
    [
        [(0, 1, []), (1, 2, [1]), (0, 3, [1, 2])],
        [(0, 1, []), (1, True, [1]), (0, 2, [1, 2]), (1, False, [1, 2]), (1, 3, [1, 2]), (0, 4, [1, 2, 3])],
        [
            *((0, 1, []), (1, 2, [1]), (0, True, [1, 2]), (1, True, [1, 2, True])),
            *((0, False, [1, 2, True, False]), (0, 3, [1, 2, True, False, 3]), (1, False, [1, 2, True, False, 3])),
        ],
        [(0, 1, []), (0, 3, []), (1, 2, [2])],
    ],
    ids=[
        "testCombinedResultIsMin",
        "testCombineWhenPartialChannelsIdle",
        "testCombineWhenAllChannelsIdle",
        "testCombineWaitForAllChannels",
    ],
)
def test_two_channels_as_in_flink(steps: Sequence[Step]) -> None:
    """EventTimeWatermarkCombinerTest."""
    harness = OneInputHarness[Any, Any](one_input(), channels=2, declarations=DECLARED)
    replay(harness, [(harness.input, 0), (harness.input, 1)], steps)


class Advanced:
    """Emits event time as it advances."""

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(f"at {timestamp}")


class OneAdvanced(Advanced, OneInputEventTimeStreamProcessFunction[Any, str]):
    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


class TwoAdvanced(Advanced, TwoInputNonBroadcastEventTimeStreamProcessFunction[Any, Any, str]):
    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None: ...
    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None: ...


def test_one_input_as_in_flink() -> None:
    """EventTimeWatermarkHandlerTest."""
    harness = OneInputHarness[Any, str](OneAdvanced(), declarations=DECLARED)
    moved = ["at 1", 1, "at 2", 2]
    steps: list[Step] = [(0, 1, moved[:2]), (0, 2, moved), (0, 1, moved), (0, True, [*moved, True])]
    replay(harness, [(harness.input, 0)], [*steps, (0, False, [*moved, True, False])])


def test_two_inputs_as_in_flink_except_idleness() -> None:
    """EventTimeWatermarkHandlerTest. In Flink event time stays at 1 when the input that is at 1 becomes idle."""
    harness = TwoInputNonBroadcastHarness[Any, Any, str](TwoAdvanced(), declarations=DECLARED)
    moved = ["at 1", 1, "at 2", 2]
    steps: list[Step] = [(0, 1, []), (1, 2, moved[:2]), (0, True, moved), (1, True, [*moved, True])]
    replay(harness, [(harness.first_input, 0), (harness.second_input, 0)], [*steps, (1, False, [*moved, True, False])])


def test_active_channel_counts_once_it_has_caught_up() -> None:
    combiner = EventTimeCombiner(2)
    assert combiner.update(1, 2) is None
    assert combiner.deactivate(1) is None
    assert combiner.update(0, 5) == 5
    combiner.activate(1)
    assert combiner.update(0, 6) == 6, "channel 1 is at 2, behind the others: not waited for"
    assert combiner.update(1, 6) is None, "it is where the others are"
    assert combiner.update(0, 9) is None, "and counts from now on"
    assert combiner.update(1, 7) == 7


# Of the tests of Flink's newest StatusWatermarkValve.
@pytest.mark.parametrize(
    ("steps", "size", "time"),
    [
        pytest.param("w0=100 w1=50 w2=70 i1 a1 w1=60 i0 i2 i1", 90, 100, id="the last one to become idle is behind"),
        pytest.param("w0=100 w1=50 w2=70 i1 a1 w1=60 i1 i2 i0", 90, 100, id="the last one is not behind"),
        pytest.param("w0=10 w1=7 i2 a2 i0 i1 a0", 9, 10, id="only the channel that is active again has caught up"),
        pytest.param("w0=10 w1=20 w2=30 i2 i0 a0 i1 a2", 25, 30, id="the minimum rises with it"),
    ],
)
def test_windows_end_when_channels_become_idle_and_active_again(steps: str, size: int, time: int) -> None:
    """Steps: event time ("w1=60"), idle ("i1") and active ("a1"), with the number of the channel."""
    counts = reduce(WindowStrategy.tumbling(timedelta(milliseconds=size)), first_of)
    harness = OneInputHarness[str, str](counts, key=lambda record: record, channels=3, declarations=DECLARED)
    harness.input.push("record", timestamp=1)
    for step in steps.split():
        if step[0] == "w":
            harness.input.push_event_time(int(step[3:]), channel=int(step[1]))
        else:
            harness.input.push_idle(step[0] == "i", channel=int(step[1]))
    assert (harness.output.records, harness.output.event_times[-1]) == (["record"], time)


def first_of(first: str, second: str) -> str:
    return first


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


def test_two_inputs_through_idleness_and_end() -> None:
    driver = pair()
    driver.send(time(3), channel=0)
    driver.send(time(5), channel=1)
    driver.send(IDLE, channel=0)  # Flink: stays at 3
    assert driver.sent_to("out") == [time(3), time(5)]
    driver.send(IDLE, channel=1)
    driver.send(ENDED, channel=0)
    driver.send(ACTIVE, time(6), channel=1)
    assert driver.sent_to("out")[2:] == [IDLE, ACTIVE, time(6)]


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
