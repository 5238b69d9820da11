"""The use-processing-time flag: every rule of FLIP-326, its table, and its effect on functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from dsv2.errors import UndeclaredWatermarkError, UserFunctionError
from dsv2.extension.event_time import EventTimeExtension, OneInputEventTimeStreamProcessFunction
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.runtime.exchange.control_log import STATUS, WATERMARK
from dsv2.runtime.exchange.gate import InputGate
from dsv2.sinks import CollectSink
from dsv2.testing import (
    EndOfInput,
    IdleStatus,
    ManualClock,
    OneInputHarness,
    StampedRecord,
)
from dsv2.watermark import BoolWatermark, LongWatermark, Watermark, WatermarkHandlingResult
from dsv2.watermark.event_time import (
    EVENT_TIME,
    IDLE_STATUS,
    LONG_MAX,
    PROCESSING_TIME,
    USE_PROCESSING_TIME,
    EventTimeOfInputs,
)
from tests.durations import ms
from tests.support import local_environment, one_input, operator_named

EVENT = EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION
FLAG = EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION
IDLE = EventTimeExtension.IDLE_STATUS_WATERMARK_DECLARATION
DECLARED = (EVENT, FLAG, IDLE)
BY_CLOCK = FLAG.new_watermark(True)

"""A watermark of FLIP-326: its timestamp and the flag."""


class TestChannels:
    """Idle, ended and lagging channels."""

    def test_late_combiner_includes_idle_and_ended_channels(self) -> None:
        """Its combiner is created with the first event time, and needs no declaration of event time."""
        heard: list[tuple[str, int | bool]] = []

        class Recorder:
            def on_records(self, *args: Any) -> None: ...

            def on_watermark(self, input_index: int, identifier: str, value: int | bool) -> None:
                heard.append((identifier, value))

            def on_status(self, *args: Any) -> None: ...

            def on_end(self, *args: Any) -> None: ...

            def on_crossing(self, *args: Any) -> NoReturn:
                raise AssertionError

        gate = InputGate(0, 3, {USE_PROCESSING_TIME: FLAG}, Recorder())
        gate.control(0, STATUS, "", True)
        gate.control(1, 2, "", 0)
        gate.control(2, WATERMARK, USE_PROCESSING_TIME, True)
        assert heard == []
        gate.control(0, STATUS, "", False)
        gate.control(0, WATERMARK, USE_PROCESSING_TIME, True)
        assert heard == [(EVENT_TIME, PROCESSING_TIME)]


class TestInputs:
    def test_event_time_follows_the_clock_and_never_goes_back(self) -> None:
        event_time = EventTimeOfInputs(1)
        assert event_time.follow_clock(100) is None, "not yet"
        assert event_time.update(0, 50) == 50
        assert event_time.update(0, PROCESSING_TIME) == PROCESSING_TIME
        assert event_time.current == 50, "nobody has looked at the clock"
        assert [event_time.follow_clock(now) for now in (40, 50, 70, 60, 71)] == [None, None, 70, None, 71]
        assert event_time.end(0) == LONG_MAX
        assert event_time.follow_clock(72) is None


class Emitting(OneInputStreamProcessFunction[Watermark, Any]):
    """Emits the watermarks that it receives as records."""

    def process_record(self, record: Watermark, output: Any, ctx: Any) -> None:
        ctx.non_partitioned_context.watermark_manager.emit_watermark(record)


class TestEmitting:
    """The rules of a sender, for watermarks that functions emit."""

    def emitting(self, now_ms: int = 0) -> OneInputHarness[Any, Any]:
        return OneInputHarness(Emitting(), declarations=DECLARED, clock=ManualClock(now_ms))

    def test_forwarded_watermarks(self) -> None:
        harness = self.emitting(now_ms=10)
        harness.input.push(FLAG.new_watermark(False))  # the default
        for time in (4, 4, 3, 6):
            harness.input.push(EVENT.new_watermark(time))
        harness.restart()
        harness.input.push(EVENT.new_watermark(6), EVENT.new_watermark(8), BY_CLOCK, BY_CLOCK)
        assert [(w.identifier, w.value) for w in harness.output.watermarks] == [
            *((EVENT_TIME, time) for time in (4, 6, 8)),
            *[(USE_PROCESSING_TIME, True)] * 2,
        ]

    @pytest.mark.parametrize("later", [EVENT.new_watermark(5), FLAG.new_watermark(False)])
    @pytest.mark.parametrize("restarts", [False, True])
    def test_flag_cannot_be_revoked(self, later: Watermark, restarts: bool) -> None:
        harness = self.emitting()
        harness.input.push(BY_CLOCK)
        if restarts:
            harness.restart()
        with pytest.raises(UserFunctionError, match="No event time can be emitted after") as caught:
            harness.input.push(later)
        assert (caught.value.callback, caught.value.cause_type) == ("process_record", "ContractError")
        assert caught.value.record == repr(later)
        assert caught.value.location.startswith(__file__)

    @pytest.mark.parametrize("restarts", [False, True])
    def test_flag_before_the_clock_is_refused(self, restarts: bool) -> None:
        harness = self.emitting(now_ms=99)
        harness.input.push(EVENT.new_watermark(100))
        if restarts:
            harness.restart()
        with pytest.raises(UserFunctionError, match=r"the wall clock \(99 ms\) is behind"):
            harness.input.push(BY_CLOCK)

    def test_flag_after_the_clock_is_sent(self) -> None:
        harness = self.emitting(now_ms=99)
        harness.input.push(EVENT.new_watermark(100))
        harness.advance_clock(ms(1))
        harness.input.push(BY_CLOCK)
        assert harness.output.watermarks == [EVENT.new_watermark(100), BY_CLOCK]

    def test_own_flag_replaces_event_time_from_upstream(self) -> None:
        """Not an error of this function. It may be, for example, a generator without watermarks after one with them."""
        harness = self.emitting()
        harness.input.push(BY_CLOCK)
        harness.input.push_event_time(3)
        assert harness.output.watermarks == [BY_CLOCK]

    def test_event_time_is_sent_again_after_idleness(self) -> None:
        harness = self.emitting()
        harness.input.push(IDLE.new_watermark(True), EVENT.new_watermark(5))
        harness.input.push(IDLE.new_watermark(False), EVENT.new_watermark(5), EVENT.new_watermark(5))
        five = LongWatermark(5, EVENT_TIME)
        assert harness.output.elements == [IdleStatus(True), five, IdleStatus(False), five]

    def test_flag_must_be_declared(self) -> None:
        harness = OneInputHarness[Any, Any](Emitting(), declarations=[EVENT])
        with pytest.raises(UserFunctionError) as caught:
            harness.input.push(BY_CLOCK)
        assert caught.value.cause_type == UndeclaredWatermarkError.__name__


class Alarm(OneInputEventTimeStreamProcessFunction[int, Any]):
    """Registers an event timer for each record. Emits timers, event time, and whether it is the clock."""

    def init_event_time_process_function(self, manager: Any) -> None:
        self.event_time = manager

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        self.event_time.register_timer(record)

    def on_event_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(("timer", timestamp, self.event_time.current_time()))

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(("time", timestamp, self.event_time.uses_processing_time()))


class TestFunctionsWithEventTime:
    def alarm(self, now_ms: int = 100, **options: Any) -> OneInputHarness[int, Any]:
        return OneInputHarness(Alarm(), key=lambda number: number % 2, clock=ManualClock(now_ms), **options)

    @pytest.mark.parametrize("restarts", [False, True])
    def test_timers_fire_by_the_wall_clock(self, restarts: bool) -> None:
        harness = self.alarm()

        def settle() -> list[Any]:
            if restarts:
                harness.restart()
            records = harness.output.records
            harness.output.clear()
            return records

        harness.input.push(30, 100, 101, 150, 151)
        harness.advance_clock(ms(0))
        harness.input.push_event_time(40)
        assert settle() == [("timer", 30, 40), ("time", 40, False)]
        harness.input.push_use_processing_time()
        assert harness.output.elements[-1] == BY_CLOCK, "behind what it brings forth"
        assert settle() == [("timer", 100, 100), ("time", 100, True)]
        harness.advance_clock(ms(1))
        assert settle() == [("timer", 101, 101), ("time", 101, True)]
        harness.advance_clock(ms(49))
        assert settle() == [("timer", 150, 150), ("time", 150, True)]
        harness.advance_clock(ms(0))
        assert settle() == []
        harness.end()
        assert settle() == [("timer", 151, LONG_MAX), ("time", LONG_MAX, True)]

    def test_output_of_timers_is_not_late_downstream(self) -> None:
        harness = self.alarm()
        harness.input.push(60, 70)
        harness.input.push_use_processing_time()
        assert harness.output.elements == [
            StampedRecord(("timer", 60, 100), 60),
            StampedRecord(("timer", 70, 100), 70),
            StampedRecord(("time", 100, True)),
            BY_CLOCK,
        ]

    def test_overdue_timer_fires_at_the_end_of_the_micro_batch(self) -> None:
        harness = self.alarm()
        harness.input.push_use_processing_time()
        harness.input.push(100, 90)
        assert harness.output.records == [("time", 100, True)]
        harness.advance_clock(ms(0))
        assert harness.output.records[1:] == [("timer", 90, 100), ("timer", 100, 100)]

    def test_flag_is_forwarded_once_and_event_time_is_not(self) -> None:
        harness = self.alarm(channels=2)
        harness.input.push_event_time(5, channel=0)
        harness.input.push_event_time(7, channel=1)
        harness.input.push_use_processing_time(channel=0)
        harness.input.push_use_processing_time(channel=1)
        harness.input.push_use_processing_time(channel=1)
        for _ in range(3):
            harness.advance_clock(ms(10))
        harness.end()
        assert [one for one in harness.output.elements if not isinstance(one, StampedRecord)] == [
            EVENT.new_watermark(5),
            EVENT.new_watermark(7),
            BY_CLOCK,
            EndOfInput(),
        ]

    def test_clock_behind_event_time_is_waited_for(self) -> None:
        """One channel was in the future, and has ended."""
        harness = self.alarm(channels=2)
        harness.input.push_use_processing_time(channel=0)
        harness.input.push(105, 111)
        harness.input.push_event_time(110, channel=1)
        assert harness.output.records == [("timer", 105, 110), ("time", 110, False)]
        harness.input.end(channel=1)
        assert harness.output.watermarks == [EVENT.new_watermark(110), BY_CLOCK]
        harness.advance_clock(ms(9))
        assert len(harness.output.records) == 2
        harness.advance_clock(ms(2))
        assert harness.output.records[2:] == [("timer", 111, 111), ("time", 111, True)]

    def test_subtask_requests_to_be_woken_for_its_timers(self) -> None:
        harness = self.alarm()
        harness.input.push(500, 300)
        assert harness._subtask.next_deadline() is None, "event time may never come"
        harness.input.push_use_processing_time()
        assert harness._subtask.next_deadline() == 300
        harness.restart()
        harness.advance_clock(ms(200))
        assert harness._subtask.next_deadline() == 500

    @pytest.mark.parametrize("by_clock", [False, True])
    def test_job_needs_the_clock_only_if_the_flag_may_come(self, by_clock: bool) -> None:
        builder = EventTimeExtension.new_watermark_generator_builder(abs).per_event_watermark()
        generator: Any = (builder.no_watermark() if by_clock else builder).build_as_process_function()
        env = local_environment()
        stamped = env.from_collection([1]).process(generator).with_uid("g")
        stamped.key_by(int).process(Alarm()).with_uid("alarm").to_sink(CollectSink())
        stamped.process(one_input()).with_uid("plain")
        plan = env.build_plan()
        assert [plan.needs_clock(operator_named(plan, uid)) for uid in ("g", "alarm", "plain")] == [
            False,
            by_clock,
            False,
        ]


class TestPlainFunctions:
    """Functions that handle the flag like any other watermark."""

    def hearing(self, poll: Callable[[Watermark], bool]) -> tuple[OneInputHarness[Any, Any], list[Watermark]]:
        heard: list[Watermark] = []

        def on_watermark(watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
            heard.append(watermark)
            return WatermarkHandlingResult.POLL if poll(watermark) else WatermarkHandlingResult.PEEK

        return OneInputHarness(one_input(on_watermark=on_watermark), declarations=DECLARED, channels=2), heard

    def test_flag_of_all_channels_is_shown(self) -> None:
        harness, heard = self.hearing(lambda watermark: False)
        harness.input.push_use_processing_time(channel=0)
        assert heard == []
        harness.input.push_use_processing_time(channel=1)
        assert heard == harness.output.watermarks == [BoolWatermark(True, USE_PROCESSING_TIME)]
        assert EventTimeExtension.is_use_processing_time_watermark(heard[0])
        assert not EventTimeExtension.is_event_time_watermark(heard[0])
        assert not EventTimeExtension.is_use_processing_time_watermark(EVENT_TIME)
        assert harness.progress.watermarks == {USE_PROCESSING_TIME: (True,)}

    def test_false_flag_is_not_shown(self) -> None:
        """A false flag of a function is not even sent. One of a source may be."""
        harness, heard = self.hearing(lambda watermark: False)
        for channel in range(2):
            harness.input.push_watermark(FLAG.new_watermark(False), channel=channel)
        harness.input.push_event_time(4, channel=0)
        harness.input.push_use_processing_time(channel=1)
        assert heard == [EVENT.new_watermark(4)]

    def test_flag_may_be_held_back(self) -> None:
        harness, heard = self.hearing(EventTimeExtension.is_use_processing_time_watermark)
        harness.input.push_use_processing_time(channel=0)
        harness.input.push_event_time(4, channel=1)
        harness.input.push_use_processing_time(channel=1)
        harness.end()
        assert heard == [EVENT.new_watermark(4), BY_CLOCK, EVENT.new_watermark(LONG_MAX)]
        assert harness.output.elements == [EVENT.new_watermark(4), EndOfInput()]

    def test_held_back_idleness_is_offered_again_after_the_flag(self) -> None:
        """Otherwise the function would count as active while it has nothing to do."""
        is_flagged: list[bool] = []

        def on_watermark(watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
            if EventTimeExtension.is_use_processing_time_watermark(watermark):
                is_flagged.append(True)
            keeps = watermark.identifier == IDLE_STATUS and not is_flagged
            return WatermarkHandlingResult.POLL if keeps else WatermarkHandlingResult.PEEK

        harness = OneInputHarness[Any, Any](one_input(on_watermark=on_watermark), declarations=DECLARED)
        harness.input.push_idle()
        assert harness.output.elements == []
        harness.input.push_use_processing_time()
        assert harness.output.elements == [BY_CLOCK, IdleStatus(True)]
        harness.input.push_idle(False)
        assert harness.output.elements[2:] == [IdleStatus(False)]
