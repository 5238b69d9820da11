"""``SplitBatch``: what a reader yields if its values are decoded, or have offsets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Generic

from dsv2.base.record_position import Offset
from dsv2.base.type_variables import T_co
from dsv2.model.record_batch import RecordBatch, Timestamps


class SplitBatch(RecordBatch[T_co], Generic[T_co]):
    """Values of a split, in order, that the job decodes to records.

    A reader yields it instead of a ``RecordBatch``, so that

    - the error policy of the source applies to values that cannot be decoded;
    - errors and dead letters name the offset of a record, and ``skip_records`` can skip it.

    Args:
        values: The values, such as messages or lines.
        decode: Creates the record of a value. It may be called again for the same value. None (default): the values are
            the records.
        timestamps: Event timestamps in ms, one for each value. None (default): the records have none.
        offsets: Returns the offset of each value, which identifies it in its split. Called only when an offset is
            needed. None (default): offsets are counted from the position at which the micro-batch began to read.
        raw: Creates the record of a dead letter from a value. None (default): the value itself.
        decode_all: Decodes all values at once, if this is faster. It may raise any exception; the values are then
            decoded one by one.
        decode_columns: Decodes all values to columnar records, for a function or sink on tables. The records are those
            of ``decode``. It may raise any exception; the values are then decoded to rows.
        omits_none: Whether a value for which ``decode`` returns None has no record. Default: False.
    """

    def __init__(
        self,
        values: Sequence[Any],
        decode: Callable[[Any], T_co | None] | None = None,
        *,
        timestamps: Timestamps = None,
        offsets: Callable[[], Sequence[Offset]] | None = None,
        raw: Callable[[Any], object] | None = None,
        decode_all: Callable[[], Sequence[T_co | None]] | None = None,
        decode_columns: Callable[[], RecordBatch[T_co]] | None = None,
        omits_none: bool = False,
    ) -> None:
        self.values = values
        self.decode = decode
        self.own_timestamps = timestamps
        self.offsets = offsets
        self.raw = raw
        self.decode_all = decode_all
        self.decode_columns = decode_columns
        self.omits_none = omits_none

    @cached_property
    def kept(self) -> Sequence[int] | None:
        """The indices of the values that have a record; None if all have."""
        records = self._decoded
        if not self.omits_none or not any(record is None for record in records):
            return None
        return [index for index, record in enumerate(records) if record is not None]

    @property
    def records(self) -> Sequence[T_co]:
        """The records. Raises what ``decode`` raises."""
        records, kept = self._decoded, self.kept
        return records if kept is None else [records[index] for index in kept]  # type: ignore[return-value, misc]

    @property
    def timestamps(self) -> Timestamps:
        """The timestamps of the records."""
        timestamps, kept = self.own_timestamps, self.kept
        return timestamps if kept is None or timestamps is None else [timestamps[index] for index in kept]

    def taken(self, indices: Sequence[int]) -> SplitBatch[T_co]:
        """The values at ``indices``, without offsets."""
        timestamps = self.own_timestamps
        return SplitBatch(
            [self.values[index] for index in indices],
            self.decode,
            timestamps=None if timestamps is None else [timestamps[index] for index in indices],
            raw=self.raw,
            omits_none=self.omits_none,
        )

    @cached_property
    def _decoded(self) -> Sequence[T_co | None]:
        if self.decode_all is not None:
            return self.decode_all()
        if self.decode is None:
            return self.values
        decode = self.decode
        return [decode(value) for value in self.values]
