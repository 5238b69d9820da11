"""Programs whose callbacks raise, and the error message, which is the same on every runtime."""

from __future__ import annotations

from functools import partial
from typing import Any

from dsv2 import ExecutionEnvironment
from dsv2.extension.event_time import EventTimeExtension, EventTimeManager, OneInputEventTimeStreamProcessFunction
from dsv2.extension.join import JoinMode, JoinType, join
from dsv2.extension.window import OneInputWindowStreamProcessFunction, WindowStrategy
from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult
from tests.conformance.failing import ANY, MESSAGE, SIGNAL, Failure, by3, numbers, read, signal, stamped
from tests.conformance.functions import Pass
from tests.durations import ms

FOLDED = StateDeclarations.reducing_state("folded", int, lambda so_far, added: not_to_seven(so_far, added))
GLOBAL = WindowStrategy.global_()


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


def time_of(number: int) -> int:
    """The time of all numbers except one."""
    if number == 7:
        fail()
    return number


def _in_time(callback: str, env: ExecutionEnvironment) -> Any:
    return by3(env).process(FailingInTime(callback))  # here


def _in_window(callback: str, env: ExecutionEnvironment) -> Any:
    return by3(env).window(GLOBAL).process(FailingWindow(callback))  # here


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


NOBODY_IN_THE_INTERVAL: Any = join(not_with_seven, JoinMode.interval(ms(-100), ms(-99)), JoinType.LEFT)
IN_A_WINDOW: Any = join(not_with_seven, JoinMode.window(WindowStrategy.tumbling(ms(5))))
KEYED, TWO_KEYED = "KeyedProcess", "Keyed-TwoInput-Process"
FAILURES = (
    Failure("record", lambda env: numbers(env).process(seven)),  # here
    Failure("map", lambda env: numbers(env).map(lambda n: 1 // (n - 7)), "ZeroDivisionError", "Map"),  # here
    Failure("chained", lambda env: read(numbers(env).map(int).process(seven))),  # here
    Failure("keyed", lambda env: by3(env).process(seven), kind=KEYED, key="1"),  # here
    Failure("two-outputs", lambda env: numbers(env).process(FailingTwoOutputs()), kind="Two-Output-Process"),  # here
    Failure(
        "second-input",
        lambda env: numbers(env).connect_and_process(numbers(env), FailingSecond()),  # here
        kind="TwoInput-Process",
        callback="process_record_from_second_input",
    ),
    Failure(
        "join",
        lambda env: by3(env).connect_and_process(by3(env), join(not_with_seven)),  # here
        *("ValueError", TWO_KEYED, "process_record", ANY, "1"),
    ),
    Failure(
        "alone-in-an-interval",
        lambda env: stamped(env).connect_and_process(stamped(env), NOBODY_IN_THE_INTERVAL),  # here
        *("ValueError", TWO_KEYED, "process_record", ANY, "1"),
    ),
    Failure(
        "join-in-a-window",
        lambda env: stamped(env).connect_and_process(stamped(env), IN_A_WINDOW),  # here
        *("ValueError", TWO_KEYED, "process_record", None, "1"),
    ),
    Failure(
        "broadcast",
        lambda env: numbers(env).connect_and_process(numbers(env).with_uid("rules").broadcast(), FailingRule()),  # here
        kind="Broadcast-TwoInput-Process",
        callback="process_record_from_broadcast_input",
    ),
    Failure("open", lambda env: numbers(env).process(Failing("open")), callback="open", record=None),  # here
    Failure(
        "on_watermark",
        lambda env: numbers(env).process(signal).process(Failing("on_watermark")),  # here
        callback="on_watermark",
        record=None,
    ),
    Failure(
        "end_input",
        lambda env: numbers(env).shuffle().process(Failing("end_input")),  # here
        callback="end_input",
        record=None,
    ),
    Failure("close", lambda env: numbers(env).process(Failing("close")), callback="close", record=None),  # here
    Failure("reducing", lambda env: by3(env).process(Folding()), kind=KEYED, key="1"),  # here
    Failure(
        "raising-selector",
        lambda env: numbers(env).key_by(lambda n: 1 // (n - 7)).process(Pass()),  # here
        *("ZeroDivisionError", KEYED, "key selector"),
    ),
    *(
        Failure(f"window-{callback}", partial(_in_window, callback), "ValueError", KEYED, callback, record, "1")
        for callback, record in (("on_record", "7"), ("on_trigger", None))
    ),
    *(
        Failure(callback, partial(_in_time, callback), "ValueError", KEYED, callback, None, key)
        for callback, key in (("on_event_timer", "1"), ("on_processing_timer", "1"), ("on_event_time_watermark", None))
    ),
    Failure("generator", lambda env: numbers(env).process(_generator())),  # here
)
