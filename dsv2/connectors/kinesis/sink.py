"""``KinesisSink``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import md5
from typing import Any, Generic, TypeAlias

from dsv2.base.secrets import OptionValue
from dsv2.base.type_variables import T
from dsv2.checks.arguments import check_at_least_one
from dsv2.connectors.attempts import attempts
from dsv2.connectors.kinesis.stream import KinesisStream
from dsv2.errors import JobError, SchemaError
from dsv2.sinks import ParallelSink, SinkBatch, SinkInfo

_RECORDS_AT_ONCE, _BYTES_AT_ONCE = 500, 5 << 20
_LONGEST_KEY = 256


_Entry: TypeAlias = Mapping[str, Any]  # a record as PutRecords takes it


class KinesisSink(ParallelSink[T], Generic[T]):
    """Writes records to a stream, at least once.

    Each subtask sends requests of up to 500 records and 5 MiB. Records that Kinesis refuses because of its limits are
    sent again, without the others of their request; they then follow later records of the same key. A micro-batch
    that is repeated after a failure is written again.

    Source: Flink ``KinesisStreamsSink``.
    """

    accepts_other_records = True

    def __init__(
        self,
        stream: str,
        data: Callable[[T], bytes],
        *,
        partition_key: Callable[[T], str] | None = None,
        max_record_bytes: int = 1 << 20,
        retries: int = 10,
        options: Mapping[str, OptionValue] | None = None,
    ) -> None:
        """Create the sink.

        Args:
            stream: The name or the ARN of the stream.
            data: Returns the data of a record.
            partition_key: Returns the key that chooses the shard, such as the key of the records. It has 1 to 256
                characters. None (default): a hash of the data, which distributes records over all shards.
            max_record_bytes: The most bytes of data and key in a record, as the stream is configured. Larger ones are
                refused.
            retries: How often a request is repeated if there is no answer, or records exceed a limit of the stream.
                Pauses grow.
            options: Arguments of boto3's client, as for ``KinesisSource``.

        Raises:
            ConfigurationError: An argument is invalid, or boto3 is not installed.
        """
        self._stream = KinesisStream("KinesisSink", stream, options, retries)
        check_at_least_one(max_record_bytes=max_record_bytes)
        self._data = data
        self._partition_key = partition_key
        self._max_record_bytes = max_record_bytes

    def __repr__(self) -> str:
        return f"KinesisSink({self._stream})"

    def describe_target(self) -> str:
        return f"the stream {self._stream.name}"

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        self._stream.describe()  # fails if there is no such stream

    def check_record(self, record: T) -> None:
        """Raise an error if ``record`` has no valid data and key, or is too large."""
        self._entry(record)

    def write(self, batch: SinkBatch[T]) -> None:
        entries = (self._entry(record) for part in batch.batches for record in part.rows())
        for request in _requests(entries):
            self._send(request)

    def _entry(self, record: T) -> _Entry:
        data = self._data(record)
        if not isinstance(data, bytes):
            raise SchemaError(f"The data of a record for {self} must be bytes, not {type(data).__name__}.")
        key = self._partition_key(record) if self._partition_key else md5(data, usedforsecurity=False).hexdigest()
        if not isinstance(key, str) or not 1 <= len(key) <= _LONGEST_KEY:
            raise SchemaError(f"A partition key of {self} must have 1 to {_LONGEST_KEY} characters, not {key!r}.")
        entry = {"Data": data, "PartitionKey": key}
        if (size := _size_of(entry)) > self._max_record_bytes:
            raise SchemaError(f"A record for {self} has {size} bytes, more than max_record_bytes permits.")
        return entry

    def _send(self, entries: list[_Entry]) -> None:
        for left in attempts(self._stream.retries):
            with self._stream.errors("Cannot write to"):
                answer = self._stream.client.put_records(**self._stream.argument, Records=entries)
            failed = [(entry, one) for entry, one in zip(entries, answer["Records"], strict=True) if "ErrorCode" in one]
            if not failed:
                return
            entries = [entry for entry, _ in failed]
            if not left:
                why = "{ErrorCode}: {ErrorMessage}".format_map({"ErrorMessage": "", **failed[0][1]})
                raise JobError(f"The stream {self._stream.name} has refused {len(failed)} records at last: {why}")


def _requests(entries: Iterable[_Entry]) -> Iterator[list[_Entry]]:
    request, size = list[_Entry](), 0
    for entry in entries:
        own = _size_of(entry)
        if request and (len(request) == _RECORDS_AT_ONCE or size + own > _BYTES_AT_ONCE):
            yield request
            request, size = [], 0
        request.append(entry)
        size += own
    if request:
        yield request


def _size_of(entry: _Entry) -> int:
    return len(entry["Data"]) + len(entry["PartitionKey"].encode())
