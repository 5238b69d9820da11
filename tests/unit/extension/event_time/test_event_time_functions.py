"""Functions with event time, of every kind: their callbacks, the order of these, and what they forward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest

from dsv2.errors import UserFunctionError
from dsv2.extension.event_time import (
    EventTimeExtension,
    OneInputEventTimeStreamProcessFunction,
    TwoInputBroadcastEventTimeStreamProcessFunction,
    TwoInputNonBroadcastEventTimeStreamProcessFunction,
    TwoOutputEventTimeStreamProcessFunction,
)
from dsv2.functions import OneInputStreamProcessFunction, no_output_until_end_of_input
from dsv2.spi import TickingFunction
from dsv2.testing import (
    EndOfInput,
    Harness,
    HarnessInput,
    HarnessOutput,
    OneInputHarness,
    StampedRecord,
    TwoInputBroadcastHarness,
    TwoInputNonBroadcastHarness,
    TwoOutputHarness,
)
from dsv2.watermark import LongWatermark, Watermark, WatermarkHandlingResult, new_builder
from dsv2.watermark.event_time import EVENT_TIME, LONG_MAX, LONG_MIN
from tests.durations import ms
from tests.support import one_input

W = new_builder("w").type_long().build()
BOTH = (EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION, EventTimeExtension.IDLE_STATUS_WATERMARK_DECLARATION)


class Diary:
    """Emits each call. Each record registers an event timer and a processing timer for one more than its value.

    The call is emitted to all of ``outputs``.
    """

    def init_event_time_process_function(self, manager: Any) -> None:
        self.event_time = manager
        self.inits = getattr(self, "inits", 0) + 1

    def open(self, ctx: Any) -> None:
        ctx.apply_to_all_partitions(self.emit_open)

    def emit_open(self, *args: Any) -> None:
        *outputs, _ = args
        self.emit_call(outputs, "open", self.inits, self.event_time.current_time())

    def emit_call(self, outputs: Any, *what: Any) -> None:
        for output in outputs:
            output.collect(what)

    def record(self, record: int, *args: Any) -> None:
        *outputs, ctx = args
        self.emit_call(outputs, "record", record)
        if ctx.state_manager._keyed:
            self.event_time.register_timer(record + 1)
            ctx.processing_time_manager.register_timer(record + 1)

    def on_event_time_watermark(self, timestamp: int, *args: Any) -> None:
        self.emit_call(args[:-1], "time", timestamp, self.event_time.current_time())

    def on_event_timer(self, timestamp: int, *args: Any) -> None:
        self.emit_call(args[:-1], "event timer", timestamp)

    def on_processing_timer(self, timestamp: int, *args: Any) -> None:
        self.emit_call(args[:-1], "processing timer", timestamp)

    def record_watermark(self, watermark: Watermark, *args: Any) -> WatermarkHandlingResult:
        self.emit_call(args[:-1], "watermark", watermark.identifier, watermark.value)
        return WatermarkHandlingResult.PEEK

    def ending(self, ctx: Any) -> None:
        ctx.apply_to_all_partitions(lambda *args: self.emit_call(args[:-1], "end", args[-1].state_manager._keyed))


# Typed Any so that every kind can use them.
RECORD: Any = Diary.record
WATERMARK: Any = Diary.record_watermark


class One(Diary, OneInputEventTimeStreamProcessFunction[int, Any]):
    process_record = RECORD
    on_watermark = WATERMARK
    end_input = Diary.ending


class TwoOut(Diary, TwoOutputEventTimeStreamProcessFunction[int, Any, Any]):
    process_record = RECORD
    on_watermark = WATERMARK
    end_input = Diary.ending


class TwoIn(Diary, TwoInputNonBroadcastEventTimeStreamProcessFunction[int, int, Any]):
    process_record_from_first_input = process_record_from_second_input = RECORD
    on_watermark_from_first_input = on_watermark_from_second_input = WATERMARK
    end_second_input = Diary.ending


class Side(Diary, TwoInputBroadcastEventTimeStreamProcessFunction[int, int, Any]):
    process_record_from_non_broadcast_input = RECORD
    on_watermark_from_non_broadcast_input = on_watermark_from_broadcast_input = WATERMARK
    end_broadcast_input = Diary.ending

    def process_record_from_broadcast_input(self, record: int, ctx: Any) -> None: ...


Driven: TypeAlias = tuple[Harness, list[HarnessInput[Any]], list[HarnessOutput[Any]]]


def drive(kind: str, keyed: bool, **options: Any) -> Driven:
    key = key_of if keyed else None
    options["declarations"] = [W]
    if kind == "one":
        one = OneInputHarness[Any, Any](One(), key=key, **options)
        return one, [one.input], [one.output]
    if kind == "two outputs":
        split = TwoOutputHarness[Any, Any, Any](TwoOut(), key=key, **options)
        return split, [split.input], [split.first_output, split.second_output]
    if kind == "two inputs":
        two = TwoInputNonBroadcastHarness[Any, Any, Any](TwoIn(), first_key=key, second_key=key, **options)
        return two, [two.first_input, two.second_input], [two.output]
    side = TwoInputBroadcastHarness[Any, Any, Any](Side(), key=key, **options)
    return side, [side.non_broadcast_input, side.broadcast_input], [side.output]


def key_of(number: Any) -> str:
    return "even" if number % 2 == 0 else "odd"


KINDS = ("one", "two outputs", "two inputs", "broadcast")
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
def test_lifecycle_with_event_time(kind: str, keyed: bool, restarts: bool) -> None:
    """Init comes before open. Timers fire before the callback, and the callback runs before event time is forwarded.
    All timers fire before the end."""
    harness, inputs, outputs = drive(kind, keyed)

    def settle() -> None:
        if restarts:
            harness.restart()

    for one in inputs:
        one.push_event_time(5)
    settle()
    inputs[0].push(9, 8, timestamp=3)
    settle()
    for one in inputs:
        one.push_event_time(9)
    settle()
    inputs[-1].push_watermark(W.new_watermark(1))
    harness.end()
    opening = [] if keyed else [("open", 1, LONG_MIN)]
    fired = [[("event timer", 9)], [("event timer", 10)]] if keyed else [[], []]
    processing = [("processing timer", 9), ("processing timer", 10)] if keyed else []
    for output in outputs:
        assert list(in_short(output)) == [
            *opening,
            ("time", 5, 5),
            5,
            ("record", 9),
            ("record", 8),
            *fired[0],
            ("time", 9, 9),
            9,
            ("watermark", "w", 1),
            1,
            *fired[1],
            ("time", LONG_MAX, LONG_MAX),
            *processing,
            *[("end", keyed)] * (2 if keyed else 1),
            EndOfInput(),
        ]


def in_short(output: HarnessOutput[Any]) -> Iterator[Any]:
    """The output, with watermarks as their values."""
    for element in output.elements:
        if isinstance(element, StampedRecord):
            yield element.record
        else:
            yield element.value if isinstance(element, LongWatermark) else element


@pytest.mark.parametrize("kind", ["two inputs", "broadcast"])
def test_event_time_is_the_minimum_of_the_inputs(kind: str) -> None:
    """The broadcast input counts like the other one."""
    harness, (first, second), (output,) = drive(kind, keyed=True)
    first.push(1, 2)
    first.push_event_time(10)
    assert (output.event_times, harness.event_timers("odd")) == ([], [2])
    second.push_event_time(2)
    assert (output.event_times, harness.event_timers("odd"), harness.event_timers("even")) == ([2], [], [3])
    second.push_event_time(7)
    assert output.event_times == [2, 7]
    second.push_idle()
    assert (output.event_times, output.idle_statuses) == ([2, 7, 10], []), "in Flink it stays at 7"
    first.push_idle()
    assert output.idle_statuses == [True]
    second.push_idle(False)
    second.push_event_time(8)
    assert (output.event_times, output.idle_statuses) == ([2, 7, 10], [True, False])
    second.push_event_time(11)
    assert output.event_times == [2, 7, 10, 11]


@pytest.mark.parametrize("kind", ["two inputs", "broadcast"])
@pytest.mark.parametrize("ends_first", [0, 1])
def test_other_input_continues_when_one_ends(kind: str, ends_first: int) -> None:
    """In Flink the last event time of the ended input counts forever, and timers fire only when both have ended."""
    harness, inputs, (output,) = drive(kind, keyed=True)
    inputs[0].push(20, 30)
    for one in inputs:
        one.push_event_time(5)
    output.clear()
    inputs[ends_first].end()
    assert [record[0] for record in output.records if record[0] != "end"] == []
    inputs[1 - ends_first].push_event_time(25)
    assert [record for record in output.records if record[0] != "end"] == [("event timer", 21), ("time", 25, 25)]
    assert harness.event_timers("even") == [31]
    assert harness.processing_timers("even") == [21, 31], "the input is not at its end"
    inputs[1 - ends_first].end()
    told = [record[:2] for record in output.records if record[0] != "end"]
    assert told[2:] == [
        ("event timer", 31),
        ("time", LONG_MAX),
        ("processing timer", 21),
        ("processing timer", 31),
    ]
    assert output.event_times == [25], "the end says the rest"


def test_plain_function_may_hold_back_event_time() -> None:
    def keep(watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        ctx.watermark_manager.emit_watermark(LongWatermark(watermark.value - 1, EVENT_TIME))
        return WatermarkHandlingResult.POLL

    harness = OneInputHarness[Any, Any](one_input(on_watermark=keep), declarations=BOTH)
    harness.input.push_event_time(10)
    assert harness.output.event_times == [9]


def test_watermarks_are_recognized_by_value_or_identifier() -> None:
    event_time, idle = (declaration.identifier for declaration in BOTH)
    assert EventTimeExtension.is_event_time_watermark(event_time)
    assert EventTimeExtension.is_event_time_watermark(LongWatermark(1, event_time))
    assert not EventTimeExtension.is_event_time_watermark(idle)
    assert EventTimeExtension.is_idle_status_watermark(idle)
    assert not EventTimeExtension.is_idle_status_watermark(W.new_watermark(1))


def test_manager_in_a_field_is_restored() -> None:
    class Keeping(OneInputEventTimeStreamProcessFunction[int, Any]):
        def init_event_time_process_function(self, manager: Any) -> None:
            self.anything = {"deep": [manager]}

        def process_record(self, record: int, output: Any, ctx: Any) -> None:
            self.anything["deep"][0].register_timer(record)
            output.collect(self.anything["deep"][0].current_time())

    harness = OneInputHarness(Keeping(), key=str)
    harness.input.push_event_time(3)
    for record in (10, 20):
        harness.restart()
        harness.input.push(record)
    assert harness.output.records == [3, 3]
    assert [harness.event_timers(key) for key in ("10", "20")] == [[10], [20]]


def test_manager_is_passed_again_after_restart() -> None:
    class Choosy(One):
        def __getstate__(self) -> Any:
            return {}

        def open(self, ctx: Any) -> None: ...

    harness = OneInputHarness(Choosy(), key=key_of)
    harness.restart()
    harness.input.push(4)
    assert harness.event_timers("even") == [5]


def failing(callback: str) -> OneInputEventTimeStreamProcessFunction[int, Any]:
    def fail(self: Any, *args: Any) -> None:
        raise ValueError("on purpose")

    return type("Failing", (One,), {callback: fail})()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("callback", "key"),
    [
        ("init_event_time_process_function", None),
        ("on_event_time_watermark", None),
        ("on_event_timer", "'odd'"),
        ("on_processing_timer", "'odd'"),
    ],
)
def test_failing_callback_is_named(callback: str, key: str | None) -> None:
    with pytest.raises(UserFunctionError, match="on purpose") as caught:
        fail_somewhere(callback)
    error = caught.value
    assert (error.callback, error.key, error.record, error.cause_type) == (callback, key, None, "ValueError")
    assert error.location.startswith(__file__)
    assert error.operator.startswith("KeyedProcess")
    assert "in fail\n" in error.traceback_text


def fail_somewhere(callback: str) -> None:
    harness = OneInputHarness(failing(callback), key=key_of)
    harness.input.push(1)
    if callback == "on_processing_timer":
        harness.advance_clock(ms(10))
    harness.input.push_event_time(10)


class Ticking(OneInputStreamProcessFunction[int, int], TickingFunction):
    def process_record(self, record: int, output: Any, ctx: Any) -> None: ...

    def dsv2_uses_processing_timers(self) -> bool:
        return True

    def tick(self, now_ms: int, watermarks: Any) -> None:
        raise ValueError(f"at {now_ms}")

    def next_tick(self) -> int | None:
        return None


def test_failing_tick_is_named() -> None:
    with pytest.raises(UserFunctionError, match="at 0") as caught:
        OneInputHarness(Ticking()).advance_clock(ms(10))
    assert (caught.value.callback, caught.value.key) == ("tick", None)


def test_failure_at_the_end_is_attributed_to_the_timer() -> None:
    harness = OneInputHarness(failing("on_processing_timer"), key=key_of)
    harness.input.push(4)
    with pytest.raises(UserFunctionError) as caught:
        harness.end()
    assert (caught.value.callback, caught.value.key) == ("on_processing_timer", "'even'")


@no_output_until_end_of_input
class Patient(One):
    """Emits in the given callback."""

    def __init__(self, callback: str) -> None:
        self.callback = callback

    def emit_call(self, outputs: Any, *what: Any) -> None:
        if what[0] == self.callback:
            super().emit_call(outputs, *what)


@pytest.mark.parametrize("callback", ["record", "event timer", "time", "processing timer", "watermark"])
def test_no_output_until_end_is_enforced(callback: str) -> None:
    harness = OneInputHarness(Patient(callback), key=key_of, declarations=[W])
    with pytest.raises(UserFunctionError, match=r"marked with no_output_until_end_of_input but emitted \('") as caught:
        live(harness)
    assert caught.value.cause_type == "ContractError"
    assert harness.output.records == []


def live(harness: OneInputHarness[int, Any]) -> None:
    harness.input.push(1)
    harness.input.push_watermark(W.new_watermark(1))
    harness.input.push_event_time(5)
    harness.advance_clock(ms(10))


def test_no_output_until_end_waits_for_both_inputs() -> None:
    @no_output_until_end_of_input
    class Both(TwoIn):
        def end_first_input(self, ctx: Any) -> None:
            self.ending(ctx)

    harness = TwoInputNonBroadcastHarness(Both(), first_key=key_of, second_key=key_of)
    harness.second_input.end()
    with pytest.raises(UserFunctionError, match="no_output_until_end_of_input"):
        harness.first_input.push(1)
