"""Programs that break a rule at run time, and the error message, which is the same on every runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from dsv2 import ExecutionEnvironment
from dsv2.extension.event_time import EventTimeManager, OneInputEventTimeStreamProcessFunction
from dsv2.extension.window import OneInputWindowStreamProcessFunction, WindowStrategy
from dsv2.functions import AsyncOneInputStreamProcessFunction, OneInputStreamProcessFunction
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.watermark import LongWatermark, Watermark, WatermarkDeclaration, WatermarkHandlingResult
from tests.conformance.failing import SIGNAL, Failure, by3, numbers, read, signal
from tests.conformance.functions import Pass, mod3
from tests.durations import ms

COUNT = StateDeclarations.value_state("count", int)
GLOBAL, TEN = WindowStrategy.global_(), WindowStrategy.tumbling(ms(10))


def undeclared(number: int, output: Any, ctx: Any) -> None:
    """Emits an undeclared watermark."""
    if number == 7:
        ctx.non_partitioned_context.watermark_manager.emit_watermark(LongWatermark(1, "nowhere"))


def current_key(number: int, output: Any, ctx: Any) -> None:
    """Accesses a key where there is none."""
    if number == 7:
        output.collect(ctx.state_manager.current_key)


def undeclared_state(number: int, output: Any, ctx: Any) -> None:
    """Accesses a state that it does not declare."""
    if number == 7:
        ctx.state_manager.get_state(StateDeclarations.value_state("nowhere", int))


class StateWithoutKey(OneInputStreamProcessFunction[int, int]):
    """Uses the state of a key where there is none, in the subtask of key 0."""

    def uses_states(self) -> list[StateDeclaration]:
        return [COUNT]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        if record == 0:
            self.count = ctx.state_manager.get_state(COUNT)

    def end_input(self, ctx: Any) -> None:
        if hasattr(self, "count"):
            self.count.value()


class LeavesTask(AsyncOneInputStreamProcessFunction[int, int]):
    """Leaves a task behind that would emit later."""

    async def process_record(self, record: int, output: Any, ctx: Any) -> None:
        async def later() -> None:
            await asyncio.sleep(0.01)
            output.collect(record)

        if record == 7:
            asyncio.create_task(later())  # noqa: RUF006
        else:
            output.collect(record)


def other_key(number: int, output: Any, ctx: Any) -> None:
    """Changes the key of the record."""
    output.collect(number + 1 if number == 7 else number)


def unless_seven(key: Any) -> Callable[[int], Any]:
    """A key selector with one bad key."""
    return lambda number: key if number == 7 else number


def times_but_of_seven(number: int, output: Any, ctx: Any) -> None:
    """Assigns timestamps to all records except one."""
    if number == 7:
        output.collect(number)
    else:
        output.collect_and_overwrite_timestamp(number, number)


class CollectingOnWatermark(Pass[int]):
    """Emits a record in subtask 1 without a current key, although the stream stays keyed."""

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [SIGNAL]

    def open(self, ctx: Any) -> None:
        self.subtask = ctx.task_info.index_of_this_subtask

    def on_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        if self.subtask == 1:
            output.collect(0)
        return WatermarkHandlingResult.PEEK


def processing_timer(number: int, output: Any, ctx: Any) -> None:
    """Registers a timer where there is no key."""
    if number == 7:
        ctx.processing_time_manager.register_timer(1)


class EventTimer(OneInputEventTimeStreamProcessFunction[int, int]):
    """Registers a timer where there is no key."""

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        if record == 7:
            self.event_time.register_timer(1)


class UndeclaredWindowState(OneInputWindowStreamProcessFunction[int, int]):
    """Accesses a state that it does not declare, in the window of one key."""

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        if ctx.state_manager.current_key == 1:
            window.get_window_state(COUNT)


KEYED, CONTRACT, STATE, KEY = "KeyedProcess", "ContractError", "UndeclaredStateError", "InvalidKeyError"
BAD_KEYS = {"none-key": None, "unhashable-key": [7], "odd-key": frozenset({7}), "nan-key": float("nan")}


def with_key(key: Any, env: ExecutionEnvironment) -> Any:
    return numbers(env).key_by(unless_seven(key)).process(Pass())  # here


FAILURES = (
    Failure("undeclared", lambda env: numbers(env).process(undeclared), "UndeclaredWatermarkError"),  # here
    Failure("no-current-key", lambda env: numbers(env).process(current_key), CONTRACT),  # here
    Failure("undeclared-state", lambda env: by3(env).process(undeclared_state), STATE, KEYED, key="1"),  # here
    Failure("left-task", lambda env: numbers(env).process(LeavesTask()), CONTRACT),  # here
    Failure(
        "state-without-key",
        lambda env: by3(env).process(StateWithoutKey()),  # here
        *(CONTRACT, KEYED, "end_input", None, None, 0),
    ),
    Failure("output-key", lambda env: read(by3(env).process(other_key, mod3)), KEY, KEYED, key="1"),  # here
    *(Failure(name, partial(with_key, key), KEY, KEYED, "key selector") for name, key in BAD_KEYS.items()),
    Failure(
        "none-key-later",
        lambda env: numbers(env).map(int).key_by(unless_seven(None)).process(Pass()),  # here
        *(KEY, KEYED, "key selector"),
    ),
    Failure(
        "window-without-timestamp",
        lambda env: by3(env, times_but_of_seven).window(TEN).reduce(max),  # here
        *(CONTRACT, KEYED),
        key="1",
    ),
    Failure(
        "output-on-watermark",
        lambda env: read(by3(env, signal).process(CollectingOnWatermark(), mod3)),  # here
        *(CONTRACT, KEYED, "on_watermark", None),
    ),
    Failure("processing-timer-without-key", lambda env: numbers(env).process(processing_timer), CONTRACT),  # here
    Failure("event-timer-without-key", lambda env: numbers(env).process(EventTimer()), CONTRACT),  # here
    Failure(
        "undeclared-window-state",
        lambda env: by3(env).window(GLOBAL).process(UndeclaredWindowState()),  # here
        *(STATE, KEYED, "on_trigger", None, "1"),
    ),
)
