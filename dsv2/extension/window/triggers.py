"""Triggers, which decide when a window fires and when its records are purged (Flink ``Trigger``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Generic, Protocol

from dsv2.base.callables import takes
from dsv2.base.type_variables import IN, IN_contra
from dsv2.checks.arguments import check_whole_number, is_number
from dsv2.errors import ConfigurationError, ContractError
from dsv2.watermark.event_time import LONG_MAX


class TriggerResult(Enum):
    """The treatment of a window after a callback of its trigger."""

    CONTINUE = (False, False)
    FIRE = (True, False)
    PURGE = (False, True)
    FIRE_AND_PURGE = (True, True)

    def __init__(self, fires: bool, purges: bool) -> None:
        self.fires = fires
        self.purges = purges


class TriggerContext(Protocol):
    """The window of the current key that a trigger decides about. Valid during the callback."""

    state: Any
    """A value that the trigger keeps for the window, of any type that a state may have. None in a new window.

    It is part of the checkpoint, and is removed with the window."""

    @property
    def start_time(self) -> int:
        """The start of the window in ms, or -1 if it is the global window."""

    @property
    def end_time(self) -> int:
        """The exclusive end of the window in ms, or -1 if it is the global window."""

    @property
    def current_event_time(self) -> int:
        """The current event time in ms."""

    @property
    def current_processing_time(self) -> int:
        """The current processing time in ms, which is constant within a micro-batch."""

    def register_event_timer(self, timestamp: int, /) -> None:
        """Call ``on_event_time`` for this window when event time has reached ``timestamp`` (ms)."""

    def register_processing_timer(self, timestamp: int, /) -> None:
        """Call ``on_processing_time`` for this window when the clock has reached ``timestamp`` (ms)."""

    def delete_event_timer(self, timestamp: int, /) -> None:
        """Delete a timer of ``register_event_timer``, if there is one."""

    def delete_processing_timer(self, timestamp: int, /) -> None:
        """Delete a timer of ``register_processing_timer``, if there is one."""


class WindowTrigger(ABC, Generic[IN_contra]):
    """Decides when a window fires. Pass it to ``WindowStrategy.with_trigger``.

    A trigger replaces the default one, as in Flink: the end of the window does not fire it, unless the trigger has
    registered a timer for it, and then removes it. A trigger has no fields of its own that change; it keeps values in
    ``ctx.state``. A window with a trigger that is purged keeps the state of the trigger and of the window.
    """

    @abstractmethod
    def on_record(self, record: IN_contra, timestamp: int | None, ctx: TriggerContext) -> TriggerResult:
        """Called for each record, after it was put into the window. ``timestamp`` is that of the record, in ms."""

    def on_event_time(self, timestamp: int, ctx: TriggerContext) -> TriggerResult:
        """Called for each event timer that the trigger has registered."""
        return TriggerResult.CONTINUE

    def on_processing_time(self, timestamp: int, ctx: TriggerContext) -> TriggerResult:
        """Called for each processing timer that the trigger has registered."""
        return TriggerResult.CONTINUE

    def merge(self, states: Sequence[Any]) -> Any:
        """Return the state of a session that is merged from sessions with ``states``. Its timers are kept.

        Raises:
            ContractError: The trigger cannot be used for sessions (the default).
        """
        raise ContractError(f"{type(self).__name__} cannot be used for sessions. Define merge.")

    @property
    def can_merge(self) -> bool:
        """True if the trigger can be used for sessions."""
        return type(self).merge is not WindowTrigger.merge

    @property
    def uses_processing_time(self) -> bool:
        """True if the trigger registers processing timers."""
        return type(self).on_processing_time is not WindowTrigger.on_processing_time

    def __str__(self) -> str:
        return type(self).__name__


class CountTrigger(WindowTrigger[object]):
    """Fires after every ``count`` records (Flink ``CountTrigger``).

    Raises:
        ConfigurationError: ``count`` is not a whole number of at least 1.
    """

    def __init__(self, count: int) -> None:
        check_whole_number(count, "CountTrigger: count")
        self._count = count

    def on_record(self, record: object, timestamp: int | None, ctx: TriggerContext) -> TriggerResult:
        count = (ctx.state or 0) + 1
        if count < self._count:
            ctx.state = count
            return TriggerResult.CONTINUE
        ctx.state = None
        return TriggerResult.FIRE

    def merge(self, states: Sequence[Any]) -> Any:
        return sum(state or 0 for state in states)


class DeltaTrigger(WindowTrigger[IN], Generic[IN]):
    """Fires when a record differs from the one of the last firing by more than a threshold (Flink ``DeltaTrigger``).

    The first record does not fire. Sessions are not supported.

    Args:
        threshold: The greatest difference that does not fire.
        delta: Called with the record of the last firing (or the first record) and the current one. Returns the
            difference.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    def __init__(self, threshold: float, delta: Callable[[IN, IN], float]) -> None:
        if not is_number(threshold):
            raise ConfigurationError(f"DeltaTrigger: threshold must be a number, not {threshold!r}.")
        if not takes(delta, 2):
            raise ConfigurationError(f"DeltaTrigger: delta must be a callable (last, record), not {delta!r}.")
        self._threshold = threshold
        self._delta = delta

    def on_record(self, record: IN, timestamp: int | None, ctx: TriggerContext) -> TriggerResult:
        last = ctx.state
        if last is None:
            ctx.state = (record,)  # a record may be None
            return TriggerResult.CONTINUE
        if self._delta(last[0], record) > self._threshold:
            ctx.state = (record,)
            return TriggerResult.FIRE
        return TriggerResult.CONTINUE


class EventTimeTrigger(WindowTrigger[object]):
    """Fires at the end of the window, and for each late record that is allowed. The default of windows in event time.

    (Flink ``EventTimeTrigger``.) For use in other triggers.
    """

    def on_record(self, record: object, timestamp: int | None, ctx: TriggerContext) -> TriggerResult:
        if _last(ctx) <= ctx.current_event_time:
            return TriggerResult.FIRE
        ctx.register_event_timer(_last(ctx))
        return TriggerResult.CONTINUE

    def on_event_time(self, timestamp: int, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if timestamp == _last(ctx) else TriggerResult.CONTINUE

    def merge(self, states: Sequence[Any]) -> Any:
        return None


class ProcessingTimeTrigger(WindowTrigger[object]):
    """Fires at the end of the window. The default of windows in processing time. (Flink ``ProcessingTimeTrigger``.)"""

    def on_record(self, record: object, timestamp: int | None, ctx: TriggerContext) -> TriggerResult:
        ctx.register_processing_timer(_last(ctx))
        return TriggerResult.CONTINUE

    def on_processing_time(self, timestamp: int, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if timestamp == _last(ctx) else TriggerResult.CONTINUE

    def merge(self, states: Sequence[Any]) -> Any:
        return None


class PurgingTrigger(WindowTrigger[IN], Generic[IN]):
    """Purges the window whenever ``trigger`` fires (Flink ``PurgingTrigger``).

    Raises:
        ConfigurationError: ``trigger`` is not a ``WindowTrigger``.
    """

    def __init__(self, trigger: WindowTrigger[IN]) -> None:
        if not isinstance(trigger, WindowTrigger):
            raise ConfigurationError(f"PurgingTrigger takes a WindowTrigger (an instance), not {trigger!r}.")
        self._trigger = trigger

    def on_record(self, record: IN, timestamp: int | None, ctx: TriggerContext) -> TriggerResult:
        return _purging(self._trigger.on_record(record, timestamp, ctx))

    def on_event_time(self, timestamp: int, ctx: TriggerContext) -> TriggerResult:
        return _purging(self._trigger.on_event_time(timestamp, ctx))

    def on_processing_time(self, timestamp: int, ctx: TriggerContext) -> TriggerResult:
        return _purging(self._trigger.on_processing_time(timestamp, ctx))

    def merge(self, states: Sequence[Any]) -> Any:
        return self._trigger.merge(states)

    @property
    def can_merge(self) -> bool:
        return self._trigger.can_merge

    @property
    def uses_processing_time(self) -> bool:
        return self._trigger.uses_processing_time

    def __str__(self) -> str:
        return f"PurgingTrigger of {self._trigger}"


def _last(ctx: TriggerContext) -> int:
    """The last ms of the window. The global window ends with the input."""
    return LONG_MAX if ctx.end_time == -1 else ctx.end_time - 1


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result is TriggerResult.FIRE else result
