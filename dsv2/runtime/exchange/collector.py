"""The collector that functions emit to, and the timestamp that emitted records inherit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.emitter import Emit, EmitStamped, Emitter
from dsv2.spi import StampingCollector, check_timestamp


class CurrentTimestamp:
    """The timestamp in ms, if any, of the record or timer that is being processed. Emitted records inherit it."""

    __slots__ = ("_collectors", "timestamp")

    def __init__(self) -> None:
        self.timestamp: int | None = None
        self._collectors: list[OutputCollector] = []

    def add(self, collector: OutputCollector) -> None:
        """Let records emitted to ``collector`` inherit the timestamp between ``begin`` and ``end``."""
        self._collectors.append(collector)

    def begin(self, timestamp: int | None = None) -> None:
        """Start processing records or timers with timestamps."""
        self.timestamp = timestamp
        for collector in self._collectors:
            collector.collect = collector.collect_inheriting

    def end(self) -> None:
        """Return to processing records without timestamps."""
        self.timestamp = None
        for collector in self._collectors:
            collector.collect = collector.collect_plain


class OutputCollector(StampingCollector):
    """The ``Collector`` of user functions.

    ``collect`` is bound to one of two functions, so that records without timestamps do not pay for timestamps.
    """

    __slots__ = (
        "collect",
        "collect_and_overwrite_timestamp",
        "collect_batch",
        "collect_inheriting",
        "collect_plain",
        "collect_stamped",
        "emit_batch",
    )

    def __init__(self, emitter: Emitter, current: CurrentTimestamp) -> None:
        emit_stamped = emitter.emit_stamped

        def inherit(record: Any) -> None:
            emit_stamped(record, current.timestamp)

        def overwrite(record: Any, timestamp: int) -> None:
            check_timestamp(timestamp)
            emit_stamped(record, timestamp)

        self.collect: Emit = emitter.emit
        self.collect_plain: Emit = emitter.emit
        self.collect_inheriting: Emit = inherit
        self.collect_and_overwrite_timestamp = overwrite
        self.collect_stamped: EmitStamped = emit_stamped
        self.emit_batch = None if emitter.checks_records else emitter.emit_batch
        self.collect_batch: Callable[..., None]  # only set for columnar functions
        current.add(self)


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
