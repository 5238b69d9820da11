"""``KinesisSource``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Generic, Literal

from dsv2.base.record_position import Offset
from dsv2.base.secrets import OptionValue
from dsv2.base.type_variables import T_co
from dsv2.checks.arguments import check_at_least_one
from dsv2.connectors.kinesis.discovery import KinesisDiscovery
from dsv2.connectors.kinesis.shard import KinesisRecord, KinesisShard, ShardCursor
from dsv2.connectors.kinesis.stream import KinesisStream
from dsv2.errors import ConfigurationError, JobError
from dsv2.sources import (
    AssignmentState,
    DataclassSerializer,
    RoundRobinSplitAssigner,
    SplitBatch,
    SplitEnumeratorContext,
)
from dsv2.sources.assignment import ReadingSource
from dsv2.sources.shared_parts import DecodingSource


class KinesisSource(DecodingSource[T_co], ReadingSource[T_co, KinesisShard], Generic[T_co]):
    """Reads the records of a stream, each once. A shard is a split, and its position a sequence number.

    The source is unbounded; with ``Trigger.available_now()`` it reads the records that exist. A shard that was split or
    merged is read to its end before the shards that follow it, so the records of a partition key keep their order.
    Records have the timestamps of their arrival, which are approximate. New shards are looked for every 10 seconds, and
    new records every second.

    Kinesis does not say how far a shard can be read. So the driver reads each record to plan the micro-batch, and a
    task reads it again: that is half of what a shard permits to all of its readers, 2 MB and five requests a second.
    Requests above these limits are repeated after pauses. Records that were aggregated by the Kinesis Producer Library
    are not taken apart.

    Source: Flink ``KinesisStreamsSource``.
    """

    record_types = (KinesisRecord,)
    split_serializer = DataclassSerializer(KinesisShard)
    discovery_interval = timedelta(seconds=10)
    bounded = False
    assigner = RoundRobinSplitAssigner()

    def __init__(
        self,
        stream: str,
        decode: Callable[[KinesisRecord], T_co],
        *,
        start: datetime | Literal["trim_horizon", "latest"] = "trim_horizon",
        records_per_batch: int = 10_000,
        skip_expired: bool = False,
        retries: int = 10,
        options: Mapping[str, OptionValue] | None = None,
    ) -> None:
        """Create the source.

        Args:
            stream: The name or the ARN of the stream.
            decode: Creates the record of a ``KinesisRecord``.
            start: Where the job first starts: the oldest record (``"trim_horizon"``), the second at which it starts
                (``"latest"``), or a time with a time zone, in whole seconds. Shards that are created later are read
                from their beginning.
            records_per_batch: The maximum number of records in a micro-batch, over all shards. Raise it if there are
                many shards: a request returns up to 10,000 records of one.
            skip_expired: Whether to continue with the oldest record that exists if records may have been deleted
                before they were read, because the job was behind for longer than the retention period of the stream.
                Otherwise (default) the job fails.
            retries: How often a request is repeated if there is no answer, or it exceeds a limit of the stream.
            options: Arguments of boto3's client: ``region_name``, ``endpoint_url``, ``use_ssl``, ``verify``,
                ``aws_access_key_id``, ``aws_secret_access_key`` and ``aws_session_token``. Secrets among them are never
                shown. Without keys, boto3 looks for credentials as usual, on the driver and in each task.

        Raises:
            ConfigurationError: An argument is invalid, or boto3 is not installed.
        """
        self._stream = KinesisStream("KinesisSource", stream, options, retries)
        if isinstance(start, datetime) and start.tzinfo is None:
            raise ConfigurationError(f"start must have a time zone, such as datetime.UTC, but {start} has none.")
        if not isinstance(start, datetime) and start not in ("trim_horizon", "latest"):
            raise ConfigurationError(f"start must be 'trim_horizon', 'latest' or a datetime, not {start!r}.")
        check_at_least_one(records_per_batch=records_per_batch)
        self._decode = decode
        self._start = start
        self._skip_expired = skip_expired
        self.limit_per_batch = records_per_batch

    def __repr__(self) -> str:
        return f"KinesisSource({self._stream})"

    def create_discovery(
        self, ctx: SplitEnumeratorContext[KinesisShard], restored: AssignmentState[KinesisShard] | None, /
    ) -> KinesisDiscovery:
        return KinesisDiscovery(self._stream, self._start, self._skip_expired, ctx.clock, restored)

    def read(self, start: KinesisShard, stop: KinesisShard, /) -> Iterator[SplitBatch[T_co]]:
        missing = stop.records - start.records
        cursor = ShardCursor(self._stream, start if start.resets == stop.resets else start.reset())
        while missing and (found := cursor.next(missing)):
            records = [record for record in found if int(record.sequence_number) <= int(stop.position)]
            missing -= len(records)
            timestamps = [record.arrival_ms for record in records]
            yield SplitBatch(records, self._decode, timestamps=timestamps, offsets=partial(_numbers_of, records))
            if len(records) < len(found):
                break
        if missing and not self._skip_expired:
            raise JobError(
                f"{missing} records of {start.shard} in the stream {self._stream.name} up to {stop.position} were "
                f"deleted before they were read. To continue without them, set skip_expired=True."
            )

    def has_read(self, split: KinesisShard, offset: Offset, /) -> bool:
        return bool(split.position) and int(str(offset).removeprefix("#")) <= int(split.position)


def _numbers_of(records: Sequence[KinesisRecord]) -> list[str]:
    return [f"#{record.sequence_number}" for record in records]  # a text, as it is too large for a number
