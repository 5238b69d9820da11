"""Reads records of an indexed source by index."""

from __future__ import annotations

from typing import Any

from dsv2.base.log_scope import in_scope
from dsv2.graph import Operator, Plan
from dsv2.runtime.sources.decoding import Decoding
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.sources import IndexedSource, SplitBatch


class IndexedReading:
    """Sends records of a source to ``task``, the subtask ``subtask`` of ``operator``.

    Args:
        source: The source.
        plan: The plan of the job.
        operator: The operator of the source.
        subtask: The index of the subtask.
        task: Receives the records.
    """

    def __init__(
        self, source: IndexedSource[Any], plan: Plan, operator: Operator, subtask: int, task: SourceTask
    ) -> None:
        self._read = source.dsv2_read_columns if plan.processes_columns(operator) else source.read
        self._task = task
        self._decoding = Decoding(operator, subtask, task, now_ms=0, callback="read")
        self._decoding.begin(0, str)

    def send(self, indices: range) -> None:
        """Send the records at ``indices``. Raises ``UserFunctionError`` if user code raises."""
        read = self._read
        batch = SplitBatch[Any](
            indices,
            lambda index: read(range(index, index + 1))[0],
            offsets=lambda: indices,
            decode_all=lambda: read(indices),
        )
        with in_scope(self._task.scope):
            self._task.send(*self._decoding.decode(batch))
