"""How records are put into windows (Flink ``WindowStrategy``, FLIP-501): plain values, checked when they are made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import Literal, Self, TypeAlias

from dsv2.arguments import as_choice, as_milliseconds, is_whole_number
from dsv2.errors import ConfigurationError

__all__ = (
    "CountWindowStrategy",
    "EarlyFiring",
    "GlobalWindowStrategy",
    "SessionWindowStrategy",
    "SlidingWindowStrategy",
    "TimeType",
    "TimeTypeChoice",
    "WindowStrategy",
)

_ZERO = timedelta(0)


class TimeType(Enum):
    """Which time windows follow.

    ``EVENT``: the timestamps of the records, and the watermarks. ``PROCESSING``: the wall clock.
    """

    EVENT = "event"
    PROCESSING = "processing"


TimeTypeChoice: TypeAlias = TimeType | Literal["event", "processing"]


@dataclass(frozen=True, slots=True)
class EarlyFiring:
    """Fires a window every ``interval`` ms before its time, if it has got records since."""

    interval: int
    time_type: TimeType


@dataclass(frozen=True)
class WindowStrategy(ABC):
    """Says which windows there are. Made by its static methods, and given to ``window`` and its kin.

    All raise ``ConfigurationError`` for a duration, a time type or a number that cannot be used. Durations are whole
    milliseconds.
    """

    time_type: TimeType = field(default=TimeType.EVENT, kw_only=True)
    """What windows end by. Those that do not end by time follow event time, which ends when all input has."""
    early_firing: EarlyFiring | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def layout(self) -> str:
        """What must be the same for state that was written before to be understood."""

    @staticmethod
    def global_() -> GlobalWindowStrategy:
        """One window for everything, which fires at the end of the input."""
        return GlobalWindowStrategy()

    @staticmethod
    def tumbling(
        size: timedelta,
        time_type: TimeTypeChoice = TimeType.EVENT,
        allowed_lateness: timedelta = _ZERO,
        *,
        offset: timedelta = _ZERO,
    ) -> SlidingWindowStrategy:
        """Windows of ``size``, one after the other: ``[n * size + offset, (n + 1) * size + offset)``.

        ``allowed_lateness`` (event time only): how long a window is kept behind the watermark; each record that comes
        for it meanwhile fires it again. ``offset`` moves the windows, for days that begin elsewhere than in Greenwich.
        """
        return _sliding(size, size, time_type, allowed_lateness, offset)

    @staticmethod
    def sliding(
        size: timedelta,
        slide: timedelta,
        time_type: TimeTypeChoice = TimeType.EVENT,
        allowed_lateness: timedelta = _ZERO,
        *,
        offset: timedelta = _ZERO,
    ) -> SlidingWindowStrategy:
        """Windows of ``size`` that begin every ``slide``: a record is in several, or in none where there are gaps."""
        return _sliding(size, slide, time_type, allowed_lateness, offset)

    @staticmethod
    def session(gap: timedelta, time_type: TimeTypeChoice = TimeType.EVENT) -> SessionWindowStrategy:
        """Windows of records that follow each other by at most ``gap``; a record between two makes them one."""
        return SessionWindowStrategy(as_milliseconds(gap, "gap", at_least=1), time_type=_time_type(time_type))

    @staticmethod
    def count(size: int, slide: int | None = None) -> CountWindowStrategy:
        """Windows of ``size`` records of a key, in the order they come; one begins every ``slide`` records.

        Without ``slide`` one follows the other. Those that are not full when the input ends fire then. (Flink's
        DataStream V2 has none of these.)
        """
        slide = size if slide is None else slide
        for what, number in (("size", size), ("slide", slide)):
            if not is_whole_number(number) or number < 1:
                raise ConfigurationError(f"The {what} of count windows is a number of records, not {number!r}.")
        return CountWindowStrategy(size, slide)

    def with_early_firing(self, interval: timedelta, time_type: TimeTypeChoice = TimeType.PROCESSING) -> Self:
        """The same windows, which also fire before their time: at multiples of ``interval``, if they got records since.

        ``time_type`` says by which time the interval counts; windows of processing time know only that one.
        """
        milliseconds = as_milliseconds(interval, "interval", at_least=1)
        counted_in = _time_type(time_type)
        if counted_in is TimeType.EVENT and self.time_type is TimeType.PROCESSING:
            raise ConfigurationError("Windows of processing time cannot fire early by event time.")
        return replace(self, early_firing=EarlyFiring(milliseconds, counted_in))


@dataclass(frozen=True)
class GlobalWindowStrategy(WindowStrategy):
    """``WindowStrategy.global_()``."""

    @property
    def layout(self) -> str:
        return "the global window"


@dataclass(frozen=True)
class SlidingWindowStrategy(WindowStrategy):
    """``WindowStrategy.sliding(...)``, and ``tumbling(...)``: windows that slide by their size. All in ms."""

    size: int
    slide: int
    allowed_lateness: int
    offset: int

    @property
    def layout(self) -> str:
        shape = f"windows of {self.size} ms every {self.slide} ms from {self.offset} ms"
        return f"{shape} in {self.time_type.value} time, {self.allowed_lateness} ms late"


@dataclass(frozen=True)
class SessionWindowStrategy(WindowStrategy):
    """``WindowStrategy.session(...)``; ``gap`` in ms."""

    gap: int

    @property
    def layout(self) -> str:
        return f"sessions in {self.time_type.value} time"  # each knows its end: the gap may change


@dataclass(frozen=True)
class CountWindowStrategy(WindowStrategy):
    """``WindowStrategy.count(...)``, in records."""

    size: int
    slide: int

    @property
    def layout(self) -> str:
        return f"windows of {self.size} records every {self.slide}"


def _sliding(
    size: timedelta, slide: timedelta, time_type: TimeTypeChoice, lateness: timedelta, offset: timedelta
) -> SlidingWindowStrategy:
    length = as_milliseconds(size, "size", at_least=1)
    every = as_milliseconds(slide, "slide", at_least=1)
    late = as_milliseconds(lateness, "allowed_lateness", at_least=0)
    chosen = _time_type(time_type)
    return SlidingWindowStrategy(
        size=length,
        slide=every,
        time_type=chosen,
        allowed_lateness=late if chosen is TimeType.EVENT else 0,  # by the wall clock nothing is late
        offset=as_milliseconds(offset, "offset") % every,
    )


def _time_type(time_type: TimeTypeChoice) -> TimeType:
    return as_choice(TimeType, time_type, "time_type")
