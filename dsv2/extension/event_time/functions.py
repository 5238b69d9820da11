"""The process functions with event time, one for each shape (Flink ``*EventTimeStreamProcessFunction``).

The runtime knows them by their class: there is nothing to wrap, and so nothing to forget.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from dsv2.context import (
    Collector,
    NonPartitionedContext,
    PartitionedContext,
    TwoOutputNonPartitionedContext,
    TwoOutputPartitionedContext,
)
from dsv2.functions import (
    OneInputStreamProcessFunction,
    ProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)

__all__ = (
    "EventTimeManager",
    "EventTimeProcessFunction",
    "OneInputEventTimeStreamProcessFunction",
    "TwoInputBroadcastEventTimeStreamProcessFunction",
    "TwoInputNonBroadcastEventTimeStreamProcessFunction",
    "TwoOutputEventTimeStreamProcessFunction",
)

IN_contra = TypeVar("IN_contra", contravariant=True)
IN1_contra = TypeVar("IN1_contra", contravariant=True)
IN2_contra = TypeVar("IN2_contra", contravariant=True)
OUT_co = TypeVar("OUT_co", covariant=True)
OUT1_co = TypeVar("OUT1_co", covariant=True)
OUT2_co = TypeVar("OUT2_co", covariant=True)


class EventTimeManager(Protocol):
    """Event timers of the current key, and event time itself."""

    def register_timer(self, timestamp: int, /) -> None:
        """Have ``on_event_timer`` called for the current key once event time has reached ``timestamp`` (ms).

        There is one timer for each key and time; one in the past fires when event time moves next. What is left when
        all input has ended fires then. Raises ``ContractError`` in a function that is not keyed.
        """

    def delete_timer(self, timestamp: int, /) -> None:
        """Take a timer of the current key back; nothing happens if there is none. Raises as ``register_timer``."""

    def current_time(self) -> int:
        """Event time here, in ms: ``-(2**63)`` before the first watermark, ``2**63 - 1`` after the end of all input."""

    def uses_processing_time(self) -> bool:
        """Whether event time is the wall clock, because all that comes in has sent the flag that says so.

        From then on timers fire by the wall clock, at the beginning and at the end of a micro-batch, and
        ``on_event_time_watermark`` is called when it has moved. No event time goes on downstream, but the flag has.
        """


class EventTimeProcessFunction(ProcessFunction):
    """What the four kinds share."""

    dsv2_has_event_time = True

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        """Called before ``open``, and again whenever the function is rebuilt from a checkpoint; keep ``manager``."""


class OneInputEventTimeStreamProcessFunction(
    EventTimeProcessFunction, OneInputStreamProcessFunction[IN_contra, OUT_co], Generic[IN_contra, OUT_co]
):
    """One input, one output. ``on_watermark`` gets all watermarks but those of event time and idleness."""

    def on_event_time_watermark(
        self, timestamp: int, output: Collector[OUT_co], ctx: NonPartitionedContext[OUT_co]
    ) -> None:
        """Called when event time has reached ``timestamp`` (ms), after the timers that are due, before it goes on."""

    def on_event_timer(self, timestamp: int, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]) -> None:
        """Called for the key of a timer; what it collects has the timer's time as timestamp."""


class TwoOutputEventTimeStreamProcessFunction(
    EventTimeProcessFunction,
    TwoOutputStreamProcessFunction[IN_contra, OUT1_co, OUT2_co],
    Generic[IN_contra, OUT1_co, OUT2_co],
):
    """One input, two outputs."""

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
    """Two inputs. Event time is the lesser of the two, of those that are not idle."""

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
    """A partitioned input and a broadcast one. Event time is the lesser of the two, of those that are not idle."""

    def on_event_time_watermark(
        self, timestamp: int, output: Collector[OUT_co], ctx: NonPartitionedContext[OUT_co]
    ) -> None:
        """As in the one-input function."""

    def on_event_timer(self, timestamp: int, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]) -> None:
        """As in the one-input function."""
