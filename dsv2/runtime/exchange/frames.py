"""Frames carry records of one channel in order, with control elements between them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, Final, TypeAlias

from dsv2.base.columnar import Columnar, WholeNumbers
from dsv2.model.record_batch import NO_RECORDS, RecordBatch, Timestamps
from dsv2.runtime.exchange.control_log import Control, ControlLog

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


MAX_FRAME_RECORDS: Final = 8192


class Frame:
    """Elements of one channel: from one upstream subtask to one downstream subtask.

    The position of each of the ``controls`` defines its place in ``batch``. Frames of a channel arrive in order.
    """

    __slots__ = ("batch", "channel", "controls", "operator", "subtask")

    def __init__(
        self, operator: int, subtask: int, channel: int, batch: RecordBatch[Any], controls: list[Control]
    ) -> None:
        self.operator = operator
        self.subtask = subtask
        self.channel = channel
        self.batch = batch
        self.controls = controls

    def split(self, at: int) -> tuple[Frame, Frame]:
        """Split the frame into two. The first one has ``at`` records."""
        before = [control for control in self.controls if control[0] < at]
        after = [(control[0] - at, *control[1:]) for control in self.controls if control[0] >= at]
        return (
            Frame(self.operator, self.subtask, self.channel, self.batch.slice(0, at), before),
            Frame(self.operator, self.subtask, self.channel, self.batch.slice(at), after),
        )


EmitFrame: TypeAlias = Callable[[Frame], None]


class ChannelWriter:
    """Buffers the elements of one channel until they fill a frame.

    ``append`` is the hot path: a list's bound method. ``append_stamped`` adds a record with a timestamp. Both can be
    mixed. Columns are buffered separately.

    Control elements that precede all buffered records may stay in the ``log`` of the edge, where the writer has
    ``sent`` the first ones. ``EdgeEmitter.control`` ensures that no others remain.
    """

    __slots__ = (
        "append",
        "append_stamped",
        "appends",
        "channel",
        "columns",
        "controls",
        "count",
        "log",
        "operator",
        "records",
        "sent",
        "subtask",
        "timestamps",
        "whole",
    )

    def __init__(self, operator: int, subtask: int, channel: int, log: ControlLog | None = None) -> None:
        """``log``: That of the edge, if the channel belongs to one."""
        self.operator = operator
        self.subtask = subtask
        self.channel = channel
        self.log = ControlLog() if log is None else log
        self.sent = 0  # elements of the log
        self.count = 0  # records in frames and in columns so far
        self.records: list[Any] = []
        self.timestamps: list[int | None] = []  # may be shorter than records; the rest have no timestamp
        self.columns = ColumnBuffer()  # precede the records
        self.controls: list[Control] = []  # between the columns if there are any, else between the records
        self.whole: list[Frame] = []  # complete frames, which precede everything else
        self.append: Callable[[Any], None] = self.records.append
        self.append_stamped = _stamped_append(self.records, self.timestamps)
        self.appends = (self.append, self.timestamps.append)

    def control(self, kind: int, identifier: str, value: Any) -> None:
        """Add a control element after the records so far."""
        if self.records:
            self._close_columns()
        if self.sent < len(self.log):
            self.controls = [*self._take_controls()]
        self.controls.append((self.columns.count + len(self.records), kind, identifier, value))

    def extend(self, batch: RecordBatch[Any]) -> None:
        """Add a batch. Columns stay columns, in frames of their own."""
        if batch.is_columnar:
            self._extend_columns(batch)
            return
        if batch.timestamps is not None:
            self.pad()
            self.timestamps.extend(batch.timestamps)
        self.records.extend(batch.records)

    def pad(self) -> None:
        """Pad the timestamps with None up to the number of records. Call it before adding records by ``appends``."""
        self.timestamps.extend([None] * (len(self.records) - len(self.timestamps)))

    def flush(self, emit: EmitFrame) -> None:
        """Emit all buffered elements, in frames of at most ``MAX_FRAME_RECORDS``."""
        self._close_frame()
        self.flush_whole(emit)

    def flush_whole(self, emit: EmitFrame) -> None:
        """Emit the complete frames."""
        frames, self.whole = self.whole, []
        for frame in frames:
            while len(frame.batch) > MAX_FRAME_RECORDS and not frame.batch.is_columnar:
                head, frame = frame.split(MAX_FRAME_RECORDS)
                emit(head)
            emit(frame)

    def _extend_columns(self, batch: RecordBatch[Any]) -> None:
        # Receivers alternate between channels frame by frame. A frame with records after a control element would let
        # this channel run ahead of the others.
        if self.records or (self.controls and self.controls[-1][0]):
            self._close_frame()
        for piece in batch.pieces(COLUMNAR_FRAME_RECORDS):
            if not self.columns.fits(piece):
                self._close_columns()
            self.columns.add(piece)
        self.count += len(batch)

    def _close_columns(self) -> None:
        if self.columns.count:
            self.whole.append(self._new_frame(self.columns.take()))

    def _close_frame(self) -> None:
        self._close_columns()
        if not self.records and not self.controls and self.sent == len(self.log):
            return
        batch = self.take_batch() if self.records else NO_RECORDS
        self.whole.append(self._new_frame(batch))
        self.count += len(batch)

    def take_batch(self) -> RecordBatch[Any]:
        """Return and remove the buffered records."""
        batch = RecordBatch(self.records[:], self._take_timestamps())
        self.records.clear()  # keeps the list object, because collectors hold its bound append
        return batch

    def _new_frame(self, batch: RecordBatch[Any]) -> Frame:
        return Frame(self.operator, self.subtask, self.channel, batch, self._take_controls())

    def _take_controls(self) -> list[Control]:
        own, self.controls = self.controls, []
        begin, self.sent = self.sent, len(self.log)
        return self.log.without_superseded(own) if own else self.log.since(begin)

    def _take_timestamps(self) -> Timestamps:
        if not self.timestamps:
            return None
        self.pad()
        taken = self.timestamps[:]
        self.timestamps.clear()
        return taken


def _stamped_append(records: list[Any], timestamps: list[int | None]) -> Callable[[Any, int | None], None]:
    append, stamp = records.append, timestamps.append

    def append_stamped(record: Any, timestamp: int | None) -> None:
        if len(timestamps) != len(records):
            timestamps.extend([None] * (len(records) - len(timestamps)))
        append(record)
        stamp(timestamp)

    return append_stamped
