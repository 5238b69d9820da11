"""The driver's side of ``PostgresSource``: plans micro-batches of the snapshot, in several splits, then of the log."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

from dsv2.connectors.postgres.replication import Replication
from dsv2.connectors.postgres.settings import ReplicationSettings
from dsv2.connectors.postgres.split import LOG, PostgresSplit
from dsv2.sources import AssignmentState, Portion, SplitDiscovery, SplitEnumeratorContext
from dsv2.watermark import Watermark

_QUIET_BYTES = 4 << 20
"""Advance over so many bytes of the log even without changes of the table, so that the slot can release them."""


class PostgresDiscovery(SplitDiscovery[PostgresSplit]):
    """Created on the driver for each run of the job.

    ``at_end_of_snapshot``: a watermark that all readers emit after the snapshot, and once in every later run.
    """

    def __init__(
        self,
        ctx: SplitEnumeratorContext[PostgresSplit],
        restored: AssignmentState[PostgresSplit] | None,
        settings: ReplicationSettings,
        at_end_of_snapshot: Watermark | None,
    ) -> None:
        self._ctx = ctx
        self._restored = restored if restored is not None and restored.discovered else None
        self._replication = Replication(settings)
        self._log_bytes_per_batch = settings.log_bytes_per_batch
        self._pending_watermark = at_end_of_snapshot
        self._unread: set[str] = set()  # splits of the snapshot
        self._snapshot_is_over = False  # complete in an earlier micro-batch
        self._end: int | None = None  # the end of the log at the last refresh
        self._quiet_end = 0  # the log has no changes of the table up to here
        self._claimed = False
        self._copy_dropped = False

    def discover(self) -> Collection[PostgresSplit]:
        if self._restored is None:
            splits = self._begin()
        else:  # placeholders: the positions are in the checkpoint
            splits = [PostgresSplit(name, 0, 0) for name in self._restored.unfinished]
        self._unread = {split.name for split in splits if split.name != LOG}
        return splits

    def _begin(self) -> list[PostgresSplit]:
        rows, log = self._replication.begin()
        count = max(1, min(self._ctx.parallelism, rows))
        bounds = [rows * number // count for number in range(count + 1)]
        snapshot = [
            replace(log, name=f"snapshot-{number}", position=first, stop=stop)
            for number, (first, stop) in enumerate(pairwise(bounds))
            if first < stop
        ]
        return [*snapshot, log]

    def refresh(self) -> None:
        self._end = None

    def ready(self, waiting: Sequence[PostgresSplit], limit: int | None, /) -> Sequence[PostgresSplit]:
        self._snapshot_is_over = not self._unread
        return waiting

    def advance(self, split: PostgresSplit, limit: int | None, /) -> Portion[PostgresSplit] | None:
        if split.name == LOG:
            # Changes come in later micro-batches than the snapshot: the readers of one micro-batch are not ordered.
            return self._advance_log(split, limit) if self._snapshot_is_over else None
        assert split.stop is not None
        position = split.stop if limit is None else min(split.stop, split.position + limit)
        last = position == split.stop
        if last:
            self._unread.discard(split.name)
        return Portion(replace(split, position=position), size=position - split.position, last=last)

    def lag(self, split: PostgresSplit, /) -> int | None:
        return None if split.stop is None else split.stop - split.position  # changes cannot be counted

    def _advance_log(self, split: PostgresSplit, limit: int | None) -> Portion[PostgresSplit] | None:
        if self._pending_watermark is not None:
            self._ctx.emit_watermark(self._pending_watermark)
            self._pending_watermark = None
        if self._end is None:
            self._end = self._replication.log.end()
        stop = min(self._end, split.position + self._log_bytes_per_batch)
        if stop <= max(split.position, self._quiet_end):
            return None
        key = self._replication.check(split)
        quiet_bytes = min(_QUIET_BYTES, self._log_bytes_per_batch)
        if stop - split.position < quiet_bytes and not self._replication.log.has_changes(
            split.table, split.position, stop
        ):
            self._quiet_end = stop
            return None
        # The number of changes is unknown, so the log uses up the remaining limit of the micro-batch.
        return Portion(replace(split, position=stop, key=key), size=1 if limit is None else limit)

    def notify_checkpoint_complete(self, splits: Sequence[PostgresSplit], /) -> None:
        for split in splits:
            if split.name == LOG:
                self._replication.log.forget(split.position)
        if not self._claimed:
            self._replication.claim()
            self._claimed = True
        if not self._copy_dropped and all(split.name == LOG for split in splits):
            self._replication.drop_copy()
            self._copy_dropped = True

    def close(self) -> None:
        self._replication.close()
