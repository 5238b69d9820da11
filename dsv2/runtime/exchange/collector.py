"""The collector that functions emit to, and the timestamp that emitted records inherit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
