"""The records of sources that a local run skips."""

from __future__ import annotations

from dataclasses import replace

from dsv2.base.record_position import RecordPosition
from dsv2.checkpoint.failed_batch import Unblocking
from dsv2.graph import Operator, Plan
from dsv2.graph.record_skips import with_skips
from dsv2.jobs.handle import RunOptions
from dsv2.local.checkpoint import LocalCheckpoint
from dsv2.local.restoration import LocalStart
from dsv2.runtime.sources.ranges import has_read


def plan_of_run(
    plan: Plan, options: RunOptions, begun: LocalStart, checkpoint: LocalCheckpoint | None
) -> tuple[Plan, Unblocking | None]:
    """Return ``plan`` as the run needs it, which skips and traces records, and what the checkpoint remembers of skips.

    Without a checkpoint, only this run skips the records.

    Raises:
        CorruptDataError: What the checkpoint remembers is damaged.
    """
    plan = replace(plan, traces=options.trace_records)
    if checkpoint is None:
        return with_skips(plan, options.skip_records), None
    unblocking = Unblocking(checkpoint.folder, options.skip_records, begun.batch_id)

    def is_read(source: Operator, at: RecordPosition) -> bool:
        position = begun.record.sources.get(at.source)
        return position is not None and has_read(source, position.offset, at.split, at.offset)

    unblocking.warn_of_read(plan, is_read)
    return with_skips(plan, unblocking.skips), unblocking
