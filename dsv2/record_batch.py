"""What travels through a job together: some records in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Generic, TypeAlias, TypeVar

from dsv2.columnar import Columnar

__all__ = ("NO_RECORDS", "RecordBatch", "Timestamps")

T_co = TypeVar("T_co", covariant=True)

Timestamps: TypeAlias = Sequence[int | None] | None
"""Event times in ms, one for each record; None if no record has one."""


@dataclass(frozen=True)  # slots would not let it be written with its type, as RecordBatch[str](...)
class RecordBatch(Generic[T_co]):
    """Records of one channel or split in order, as rows or as columns.

    ``timestamps``: event times in ms, one for each record, or None if no record has one.
    """

    records: Sequence[T_co]
    timestamps: Timestamps = None

    def __len__(self) -> int:
        return len(self.records)

    @property
    def is_columnar(self) -> bool:
        """Whether the records are in columns."""
        return isinstance(self.records, Columnar)

    def rows(self) -> Sequence[T_co]:
        """The records themselves; not to be changed."""
        records = self.records
        return records.rows() if isinstance(records, Columnar) else records

    def pairs(self) -> Iterable[tuple[T_co, int | None]]:
        """Each record with its timestamp."""
        return zip(self.records, repeat(None) if self.timestamps is None else self.timestamps, strict=False)

    def slice(self, start: int, stop: int | None = None, step: int | None = None) -> RecordBatch[T_co]:
        """The records at these positions."""
        part, timestamps = slice(start, stop, step), self.timestamps
        return RecordBatch(self.records[part], None if timestamps is None else timestamps[part])

    def pieces(self, size: int) -> Iterator[RecordBatch[T_co]]:
        """All of it, in batches of at most ``size`` records; nothing if there are no records."""
        count = len(self.records)
        if 0 < count <= size:
            yield self
            return
        for start in range(0, count, size):
            yield self.slice(start, start + size)

    def split(
        self, names: Sequence[str], max_parallelism: int, parallelism: int
    ) -> Iterable[tuple[int, RecordBatch[T_co]]] | None:
        """The records of each subtask, by the key in the columns ``names``; None if there are no such columns.

        Raises ``InvalidKeyError``.
        """
        if not isinstance(self.records, Columnar):
            return None
        parts = self.records.split(names, max_parallelism, parallelism, self.timestamps)
        if parts is None:
            return None
        return ((subtask, RecordBatch(records, timestamps)) for subtask, records, timestamps in parts)


NO_RECORDS: RecordBatch[object] = RecordBatch([])
