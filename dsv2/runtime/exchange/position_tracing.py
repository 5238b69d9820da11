"""Traced records carry the position in the source from which they come, so that errors can name it.

A record has the position of the record that was being processed when it was emitted. Records that timers, watermarks or
the end of the input emit have none. Only jobs that trace use this module, or a micro-batch that is repeated after it
failed: positions are set by iterating a ``TracedBatch`` and read by a ``TracedWriter``, outside of the record path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from dsv2.base.record_position import Offset, RecordPosition, SplitName
from dsv2.model.record_batch import RecordBatch, Timestamps
from dsv2.runtime.exchange.control_log import ControlLog
from dsv2.runtime.exchange.frames import ChannelWriter

PackedPosition: TypeAlias = tuple[str, SplitName, Offset]
"""A position as it is serialized: source, split and offset."""


class CurrentPosition:
    """The position of the record that a subtask is processing; None if it is unknown."""

    __slots__ = ("current",)

    def __init__(self) -> None:
        self.current: PackedPosition | None = None

    @property
    def position(self) -> RecordPosition | None:
        """The current position."""
        return None if self.current is None else RecordPosition(*self.current)


@contextmanager
def suspended(origin: CurrentPosition | None) -> Iterator[None]:
    """Wrap the processing of something that is not caused by the current record alone, such as a watermark."""
    if origin is None:
        yield
        return
    position, origin.current = origin.current, None
    yield
    origin.current = position  # after an error, it is not used


class TracedBatch(RecordBatch[Any]):
    """A batch with the position of each record. While it is iterated, that of the current record is the origin.

    Attributes:
        positions: The positions.
    """

    def __init__(
        self,
        records: Sequence[Any],
        timestamps: Timestamps,
        positions: Sequence[PackedPosition | None],
        origin: CurrentPosition | None = None,
    ) -> None:
        """``origin``: That of the receiving subtask. None: the batch is on its way."""
        super().__init__(records, timestamps)
        vars(self).update(positions=positions, _origin=CurrentPosition() if origin is None else origin)

    positions: Sequence[PackedPosition | None]
    _origin: CurrentPosition

    def received(self, origin: CurrentPosition | None) -> RecordBatch[Any]:
        """The batch with the origin of the subtask that receives it, or without positions if that does not trace."""
        if origin is None:
            return RecordBatch(self.records, self.timestamps)
        return TracedBatch(self.records, self.timestamps, self.positions, origin)

    def rows(self) -> Sequence[Any]:
        return self._followed(super().rows())  # type: ignore[return-value]  # which is only iterated

    def pairs(self) -> Iterator[tuple[Any, int | None]]:
        return self._followed(super().pairs())

    def slice(self, start: int, stop: int | None = None, step: int | None = None) -> TracedBatch:
        part = super().slice(start, stop, step)
        return TracedBatch(part.records, part.timestamps, self.positions[slice(start, stop, step)], self._origin)

    def _followed(self, elements: Any) -> Iterator[Any]:
        origin = self._origin
        for element, origin.current in zip(elements, self.positions, strict=True):
            yield element
        origin.current = None


class TracedWriter(ChannelWriter):
    """Buffers records with their positions. Columns become rows."""

    __slots__ = ("_positions",)

    def __init__(self, operator: int, subtask: int, channel: int, origin: CurrentPosition, log: ControlLog) -> None:
        super().__init__(operator, subtask, channel, log)
        self._positions: list[PackedPosition | None] = []
        plain, plain_stamped, note = self.append, self.append_stamped, self._positions.append

        def append(record: Any) -> None:
            note(origin.current)
            plain(record)

        def append_stamped(record: Any, timestamp: int | None) -> None:
            note(origin.current)
            plain_stamped(record, timestamp)

        self.append, self.append_stamped, self.appends = append, append_stamped, (append, self.timestamps.append)

    def extend(self, batch: RecordBatch[Any]) -> None:
        if batch.timestamps is None:
            for record in batch.rows():
                self.append(record)
        else:
            for record, timestamp in batch.pairs():
                self.append_stamped(record, timestamp)

    def take_batch(self) -> RecordBatch[Any]:
        batch, positions = super().take_batch(), self._positions[:]
        self._positions.clear()
        return TracedBatch(batch.records, batch.timestamps, positions)
