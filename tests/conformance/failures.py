"""Programs whose callbacks raise, and the error message, which is the same on every runtime."""

from __future__ import annotations

from functools import partial
from typing import Any

from dsv2 import ExecutionEnvironment
from dsv2.extension.event_time import EventTimeExtension, EventTimeManager, OneInputEventTimeStreamProcessFunction
from dsv2.extension.join import JoinType, interval_join, join, window_join
from dsv2.extension.window import OneInputWindowStreamProcessFunction, WindowStrategy, window
from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult, new_builder
from tests.conformance.failing import Failure, by3, numbers, stamped
from tests.conformance.functions import Pass, mod3
from tests.durations import ms

SIGNAL = new_builder("signal").type_long().build()
FOLDED = StateDeclarations.reducing_state("folded", int, lambda so_far, added: not_to_seven(so_far, added))
GLOBAL = WindowStrategy.global_()
MESSAGE = "seven – ünïcode\nand a second line"
SEVENTH = {"cause_type": "ValueError", "cause_message": MESSAGE, "record": "7"}


def fail() -> None:
    """The user's line that is to blame."""
    raise ValueError(MESSAGE)


def seven(number: int, output: Any, ctx: Any) -> None:
    """Fails on one record."""
    if number == 7:
        fail()
    output.collect(number)


class Failing(OneInputStreamProcessFunction[int, int]):
    """Fails in the given callback, in subtask 1."""

    def __init__(self, callback: str) -> None:
        self.callback = callback
        self.subtask = -1

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [SIGNAL]

    def open(self, ctx: Any) -> None:
        self.subtask = ctx.task_info.index_of_this_subtask
        self._fail("open")

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(record)

    def on_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        self._fail("on_watermark")
        return WatermarkHandlingResult.PEEK

    def end_input(self, ctx: Any) -> None:
        self._fail("end_input")

    def close(self) -> None:
        self._fail("close")

    def _fail(self, callback: str) -> None:
        if self.subtask == 1 and callback == self.callback:
            fail()


class FailingInTime(OneInputEventTimeStreamProcessFunction[int, int]):
    """Fails in the given callback: in subtask 1, or for the key of the number 7."""

    def __init__(self, callback: str) -> None:
        self.callback = callback
        self.subtask = -1

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def open(self, ctx: Any) -> None:
        self.subtask = ctx.task_info.index_of_this_subtask

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        if record == 7 and self.callback == "on_event_timer":
            self.event_time.register_timer(record + 1)
        if record == 7 and self.callback == "on_processing_timer":
            ctx.processing_time_manager.register_timer(1)

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        if self.callback == "on_event_time_watermark" and self.subtask == 1:
            fail()

    def on_event_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        fail()

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        fail()


class FailingTwoOutputs(TwoOutputStreamProcessFunction[int, int, int]):
    """Fails on one record."""

    def process_record(self, record: int, first_output: Any, second_output: Any, ctx: Any) -> None:
        seven(record, second_output, ctx)


class FailingSecond(TwoInputNonBroadcastStreamProcessFunction[int, int, int]):
    """Fails on one record of the second input."""

    def process_record_from_first_input(self, record: int, output: Any, ctx: Any) -> None: ...

    def process_record_from_second_input(self, record: int, output: Any, ctx: Any) -> None:
        seven(record, output, ctx)


class FailingRule(TwoInputBroadcastStreamProcessFunction[int, int, int]):
    """Fails on one broadcast record, in one subtask."""

    def process_record_from_non_broadcast_input(self, record: int, output: Any, ctx: Any) -> None: ...

    def process_record_from_broadcast_input(self, record: int, ctx: Any) -> None:
        if ctx.task_info.index_of_this_subtask == 1:
            ctx.apply_to_all_partitions(lambda output, partition: seven(record, output, partition))


def not_with_seven(left: Any, right: Any, output: Any, ctx: Any) -> None:
    """Fails on one pair."""
    if left == 7:
        fail()


class Folding(OneInputStreamProcessFunction[int, int]):
    """Fails in the reduce function of a state."""

    def uses_states(self) -> list[StateDeclaration]:
        return [FOLDED]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        ctx.state_manager.get_state(FOLDED).add(record)


def not_to_seven(so_far: int, added: int) -> int:
    """Fails on one value."""
    if added == 7:
        fail()
    return added


def signal(number: int, output: Any, ctx: Any) -> None:
    """Emits a watermark with one record."""
    if number == 7:
        ctx.non_partitioned_context.watermark_manager.emit_watermark(SIGNAL.new_watermark(1))


def time_of(number: int) -> int:
    """The time of all numbers except one."""
    if number == 7:
        fail()
    return number


def _in_time(callback: str, env: ExecutionEnvironment) -> Any:
    return by3(env).process(FailingInTime(callback)).with_uid("bad")  # here


def _generator() -> OneInputStreamProcessFunction[int, int]:
    return EventTimeExtension.new_watermark_generator_builder(time_of).build_as_process_function()


class FailingWindow(OneInputWindowStreamProcessFunction[int, int]):
    """Fails on one record, or when the window of one key fires."""

    def __init__(self, callback: str) -> None:
        self.callback = callback

    def on_record(self, record: int, output: Any, ctx: Any, window: Any) -> None:
        if self.callback == "on_record" and record == 7:
            fail()

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        if self.callback == "on_trigger" and ctx.state_manager.current_key == 1:
            fail()


FAILURES = (
    Failure(
        "record",
        lambda env: numbers(env).process(seven).with_uid("bad"),  # here
        {**SEVENTH, "key": None},
    ),
    Failure(
        "map",
        lambda env: numbers(env).map(lambda n: 1 // (n - 7)).with_uid("bad"),  # here
        {"cause_type": "ZeroDivisionError", "record": "7", "key": None},
        operator="Map (uid 'bad')",
    ),
    Failure(
        "chained",
        lambda env: numbers(env).map(int).process(seven).with_uid("bad").map(int),  # here
        {**SEVENTH, "key": None},
    ),
    Failure(
        "keyed",
        lambda env: numbers(env).key_by(mod3).process(seven).with_uid("bad"),  # here
        {**SEVENTH, "key": "1"},
        operator="KeyedProcess (uid 'bad')",
        subtask=None,
    ),
    Failure(
        "two-outputs",
        lambda env: numbers(env).process(FailingTwoOutputs()).with_uid("bad"),  # here
        {**SEVENTH, "key": None},
        operator="Two-Output-Process (uid 'bad')",
    ),
    Failure(
        "second-input",
        lambda env: numbers(env).connect_and_process(numbers(env), FailingSecond()).with_uid("bad"),  # here
        {**SEVENTH, "key": None},
        operator="TwoInput-Process (uid 'bad')",
        callback="process_record_from_second_input",
    ),
    Failure(
        "join",
        lambda env: (
            numbers(env)
            .key_by(mod3)
            .connect_and_process(numbers(env).key_by(mod3), join(not_with_seven))  # here
            .with_uid("bad")
        ),
        {"cause_type": "ValueError", "key": "1"},
        operator="Keyed-TwoInput-Process (uid 'bad')",
        subtask=None,
    ),
    Failure(
        "alone-in-an-interval",
        lambda env: (
            stamped(env)
            .connect_and_process(stamped(env), interval_join(not_with_seven, ms(-100), ms(-99), JoinType.LEFT))  # here
            .with_uid("bad")
        ),
        {"cause_type": "ValueError", "key": "1"},
        operator="Keyed-TwoInput-Process (uid 'bad')",
        subtask=None,
    ),
    Failure(
        "join-in-a-window",
        lambda env: (
            stamped(env)
            .connect_and_process(stamped(env), window_join(WindowStrategy.tumbling(ms(5)), not_with_seven))  # here
            .with_uid("bad")
        ),
        {"cause_type": "ValueError", "key": "1", "record": None},
        operator="Keyed-TwoInput-Process (uid 'bad')",
        subtask=None,
    ),
    Failure(
        "broadcast",
        lambda env: (
            numbers(env)
            .with_uid("numbers")
            .connect_and_process(numbers(env).with_uid("rules").broadcast(), FailingRule())  # here
            .with_uid("bad")
        ),
        {**SEVENTH, "key": None},
        operator="Broadcast-TwoInput-Process (uid 'bad')",
        callback="process_record_from_broadcast_input",
    ),
    Failure(
        "open",
        lambda env: numbers(env).process(Failing("open")).with_uid("bad"),  # here
        {"cause_type": "ValueError", "key": None, "record": None},
        callback="open",
    ),
    Failure(
        "on_watermark",
        lambda env: numbers(env).process(signal).process(Failing("on_watermark")).with_uid("bad"),  # here
        {"cause_type": "ValueError", "key": None, "record": None},
        callback="on_watermark",
    ),
    Failure(
        "end_input",
        lambda env: numbers(env).shuffle().process(Failing("end_input")).with_uid("bad"),  # here
        {"cause_type": "ValueError", "key": None, "record": None},
        callback="end_input",
    ),
    Failure(
        "close",
        lambda env: numbers(env).process(Failing("close")).with_uid("bad"),  # here
        {"cause_type": "ValueError", "key": None, "record": None},
        callback="close",
    ),
    Failure(
        "reducing",
        lambda env: numbers(env).key_by(mod3).process(Folding()).with_uid("bad"),  # here
        {**SEVENTH, "key": "1"},
        operator="KeyedProcess (uid 'bad')",
        subtask=None,
    ),
    Failure(
        "raising-selector",
        lambda env: numbers(env).key_by(lambda n: 1 // (n - 7)).process(Pass()).with_uid("bad"),  # here
        {"cause_type": "ZeroDivisionError", "record": "7"},
        operator="KeyedProcess (uid 'bad')",
        callback="key selector",
    ),
    Failure(
        "window-record",
        lambda env: by3(env).process(window(GLOBAL, FailingWindow("on_record"))).with_uid("bad"),  # here
        {**SEVENTH, "key": "1"},
        operator="KeyedProcess (uid 'bad')",
        callback="on_record",
        subtask=None,
    ),
    Failure(
        "window-trigger",
        lambda env: by3(env).process(window(GLOBAL, FailingWindow("on_trigger"))).with_uid("bad"),  # here
        {"cause_type": "ValueError", "key": "1", "record": None},
        operator="KeyedProcess (uid 'bad')",
        callback="on_trigger",
        subtask=None,
    ),
    *(
        Failure(
            callback,
            partial(_in_time, callback),
            {"cause_type": "ValueError", "cause_message": MESSAGE, "record": None, "key": key},
            operator="KeyedProcess (uid 'bad')",
            callback=callback,
            subtask=None if key else 1,
        )
        for callback, key in (("on_event_timer", "1"), ("on_processing_timer", "1"), ("on_event_time_watermark", None))
    ),
    Failure(
        "generator",
        lambda env: numbers(env).process(_generator()).with_uid("bad"),  # here
        {**SEVENTH, "key": None},
    ),
)
