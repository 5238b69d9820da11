"""Runs a level as a ``transformWithState`` stage: a small blob per subtask, and its pages of keyed state in a map.

A page costs one call to the state store when it is read, and another one if it has changed. Other pages cost nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql import types as t
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from dsv2.errors import ConfigurationError
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.page_store import PageStores, in_entries
from runtime_spark.frames.layout import GROUP
from runtime_spark.frames.rows import ROW_SCHEMA
from runtime_spark.frames.state_history import JOURNAL, PAGES, SUBTASK, Journal
from runtime_spark.task.stage import run_slot

if TYPE_CHECKING:
    import pandas as pd


_BLOB = t.StructType([t.StructField("blob", t.BinaryType())])
_PAGE = t.StructType([t.StructField("map", t.StringType()), t.StructField("number", t.LongType())])
_NOW = "now_ms"


def check_map_state() -> None:
    """Raise ``ConfigurationError`` if a package that Spark requires for map state is missing."""
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        raise ConfigurationError(
            "StateLayout.MAP requires the package protobuf on the driver and on the workers. Install it with: "
            "pip install 'dsv2[map-state]'"
        )


def with_map_state(frames: DataFrame, packed: bytes, level: int, *, timed: bool) -> DataFrame:
    """Return ``frames`` after ``level`` (counted from 0). ``timed``: Whether the level has processing-time timers."""
    # Without timers Spark passes no time to the operator, so rows carry it. A repeated micro-batch has the same time.
    stamped = frames.withColumn(_NOW, F.unix_millis(F.current_timestamp()))
    return stamped.groupBy(GROUP).transformWithStateInPandas(
        MapStage(packed, level, timed=timed), ROW_SCHEMA, "append", "ProcessingTime" if timed else "None"
    )


class MapStage(StatefulProcessor):
    """Receives the rows and the timers of each slot from Spark."""

    def __init__(self, packed: bytes, level: int, *, timed: bool) -> None:
        self._packed = packed
        self._level = level
        self._timed = timed

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called once per partition and micro-batch, and by the driver."""
        self._handle = handle
        self._blob = handle.getValueState(SUBTASK, _BLOB)
        self._pages = handle.getMapState(PAGES, _PAGE, _BLOB)

    def handleInputRows(  # type: ignore[override]  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Process a slot that has rows."""
        first = next(rows)
        state = self._state(int(first[_NOW].iloc[0]))
        return run_slot(self._packed, self._level, int(key[0]), itertools.chain([first], rows), state)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Process a slot that has no rows, but whose timer has fired."""
        state = self._state(timerValues.getCurrentProcessingTimeInMs(), expiredTimerInfo.getExpiryTimeInMs())
        return run_slot(self._packed, self._level, int(key[0]), iter([]), state)

    def close(self) -> None:
        """Nothing needs to be closed."""

    def _state(self, now_ms: int, fired: int | None = None) -> _MapState:
        return _MapState(now_ms, self._blob, self._pages, _Alarm(self._handle, fired) if self._timed else None)


class _MapState:
    """``SlotState`` of the current slot."""

    def __init__(self, now_ms: int, blob: ValueState, pages: MapState, alarm: _Alarm | None) -> None:
        self.now_ms = now_ms
        self._blob = blob
        self._pages = pages
        self._alarm = alarm

    def page_stores(self, codec: Codec) -> PageStores:
        return in_entries(_MapEntries(self._pages), codec)

    def read(self) -> bytes | None:
        if not self._blob.exists():
            return None
        value = self._blob.get()
        return None if value is None else bytes(value[0])

    def write(self, blob: bytearray) -> None:
        self._blob.update((bytes(blob),))

    def wake_at(self, deadline_ms: int | None) -> None:
        if self._alarm is not None:
            self._alarm.set(None if deadline_ms is None else max(self.now_ms + 1, deadline_ms))

    @property
    def journal(self) -> Journal:
        return _MapJournal(_MapEntries(self._pages))


class _MapJournal:
    """A journal whose numbers are entries of the map, under the name ``JOURNAL``."""

    def __init__(self, entries: _MapEntries) -> None:
        self._entries = entries

    def get(self, place: int) -> int | None:
        data = self._entries.get(JOURNAL, place)
        return None if data is None else int.from_bytes(data, "little")

    def put(self, place: int, batch_id: int) -> None:
        self._entries.put(JOURNAL, place, batch_id.to_bytes(8, "little"))


class _Alarm:
    """The single timer of the current slot. ``fired``: The timer that caused this call, which Spark deletes itself."""

    def __init__(self, handle: StatefulProcessorHandle, fired: int | None) -> None:
        self._handle = handle
        self._fired = fired

    def set(self, time: int | None) -> None:
        """Register the timer for ``time`` (ms), and delete all others. None: only delete."""
        timers = list(self._handle.listTimers())
        for timer in timers:
            if timer not in (time, self._fired):
                self._handle.deleteTimer(timer)
        if time is not None and time not in timers:  # Spark warns if the timer exists already
            self._handle.registerTimer(time)


class _MapEntries:
    """The entries of Spark's map state."""

    def __init__(self, pages: MapState) -> None:
        self._pages = pages

    def get(self, name: str, number: int) -> bytes | None:
        row = self._pages.getValue((name, number))
        return None if row is None else bytes(row[0])

    def put(self, name: str, number: int, data: bytes) -> None:
        self._pages.updateValue((name, number), (data,))

    def remove(self, name: str, number: int) -> None:
        self._pages.removeKey((name, number))
