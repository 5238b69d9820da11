"""Which record a coroutine of an async function processes: the runtime finds its key, timestamp and output by it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from dsv2.errors import ContractError
from dsv2.runtime.exchange.collector import CurrentTimestamp, OutputCollector
from dsv2.runtime.exchange.held import HeldOutput
from dsv2.runtime.report.failure import NO_KEY
from dsv2.runtime.state.keyed_store import PagedKeyedStore
from dsv2.runtime.state.partition import PartitionState

__all__ = ("Call", "InFlightOutput", "InFlightPartition", "InFlightTimestamp", "begin_call", "current_call")


class Call:
    """One call of the function. Tasks and callbacks that it starts inherit it."""

    __slots__ = ("held", "is_open", "key", "timestamp", "timestamps")

    def __init__(self, key: Any, timestamp: int | None, timestamps: Sequence[int | None]) -> None:
        self.key = key
        self.timestamp = timestamp
        self.timestamps = timestamps
        self.held: list[tuple[Any, ...]] = []
        self.is_open = True


_CURRENT: ContextVar[Call | None] = ContextVar("dsv2_call", default=None)


def begin_call(call: Call) -> None:
    """Make ``call`` the current call of this task and of those that it starts."""
    _CURRENT.set(call)


def current_call() -> Call | None:
    """The call that the code belongs to, or None outside of coroutines.

    Raises:
        ContractError: The call has ended, or the code runs in another thread.
    """
    call = _CURRENT.get()
    if call is None:
        return None
    if not call.is_open:
        raise ContractError(
            "The call for this record has ended, so nothing can be emitted for it any more, nor its state or timers be "
            "used. Await every task that process_record starts before it returns."
        )
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
