"""The sinks of a local run."""

from __future__ import annotations

from collections.abc import Sequence

from dsv2.graph import Operator
from dsv2.runtime.exchange.frames import Frame
from dsv2.runtime.report.sink_calls import begin, name_of, write_in_task, write_on_driver
from dsv2.sinks import ParallelSink, SinkBatch, SinkInfo, SinkRunInfo

__all__ = ("LocalSinks",)


class LocalSinks:
    """Writes to the sinks of one run with the given ``job_id``."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._begun: set[int] = set()

    def write(self, operator: Operator, frames: Sequence[Frame], batch_id: int) -> None:
        """Write the frames of one micro-batch to the sink ``operator``. Raises ``JobError``."""
        frames = [frame for frame in frames if frame.batch]
        if isinstance(operator.body, ParallelSink):
            self._write_subtasks(operator, operator.body, frames, batch_id)
        else:
            write_on_driver(operator, self._job_id, [frame.batch for frame in frames], batch_id)

    def _write_subtasks(
        self, operator: Operator, sink: ParallelSink[object], frames: Sequence[Frame], batch_id: int
    ) -> None:
        info = SinkInfo(self._job_id, operator.uid, operator.parallelism, SinkRunInfo(self._job_id))
        if operator.id not in self._begun:
            begin(sink, info, batch_id, name_of(operator))
            self._begun.add(operator.id)
        for subtask in sorted({frame.subtask for frame in frames}):
            batches = [frame.batch for frame in frames if frame.subtask == subtask]
            write_in_task(sink, SinkBatch(info, subtask, batch_id, iter(batches)), name_of(operator))
