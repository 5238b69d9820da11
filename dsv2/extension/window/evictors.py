"""Evictors, which remove records from a window when it fires (Flink ``Evictor``)."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Generic, NamedTuple

from dsv2.base.type_variables import IN
from dsv2.checks.arguments import as_milliseconds, check_whole_number
from dsv2.extension.window.contexts import WindowContext


class TimedRecord(NamedTuple, Generic[IN]):
    """A record in a window, and its timestamp in ms; None if it has none."""

    record: IN
    timestamp: int | None


class WindowEvictor(ABC, Generic[IN]):
    """Chooses the records that stay in a window. Pass it to ``WindowStrategy.with_evictor``.

    An evictor has no fields of its own that change. Records that it removes do not come back.
    """

    def evict_before(self, records: Sequence[TimedRecord[IN]], window: WindowContext) -> Sequence[TimedRecord[IN]]:
        """Return those of ``records`` that stay, in order. Called before ``on_trigger``. By default all stay."""
        return records

    def evict_after(self, records: Sequence[TimedRecord[IN]], window: WindowContext) -> Sequence[TimedRecord[IN]]:
        """As ``evict_before``, called after ``on_trigger``."""
        return records


class _BuiltInEvictor(WindowEvictor[Any]):
    """An evictor that removes the same records before or after ``on_trigger``."""

    def __init__(self, after: bool) -> None:
        self._after = after

    def evict_before(self, records: Sequence[TimedRecord[Any]], window: WindowContext) -> Sequence[TimedRecord[Any]]:
        return records if self._after else self._kept(records)

    def evict_after(self, records: Sequence[TimedRecord[Any]], window: WindowContext) -> Sequence[TimedRecord[Any]]:
        return self._kept(records) if self._after else records

    def _kept(self, records: Sequence[TimedRecord[Any]]) -> Sequence[TimedRecord[Any]]:
        raise NotImplementedError


class CountEvictor(_BuiltInEvictor):
    """Keeps the last ``count`` records of a window (Flink ``CountEvictor``).

    Args:
        count: The number of records, at least 1.
        after: Whether records are removed after ``on_trigger``. Default: before it.

    Raises:
        ConfigurationError: ``count`` is invalid.
    """

    def __init__(self, count: int, *, after: bool = False) -> None:
        check_whole_number(count, "CountEvictor: count")
        super().__init__(after)
        self._count = count

    def _kept(self, records: Sequence[TimedRecord[Any]]) -> Sequence[TimedRecord[Any]]:
        return records[-self._count :]


class TimeEvictor(_BuiltInEvictor):
    """Keeps the records that are less than ``size`` older than the newest one (Flink ``TimeEvictor``).

    If the first record has no timestamp, all stay.

    Args:
        size: The duration, at least 1 ms.
        after: As for ``CountEvictor``.

    Raises:
        ConfigurationError: ``size`` is invalid.
    """

    def __init__(self, size: timedelta, *, after: bool = False) -> None:
        self._size = as_milliseconds(size, "TimeEvictor: size", at_least=1)
        super().__init__(after)

    def _kept(self, records: Sequence[TimedRecord[Any]]) -> Sequence[TimedRecord[Any]]:
        if not records or records[0].timestamp is None:
            return records
        times = [one.timestamp for one in records if one.timestamp is not None]
        return [one for one in records if one.timestamp is not None and one.timestamp > max(times) - self._size]
