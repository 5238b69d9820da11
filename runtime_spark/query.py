"""Runs the DataFrame of a plan, and implements the handles of its job."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from typing import Any, NoReturn

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from dsv2.arguments import as_seconds
from dsv2.clock import Clock
from dsv2.errors import Dsv2Error, JobError
from dsv2.graph import OperatorKind, Plan
from dsv2.job import JobProgress, JobResult, JobStatus
from dsv2.runtime.report.progress import job_progress
from dsv2.sources import BaseSource, IndexedSource
from dsv2.tracebacks import short_traceback
from dsv2.unfinished import asked
from runtime_spark.checkpoint import Checkpoint
from runtime_spark.failures import job_failure
from runtime_spark.job_group import JobGroup
from runtime_spark.layout import Layout
from runtime_spark.lease import Lease
from runtime_spark.sinks import SinkWriter
from runtime_spark.source_reports import ReportArchive
from runtime_spark.state_limit import StateSizes
from runtime_spark.tasks import Tasks

__all__ = ("BatchJob", "StreamingJob")

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 0.002
_CANCEL_SECONDS = 20.0  # Spark kills a worker that does not end its task within two seconds
_CANCEL_INTERVAL_SECONDS = 0.2
_FIRST_LOG_SECONDS = 10.0
_PATIENCE_SECONDS = 3.0
_KEEPER_SECONDS = 1.0
_SPARK_INTERRUPTION = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling stop: java.lang.InterruptedException"
)


class _Reports:
    """The latest progress report of every operator and subtask."""

    def __init__(self, plan: Plan, ended_sources: Collection[tuple[str, int]]) -> None:
        """``ended_sources``: The subtasks of sources that ended in earlier runs, and report nothing in this one."""
        self._plan = plan
        self._ended_sources = ended_sources
        self._awaited = [
            (operator.uid, subtask)
            for operator in [*(one for chain in plan.chains.values() for one in chain), *plan.read_by_sinks]
            for subtask in range(operator.parallelism)
        ]
        self._latest: dict[tuple[str, int], dict[str, Any]] = {}
        self._batch_id = -1
        # Sources and the operators chained to them have no state to count in, so they report each portion separately.
        sources = [operator for operator in plan.operators if operator.kind is OperatorKind.SOURCE]
        self._in_portions = {operator.uid for operator in [*sources, *plan.chained_to_sources]}
        self._sums: dict[tuple[str, int], dict[str, Any]] = {}

    def add(self, batch_id: int, reports: list[dict[str, Any]]) -> None:
        for report in reports:
            place = (report["uid"], report["subtask"])
            self._latest[place] = report
            if report["uid"] in self._in_portions:
                before = self._sums.get(place, {"records_in": 0, "records_out": 0, "counters": {}})
                sums = {count: before[count] + report[count] for count in ("records_in", "records_out")}
                counters = Counter(before["counters"])
                counters.update(report["counters"])
                self._sums[place] = {**report, **sums, "counters": dict(counters)}
        self._batch_id = batch_id

    def progress(self) -> JobProgress:
        return job_progress(self._plan, self._batch_id, [*self._latest.values(), *self._sums.values()])

    def held(self) -> dict[str, int]:
        """Return the number of records buffered behind aligned watermarks, for each operator that has any."""
        counts = Counter[str]()
        for (uid, _), report in self._latest.items():
            counts[uid] += report["records_held"]
        return {str(operator): counts[operator.uid] for operator in self._plan.operators if counts[operator.uid]}

    def all_ended(self) -> bool:
        """Whether every subtask has received the end of its input, and every source that a sink reads has ended."""
        return all(self._latest.get(place, {}).get("ended") or place in self._ended_sources for place in self._awaited)


class _StopRequestedError(Exception):
    """Ends a query before its next micro-batch has done anything."""


class _Keeper(threading.Thread):
    """Keeps the program running until a bounded job ends, unless Ctrl-C interrupts the wait for it."""

    def __init__(self, ends_within: Callable[[float], bool]) -> None:
        super().__init__(name="dsv2-keeper", daemon=False)
        self._ends_within = ends_within
        self._given_up = False

    def run(self) -> None:
        with contextlib.suppress(Exception):  # the handle reports the failure of the job
            while not self._given_up and not self._ends_within(_KEEPER_SECONDS):
                pass

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Wrap the user's own wait for the job."""
        try:
            yield
        except KeyboardInterrupt:
            self._given_up = True
            raise


class StreamingJob:
    """``JobHandle`` of a streaming query. ``query`` is Spark's own handle."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        layout: Layout,
        writer: SinkWriter,
        archive: ReportArchive,
        checkpoint: Checkpoint,
        lease: Lease,
        clock: Clock,
        *,
        only_available: bool,
    ) -> None:
        """``only_available``: The job ends when it has read the input that was available at its start."""
        self.query: StreamingQuery
        self._spark = spark
        self._only_available = only_available
        self._plan = plan
        self._writer = writer
        self._archive = archive
        self._checkpoint = checkpoint
        self._lease = lease
        self._reports = _Reports(plan, checkpoint.ended_sources())
        self._state_sizes = StateSizes(plan, layout)
        self._clock = clock
        self._began = clock.now_ms()
        self._failure: Dsv2Error | None = None
        self._stopped = False
        self._refuse_batches = False
        self._cancelled = False
        self._first_batch: int | None = None
        self._started = threading.Event()
        self._keeper = _Keeper(self._ends_within)

    def start(self, start_query: Callable[[], StreamingQuery]) -> None:
        """Start the query, which may call ``write_batch`` immediately. Releases the lease if it does not start."""
        try:
            self.query = start_query()
        except BaseException as error:
            self._lease.release()
            if isinstance(error, Exception):
                raise job_failure(error, self._plan.job_name, self._writer.tasks) from error
            raise
        self._lease.keep(self._is_over)
        self._started.set()
        if self._only_available:
            self._keeper.start()
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
            self._lease.check()
            written = self._writer.write(frames, batch_id)
            self._archive.add(batch_id, [report for report in written if "source" in report])
            self._checkpoint.add(batch_id, written)
        except Exception as error:
            if not self._cancelled:
                self._failure = self._failure_of(error)
            raise
        of_operators = [report for report in written if "uid" in report]
        self._reports.add(batch_id, of_operators)
        self._state_sizes.note(of_operators)
        if self._reports.all_ended() or (self._only_available and self._is_exhausted()):
            self._end_soon()

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

    def __repr__(self) -> str:
        return f"<job {self._plan.job_name!r}: {self.status.value}>"

    @property
    def status(self) -> JobStatus:
        """Running, finished, stopped or failed."""
        if self.query.isActive:
            return JobStatus.RUNNING
        if self._found_failure() is not None:
            return JobStatus.FAILED
        return JobStatus.STOPPED if self._stopped or self._reports.held() else JobStatus.FINISHED

    @property
    def progress(self) -> JobProgress:
        """The progress as of the last micro-batch."""
        return self._reports.progress()

    @short_traceback
    def await_termination(self, timeout: timedelta | None = None) -> bool:
        """Wait until the job ends; False if ``timeout`` passed first. Raises the error that the job failed with."""
        try:
            with self._keeper.waiting():
                ended = self._ends_within(as_seconds(timeout, "timeout"))
        except Exception as error:
            self._lease.release()
            if self._refuse_batches and self._failure is None:
                return True
            failure = self._failure or self._failure_of(error)
            self._failure = failure
            asked(self)
            raise failure from None
        if not ended:
            return False
        self._lease.release()
        if (unfinished := self.exception()) is not None:
            raise unfinished
        return True

    def _ends_within(self, seconds: float | None) -> bool:
        return self.query.awaitTermination(seconds) is not False  # type: ignore[arg-type]  # accepts fractions

    def stop(self, timeout: timedelta | None = None) -> None:
        """End the job between two micro-batches, or within one after ``timeout``: see ``JobHandle``.

        Cancelling a micro-batch is safe, but it prints alarming stack traces and repeats work at the restart.
        """
        asked(self)
        self._stopped = self.query.isActive and not self._reports.all_ended()
        self._end_query(as_seconds(timeout, "timeout"), _Waiting(self._plan.job_name, self._what_runs))

    def _end_query(self, timeout_seconds: float | None = None, waiting: _Waiting | None = None) -> None:
        self._started.wait()
        began = time.monotonic()
        # "Available now" is a single trigger, which does not pause before its end.
        patience = began + (0 if self._only_available else _PATIENCE_SECONDS)
        while self.query.isActive and self.query.status["isTriggerActive"]:
            # A query with one micro-batch after another rarely pauses, so its next micro-batch refuses to begin.
            if time.monotonic() > patience:
                self._refuse_batches = True
            if timeout_seconds is not None and time.monotonic() - began >= timeout_seconds:
                self._cancel()
                return
            if waiting is not None:
                waiting.log()
            time.sleep(_POLL_SECONDS)
        if self.query.isActive:
            self._stop_query()

    def _cancel(self) -> None:
        self._refuse_batches = self._cancelled = True
        # Spark waits without a limit for the thread that it has interrupted.
        stopping = threading.Thread(target=self._stop_query, name=f"dsv2-cancel-{self._plan.job_name}", daemon=True)
        stopping.start()
        stopping.join(_CANCEL_SECONDS)
        if stopping.is_alive():
            raise JobError(f"Job {self._plan.job_name!r} was cancelled but has not ended: {self._what_runs()}.")

    def _what_runs(self) -> str:
        if (sink := self._writer.writes_to) is not None:
            return f"the function of the sink {sink}, defined at {sink.location}, has not returned"
        return _in_spark(self._writer.tasks, self._spark, self.query.status["message"])

    def _stop_query(self) -> None:
        with contextlib.suppress(Exception):  # await_termination reports a failure of the query
            self.query.stop()
        self._lease.release()

    def exception(self) -> Dsv2Error | None:
        """Return the error that the job failed with, or None."""
        asked(self)
        return self._found_failure()

    def _found_failure(self) -> Dsv2Error | None:
        if self._failure is None and not self._refuse_batches:
            if (error := self.query.exception()) is not None:
                self._failure = self._failure_of(error)
            elif not self.query.isActive and not self._stopped:
                self._failure = self._unprocessed()
        return self._failure

    def _failure_of(self, error: BaseException) -> Dsv2Error:
        def failed() -> list[int]:
            return self._writer.tasks.failed(self._spark, str(self.query.runId))

        return job_failure(error, self._plan.job_name, self._writer.tasks, failed)

    def _unprocessed(self) -> Dsv2Error | None:
        """Return the error of a job whose input has ended before all records were processed, or None."""
        held = self._reports.held()
        if not held or not _input_ends(self._plan):
            return None
        where = ", ".join(f"{count} in {operator}" for operator, count in held.items())
        return JobError(
            f"Job {self._plan.job_name!r} has reached the end of its input, but records are still buffered behind "
            f"aligned watermarks: {where}."
        )

    @short_traceback
    def result(self) -> JobResult:
        """Wait for the end and return the result. Raises the error that the job failed with."""
        asked(self)
        self.await_termination()
        return JobResult(self._plan.job_name, timedelta(milliseconds=self._clock.now_ms() - self._began), self.progress)


class _Waiting:
    """Logs what ``stop`` waits for, at intervals that double."""

    def __init__(self, job_name: str, what_runs: Callable[[], str]) -> None:
        self._job_name = job_name
        self._what_runs = what_runs
        self._began = time.monotonic()
        self._next = _FIRST_LOG_SECONDS

    def log(self) -> None:
        waited = time.monotonic() - self._began
        if waited >= self._next:
            self._next *= 2
            _LOG.warning(
                "stop() has waited %d s for the running micro-batch of job %r: %s. To cancel it, call "
                "stop(timeout=...).",
                waited,
                self._job_name,
                self._what_runs(),
            )


def _in_spark(tasks: Tasks, spark: SparkSession, doing: str) -> str:
    numbers = tasks.running(spark)
    found = [name for number in numbers for name in tasks.subtasks_in(number)]
    running = (
        f"; tasks {', '.join(map(str, numbers))} are running, which may contain {'; '.join(found)}" if found else ""
    )
    return f"Spark reports {doing!r}{running}"


class BatchJob:
    """``JobHandle`` of a batch job, which runs in its own thread."""

    def __init__(self, plan: Plan, frames: DataFrame, writer: SinkWriter, clock: Clock) -> None:
        self._plan = plan
        self._frames = frames
        self._writer = writer
        self._clock = clock
        self._began = self._ended = clock.now_ms()
        self._reports = _Reports(plan, ())
        self._failure: Dsv2Error | None = None
        self._cancelled = False
        self._spark = frames.sparkSession
        self._group = JobGroup(self._spark, plan.job_name)
        self._thread = threading.Thread(target=self._run, name=f"dsv2-{plan.job_name}", daemon=True)
        self._thread.start()
        self._keeper = _Keeper(self._ends_within)
        self._keeper.start()

    def _ends_within(self, seconds: float | None) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._group.add_thread()
        try:
            written = self._writer.write(self._frames, 0)
            self._reports.add(0, [report for report in written if "uid" in report])
        except Exception as error:
            if not self._cancelled:
                self._failure = job_failure(error, self._plan.job_name, self._writer.tasks)
        self._ended = self._clock.now_ms()

    def __repr__(self) -> str:
        return f"<job {self._plan.job_name!r}: {self.status.value}>"

    @property
    def status(self) -> JobStatus:
        """Running, finished, cancelled or failed."""
        if self._thread.is_alive():
            return JobStatus.RUNNING
        if self._cancelled:
            return JobStatus.STOPPED
        return JobStatus.FINISHED if self._failure is None else JobStatus.FAILED

    @property
    def progress(self) -> JobProgress:
        """Empty until the end: a batch job reports once."""
        return self._reports.progress()

    @short_traceback
    def await_termination(self, timeout: timedelta | None = None) -> bool:
        """Wait until the job ends; False if ``timeout`` passed first. Raises the error that the job failed with."""
        with self._keeper.waiting():
            if not self._ends_within(as_seconds(timeout, "timeout")):
                return False
        asked(self)
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self, timeout: timedelta | None = None) -> None:
        """Wait for the end, or cancel the job after ``timeout``: see ``JobHandle``."""
        seconds = as_seconds(timeout, "timeout")
        waiting = _Waiting(self._plan.job_name, self._what_runs)
        deadline = None if seconds is None else time.monotonic() + seconds
        while self._thread.is_alive() and (deadline is None or time.monotonic() < deadline):
            self._thread.join(1.0 if deadline is None else min(1.0, deadline - time.monotonic()))
            waiting.log()
        if self._thread.is_alive():
            self._cancel()

    def _cancel(self) -> None:
        self._cancelled = True
        deadline = time.monotonic() + _CANCEL_SECONDS
        while self._thread.is_alive() and time.monotonic() < deadline:
            self._group.cancel()  # repeatedly, because queries that are still being planned have no Spark job yet
            self._thread.join(_CANCEL_INTERVAL_SECONDS)
        if self._thread.is_alive():
            raise JobError(f"Job {self._plan.job_name!r} was cancelled but has not ended: {self._what_runs()}.")

    def _what_runs(self) -> str:
        if (sink := self._writer.writes_to) is not None:
            return f"the function of the sink {sink}, defined at {sink.location}, has not returned"
        return _in_spark(self._writer.tasks, self._spark, "the batch job is running")

    def exception(self) -> Dsv2Error | None:
        """Return the error that the job failed with, or None."""
        asked(self)
        return self._failure

    @short_traceback
    def result(self) -> JobResult:
        """Wait for the end and return the result. Raises the error that the job failed with."""
        self.await_termination()
        return JobResult(self._plan.job_name, timedelta(milliseconds=self._ended - self._began), self.progress)


def _input_ends(plan: Plan) -> bool:
    """Whether a run that is not stopped reaches the end of all input."""
    sources = [operator.body for operator in plan.operators if isinstance(operator.body, BaseSource)]
    schedules = [source.schedule(str(source)) for source in sources if isinstance(source, IndexedSource)]
    if any(schedule is not None and schedule.ends_run for schedule in schedules):
        return False
    return all(source.bounded for source in sources)
