"""The records of sources that a local run skips."""

from __future__ import annotations

from dataclasses import replace

from dsv2.graph import Plan
from dsv2.graph.skips import warn_of_skip, with_skips
from dsv2.job import RunOptions
from dsv2.local.beginning import Beginning
from dsv2.local.checkpoint import LocalCheckpoint
from dsv2.program.unblocking import Unblocking
from dsv2.runtime.sources.ranges import has_read

__all__ = ("plan_of_run",)


def plan_of_run(
    plan: Plan, options: RunOptions, begun: Beginning, checkpoint: LocalCheckpoint | None
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
    _warn_of_records_read(plan, begun, unblocking)
    return with_skips(plan, unblocking.skips), unblocking


def _warn_of_records_read(plan: Plan, begun: Beginning, unblocking: Unblocking) -> None:
    sources = {operator.uid: operator for operator in plan.operators}
    for at in unblocking.unread:
        source, position = sources.get(at.source), begun.positions.get(at.source)
        if source is not None and position is not None and has_read(source, position.offset, at.split, at.offset):
            warn_of_skip(source, at.split, at.offset, "earlier micro-batches have read this record")
