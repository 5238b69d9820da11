"""The sinks of a local run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dsv2.base.clock import Clock
from dsv2.file_log.ownership import OutputOwner
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.local.checkpoint import SinkOutput
from dsv2.local.file_sinks import LocalFileSink
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.frames import Frame
from dsv2.runtime.report.sink_calls import begin, name_of, write_in_task, write_on_driver
from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.sinks import FileSink, ParallelSink, SinkBatch, SinkInfo, SinkRunInfo


class LocalSinks:
    """Writes to the sinks of one run of the job ``job_id``."""

    def __init__(
        self, plan: Plan, job_id: str, run: SinkRunInfo, clock: Clock, owner: OutputOwner | None = None
    ) -> None:
        """Create the writers.

        Args:
            plan: The plan.
            job_id: The job.
            run: The run.
            clock: The wall clock.
            owner: The job and its checkpoint, for files. None: there is no checkpoint.
        """
        self._files = {
            operator.id: LocalFileSink(operator, clock, run.run_id, owner)
            for operator in plan.operators
            if isinstance(operator.body, FileSink)
        }
        self._sinks = [operator for operator in plan.operators if operator.kind is OperatorKind.SINK]
        self._job_id = job_id
        self._run = run
        self._begun: set[tuple[int, int]] = set()  # the sinks, and the parallelism with which they have begun

    def begin(self, next_batch: int) -> None:
        """Called before the run writes. Raises ``JobError``.

        ``next_batch``: The first micro-batch that is not stored in the checkpoint.
        """
        for sink in self._files.values():
            sink.begin(next_batch)

    def roll(self, *, at_end: bool = False) -> None:
        """Merge small files if it is time to, or if the run ends. Raises ``JobError``."""
        for sink in self._files.values():
            if at_end:
                sink.finish()
            elif sink.is_due():
                sink.roll()

    def write(self, frames: Iterable[Frame], batch_id: int) -> None:
        """Write one micro-batch to all sinks. Raises ``JobError``."""
        by_sink: dict[int, list[tuple[int, RecordBatch[Any]]]] = {operator.id: [] for operator in self._sinks}
        for frame in frames:
            by_sink[frame.operator].append((frame.subtask, frame.batch))
        for operator in self._sinks:
            self._write(operator, by_sink[operator.id], operator.parallelism, batch_id)

    def write_again(self, outputs: Sequence[SinkOutput], codec: Codec, batch_id: int) -> None:
        """Write a micro-batch of an earlier run, which the sinks may have in part. Raises ``JobError``."""
        for operator in self._sinks:
            found = [output for output in outputs if output.uid == operator.uid]
            parallelism = found[0].parallelism if found else operator.parallelism
            records = [(output.subtask, _decoded(output, codec)) for output in found]
            self._write(operator, records, parallelism, batch_id)

    def _write(
        self, operator: Operator, records: Sequence[tuple[int, RecordBatch[Any]]], parallelism: int, batch_id: int
    ) -> None:
        if (files := self._files.get(operator.id)) is not None:
            files.write([batch for _, batch in records], batch_id)
        elif isinstance(operator.body, ParallelSink):
            self._write_subtasks(operator, operator.body, records, parallelism, batch_id)
        else:
            write_on_driver(operator, self._job_id, [batch for _, batch in records], batch_id)

    def _write_subtasks(
        self,
        operator: Operator,
        sink: ParallelSink[Any],
        records: Sequence[tuple[int, RecordBatch[Any]]],
        parallelism: int,
        batch_id: int,
    ) -> None:
        info = SinkInfo(self._job_id, operator.uid, parallelism, self._run)
        if (operator.id, parallelism) not in self._begun:
            begin(sink, info, batch_id, name_of(operator))
            self._begun.add((operator.id, parallelism))
        for subtask in sorted({number for number, _ in records}):
            batches = [batch for number, batch in records if number == subtask]
            write_in_task(sink, SinkBatch(info, subtask, batch_id, iter(batches)), name_of(operator))


def encoded_outputs(plan: Plan, frames: Iterable[Frame], codec: Codec) -> list[SinkOutput]:
    """Encode the frames for the sinks of ``plan``."""
    outputs = []
    for frame in frames:
        operator = plan.operators[frame.operator]
        columns = [frame.batch.records, frame.batch.timestamps or ()]
        blob = codec.seal_columns(BlobKind.FRAME, columns)
        outputs.append(SinkOutput(operator.uid, operator.parallelism, frame.subtask, blob))
    return outputs


def _decoded(output: SinkOutput, codec: Codec) -> RecordBatch[Any]:
    owner = f"A record for the sink {output.uid!r}"
    records, timestamps = codec.unseal_columns(BlobKind.FRAME, output.records, owner)
    return RecordBatch(records, timestamps if len(timestamps) else None)
