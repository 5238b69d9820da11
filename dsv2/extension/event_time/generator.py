"""Functions that assign timestamps and emit event-time watermarks (Flink ``EventTimeWatermarkGenerator``).

A watermark ``t`` declares that no more records with timestamps up to ``t`` will arrive. So it is the greatest timestamp
minus the out-of-order time minus 1 ms: another record with the greatest timestamp is not late. (Flink's generator does
not subtract 1 ms and loses such records.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, Final, Generic, Self, TypeAlias

from dsv2.base.callables import takes
from dsv2.base.columnar import column_of
from dsv2.base.type_variables import T
from dsv2.checks.arguments import as_milliseconds
from dsv2.errors import ConfigurationError
from dsv2.extension.event_time import declarations
from dsv2.functions.one_input import OneInputStreamProcessFunction, PassingFunction
from dsv2.model.context import Collector, NonPartitionedContext, PartitionedContext, WatermarkManager
from dsv2.model.record_batch import RecordBatch
from dsv2.sources import WatermarkStrategy
from dsv2.spi import BatchFunction, EmitBatch, FailedRecordError, TickingFunction, greatest_timestamp
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult
from dsv2.watermark.event_time import EVENT_TIME, LONG_MAX, LONG_MIN, USE_PROCESSING_TIME

EventTimeExtractor: TypeAlias = Callable[[T], int]
"""Returns the event time of a record, in ms since the epoch."""

REPLACED: Final = frozenset((EVENT_TIME, USE_PROCESSING_TIME))
"""The watermarks from upstream that a generator does not pass on (Flink ``TimestampsAndWatermarksOperator``)."""
_DEFAULT_INTERVAL = timedelta(milliseconds=200)  # Flink's pipeline.auto-watermark-interval


class Mode(Enum):
    """The moments at which a generator emits watermarks."""

    NO_WATERMARK = "none"
    PERIODIC = "periodic"
    PER_EVENT = "per event"


class WatermarkStrategyBuilder(Generic[T]):
    """Builds the watermark strategy of a source that assigns timestamps itself. A later call replaces an earlier one.

    Create one with ``EventTimeExtension.new_watermark_strategy_builder``.
    """

    def __init__(self) -> None:
        self._extract: EventTimeExtractor[T] | None = None
        self._mode = Mode.PERIODIC
        self._interval = as_milliseconds(_DEFAULT_INTERVAL, "interval")
        self._idle_after = 0
        self._slack = 0

    def with_idleness(self, idleness: timedelta) -> Self:
        """Set after how long without records a subtask is idle.

        Args:
            idleness: The duration by the wall clock. 0 (default): never idle.

        Raises:
            ConfigurationError: ``idleness`` is not a duration, or is negative.
        """
        self._idle_after = as_milliseconds(idleness, "idleness", at_least=0)
        return self

    def with_max_out_of_order_time(self, out_of_order: timedelta) -> Self:
        """Set how far the timestamp of a record may be behind the greatest one without the record being late.

        Args:
            out_of_order: The maximum delay. Default: 0.

        Raises:
            ConfigurationError: ``out_of_order`` is not a duration, or is negative.
        """
        self._slack = as_milliseconds(out_of_order, "out_of_order", at_least=0)
        return self

    def no_watermark(self) -> Self:
        """Only assign timestamps. Event time follows the wall clock, so that receivers do not wait for it.

        (FLIP-326: a watermark ``(MIN_VALUE, true)``. Flink 2.3 emits nothing and holds event time back forever.)
        """
        self._mode = Mode.NO_WATERMARK
        return self

    def periodic_watermark(self, interval: timedelta = _DEFAULT_INTERVAL) -> Self:
        """Emit watermarks periodically. This is the default.

        Args:
            interval: The interval by the wall clock, at least 1 ms. Default: 200 ms. There is at most one watermark in
                a micro-batch.

        Raises:
            ConfigurationError: ``interval`` is not a duration, or is below 1 ms.
        """
        self._interval = as_milliseconds(interval, "interval", at_least=1)
        self._mode = Mode.PERIODIC
        return self

    def per_event_watermark(self) -> Self:
        """Emit a watermark after every record that advances event time."""
        self._mode = Mode.PER_EVENT
        return self

    def build_as_watermark_strategy(self) -> WatermarkStrategy[T]:
        """Build the strategy for ``from_source(..., watermarks=...)``.

        The readers track the event time of each split and combine it. Periodic watermarks are emitted once per
        micro-batch.
        """
        return WatermarkStrategy(
            self._extract,
            behind_ms=self._slack + 1,
            idle_after_ms=self._idle_after,
            emits=self._mode is not Mode.NO_WATERMARK,
            per_event=self._mode is Mode.PER_EVENT,
            declarations=_declared(self._mode, self._idle_after),
        )


class EventTimeWatermarkGeneratorBuilder(WatermarkStrategyBuilder[T], Generic[T]):
    """Builds a generator that extracts timestamps from the records.

    Create one with ``EventTimeExtension.new_watermark_generator_builder``.
    """

    def __init__(self, extract_timestamp: EventTimeExtractor[T]) -> None:
        if not takes(extract_timestamp, 1):
            raise ConfigurationError(f"extract_timestamp must be a callable (record) -> ms, not {extract_timestamp!r}.")
        super().__init__()
        self._extract: EventTimeExtractor[T] = extract_timestamp

    def build_as_process_function(self) -> WatermarkGenerator[T]:
        """Build the generator for ``process``."""
        return WatermarkGenerator(self._extract, self._mode, self._interval, self._idle_after, self._slack)


class WatermarkGenerator(
    OneInputStreamProcessFunction[T, T], PassingFunction[T], BatchFunction, TickingFunction, Generic[T]
):
    """The generator that the builder creates. ``interval``, ``idle_after`` (0: never) and ``slack`` are in ms.

    It replaces event time from upstream. (Flink's DataStream V2 passes that on as well, which makes records late.)

    Its fields, including the greatest timestamp, are checkpointed. (Flink's generator starts over at a restart.)
    """

    passes_records = True

    def __init__(self, extract: EventTimeExtractor[T], mode: Mode, interval: int, idle_after: int, slack: int) -> None:
        self._extract = extract
        self._mode = mode
        self._interval = interval
        self._idle_after = idle_after
        self._behind = slack + 1
        self._per_event = mode is Mode.PER_EVENT
        self._periodic = mode is Mode.PERIODIC
        self._next: int | None = None  # the watermark for the records so far
        self._last: int | None = None  # the watermark emitted last
        self._due: int | None = None  # when the next periodic watermark may be emitted
        self._idle = False
        self._active_since_tick = False
        self._last_active: int | None = None

    @property
    def idle_after_ms(self) -> int | None:
        """After how many ms without records a subtask is idle. 0: never. None: it emits no event time."""
        return None if self._mode is Mode.NO_WATERMARK else self._idle_after

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return _declared(self._mode, self._idle_after)

    def open(self, ctx: NonPartitionedContext[T]) -> None:
        if self._mode is Mode.NO_WATERMARK:
            ctx.watermark_manager.emit_watermark(declarations.USE_PROCESSING_TIME.new_watermark(True))

    def process_record(self, record: T, output: Collector[T], ctx: PartitionedContext[T]) -> None:
        timestamp = self._extract(record)
        if not self._active_since_tick:
            self._become_active(ctx.non_partitioned_context)
        output.collect_and_overwrite_timestamp(record, timestamp)
        if self._moves(timestamp) and self._per_event:
            self._emit(ctx.non_partitioned_context.watermark_manager)

    def on_watermark(
        self, watermark: Watermark, output: Collector[T], ctx: NonPartitionedContext[T]
    ) -> WatermarkHandlingResult:
        # Event time from upstream belongs to other timestamps: records with those of this generator may be behind it.
        is_end = watermark.value == LONG_MAX
        replaces = watermark.identifier in REPLACED and not is_end
        return WatermarkHandlingResult.POLL if replaces else WatermarkHandlingResult.PEEK

    @property
    def takes_batches(self) -> bool:
        # Otherwise watermarks are emitted between records.
        return super().takes_batches and not self._per_event and not self._idle_after

    @property
    def keeps_within_portions(self) -> bool:
        # Receivers ignore a watermark that is less than an earlier one.
        return type(self) is WatermarkGenerator and self.takes_batches and self._periodic

    def end_portion(self, watermarks: WatermarkManager) -> None:
        self._emit(watermarks)

    def process_record_batch(self, batch: RecordBatch[T], emit: EmitBatch) -> None:
        records = batch.records
        if (column := column_of(records, self._extract)) is not None:
            self._moves(column.greatest)
            emit(RecordBatch(records, column))
            return
        extract, record = self._extract, None
        stamps: list[int | None] = []
        append = stamps.append
        try:
            for record in records:
                append(extract(record))
        except BaseException as error:
            raise FailedRecordError(record) from error
        if stamps:
            self._moves(greatest_timestamp(records, stamps))
        emit(RecordBatch(records, stamps))

    def redistribute_fields(self, parts: Sequence[Mapping[str, Any]], parallelism: int) -> list[dict[str, Any]]:
        """Let new subtasks continue with what all old ones have reached."""
        active = [part["_last_active"] for part in parts if part.get("_last_active") is not None]
        return [
            {
                "_next": _least(parts, "_next"),
                "_last": _least(parts, "_last"),
                "_due": _least(parts, "_due"),
                "_idle": all(part.get("_idle", False) for part in parts),
                "_active_since_tick": any(part.get("_active_since_tick", False) for part in parts),
                "_last_active": max(active, default=None),
            }
        ] * parallelism

    def dsv2_uses_processing_timers(self) -> bool:
        return self._periodic or self._idle_after > 0

    def tick(self, now_ms: int, watermarks: WatermarkManager) -> None:
        falls_idle = self._falls_idle(now_ms)
        if self._periodic and (falls_idle or self._due is None or now_ms >= self._due) and self._emit(watermarks):
            self._due = now_ms + self._interval
        if falls_idle:
            # After the last watermark, because receivers ignore those of idle subtasks. (Flink emits it later.)
            self._idle = True
            watermarks.emit_watermark(declarations.IDLE_STATUS.new_watermark(True))

    def next_tick(self) -> int | None:
        times = []
        if self._periodic and self._due is not None and self._next != self._last:
            times.append(self._due)
        if self._idle_after and not self._idle and self._last_active is not None:
            times.append(self._last_active + self._idle_after)
        return min(times, default=None)

    def _falls_idle(self, now_ms: int) -> bool:
        if not self._idle_after or self._idle:
            return False
        if self._active_since_tick or self._last_active is None:
            self._last_active = now_ms
            self._active_since_tick = False
        return now_ms - self._last_active >= self._idle_after

    def _become_active(self, ctx: NonPartitionedContext[T]) -> None:
        self._active_since_tick = True
        if self._idle:
            self._idle = False
            ctx.watermark_manager.emit_watermark(declarations.IDLE_STATUS.new_watermark(False))

    def _moves(self, timestamp: int) -> bool:
        watermark = timestamp - self._behind
        if self._next is not None and watermark <= self._next:
            return False
        self._next = watermark
        return True

    def _emit(self, watermarks: WatermarkManager) -> bool:
        if self._next is None or self._next == self._last or self._next < LONG_MIN:
            return False
        self._last = self._next
        watermarks.emit_watermark(declarations.EVENT_TIME.new_watermark(self._next))
        return True


def _least(parts: Sequence[Mapping[str, Any]], name: str) -> int | None:
    """The least value of a field, or None if a subtask has none."""
    values = [part.get(name) for part in parts]
    known = [value for value in values if value is not None]
    return min(known) if len(known) == len(values) else None


def _declared(mode: Mode, idle_after: int) -> tuple[WatermarkDeclaration, ...]:
    of_time = declarations.USE_PROCESSING_TIME if mode is Mode.NO_WATERMARK else declarations.EVENT_TIME
    return (of_time, declarations.IDLE_STATUS) if idle_after else (of_time,)
