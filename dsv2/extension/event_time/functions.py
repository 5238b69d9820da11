"""The base classes of event-time process functions (Flink ``*EventTimeStreamProcessFunction``).

The runtime recognizes them by their class, so they need no wrapper.
"""

from __future__ import annotations

from typing import Generic, Protocol

from dsv2.base.type_variables import IN1_contra, IN2_contra, IN_contra, OUT1_co, OUT2_co, OUT_co
from dsv2.functions import (
    AsyncOneInputStreamProcessFunction,
    OneInputStreamProcessFunction,
    ProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.model.context import (
    Collector,
    NonPartitionedContext,
    PartitionedContext,
    TwoOutputNonPartitionedContext,
    TwoOutputPartitionedContext,
)


class EventTimeManager(Protocol):
    """Event timers of the current key, and the current event time."""

    def register_timer(self, timestamp: int, /) -> None:
        """Call ``on_event_timer`` for the current key once event time has reached ``timestamp``.

        There is at most one timer per key and timestamp. A timer in the past fires when event time next advances. The
        remaining timers fire when all input has ended.

        Args:
            timestamp: The event time in ms since the epoch.

        Raises:
            ContractError: The function is not keyed.
        """

    def delete_timer(self, timestamp: int, /) -> None:
        """Delete a timer of the current key. Does nothing if there is none. Raises as ``register_timer``."""

    def timers(self) -> list[int]:
        """The times of the registered timers of the current key in ms, ascending. Raises as ``register_timer``."""

    def current_time(self) -> int:
        """Event time in ms: ``-(2**63)`` before the first watermark, ``2**63 - 1`` after the end of all input."""

    def uses_processing_time(self) -> bool:
        """Return whether event time is the wall clock, because all inputs have sent the flag.

        Timers then fire by the wall clock, at the beginning and the end of a micro-batch, and
        ``on_event_time_watermark`` is called when it has advanced. The flag is forwarded downstream instead of event
        time.
        """


class EventTimeProcessFunction(ProcessFunction):
    """Base class of event-time process functions."""

    dsv2_has_event_time = True

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        """Called before ``open``, and again when the function is restored from a checkpoint. Store ``manager``."""


class OneInputEventTimeStreamProcessFunction(
    EventTimeProcessFunction, OneInputStreamProcessFunction[IN_contra, OUT_co], Generic[IN_contra, OUT_co]
):
    """An event-time function with one input and one output.

    ``on_watermark`` receives all watermarks except event time and idle status.
    """

    def on_event_time_watermark(
        self, timestamp: int, output: Collector[OUT_co], ctx: NonPartitionedContext[OUT_co]
    ) -> None:
        """Called when event time has advanced to ``timestamp`` (ms), after due timers and before it is forwarded."""

    def on_event_timer(self, timestamp: int, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]) -> None:
        """Called when an event timer fires, for the key of the timer. Collected records get its timestamp."""


class AsyncOneInputEventTimeStreamProcessFunction(
    EventTimeProcessFunction, AsyncOneInputStreamProcessFunction[IN_contra, OUT_co], Generic[IN_contra, OUT_co]
):
    """An async function with event time. Timers fire while no record is in flight.

    ``on_watermark`` receives all watermarks except event time and idle status.
    """

    def on_event_time_watermark(
        self, timestamp: int, output: Collector[OUT_co], ctx: NonPartitionedContext[OUT_co]
    ) -> None:
        """As in the one-input function."""

    def on_event_timer(self, timestamp: int, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]) -> None:
        """As in the one-input function."""


class TwoOutputEventTimeStreamProcessFunction(
    EventTimeProcessFunction,
    TwoOutputStreamProcessFunction[IN_contra, OUT1_co, OUT2_co],
    Generic[IN_contra, OUT1_co, OUT2_co],
):
    """An event-time function with one input and two outputs."""

    def on_event_time_watermark(
        self,
        timestamp: int,
        first_output: Collector[OUT1_co],
        second_output: Collector[OUT2_co],
        ctx: TwoOutputNonPartitionedContext[OUT1_co, OUT2_co],
    ) -> None:
        """As in the one-input function."""

    def on_event_timer(
        self,
        timestamp: int,
        first_output: Collector[OUT1_co],
        second_output: Collector[OUT2_co],
        ctx: TwoOutputPartitionedContext[OUT1_co, OUT2_co],
    ) -> None:
        """As in the one-input function."""


class TwoInputNonBroadcastEventTimeStreamProcessFunction(
    EventTimeProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction[IN1_contra, IN2_contra, OUT_co],
    Generic[IN1_contra, IN2_contra, OUT_co],
):
    """An event-time function with two inputs. Its event time is the minimum of the inputs that are not idle."""

    def on_event_time_watermark(
        self, timestamp: int, output: Collector[OUT_co], ctx: NonPartitionedContext[OUT_co]
    ) -> None:
        """As in the one-input function."""

    def on_event_timer(self, timestamp: int, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]) -> None:
        """As in the one-input function."""


class TwoInputBroadcastEventTimeStreamProcessFunction(
    EventTimeProcessFunction,
    TwoInputBroadcastStreamProcessFunction[IN1_contra, IN2_contra, OUT_co],
    Generic[IN1_contra, IN2_contra, OUT_co],
):
    """An event-time function with a partitioned input and a broadcast input.

    Its event time is the minimum of the inputs that are not idle.
    """

    def on_event_time_watermark(
        self, timestamp: int, output: Collector[OUT_co], ctx: NonPartitionedContext[OUT_co]
    ) -> None:
        """As in the one-input function."""

    def on_event_timer(self, timestamp: int, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]) -> None:
        """As in the one-input function."""
