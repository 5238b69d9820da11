"""``RecordBatch``: an ordered group of records that moves through a job as one object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Generic, TypeAlias

from dsv2.base.columnar import Columnar
from dsv2.base.type_variables import T_co

Timestamps: TypeAlias = Sequence[int | None] | None
"""Event timestamps in ms, one per record, or None if no record has one."""


@dataclass(frozen=True)  # with slots, RecordBatch[str](...) would fail
class RecordBatch(Generic[T_co]):
    """Records of one channel or split in order, stored as rows or as columns.

    Attributes:
        records: The records.
        timestamps: Event timestamps in ms, one per record, or None if no record has one.
    """

    records: Sequence[T_co]
    timestamps: Timestamps = None

    def __len__(self) -> int:
        return len(self.records)

    @property
    def is_columnar(self) -> bool:
        """True if the records are stored as columns."""
        return isinstance(self.records, Columnar)

    def rows(self) -> Sequence[T_co]:
        """The records as a sequence of objects. Do not modify it."""
        records = self.records
        return records.rows() if isinstance(records, Columnar) else records

    def pairs(self) -> Iterable[tuple[T_co, int | None]]:
        """Each record with its timestamp."""
        return zip(self.records, repeat(None) if self.timestamps is None else self.timestamps, strict=False)

    def slice(self, start: int, stop: int | None = None, step: int | None = None) -> RecordBatch[T_co]:
        """The records at the given positions, with the meaning of ``slice``."""
        part, timestamps = slice(start, stop, step), self.timestamps
        return RecordBatch(self.records[part], None if timestamps is None else timestamps[part])

    def pieces(self, size: int) -> Iterator[RecordBatch[T_co]]:
        """Split the batch into batches of at most ``size`` records. Yields nothing if the batch is empty."""
        count = len(self.records)
        if 0 < count <= size:
            yield self
            return
        for start in range(0, count, size):
            yield self.slice(start, start + size)

    def split(
        self, names: Sequence[str], max_parallelism: int, parallelism: int
    ) -> Iterable[tuple[int, RecordBatch[T_co]]] | None:
        """Partition the records by key.

        Args:
            names: The columns that form the key.
            max_parallelism: Number of key groups.
            parallelism: Number of subtasks that receive the records.

        Returns:
            Subtask index and records of each subtask that receives any; None if there are no such columns.

        Raises:
            InvalidKeyError: A value is not supported as a key.
        """
        if not isinstance(self.records, Columnar):
            return None
        parts = self.records.split(names, max_parallelism, parallelism, self.timestamps)
        if parts is None:
            return None
        return ((subtask, RecordBatch(records, timestamps)) for subtask, records, timestamps in parts)


NO_RECORDS: RecordBatch[object] = RecordBatch([])
