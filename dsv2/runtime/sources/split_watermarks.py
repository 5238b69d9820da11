"""Event time of the splits of one reader, and their combined watermark.

Idle splits are ignored. So are splits behind the watermark that the reader has sent, because they were idle or were
assigned later, until they catch up. The reader waits for splits without a watermark. Once all splits are idle, the
furthest one counts, in whichever order they became idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dsv2.base.columnar import WholeNumbers, column_of
from dsv2.errors import ContractError
from dsv2.model.record_batch import RecordBatch
from dsv2.sources import WatermarkStrategy
from dsv2.spi import FailedRecordError, greatest_timestamp
from dsv2.watermark import VectorClock, Watermark


@dataclass(slots=True)
class SplitTime:
    """Event time of one split.

    Attributes:
        watermark: Its watermark in ms. None before the first record.
        idle: Whether it is idle.
        last: Whether it ends with this micro-batch.
    """

    watermark: int | None
    idle: bool
    last: bool


def combined(splits: Iterable[SplitTime], sent: int | None) -> int | None:
    """Return the watermark that a reader must send, or None if it is not new.

    Args:
        splits: The splits of the reader.
        sent: The last watermark that it has sent, in ms, or None.
    """
    splits = list(splits)
    active = [split for split in splits if not split.idle]
    if not active:
        furthest = max((split.watermark for split in splits if split.watermark is not None), default=None)
        return None if furthest is None or (sent is not None and furthest <= sent) else furthest
    continuing = [split for split in active if not split.last] or active
    times = [split.watermark for split in continuing if split.watermark is not None]
    if len(times) < len(continuing):
        return None
    time = min((time for time in times if sent is None or time >= sent), default=None)
    return None if time == sent else time


class ReaderClock:
    """Tracks the event time of one reader in one micro-batch."""

    def __init__(self, strategy: WatermarkStrategy[Any], splits: dict[str, SplitTime], sent: int | None) -> None:
        self._extract: Callable[[Any], Any] | None = strategy.extract_timestamp
        self._behind = strategy.behind_ms
        self._emits = strategy.emits
        self._per_event = strategy.per_event and strategy.emits
        self.splits = splits
        """The splits by id."""
        self.sent = sent
        """The last watermark that was sent, in ms."""

    def take(self, split_id: str, batch: RecordBatch[Any]) -> Iterator[tuple[RecordBatch[Any], int | None]]:
        """Split a batch of a split into pieces, each with timestamps and the watermark to send after it, or None.

        The strategy's timestamps replace those of the reader.

        Raises:
            FailedRecordError: The timestamp extractor failed, or a record has no valid timestamp.
        """
        batch, newest = self._stamped(batch)
        if self._per_event:
            yield from self._cut(split_id, batch)
        else:
            self._move(split_id, newest)
            yield batch, None

    def stamped(self, batch: RecordBatch[Any]) -> RecordBatch[Any]:
        """Return a batch with timestamps, like ``take``. The event time of its split stays."""
        return self._stamped(batch)[0]

    def _stamped(self, batch: RecordBatch[Any]) -> tuple[RecordBatch[Any], int | None]:
        """Return a batch with timestamps, and the greatest of them."""
        records = batch.records
        timestamps: Sequence[int | None] = [None] * len(records) if batch.timestamps is None else batch.timestamps
        if self._extract is not None:
            column = column_of(records, self._extract)
            timestamps = _extracted(self._extract, records) if column is None else column
        return RecordBatch(records, timestamps), _newest(records, timestamps)

    def finish(self) -> int | None:
        """Return the watermark to send after the last record, or None."""
        if not self._emits:
            return None
        time = combined(self.splits.values(), self.sent)
        self.sent = self.sent if time is None else time
        return time

    def _cut(self, split_id: str, batch: RecordBatch[Any]) -> Iterator[tuple[RecordBatch[Any], int | None]]:
        done = 0
        for index, timestamp in enumerate(batch.timestamps or (), 1):
            if self._move(split_id, timestamp) and (time := self.finish()) is not None:
                yield batch.slice(done, index), time
                done = index
        if done < len(batch):
            yield batch.slice(done), None

    def _move(self, split_id: str, timestamp: int | None) -> bool:
        split = self.splits[split_id]
        if timestamp is None or (split.watermark is not None and timestamp - self._behind <= split.watermark):
            return False
        split.watermark = timestamp - self._behind
        return True


def _extracted(extract: Callable[[Any], Any], records: Sequence[Any]) -> list[Any]:
    timestamps: list[Any] = []
    append, record = timestamps.append, None
    try:
        for record in records:
            append(extract(record))
    except BaseException as error:
        raise FailedRecordError(record) from error
    return timestamps


def _newest(records: Sequence[Any], timestamps: Sequence[Any]) -> int | None:
    """The greatest of ``timestamps``, or None if it is empty."""
    if not timestamps:
        return None
    if isinstance(timestamps, WholeNumbers):
        return timestamps.greatest
    return greatest_timestamp(records, timestamps)


_SET, _VECTOR = "set", "vector"


def value_to_json(watermark: Watermark) -> Any:
    """Return the value of ``watermark`` as JSON.

    Raises:
        ContractError: It is an instance of a data class, or a set of such.
    """
    value = watermark.value
    if isinstance(value, int | float | str):
        return value
    if isinstance(value, VectorClock):
        return {_VECTOR: dict(value)}
    if isinstance(value, frozenset) and all(isinstance(member, int | float | str) for member in value):
        return {_SET: sorted(value)}
    raise ContractError(
        f"The enumerator of a source cannot emit {watermark}, because offsets have no instances of data classes. Emit "
        f"it in a reader, or declare another type: numbers, booleans, strings, vectors, or sets of these."
    )


def value_from_json(value: Any) -> Any:
    """Return the watermark value for ``value``, as JSON represents it."""
    if not isinstance(value, dict):
        return value
    return VectorClock(value[_VECTOR]) if _VECTOR in value else frozenset(value[_SET])
