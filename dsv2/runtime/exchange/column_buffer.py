"""Buffers columnar batches until they fill a frame."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

from dsv2.base.columnar import Columnar, WholeNumbers
from dsv2.model.record_batch import RecordBatch, Timestamps

COLUMNAR_FRAME_RECORDS: Final = 1 << 15
"""The maximum for a columnar frame. It exceeds that of rows, because columns are smaller and have more overhead."""
_BYTES: Final = 1 << 20  # in memory; the size at which a frame is full


class ColumnBuffer:
    """The records of one frame: columnar batches of one class, all with the same kind of timestamps."""

    __slots__ = ("_bytes", "_columns", "_timestamps", "count")

    def __init__(self) -> None:
        self._columns: list[Columnar[Any]] = []
        self._timestamps: list[Timestamps] = []
        self._bytes = 0
        self.count = 0

    def fits(self, batch: RecordBatch[Any]) -> bool:
        """Return whether ``batch`` may share a frame with the buffered batches."""
        if not self._columns:
            return True
        assert isinstance(batch.records, Columnar)
        alike = self._columns[0].kind is batch.records.kind and type(self._timestamps[0]) is type(batch.timestamps)
        return alike and self._bytes < _BYTES and self.count + len(batch) <= COLUMNAR_FRAME_RECORDS

    def add(self, batch: RecordBatch[Any]) -> None:
        """Buffer a batch that fits."""
        assert isinstance(batch.records, Columnar)
        self._columns.append(batch.records)
        self._timestamps.append(batch.timestamps)
        self._bytes += batch.records.kept_bytes
        self.count += len(batch)

    def take(self) -> RecordBatch[Any]:
        """Remove all buffered batches and return them as one. The buffer must not be empty."""
        (first, *more), self._columns = self._columns, []
        timestamps, self._timestamps = self._timestamps, []
        self._bytes = self.count = 0
        return RecordBatch(first.joined(more), _joined(timestamps))


def _joined(timestamps: list[Timestamps]) -> Timestamps:
    """Concatenate the timestamps of several batches, which all have the same type."""
    first, *more = timestamps
    if first is None or not more:
        return first
    if isinstance(first, WholeNumbers):
        return first.joined(more)  # type: ignore[arg-type]
    return list(chain.from_iterable(timestamps))  # type: ignore[arg-type]
