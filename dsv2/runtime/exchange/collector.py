"""The collector that functions see, and the timestamp that what they emit inherits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsv2.runtime.exchange.emitter import Emit, EmitStamped, Emitter
from dsv2.spi import StampingCollector, check_timestamp

__all__ = ("CurrentTimestamp", "OutputCollector")


class CurrentTimestamp:
    """The timestamp of the record or timer that is being processed, in ms, if it has one. Collectors inherit it."""

    __slots__ = ("_collectors", "timestamp")

    def __init__(self) -> None:
        self.timestamp: int | None = None
        self._collectors: list[OutputCollector] = []

    def add(self, collector: OutputCollector) -> None:
        """Let what ``collector`` takes inherit the timestamp, between ``begin`` and ``end``."""
        self._collectors.append(collector)

    def begin(self, timestamp: int | None = None) -> None:
        """Records or timers with timestamps are processed from now on."""
        self.timestamp = timestamp
        for collector in self._collectors:
            collector.collect = collector.collect_inheriting

    def end(self) -> None:
        """Records without timestamps are processed from now on."""
        self.timestamp = None
        for collector in self._collectors:
            collector.collect = collector.collect_plain


class OutputCollector(StampingCollector):
    """What user functions see as ``Collector``: nothing but the functions that take a record.

    ``collect`` is one of two: most records have no timestamp, and pay nothing for it.
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
        self.collect_batch: Callable[..., None]  # of functions that have it
        current.add(self)
