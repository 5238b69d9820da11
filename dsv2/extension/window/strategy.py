"""Window strategies: how records are assigned to windows (Flink ``WindowStrategy``, FLIP-501)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import Any, Generic, Literal, Self, TypeAlias

from dsv2.base.callables import takes
from dsv2.base.type_variables import IN_contra
from dsv2.checks.arguments import as_choice, as_milliseconds, is_whole_number
from dsv2.errors import ConfigurationError
from dsv2.extension.window.evictors import WindowEvictor
from dsv2.extension.window.triggers import WindowTrigger

_ZERO = timedelta(0)


class TimeType(Enum):
    """The time that windows are based on.

    ``EVENT``: the timestamps of the records and event-time watermarks. ``PROCESSING``: the wall clock.
    """

    EVENT = "event"
    PROCESSING = "processing"


TimeTypeChoice: TypeAlias = TimeType | Literal["event", "processing"]


class TimestampCombiner(Enum):
    """The timestamp of the results of a window (Beam ``TimestampCombiner``).

    ``END``: its last ms. ``EARLIEST`` and ``LATEST``: the least and the greatest timestamp of its records.
    """

    END = "end"
    EARLIEST = "earliest"
    LATEST = "latest"


TimestampCombinerChoice: TypeAlias = TimestampCombiner | Literal["end", "earliest", "latest"]


@dataclass(frozen=True, slots=True)
class EarlyFiring:
    """Fires a window every ``interval`` ms before its end if it has received records since."""

    interval: int
    time_type: TimeType


@dataclass(frozen=True)
class WindowStrategy(ABC):
    """The assignment of records to windows.

    Create a strategy with one of the static methods and pass it to ``window`` of a stream. All methods
    raise ``ConfigurationError`` for an invalid duration, time type or number. Durations are whole milliseconds.
    """

    time_type: TimeType = field(default=TimeType.EVENT, kw_only=True)
    """The time that ends windows. Global and count windows use event time, which ends with the input."""
    early_firing: EarlyFiring | None = field(default=None, kw_only=True)
    trigger: WindowTrigger[Any] | None = field(default=None, kw_only=True)
    timestamps: TimestampCombiner = field(default=TimestampCombiner.END, kw_only=True)
    evictor: WindowEvictor[Any] | None = field(default=None, kw_only=True)

    @property
    def written_by_user(self) -> Collection[object]:
        """The parts of the strategy that the program implements."""
        return [part for part in (self.trigger, self.evictor) if part is not None]

    @property
    @abstractmethod
    def layout(self) -> str:
        """The state layout in the checkpoint, which must not change between restarts."""

    @staticmethod
    def global_() -> GlobalWindowStrategy:
        """One window for all records. It fires at the end of the input."""
        return GlobalWindowStrategy()

    @staticmethod
    def tumbling(
        size: timedelta,
        time_type: TimeTypeChoice = TimeType.EVENT,
        *,
        offset: timedelta = _ZERO,
    ) -> SlidingWindowStrategy:
        """Tumbling windows: ``[n * size + offset, (n + 1) * size + offset)``.

        Args:
            size: The size of the windows, at least 1 ms.
            time_type: Event time (default) or processing time.
            offset: Shifts the windows relative to the epoch, for example to days in a time zone. Default: 0.
        """
        return _sliding(size, size, time_type, offset)

    @staticmethod
    def sliding(
        size: timedelta,
        slide: timedelta,
        time_type: TimeTypeChoice = TimeType.EVENT,
        *,
        offset: timedelta = _ZERO,
    ) -> SlidingWindowStrategy:
        """Sliding windows of ``size`` that start every ``slide``.

        A record may be in several windows, or in none if ``slide`` exceeds ``size``. The other parameters are those of
        ``tumbling``.
        """
        return _sliding(size, slide, time_type, offset)

    @staticmethod
    def cumulate(
        step: timedelta,
        size: timedelta,
        time_type: TimeTypeChoice = TimeType.EVENT,
        *,
        offset: timedelta = _ZERO,
    ) -> CumulatingWindowStrategy:
        """Windows that start together and end one after the other, as Flink SQL's ``CUMULATE``.

        Every ``size``, windows of one ``step``, two steps and so on up to ``size`` start. A record is in all those that
        end after it.

        Args:
            step: The distance of the ends of two windows.
            size: The size of the last window, a multiple of ``step``.
            time_type: As for ``tumbling``.
            offset: Likewise.
        """
        length, every = as_milliseconds(size, "size", at_least=1), as_milliseconds(step, "step", at_least=1)
        if length % every:
            raise ConfigurationError(f"The size of cumulating windows must be a multiple of their step, not {size}.")
        return CumulatingWindowStrategy(
            size=every,
            slide=every,
            time_type=_time_type(time_type),
            offset=as_milliseconds(offset, "offset") % length,
            cycle=length,
        )

    @staticmethod
    def session(
        gap: timedelta | Callable[[Any], int], time_type: TimeTypeChoice = TimeType.EVENT
    ) -> SessionWindowStrategy:
        """Session windows: records with gaps below ``gap``. A record between two sessions merges them.

        A record exactly ``gap`` after the last one belongs to the session unless it has fired (as in Flink).

        Args:
            gap: The gap, at least 1 ms; or a function that is called with each record and returns in ms by which time
                after it the session ends (Flink ``SessionWindowTimeGapExtractor``).
            time_type: As for ``tumbling``.
        """
        if isinstance(gap, timedelta) or not takes(gap, 1):
            gap_or_function: int | Callable[[Any], int] = as_milliseconds(gap, "gap", at_least=1)  # type: ignore[arg-type]
        else:
            gap_or_function = gap
        return SessionWindowStrategy(gap_or_function, time_type=_time_type(time_type))

    @staticmethod
    def of_records(difference: timedelta) -> RecordWindowStrategy:
        """Windows that are defined by the records, in event time (Kafka Streams ``SlidingWindows``).

        Their records are at most ``difference`` apart. One ends with each record, and one begins 1 ms after it, if it
        has records. So there is a window for each set of records that a sliding window of this size can have.

        Args:
            difference: The greatest difference of timestamps, at least 0.
        """
        return RecordWindowStrategy(as_milliseconds(difference, "difference", at_least=0))

    @staticmethod
    def assigned_by(
        assigner: WindowAssigner[Any], time_type: TimeTypeChoice = TimeType.EVENT
    ) -> AssignedWindowStrategy:
        """Windows of the program.

        Args:
            assigner: Assigns each record to windows.
            time_type: As for ``tumbling``.
        """
        if not isinstance(assigner, WindowAssigner):
            raise ConfigurationError(f"assigned_by takes a WindowAssigner (an instance), not {assigner!r}.")
        return AssignedWindowStrategy(assigner, time_type=_time_type(time_type))

    @staticmethod
    def count(size: int, slide: int | None = None) -> CountWindowStrategy:
        """Count windows of a key, in the order of arrival. Incomplete windows fire at the end of the input.

        Args:
            size: Number of records in a window, at least 1.
            slide: Number of records after which a new window starts. None (default): ``size``.

        (Flink's DataStream V2 has no count windows.)
        """
        slide = size if slide is None else slide
        for what, number in (("size", size), ("slide", slide)):
            if not is_whole_number(number) or number < 1:
                raise ConfigurationError(f"The {what} of count windows must be a number of records, not {number!r}.")
        return CountWindowStrategy(size, slide)

    def with_early_firing(self, interval: timedelta, time_type: TimeTypeChoice = TimeType.PROCESSING) -> Self:
        """The same windows with early firing at multiples of ``interval``, if they have received records since.

        Args:
            interval: The interval, at least 1 ms.
            time_type: The time of the interval. Default: processing time. Windows of processing time cannot use event
                time.
        """
        milliseconds = as_milliseconds(interval, "interval", at_least=1)
        counted_in = _time_type(time_type)
        if counted_in is TimeType.EVENT and self.time_type is TimeType.PROCESSING:
            raise ConfigurationError("Windows in processing time cannot fire early in event time.")
        if self.trigger is not None:
            raise ConfigurationError("Windows with a trigger cannot fire early. Let the trigger register timers.")
        return replace(self, early_firing=EarlyFiring(milliseconds, counted_in))

    def with_trigger(self, trigger: WindowTrigger[Any]) -> Self:
        """The same windows, fired by ``trigger`` instead of their end (Flink ``WindowedStream.trigger``).

        The end of a window still removes it, after the allowed lateness, without firing it. Records that have not been
        fired are then dropped.

        Args:
            trigger: For count windows there is none. Sessions require one that can merge.
        """
        if not isinstance(trigger, WindowTrigger):
            raise ConfigurationError(f"with_trigger takes a WindowTrigger (an instance), not {trigger!r}.")
        if isinstance(self, CountWindowStrategy):
            raise ConfigurationError(
                "Count windows have their own trigger. Use WindowStrategy.global_().with_trigger(CountTrigger(n))."
            )
        if isinstance(self, RecordWindowStrategy):
            raise ConfigurationError("Windows of records cannot have a trigger. They fire at their end.")
        if isinstance(self, SessionWindowStrategy) and not trigger.can_merge:
            raise ConfigurationError(f"{trigger} cannot be used for sessions, because it cannot merge.")
        if self.early_firing is not None:
            raise ConfigurationError("Windows that fire early cannot have a trigger. Let the trigger register timers.")
        return replace(self, trigger=trigger)

    def with_evictor(self, evictor: WindowEvictor[Any]) -> Self:
        """The same windows, from which ``evictor`` removes records when they fire (Flink ``WindowedStream.evictor``).

        It requires a window function with one input: windows that are aggregated or reduced have no records.
        """
        if not isinstance(evictor, WindowEvictor):
            raise ConfigurationError(f"with_evictor takes a WindowEvictor (an instance), not {evictor!r}.")
        if isinstance(self, RecordWindowStrategy):
            raise ConfigurationError("Windows of records cannot have an evictor: other windows need the records.")
        return replace(self, evictor=evictor)

    def with_timestamps(self, timestamps: TimestampCombinerChoice) -> Self:
        """The same windows, whose results have the timestamp of their end (the default) or of one of their records.

        Windows behind them may count results with earlier timestamps than the end as late.

        Args:
            timestamps: ``end``, ``earliest`` or ``latest``. The last two require windows in event time.
        """
        combiner = as_choice(TimestampCombiner, timestamps, "timestamps")
        if combiner is not TimestampCombiner.END and self.time_type is TimeType.PROCESSING:
            raise ConfigurationError("Results of windows in processing time have the timestamp of their end.")
        return replace(self, timestamps=combiner)


@dataclass(frozen=True)
class GlobalWindowStrategy(WindowStrategy):
    """The strategy of ``WindowStrategy.global_()``."""

    @property
    def layout(self) -> str:
        return "the global window"


@dataclass(frozen=True)
class TimedWindowStrategy(WindowStrategy):
    """Windows that end at a time."""

    allowed_lateness: int = field(default=0, kw_only=True)

    def with_allowed_lateness(self, duration: timedelta) -> Self:
        """The same windows, kept for ``duration`` after event time has passed their end (Flink ``allowedLateness``).

        Each record that arrives meanwhile fires its window again. It may also merge sessions that have fired.
        """
        if self.time_type is TimeType.PROCESSING:
            raise ConfigurationError("Windows in processing time have no late records.")
        return replace(self, allowed_lateness=as_milliseconds(duration, "allowed_lateness", at_least=0))


@dataclass(frozen=True)
class SlidingWindowStrategy(TimedWindowStrategy):
    """The strategy of ``WindowStrategy.sliding(...)`` and ``tumbling(...)``, whose slide is the size. All in ms.

    A window is identified by its slot, ``size`` before its end.
    """

    size: int
    slide: int
    offset: int

    @property
    def layout(self) -> str:
        shape = f"windows of {self.size} ms every {self.slide} ms from {self.offset} ms"
        return f"{shape} in {self.time_type.value} time, {self.allowed_lateness} ms late"

    def start_of(self, slot: int) -> int:
        """The start of a window."""
        return slot


@dataclass(frozen=True)
class CumulatingWindowStrategy(SlidingWindowStrategy):
    """The strategy of ``WindowStrategy.cumulate(...)``, in ms.

    A window is identified by the start of its last step: ``size`` and ``slide`` are the step. ``cycle`` is the size of
    the last window.
    """

    cycle: int = field(kw_only=True)

    @property
    def layout(self) -> str:
        shape = f"windows of up to {self.cycle} ms that cumulate every {self.slide} ms from {self.offset} ms"
        return f"{shape} in {self.time_type.value} time, {self.allowed_lateness} ms late"

    def start_of(self, slot: int) -> int:
        return slot - (slot - self.offset) % self.cycle


@dataclass(frozen=True)
class SessionWindowStrategy(TimedWindowStrategy):
    """The strategy of ``WindowStrategy.session(...)``. ``gap`` is in ms, or a function of the record."""

    gap: int | Callable[[Any], int]

    @property
    def written_by_user(self) -> Collection[object]:
        return super().written_by_user if isinstance(self.gap, int) else (*super().written_by_user, self.gap)

    @property
    def layout(self) -> str:
        # The end of each session is stored, so the gap may change.
        late = f", {self.allowed_lateness} ms late" if self.allowed_lateness else ""
        return f"sessions in {self.time_type.value} time{late}"


@dataclass(frozen=True)
class RecordWindowStrategy(TimedWindowStrategy):
    """The strategy of ``WindowStrategy.of_records(...)``. ``difference`` is in ms."""

    difference: int

    @property
    def layout(self) -> str:
        return f"windows of records up to {self.difference} ms apart, {self.allowed_lateness} ms late"


class WindowAssigner(ABC, Generic[IN_contra]):
    """Assigns records to windows. Pass it to ``WindowStrategy.assigned_by`` (Flink ``WindowAssigner``).

    An assigner has no fields of its own that change. Windows of a key with the same start and end are the same.
    """

    @abstractmethod
    def assign_windows(self, record: IN_contra, timestamp: int, /) -> Iterable[tuple[int, int]]:
        """Return the start and the exclusive end in ms of each window of a record.

        Args:
            record: The record.
            timestamp: Its timestamp in ms, or the time of the clock for windows in processing time.
        """


@dataclass(frozen=True)
class AssignedWindowStrategy(TimedWindowStrategy):
    """The strategy of ``WindowStrategy.assigned_by(...)``."""

    assigner: WindowAssigner[Any]

    @property
    def written_by_user(self) -> Collection[object]:
        return (*super().written_by_user, self.assigner)

    @property
    def layout(self) -> str:
        # The bounds of each window are stored, so the assigner may change.
        return f"windows of an assigner in {self.time_type.value} time, {self.allowed_lateness} ms late"


@dataclass(frozen=True)
class CountWindowStrategy(WindowStrategy):
    """The strategy of ``WindowStrategy.count(...)``, in records."""

    size: int
    slide: int

    @property
    def layout(self) -> str:
        return f"windows of {self.size} records every {self.slide}"


def _sliding(size: timedelta, slide: timedelta, time_type: TimeTypeChoice, offset: timedelta) -> SlidingWindowStrategy:
    length = as_milliseconds(size, "size", at_least=1)
    every = as_milliseconds(slide, "slide", at_least=1)
    return SlidingWindowStrategy(
        size=length,
        slide=every,
        time_type=_time_type(time_type),
        offset=as_milliseconds(offset, "offset") % every,
    )


def _time_type(time_type: TimeTypeChoice) -> TimeType:
    return as_choice(TimeType, time_type, "time_type")


def why_rows(strategy: WindowStrategy, *, aggregated: bool = False) -> str | None:
    """Return why the windows cannot be kept in columns; None if they can.

    ``aggregated``: Whether they have accumulators. Then they may also be sessions, or in processing time.
    """
    by_event, slides = strategy.time_type is TimeType.EVENT, isinstance(strategy, SlidingWindowStrategy)
    if not aggregated and not (by_event and slides):
        return "the windows are not tumbling or sliding windows in event time"
    if not slides and not (by_event and isinstance(strategy, SessionWindowStrategy)):
        return "the windows are not tumbling or sliding windows, or sessions in event time"
    late = isinstance(strategy, TimedWindowStrategy) and strategy.allowed_lateness
    if late or any(one is not None for one in (strategy.early_firing, strategy.trigger, strategy.evictor)):
        return "the windows have allowed lateness, early firing, a trigger or an evictor"
    if strategy.timestamps is not TimestampCombiner.END:
        return f"results have the {strategy.timestamps.value} timestamp of their records"
    return None
