"""The records of a shard, its position, and a cursor that reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dsv2.connectors.attempts import attempts
from dsv2.connectors.kinesis.stream import KinesisStream

RECORDS_AT_ONCE = 10_000
"""The most records that Kinesis returns."""


class KinesisRecord(NamedTuple):
    """A record of a stream.

    Attributes:
        shard: The id of its shard.
        sequence_number: Its number, by which the records of a shard are ordered.
        partition_key: The key that has chosen the shard.
        data: The data.
        arrival_ms: When it arrived, approximately (``ApproximateArrivalTimestamp``), in ms since the epoch.
    """

    shard: str
    sequence_number: str
    partition_key: str
    data: bytes
    arrival_ms: int


@dataclass(frozen=True)
class KinesisShard:
    """A shard, and how far it has been read.

    Attributes:
        shard: Its id.
        parents: The ids of the shards that were split or merged into it. They are read before it.
        start_s: The arrival of the first record to read, in seconds since the epoch. 0: the oldest that exists.
        position: The sequence number of the last record that was read. Empty: none was read.
        arrival_ms: When that record arrived.
        records: The number of records that were read.
        resets: How often it continued with the oldest record, because others had been deleted.
    """

    shard: str
    parents: tuple[str, ...] = ()
    start_s: int = 0
    position: str = ""
    arrival_ms: int = 0
    records: int = 0
    resets: int = 0

    @property
    def split_id(self) -> str:
        """The id of the shard."""
        return self.shard

    def after(self, records: Sequence[KinesisRecord]) -> KinesisShard:
        """Return the position after these records, which follow."""
        if not records:
            return self
        last, read = records[-1], self.records + len(records)
        return replace(self, position=last.sequence_number, arrival_ms=last.arrival_ms, records=read)

    def reset(self) -> KinesisShard:
        """Return the position of the oldest record that exists."""
        return replace(self, start_s=0, position="", resets=self.resets + 1)


class ShardCursor:
    """Reads the records of a shard.

    Args:
        stream: The stream.
        at: Where to begin.

    Attributes:
        at: How far it has read.
        is_at_end: Whether it has read all records that exist at the moment.
        is_closed: Whether it has read all records of a shard that gets no more of them.
    """

    def __init__(self, stream: KinesisStream, at: KinesisShard) -> None:
        self.at = at
        self.is_at_end = self.is_closed = False
        self._stream = stream
        self._iterator = ""

    def next(self, limit: int) -> list[KinesisRecord]:
        """Return the next records, none at the end. ``limit``: The most records."""
        with self._stream.errors(f"Cannot read {self.at.shard} of"):
            while not (records := self._page(min(limit, RECORDS_AT_ONCE))) and not self.is_at_end:
                pass  # some parts of a shard have no records
        self.at = self.at.after(records)
        return records

    def _page(self, limit: int) -> list[KinesisRecord]:
        client = self._stream.client
        for left in attempts(self._stream.retries):  # as boto3 gives up early if many requests exceed the limits
            try:
                self._iterator = self._iterator or self._open()
                answer = client.get_records(ShardIterator=self._iterator, Limit=limit)
                break
            except client.exceptions.ProvisionedThroughputExceededException:
                if not left:
                    raise
            except client.exceptions.ExpiredIteratorException:  # after five minutes
                self._iterator = ""
                if not left:
                    raise
        self._iterator = answer.get("NextShardIterator", "")
        self.is_closed = not self._iterator
        self.is_at_end = self.is_closed or (not answer["MillisBehindLatest"] and len(answer["Records"]) < limit)
        return [self._record(record) for record in answer["Records"]]

    def _open(self) -> str:
        at: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
        if self.at.position:
            at = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": self.at.position}
        elif self.at.start_s:
            at = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": self.at.start_s}
        answer = self._stream.client.get_shard_iterator(**self._stream.argument, ShardId=self.at.shard, **at)
        return str(answer["ShardIterator"])

    def _record(self, record: dict[str, Any]) -> KinesisRecord:
        arrival_ms = round(record["ApproximateArrivalTimestamp"].timestamp() * 1000)
        number, key = record["SequenceNumber"], record["PartitionKey"]
        return KinesisRecord(self.at.shard, number, key, record["Data"], arrival_ms)
