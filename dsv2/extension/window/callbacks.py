"""A window function's callbacks, with everything that they are given but the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dsv2.extension.window.hand import WindowInHand
from dsv2.functions import FailedCallbackError, ProcessFunction
from dsv2.watermark.event_time import LONG_MAX

__all__ = ("Callbacks", "Shape")


@dataclass(frozen=True, slots=True)
class Shape:
    """``base``: the class that window functions of this shape extend. The other two: names of callbacks, by input."""

    base: type[ProcessFunction]
    on_record: tuple[str, ...]
    on_late_record: tuple[str, ...]


class _StampingCollector:
    """Gives what is collected the timestamp of a window."""

    __slots__ = ("collect_and_overwrite_timestamp", "timestamp")

    def __init__(self, collect_stamped: Callable[[Any, int | None], None]) -> None:
        self.collect_and_overwrite_timestamp = collect_stamped
        self.timestamp: int | None = None

    def collect(self, record: Any) -> None:
        self.collect_and_overwrite_timestamp(record, self.timestamp)


class Callbacks:
    """Calls the callbacks of ``function``. Raises ``FailedCallbackError`` from what they raise."""

    def __init__(self, function: Any, shape: Shape, outputs: Sequence[Any], ctx: Any, window: WindowInHand) -> None:
        self._window = window
        self._ctx = ctx
        self._args = (*outputs, ctx)
        self._stamping = tuple(_StampingCollector(output.collect_and_overwrite_timestamp) for output in outputs)
        self._window_args = (*self._stamping, ctx, window)
        self._record_args = (*outputs, ctx, window)
        self._shape = shape
        self._on_record = [getattr(function, name) for name in shape.on_record]
        self._on_late_record = [getattr(function, name) for name in shape.on_late_record]
        self._on_trigger = function.on_trigger
        self._on_clear = function.on_clear
        self.only_keeps = tuple(not _overrides(function, shape.base, name) for name in shape.on_record)
        """For each input, whether ``on_record`` does nothing but to put the record into the window."""
        self.clears = _overrides(function, shape.base, "on_clear")
        """Whether there is anything in ``on_clear``."""

    def on_record(self, record: Any, side: int) -> None:
        """A record of the input ``side`` for the window in hand."""
        try:
            self._on_record[side](record, *self._record_args)
        except Exception as error:
            raise FailedCallbackError(self._shape.on_record[side]) from error

    def on_trigger(self, end: int) -> None:
        """The window in hand, which ends before ``end``, fires."""
        self._stamp(end)
        try:
            self._on_trigger(*self._window_args)
        except Exception as error:
            raise FailedCallbackError("on_trigger") from error

    def on_clear(self, end: int) -> None:
        """The window in hand, which ends before ``end``, is removed."""
        self._stamp(end)
        try:
            self._on_clear(*self._window_args)
        except Exception as error:
            raise FailedCallbackError("on_clear") from error

    def on_late_record(self, record: Any, side: int) -> None:
        """A record of the input ``side`` has come too late for all of its windows."""
        self._window.put_down()
        try:
            self._on_late_record[side](record, *self._args)
        except Exception as error:
            raise FailedCallbackError(self._shape.on_late_record[side]) from error

    def _stamp(self, end: int) -> None:
        timestamp: int | None = end - 1
        if end > LONG_MAX:  # it has no end
            timestamp = self._ctx.timestamp
            if timestamp == LONG_MAX:
                timestamp = None  # the end of the input is no time of day
        for output in self._stamping:
            output.timestamp = timestamp


def _overrides(function: object, base: type, name: str) -> bool:
    return getattr(type(function), name) is not getattr(base, name)
