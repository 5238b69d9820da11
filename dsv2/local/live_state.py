"""The committed state of a running local job, for other threads than its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from dsv2.errors import ConfigurationError, JobError
from dsv2.graph import Operator, Plan
from dsv2.local.execution import JobStart
from dsv2.local.page_log import PinnedPages
from dsv2.local.state_pages import StoredSubtask, stored_subtasks
from dsv2.local.workers.messages import worker_of
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.runtime.state.rows import StateRow
from dsv2.savepoint.live_state import LiveState, no_micro_batch


class PinnedState:
    """The state after a micro-batch (``CommittedState``), in pages that stay as they are.

    Args:
        batch_id: The micro-batch.
        pages: The pages of each process that runs subtasks.
        plan: The plan of the job.
        codec: Decodes the state.
    """

    def __init__(self, batch_id: int, pages: Sequence[PinnedPages], plan: Plan, codec: Codec) -> None:
        self.batch_id = batch_id
        self._pages = pages
        self._codec = codec
        self._owners: dict[str, tuple[str, Operator]] = {
            operator.uid: (plan.operators[head].uid, operator)
            for head, chain in plan.chains.items()
            for operator in chain
        }

    def rows(self, uid: str) -> Iterator[StateRow]:
        """Return the rows of an operator."""
        head, _ = self._owners[uid]
        for subtask in (one for pages in self._pages for one in stored_subtasks(pages)):
            if subtask.uid == head:
                yield from (row for _, row in subtask.rows(self._codec, uid))

    def rows_near(self, uid: str, key: object) -> Iterator[StateRow]:
        """Return the rows of a key of an operator, and those of the other keys in its page."""
        head, operator = self._owners[uid]
        index = subtask_of(key, operator.max_parallelism, operator.parallelism)
        pages = self._pages[worker_of(index, len(self._pages))]
        return StoredSubtask(pages, head, index).rows_near(self._codec, uid, key)


def live_state(start: JobStart) -> LiveState:
    """Return the states of a run.

    Raises:
        ConfigurationError: The job has no checkpoint.
    """
    plan, name = start.plan, start.plan.job_name
    if start.checkpoint is None:
        raise ConfigurationError(
            f"The job {name!r} has no checkpoint_location, so no micro-batch of it is committed, and its state cannot "
            f"be read."
        )
    return LiveState(plan, start.begun.record.program, TypeRegistry.of(plan), partial(_pinned, start))


@contextmanager
def _pinned(start: JobStart, codec: Codec) -> Iterator[PinnedState]:
    assert start.checkpoint is not None
    try:
        with start.checkpoint.pinned() as (batch_id, pages):
            if batch_id < start.begun.batch_id:
                raise no_micro_batch(start.plan.job_name)
            yield PinnedState(batch_id, pages, start.plan, codec)
    except FileNotFoundError as error:
        raise JobError(
            f"The job {start.plan.job_name!r} was started again while its state was read. Ask again."
        ) from error
