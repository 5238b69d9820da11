"""What the driver decides for a table that is followed: the snapshot first, piece by piece, and then the log."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from dsv2.connectors.postgres.split import LOG, PostgresSplit
from dsv2.sources import (
    AssigningEnumerator,
    AssignmentState,
    Portion,
    RoundRobinSplitAssigner,
    SplitDiscovery,
    SplitEnumeratorContext,
)
from dsv2.watermark import Watermark

if TYPE_CHECKING:
    from dsv2.connectors.postgres.replication import Replication

__all__ = ("PostgresDiscovery", "PostgresEnumerator")

_QUIET_BYTES = 4 << 20
"""So much of the log without changes of the table is a reason to go on all the same, so that the slot may forget it."""


class PostgresEnumerator(AssigningEnumerator[PostgresSplit]):
    """The shared enumerator, over ``PostgresDiscovery``."""

    def __init__(
        self,
        ctx: SplitEnumeratorContext[PostgresSplit],
        restored: AssignmentState[PostgresSplit] | None,
        discovery: PostgresDiscovery,
        limit_per_batch: int | None,
    ) -> None:
        assigner = RoundRobinSplitAssigner()
        super().__init__(ctx, restored, discovery, assigner, bounded=False, limit_per_batch=limit_per_batch)
        self._postgres = discovery

    def snapshot_state(self) -> AssignmentState[PostgresSplit]:
        self._postgres.end_batch()
        return super().snapshot_state()


class PostgresDiscovery(SplitDiscovery[PostgresSplit]):
    """Lives on the driver for one run of the job.

    ``replace``: as in ``Replication.begin``. ``log_bytes_per_batch``: how much of the log a micro-batch goes on.
    ``at_end_of_snapshot``: a watermark that all readers send then, and once in every later run.
    """

    def __init__(
        self,
        ctx: SplitEnumeratorContext[PostgresSplit],
        restored: AssignmentState[PostgresSplit] | None,
        replication: Replication,
        *,
        replace: bool,
        log_bytes_per_batch: int,
        at_end_of_snapshot: Watermark | None,
    ) -> None:
        self._ctx = ctx
        self._restored = restored if restored is not None and restored.discovered else None
        self._replication = replication
        self._replace = replace
        self._log_bytes_per_batch = log_bytes_per_batch
        self._to_tell = at_end_of_snapshot
        self._unread: set[str] = set()  # pieces of the snapshot
        self._snapshot_is_over = False  # since the micro-batch before at the latest
        self._end: int | None = None  # of the log, as the last look has seen it
        self._quiet_end = 0  # up to where there is no change of the table
        self._claimed = False
        self._copy_dropped = False

    def discover(self) -> Collection[PostgresSplit]:
        splits = self._begin() if self._restored is None else _known(self._restored)
        self._unread = {split.name for split in splits if split.name != LOG}
        self._snapshot_is_over = not self._unread
        return splits

    def _begin(self) -> list[PostgresSplit]:
        start = self._replication.begin(replace=self._replace)
        count = max(1, min(self._ctx.parallelism, start.rows))
        bounds = [start.rows * number // count for number in range(count + 1)]
        pieces = [
            PostgresSplit(f"snapshot-{number}", start.table, first, stop)
            for number, (first, stop) in enumerate(pairwise(bounds))
            if first < stop
        ]
        return [*pieces, PostgresSplit(LOG, start.table, start.lsn)]

    def refresh(self) -> None:
        self._end = None

    def advance(self, split: PostgresSplit, limit: int | None, /) -> Portion[PostgresSplit] | None:
        if split.name == LOG:
            # What changed goes into later micro-batches than the snapshot: within one, readers have no order.
            return self._advance_log(split, limit) if self._snapshot_is_over else None
        assert split.stop is not None
        position = split.stop if limit is None else min(split.stop, split.position + limit)
        last = position == split.stop
        if last:
            self._unread.discard(split.name)
        return Portion(replace(split, position=position), size=position - split.position, last=last)

    def end_batch(self) -> None:
        """A micro-batch has been decided on."""
        self._snapshot_is_over = not self._unread

    def _advance_log(self, split: PostgresSplit, limit: int | None) -> Portion[PostgresSplit] | None:
        if self._to_tell is not None:
            self._ctx.emit_watermark(self._to_tell)
            self._to_tell = None
        if self._end is None:
            self._end = self._replication.log.end()
        stop = min(self._end, split.position + self._log_bytes_per_batch)
        if stop <= max(split.position, self._quiet_end):
            return None
        self._replication.check(split.table)
        quiet_bytes = min(_QUIET_BYTES, self._log_bytes_per_batch)
        if stop - split.position < quiet_bytes and not self._replication.log.has_changes(
            split.table, split.position, stop
        ):
            self._quiet_end = stop
            return None
        # How many changes that is nobody knows: it takes the share of the micro-batch that there is.
        return Portion(replace(split, position=stop), size=1 if limit is None else limit)

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


def _known(restored: AssignmentState[PostgresSplit]) -> list[PostgresSplit]:
    """Stand-ins for what is not read to its end: the checkpoint knows the positions."""
    waiting = (*restored.unassigned, *(split for splits in restored.pending.values() for split in splits))
    names = dict.fromkeys([*restored.owners, *(split.name for split in waiting)])
    return [PostgresSplit(name, 0, 0) for name in names]
