"""Writes the micro-batches of a streaming job: to its sinks, and what its checkpoint records of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from pyspark.sql import DataFrame

from dsv2.errors import CorruptDataError, Dsv2Error, UserFunctionError
from dsv2.graph import Plan
from dsv2.runtime.report.remedies import with_remedies
from dsv2.runtime.report.subtask_report import SubtaskReport
from runtime_spark.checkpoint.lease import Lease
from runtime_spark.checkpoint.source_reports import ReportArchive
from runtime_spark.frames.failures import job_failure
from runtime_spark.sink.publisher import Publisher
from runtime_spark.sink.sinks import SinkWriter
from runtime_spark.source.split_files import SplitFiles
from runtime_spark.start.checkpoint import Checkpoint

_TO_NAME_THE_RECORD = "Start the job again: it repeats the micro-batch, and the error names the position of the record."


class MicroBatchWriter:
    """Writes while the job holds the lease on its checkpoint.

    Args:
        sinks: Writes to the sinks.
        archive: Stores the reports of the source readers.
        splits: Passes them to the planners of sources with splits.
        checkpoint: The checkpoint.
        lease: The lease on it.
    """

    def __init__(
        self, sinks: SinkWriter, archive: ReportArchive, splits: SplitFiles, checkpoint: Checkpoint, lease: Lease
    ) -> None:
        self.sinks = sinks
        self.checkpoint = checkpoint
        self.splits = splits
        self._archive = archive
        self._lease = lease
        self._publisher: Publisher
        self._last_written: int | None = None

    def begin(self) -> None:
        """Begin to write files, before the query starts."""
        for sink in self.sinks.files:
            sink.begin(self.checkpoint.next_batch)

    def release(self) -> None:
        """Release the lease."""
        self._lease.release()

    def keep(self, is_over: Callable[[], bool], ended_normally: Callable[[], bool]) -> None:
        """Keep the lease, and publish what is committed, until the query is over. See ``Publisher``."""
        self._publisher = Publisher(self.sinks.files, self.checkpoint.is_committed, is_over, ended_normally)
        self._lease.keep(is_over)
        if self.sinks.files:
            self._publisher.start()

    def write(self, frames: DataFrame, batch_id: int) -> list[SubtaskReport]:
        """Write a micro-batch, by Spark's number, and return the reports of the subtasks."""
        self._lease.check()
        self.checkpoint.check_owned()
        self._publisher.await_published()
        self.checkpoint.note_logs(batch_id)
        self._last_written = batch_id
        written = self.sinks.write(frames, self.checkpoint.first_batch + batch_id)
        self._archive.add(batch_id, written.readers)
        self.splits.note(written.readers)
        self.checkpoint.add(batch_id, written)
        self._publisher.prepared(batch_id)
        return written.subtasks

    def failure_of(self, error: BaseException, plan: Plan, failed: Callable[[], list[int]] = list) -> Dsv2Error:
        """Convert an error of Spark to the error that the user gets. Parameters: those of ``job_failure``."""
        failure = job_failure(error, plan.job_name, self.sinks.tasks, failed)
        restored = self.checkpoint.restored_savepoint
        if isinstance(failure, CorruptDataError) and restored is not None and restored not in str(failure):
            return CorruptDataError(f"The savepoint {restored}: {failure}")
        return failure

    def with_remedies(self, failure: Dsv2Error, plan: Plan, batch_id: int) -> Dsv2Error:
        """Return the error of a micro-batch with the ways to continue, and record that it has failed."""
        if not isinstance(failure, UserFunctionError):
            return failure
        is_traced = plan.traces or batch_id == self.checkpoint.traced_batch
        try:
            self.checkpoint.note_failure(batch_id)
            ranges = self.checkpoint.ranges_read(batch_id)
        except Exception:  # the failure itself is more important
            ranges = []
        return with_remedies(failure, plan, ranges, "" if is_traced else _TO_NAME_THE_RECORD)

    def publish(self) -> None:
        """Wait until everything is published. Called when the query is over."""
        self._publisher.end()

    def note_unwritten(self) -> None:
        """Record that the sinks have not begun to write the micro-batch that follows the last one."""
        with contextlib.suppress(Exception):  # without the note, sinks are assumed to have written a part
            self._lease.check()
            self.checkpoint.note_unwritten(self._last_written)
