"""The record that a coroutine of an async function processes, by which the runtime finds key, timestamp and output."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import Context, ContextVar
from typing import Any, NamedTuple

from dsv2.errors import ContractError
from dsv2.graph.builder import caller_location
from dsv2.runtime.exchange.collector import CurrentTimestamp, HeldOutput, OutputCollector
from dsv2.runtime.report.failure import NO_KEY
from dsv2.runtime.state.keyed_store import PagedKeyedStore
from dsv2.runtime.state.partition import PartitionState


class StartedTask(NamedTuple):
    """A task that a call has started.

    Attributes:
        task: The task.
        module: The name of the module that started it.
        file: The file of that module.
        line: The line.
    """

    task: asyncio.Task[Any]
    module: str
    file: str
    line: int

    @property
    def is_left(self) -> bool:
        """True if nothing has awaited the task: it still runs, or nothing has looked at its exception."""
        return not self.task.done() or getattr(self.task, "_log_traceback", False)

    def __str__(self) -> str:
        name = getattr(self.task.get_coro(), "__qualname__", self.task.get_name())
        return f"{name}, started at {self.file}:{self.line}"


class Call:
    """One call of the function. Tasks and callbacks that it starts inherit it."""

    __slots__ = ("held", "is_open", "key", "late_use", "tasks", "timestamp", "timestamps")

    def __init__(self, key: Any, timestamp: int | None, timestamps: Sequence[int | None]) -> None:
        self.key = key
        self.timestamp = timestamp
        self.timestamps = timestamps
        self.held: list[tuple[Any, ...]] = []
        self.tasks: list[StartedTask] = []
        self.is_open = True
        self.late_use: Callable[[ContractError], None] | None = None
        """Fails the job when something uses the call after its end. None: it has failed anyway."""


_CURRENT: ContextVar[Call | None] = ContextVar("dsv2_call", default=None)


def begin_call(call: Call) -> None:
    """Make ``call`` the current call of this task and of those that it starts."""
    _CURRENT.set(call)


def new_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    *,
    context: Context | None = None,
    **options: Any,
) -> asyncio.Task[Any]:
    """Create a task, and note which call has started it. The task factory of event loops."""
    task = asyncio.Task(coroutine, loop=loop, context=context, **options)
    call = _CURRENT.get() if context is None else context.get(_CURRENT)
    if call is not None and call.is_open:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("asyncio."):
            frame = frame.f_back
        module, file = frame.f_globals.get("__name__", ""), frame.f_code.co_filename
        call.tasks.append(StartedTask(task, module, file, frame.f_lineno))
    return task


def current_call() -> Call | None:
    """The call that the code belongs to, or None outside of coroutines.

    Raises:
        ContractError: The call has ended, or the code runs in another thread.
    """
    call = _CURRENT.get()
    if call is None:
        return None
    if not call.is_open:
        error = ContractError(
            f"The call for this record has ended, so {caller_location()} can neither emit for it nor use its state or "
            f"timers. Await everything that the function starts before it returns."
        )
        if call.late_use is not None:
            call.late_use(error)
        raise error
    if asyncio._get_running_loop() is None:
        raise ContractError(
            "Output, state and timers can only be used in the thread of the event loop. Return the result of "
            "asyncio.to_thread(...) and use them afterwards."
        )
    return call


class InFlightOutput(HeldOutput):
    """Holds what a call emits in the call, and what other callbacks emit as usual."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        hold_outside = self.hold

        def hold(emission: tuple[Any, ...]) -> None:
            call = current_call()
            if call is None:
                hold_outside(emission)
            else:
                call.held.append(emission)

        self.hold = hold


class InFlightTimestamp(CurrentTimestamp):
    """The timestamp of the current call, otherwise that of the timer."""

    __slots__ = ("_outside",)

    @property
    def timestamp(self) -> int | None:
        """The timestamp in ms, or None."""
        call = current_call()
        return self._outside if call is None else call.timestamp

    @timestamp.setter
    def timestamp(self, timestamp: int | None) -> None:
        self._outside = timestamp

    def add(self, collector: OutputCollector) -> None:
        """Let ``collector`` inherit the timestamp always: calls with and without one interleave."""
        collector.collect = collector.collect_inheriting

    def begin(self, timestamp: int | None = None) -> None:
        """Start processing timers."""
        self._outside = timestamp

    def end(self) -> None:
        """End processing timers."""
        self._outside = None


class InFlightPartition(PartitionState):
    """The state of the key of the current call, otherwise of the key that the runtime has set."""

    __slots__ = ("_outside",)

    def __init__(self, keyed: bool, store: PagedKeyedStore) -> None:
        self._outside = NO_KEY
        super().__init__(keyed, store)

    @property
    def key(self) -> Any:
        """The current key, or ``NO_KEY``."""
        call = current_call()
        return self._outside if call is None else call.key

    @key.setter
    def key(self, key: Any) -> None:
        self._outside = key
