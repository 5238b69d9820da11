"""Runs the DataFrame of a streaming plan, and implements the handle of its job."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import NoReturn

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from dsv2.base.clock import Clock, SystemClock
from dsv2.checks.arguments import as_seconds
from dsv2.errors import Dsv2Error
from dsv2.graph import Plan
from dsv2.jobs.progress import JobProgress
from dsv2.jobs.unfinished_jobs import note_observed
from dsv2.runtime.report.job_reports import JobReports
from dsv2.runtime.report.job_waiting import Waiting
from dsv2.runtime.report.subtask_report import SubtaskReport
from runtime_spark.frames.failures import job_failure
from runtime_spark.frames.state_key import StateKey
from runtime_spark.frames.state_limit import StateSizes
from runtime_spark.job.micro_batch_writer import MicroBatchWriter
from runtime_spark.job.progress_thread import ProgressThread, QueryView, WrittenBatch
from runtime_spark.job.query_job import QueryJob, unprocessed
from runtime_spark.job.task_times import SparkTimes, spark_times, task_times, what_runs
from runtime_spark.platform.available_now import at_end_of_input, is_announced

_POLL_SECONDS = 0.002
_PATIENCE_SECONDS = 3.0
_SPARK_INTERRUPTION = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling stop: java.lang.InterruptedException"
)


class _StopRequestedError(Exception):
    """Ends a query before its next micro-batch has done anything."""


class StreamingJob(QueryJob):
    """``JobHandle`` of a streaming query. ``query`` is Spark's own handle.

    Args:
        spark: The session.
        plan: The plan.
        writer: Writes the micro-batches.
        reports: Combines what the subtasks report.
        sizes: Checks the size of the state.
        progress: Passes the progress on.
        clock: The wall clock.
        only_available: The job ends when it has read the input that was available at its start.
        state_key: Signs the state. None: it is not signed.
    """

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        writer: MicroBatchWriter,
        reports: JobReports,
        sizes: StateSizes,
        progress: ProgressThread,
        clock: Clock,
        *,
        only_available: bool,
        state_key: StateKey | None,
    ) -> None:
        super().__init__(plan, clock)
        self.query: StreamingQuery
        self._spark = spark
        self._writer = writer
        self._checkpoint = writer.checkpoint
        self._reports = reports
        self._state_sizes = sizes
        self._progress_thread = progress
        self._only_available = only_available
        self._state_key = state_key
        self._refuse_batches = False
        self._refused = False
        self._cancelled = False
        self._first_batch: int | None = None
        self._settling = threading.Lock()
        self._settled = False
        self._started = threading.Event()

    def start(self, start_query: Callable[[], StreamingQuery]) -> None:
        """Start the query, which may call ``write_batch`` immediately. Releases the lease if it does not start."""
        try:
            self._writer.begin()
            self.query = start_query()
        except BaseException as error:
            self._writer.release()
            if isinstance(error, Exception):
                raise job_failure(error, self._plan.job_name, self._writer.sinks.tasks) from error
            raise
        self._writer.keep(self._is_over, lambda: self._found_failure() is None)
        self._started.set()
        query = QueryView(self._is_over, self._spark_times, self._settle)
        self._progress_thread.begin(self, query, self._began)
        if self._only_available:
            self._keeper.start()
            if not is_announced(self._spark):
                at_end_of_input(self.query, self._end_query)
        elif self._checkpoint.is_complete:
            self._end_soon(after_first_trigger=True)  # there is no further micro-batch

    def write_batch(self, frames: DataFrame, batch_id: int) -> None:
        """Called by the query with each micro-batch."""
        if self._refuse_batches:
            self._refuse()
        if self._first_batch is None:
            self._first_batch = batch_id
        self._started.wait()  # the query may begin before start_query returns it
        try:
            reports = self._writer.write(frames, batch_id)
        except Exception as error:
            if not self._cancelled:
                self._failure = self._writer.with_remedies(self._failure_of(error), self._plan, batch_id)
            raise
        self._note(batch_id, reports)
        if self._reports.all_ended() or (self._only_available and self._is_exhausted()):
            self._end_soon()

    def _note(self, batch_id: int, reports: list[SubtaskReport]) -> None:
        written_at = SystemClock().now_ms()  # as the clocks of the workers
        tasks = task_times(self._plan, reports, written_at)
        reported = self._reports.add(self._checkpoint.first_batch + batch_id, reports, self._clock.now_ms())
        self._reports.note_splits(self._writer.splits.read())
        self._progress_thread.add(WrittenBatch(batch_id, reported, tasks, written_at))
        self._state_sizes.note(reports)

    def _spark_times(self, batch_id: int) -> SparkTimes | None:
        """Return what Spark has measured of a micro-batch that has been written; None if it is not complete."""
        with contextlib.suppress(Exception):  # the session has been stopped
            last = self.query.lastProgress
            if last is None or last.batchId < batch_id:
                return None
            if last.batchId == batch_id and (times := spark_times(last)) is not None:
                return times
            found = (spark_times(one) for one in self.query.recentProgress if one.batchId == batch_id)
            return next((times for times in found if times is not None), None)
        return None

    def _end_soon(self, *, after_first_trigger: bool = False) -> None:
        # Spark would trigger forever. A query cannot be stopped from within its own micro-batch.
        def end() -> None:
            # In the first trigger, the planners of the sources check that they can continue.
            while after_first_trigger and not self._is_over() and not self._is_waiting():
                time.sleep(_POLL_SECONDS)
            self._end_query()

        threading.Thread(target=end, name=f"dsv2-end-{self._plan.job_name}", daemon=True).start()

    def _is_waiting(self) -> bool:
        return str(self.query.status["message"]).startswith("Waiting for")  # data, or the next trigger

    def _is_over(self) -> bool:
        try:
            return not self.query.isActive
        except Exception:  # the session has been stopped
            return True

    def _refuse(self) -> NoReturn:
        # This micro-batch has done nothing, so there is nothing to interrupt. Once a query is marked as stopped, Spark
        # treats an error that looks like an interruption as a normal end, and any other error as a failure.
        self._refused = True
        threading.Thread(target=self._stop_query, name=f"dsv2-stop-{self._plan.job_name}", daemon=True).start()
        while self.query.isActive:
            time.sleep(_POLL_SECONDS)
        raise _StopRequestedError(_SPARK_INTERRUPTION)

    def _is_exhausted(self) -> bool:
        # A micro-batch without new input, which timers can cause, shows that there is no more. The first micro-batch
        # of a run does not, because it may repeat the last one of the previous run.
        last = self.query.lastProgress if self._started.is_set() else None
        if last is None or last.batchId == self._first_batch:
            return False
        return all(source.startOffset == source.endOffset for source in last.sources)

    @property
    def progress(self) -> JobProgress:
        """The progress as of the last micro-batch. Splits: as of the last time that their source was asked."""
        self._reports.note_splits(self._writer.splits.read())
        return self._reports.progress()

    def _end_outputs(self) -> None:
        """Publish what is committed, release the lease and tell the listeners. The query has ended."""
        self._settle()
        self._progress_thread.end()

    @property
    def _was_told_to_end(self) -> bool:
        """True if the query was ended by an error that is not a failure of the job."""
        return self._refused or self._cancelled

    def _settle(self) -> None:
        with self._settling:
            if self._settled:
                return
            self._settled = True
            self._ended = self._clock.now_ms()
            try:
                self._writer.publish()
            except Exception as error:
                self._failure = self._failure or self._failure_of(error)
            if self._is_over():
                self._writer.note_unwritten()
            self._writer.release()
            self._release_states()

    def _ends_within(self, seconds: float | None) -> bool:
        try:
            return self.query.awaitTermination(seconds) is not False  # type: ignore[arg-type]  # accepts fractions
        except Exception as error:
            if not self._was_told_to_end:
                self._failure = self._failure or self._failure_of(error)
            return True

    def _conclude(self) -> None:
        if self._failure is None:
            self._checkpoint.record_replays()
        self._end_outputs()
        if self._failure is None:
            self._checkpoint.unblocking.warn_of_missed(self._plan)

    def stop(self, timeout: timedelta | None = None) -> None:
        """End the job between two micro-batches, or within one after ``timeout``: see ``JobHandle``.

        Cancelling a micro-batch is safe, but it prints alarming stack traces and repeats work at the restart.
        """
        note_observed(self)
        self._stopped = self.query.isActive and not self._reports.all_ended()
        self._end_query(as_seconds(timeout, "timeout"), Waiting(self._plan.job_name, self._what_runs))
        if self._is_over():
            self._end_outputs()

    def _end_query(self, timeout_seconds: float | None = None, waiting: Waiting | None = None) -> None:
        self._started.wait()
        began = time.monotonic()
        # "Available now" is a single trigger, which does not pause before its end.
        patience = began + (0 if self._only_available else _PATIENCE_SECONDS)
        while self.query.isActive:
            if not self.query.status["isTriggerActive"]:
                if self._refuse_batches:
                    self._stop_query()
                    return
                self._refuse_batches = True  # and look again: a micro-batch may have begun at this moment
                continue
            # A query with one micro-batch after another rarely pauses, so its next micro-batch refuses to begin.
            if time.monotonic() > patience:
                self._refuse_batches = True
            if timeout_seconds is not None and time.monotonic() - began >= timeout_seconds:
                self._cancel()
                return
            if waiting is not None:
                waiting.log()
            time.sleep(_POLL_SECONDS)

    def _cancelled_within(self, seconds: float) -> bool:
        self._refuse_batches = self._cancelled = True
        # Spark waits without a limit for the thread that it has interrupted.
        stopping = threading.Thread(target=self._stop_query, name=f"dsv2-cancel-{self._plan.job_name}", daemon=True)
        stopping.start()
        stopping.join(seconds)
        return not stopping.is_alive()

    def _what_runs(self) -> str:
        return what_runs(self._writer.sinks, self._spark, self.query.status["message"])

    def _stop_query(self) -> None:
        with contextlib.suppress(Exception):  # await_termination reports a failure of the query
            self.query.stop()
        self._end_outputs()

    def _was_stopped(self) -> bool:
        return self._stopped or bool(self._reports.held())

    def _found_failure(self) -> Dsv2Error | None:
        if self._failure is None and not self._was_told_to_end:
            if (error := self.query.exception()) is not None:
                self._failure = self._failure_of(error)
            elif not self.query.isActive and not self._stopped:
                self._failure = unprocessed(self._plan, self._reports.held())
        return self._failure

    def _failure_of(self, error: BaseException) -> Dsv2Error:
        def failed() -> list[int]:
            return self._writer.sinks.tasks.failed(self._spark, str(self.query.runId))

        return self._writer.failure_of(error, self._plan, failed)
