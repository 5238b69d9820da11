"""Sends the event time of one subtask, following the rules for senders (FLIP-326)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dsv2.runtime.exchange.control_log import END, STATUS, WATERMARK, Control
from dsv2.watermark.event_time import (
    EVENT_TIME,
    IDLE_STATUS,
    LONG_MIN,
    PROCESSING_TIME,
    USE_PROCESSING_TIME,
    SentEventTime,
)


class SentBefore(NamedTuple):
    """The event time that a reader of a source had sent when a savepoint was taken.

    Attributes:
        time: Its event time and status (``SentEventTime.snapshot``).
        ended: Whether it has ended.
    """

    time: tuple[Any, ...]
    ended: bool

    def controls(self) -> list[Control]:
        """The control elements for a receiver that did not exist before."""
        controls: list[Control] = []

        def add(kind: int, identifier: str, value: Any) -> None:
            controls.append((0, kind, identifier, value))

        if self.ended:
            add(END, "", 0)
        else:
            sender = TimeSender(add)
            sender.restore(self.time)
            sender.announce(add)
        return controls


class TimeSender:
    """Sends watermarks by ``control(kind, identifier, value)``."""

    def __init__(self, control: Callable[[int, str, Any], None]) -> None:
        self._control = control
        self._sent = SentEventTime()

    def emit(self, identifier: str, value: Any, now_ms: int) -> None:
        """Send a watermark that user code emits at ``now_ms``.

        Raises:
            ContractError: It is an event time that violates the rules.
        """
        if identifier == IDLE_STATUS:
            self.declare_status(bool(value))
        elif identifier == EVENT_TIME:
            self._emit_time(value, now_ms)
        elif identifier == USE_PROCESSING_TIME:
            self._emit_time(PROCESSING_TIME if value else LONG_MIN, now_ms)
        else:
            self._control(WATERMARK, identifier, value)

    def check(self, time: int, now_ms: int) -> None:
        """See ``SentEventTime.check``."""
        self._sent.check(time, now_ms)

    def send(self, time: int) -> None:
        """Send an event time, which may be ``PROCESSING_TIME``, unless it changes nothing."""
        if not self._sent.sends(time):
            return
        if time == PROCESSING_TIME:
            self._control(WATERMARK, USE_PROCESSING_TIME, True)
        elif self._sent.inputs_idle and not self._sent.idle:
            # Only the inputs are idle, the function has not declared itself idle. So its event time takes effect, as if
            # it had been sent before they became idle.
            self._control(STATUS, "", False)
            self._control(WATERMARK, EVENT_TIME, time)
            self._control(STATUS, "", True)
        else:
            self._control(WATERMARK, EVENT_TIME, time)

    def declare_status(self, idle: bool) -> None:
        """Send the status that user code declares."""
        self._sent.idle = idle
        self._sent.inputs_idle = False
        self._control(STATUS, "", idle)

    def forward_status(self, idle: bool) -> None:
        """Send the status of the inputs.

        A function that has declared itself idle stays idle, because it may emit nothing even though records arrive.
        """
        self._sent.inputs_idle = idle
        if idle or not self._sent.idle:
            self._control(STATUS, "", idle)

    def announce(self, control: Callable[[int, str, Any], None]) -> None:
        """Send what has been sent so far to a new receiver."""
        idle, inputs_idle, greatest, uses_processing_time = self._sent.snapshot()
        if uses_processing_time:
            control(WATERMARK, USE_PROCESSING_TIME, True)
        elif greatest > LONG_MIN:
            control(WATERMARK, EVENT_TIME, greatest)
        if idle or inputs_idle:
            control(STATUS, "", True)

    def snapshot(self) -> tuple[Any, ...]:
        """Return the state as built-in values."""
        return self._sent.snapshot()

    def restore(self, state: tuple[Any, ...]) -> None:
        """Restore a ``snapshot``."""
        self._sent.restore(state)

    def _emit_time(self, time: int, now_ms: int) -> None:
        self._sent.check(time, now_ms)
        self.send(time)
