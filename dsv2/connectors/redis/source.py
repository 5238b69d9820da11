"""``RedisSource``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Generic

from dsv2.base.record_position import Offset
from dsv2.base.secrets import OptionValue
from dsv2.base.type_variables import T_co
from dsv2.checks.arguments import check_at_least_one
from dsv2.connectors.redis.connection import RedisConnection
from dsv2.connectors.redis.stream import RedisEntry, StreamSplit, order_of
from dsv2.errors import ConfigurationError, JobError
from dsv2.sources import DataclassSerializer, Portion, SplitBatch, SplitSource
from dsv2.sources.shared_parts import DecodingSource

_ENTRIES_AT_ONCE = 1000
_BEGINNING = "0-0"

# The number of entries of a range and the id of the last one, without sending the entries.
_MEASURE = """
local entries = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], ARGV[2], 'COUNT', ARGV[3])
return {#entries, #entries > 0 and entries[#entries][1] or ARGV[1]}
"""


class RedisSource(DecodingSource[T_co], SplitSource[T_co, StreamSplit], Generic[T_co]):
    """Reads the entries of streams, each once. A stream is a split, and its position an entry id in the checkpoint.

    The source uses no consumer group, and changes nothing in the server. Entries must exist until the micro-batch that
    reads them is complete: if some of them were deleted after it was planned, the job fails. Entries that were deleted
    before that, for example by ``MAXLEN``, are not noticed. Records have the timestamps of their ids.
    """

    record_types = (RedisEntry,)
    split_serializer = DataclassSerializer(StreamSplit)

    def __init__(
        self,
        url: str,
        *,
        streams: Sequence[str],
        decode: Callable[[RedisEntry], T_co],
        bounded: bool = False,
        records_per_batch: int = 10_000,
        retry_timeout: timedelta = timedelta(minutes=2),
        options: Mapping[str, OptionValue] | None = None,
    ) -> None:
        """Create the source.

        Args:
            url: The server, such as ``rediss://user:password@host:6379/0``. Its password is never shown.
            streams: The keys of the streams. They need not exist yet.
            decode: Creates the record of an entry.
            bounded: Whether the source ends with the entries that exist when the job first starts.
            records_per_batch: The maximum number of entries in a micro-batch.
            retry_timeout: How long an unreachable server is retried.
            options: Options of ``redis.Redis``. Secrets among them are never shown.

        Raises:
            ConfigurationError: An argument is invalid, or the client library is not installed.
        """
        self._connection = RedisConnection("RedisSource", url, options, retry_timeout)
        if isinstance(streams, str) or not streams or len(set(streams)) < len(streams):
            raise ConfigurationError(f"streams must be a list of different keys, not {streams!r}.")
        check_at_least_one(records_per_batch=records_per_batch)
        self._streams = tuple(streams)
        self._decode = decode
        self._bounded = bounded
        self.limit_per_batch = records_per_batch
        self._ends: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"RedisSource({self._connection!r}, streams={list(self._streams)})"

    @property
    def bounded(self) -> bool:
        return self._bounded

    def refresh(self) -> None:
        with self._connection.opened("Cannot read streams") as client:
            found = [client.xrevrange(stream, count=1) for stream in self._streams]
        self._ends = {
            stream: entries[0][0].decode() if entries else _BEGINNING
            for stream, entries in zip(self._streams, found, strict=True)
        }

    def discover(self) -> list[StreamSplit]:
        return [StreamSplit(stream, end=self._ends[stream] if self.bounded else "") for stream in self._streams]

    def advance(self, split: StreamSplit, limit: int | None, /) -> Portion[StreamSplit] | None:
        end = split.end or self._ends.get(split.stream, _BEGINNING)
        size, stop = 0, split.position
        if order_of(end) > order_of(split.position):
            most = limit or 1 << 62
            with self._connection.opened(f"Cannot read stream {split.stream}") as client:
                size, last = client.eval(_MEASURE, 1, split.stream, split.position, end, most)
            stop = last.decode()
            if size < most:
                stop = end  # also if its last entries were deleted
        if stop == split.position and not split.end:
            return None
        return Portion(replace(split, position=stop, entries=split.entries + size), size, stop == split.end)

    def read(self, start: StreamSplit, stop: StreamSplit, /) -> Iterator[SplitBatch[T_co]]:
        at, missing = start.position, stop.entries - start.entries
        with self._connection.opened(f"Cannot read stream {start.stream}") as client:
            while found := client.xrange(start.stream, f"({at}", stop.position, count=_ENTRIES_AT_ONCE):
                entries = [RedisEntry(start.stream, entry_id.decode(), fields) for entry_id, fields in found]
                at, missing = entries[-1].id, missing - len(entries)
                timestamps = [entry.timestamp for entry in entries]
                yield SplitBatch(entries, self._decode, timestamps=timestamps, offsets=partial(_ids_of, entries))
        if missing:
            raise JobError(
                f"{missing} entries of the stream {start.stream} after {start.position} were deleted before they were "
                f"read. Keep entries until the job has read them, or start it with a new checkpoint_location."
            )

    def has_read(self, split: StreamSplit, offset: Offset, /) -> bool:
        return order_of(str(offset)) <= order_of(split.position)


def _ids_of(entries: Sequence[RedisEntry]) -> list[str]:
    return [entry.id for entry in entries]
