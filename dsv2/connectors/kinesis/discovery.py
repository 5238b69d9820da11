"""The driver's side of ``KinesisSource``: finds shards, and plans micro-batches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TypeAlias

from dsv2.base.clock import Clock
from dsv2.connectors.kinesis.shard import RECORDS_AT_ONCE, KinesisShard, ShardCursor
from dsv2.connectors.kinesis.stream import KinesisStream
from dsv2.errors import JobError
from dsv2.sources import AssignmentState, Portion, SplitDiscovery

_State: TypeAlias = AssignmentState[KinesisShard]

_MS_PER_HOUR = 3_600_000
_POLL_MS = 1000  # between requests for new records, so that others can read the shard too
_SKIP = "To continue with the oldest record that exists, set skip_expired=True."


class KinesisDiscovery(SplitDiscovery[KinesisShard]):
    """Reads shards to find how far they can be read, as Kinesis has no other way to ask.

    Args:
        stream: The stream.
        start: The arrival of the first record to read, ``"latest"`` or ``"trim_horizon"``.
        skip_expired: Whether to continue if records were deleted before they were read.
        clock: The clock of the job.
        restored: The state of the previous run.
    """

    def __init__(
        self, stream: KinesisStream, start: datetime | str, skip_expired: bool, clock: Clock, restored: _State | None
    ) -> None:
        self._stream = stream
        self._start = start
        self._skip_expired = skip_expired
        self._clock = clock
        self._is_first = restored is None or not restored.discovered
        self._unfinished = set(restored.unfinished) if restored else set[str]()
        self._known = self._unfinished.union(restored.finished) if restored else set[str]()
        self._cursors: dict[str, ShardCursor] = {}
        self._at_end: set[str] = set()
        self._next_poll_ms = 0

    def refresh(self) -> None:
        now_ms = self._clock.now_ms()
        if now_ms >= self._next_poll_ms:
            self._at_end.clear()
            self._next_poll_ms = now_ms + _POLL_MS

    def discover(self) -> Collection[KinesisShard]:
        start_s = self._start_s() if self._is_first else 0
        found = {shard: KinesisShard(shard, parents, start_s) for shard, parents in self._stream.shards().items()}
        if (lost := sorted(self._unfinished - found.keys())) and not self._skip_expired:
            raise JobError(
                f"The stream {self._stream.name} has no shard {lost[0]} any more, but the job has not read it to its "
                f"end: its records were deleted after the retention period, or the stream was created again. {_SKIP}"
            )
        self._unfinished = self._unfinished.intersection(found) | found.keys() - self._known
        self._known = set(found)
        self._is_first = False
        return list(found.values())

    def _start_s(self) -> int:
        start = self._stream.now() if self._start == "latest" else self._start
        return int(start.timestamp()) if isinstance(start, datetime) else 0

    def ready(self, waiting: Sequence[KinesisShard], limit: int | None, /) -> Sequence[KinesisShard]:
        return [split for split in waiting if self._unfinished.isdisjoint(split.parents)]

    def advance(self, split: KinesisShard, limit: int | None, /) -> Portion[KinesisShard] | None:
        if split.shard not in self._unfinished:
            return Portion(split, 0, last=True)  # it exists no more
        if split.shard in self._at_end:
            return None
        cursor = self._cursors.get(split.shard)
        if cursor is None or cursor.at != split:
            if self._is_expired(split):
                return Portion(split.reset(), 0)
            cursor = self._cursors[split.shard] = ShardCursor(self._stream, split)
        records = cursor.next(limit or RECORDS_AT_ONCE)
        if cursor.is_at_end:
            self._at_end.add(split.shard)
        if cursor.is_closed:
            self._unfinished.remove(split.shard)
            del self._cursors[split.shard]
        return Portion(cursor.at, len(records), cursor.is_closed)

    def _is_expired(self, split: KinesisShard) -> bool:
        """Return whether later records may have been deleted. Raises ``JobError`` if they must not be skipped."""
        age_hours = (self._clock.now_ms() - split.arrival_ms) / _MS_PER_HOUR
        if not split.position or age_hours <= self._stream.retention_hours:
            return False
        if not self._skip_expired:
            raise JobError(
                f"The position of {split.shard} in the stream {self._stream.name} has expired: the last record that "
                f"was read, {split.position}, arrived {age_hours:.1f} hours ago, and the stream keeps records for "
                f"{self._stream.retention_hours} hours. Later ones may have been deleted as well. {_SKIP}"
            )
        return True
