"""An output that holds what a callback emits until it is known whether the callback succeeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.emitter import Emitter


class HeldOutput:
    """The emissions of a callback to all outputs, in order."""

    __slots__ = ("_calls", "hold")

    def __init__(self) -> None:
        self._calls: list[tuple[Any, ...]] = []
        self.hold: Callable[[tuple[Any, ...]], None] = self._calls.append
        """Holds a call: the function and its arguments."""

    def release(self) -> None:
        """Make the held calls."""
        if self._calls:
            calls = self._calls[:]
            self._calls.clear()
            for emit, *arguments in calls:
                emit(*arguments)

    def discard(self) -> None:
        """Forget the held calls."""
        self._calls.clear()


class HeldEmitter(Emitter):
    """Holds records for ``inner``. Control elements of the operator itself do not pass through it."""

    __slots__ = ("_hold", "_inner")

    def __init__(self, inner: Emitter, held: HeldOutput) -> None:
        hold, inner_emit, inner_emit_stamped = held.hold, inner.emit, inner.emit_stamped
        super().__init__(
            lambda record: hold((inner_emit, record)),
            lambda record, timestamp: hold((inner_emit_stamped, record, timestamp)),
        )
        self._hold = hold
        self._inner = inner

    def emit_batch(self, batch: RecordBatch[Any]) -> None:
        self._hold((self._inner.emit_batch, batch))

    def control(self, kind: int, identifier: str, value: Any) -> None:
        self._hold((self._inner.control, kind, identifier, value))

    @property
    def records_sent(self) -> int:
        return self._inner.records_sent
