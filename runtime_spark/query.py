"""Running the DataFrame of a plan, and the handles on it."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from dsv2.clock import Clock
from dsv2.errors import Dsv2Error, JobError
from dsv2.graph import OperatorKind, Plan
from dsv2.job import JobProgress, JobResult, JobStatus
from dsv2.runtime.progress import job_progress
from dsv2.sources import BaseSource, IndexedSource, Stop
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
_CANCEL_SECONDS = 20.0  # Spark gives a worker two seconds to end its task before it kills it
_CANCEL_INTERVAL_SECONDS = 0.2
_FIRST_WORD_SECONDS = 10.0
_PATIENCE_SECONDS = 3.0
_KEEPER_SECONDS = 1.0
_AS_SPARK_SAYS_IT = "py4j.protocol.Py4JJavaError: An error occurred while calling stop: java.lang.InterruptedException"


class _Reports:
    """The last progress report of every operator and subtask."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._latest: dict[tuple[str, int], dict[str, Any]] = {}
        self._batch_id = -1
        # What runs where sources read has no state to count in: it tells of each portion by itself.
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
        """By operator the number of records that wait behind aligned watermarks, if there are any."""
        counts = Counter[str]()
        for (uid, _), report in self._latest.items():
            counts[uid] += report["records_held"]
        return {str(operator): counts[operator.uid] for operator in self._plan.operators if counts[operator.uid]}

    def all_ended(self) -> bool:
        """Whether every subtask has seen the end of its input; those of the sources, where there are no others."""
        chained = [operator for chain in self._plan.chains.values() for operator in chain]
        last = chained or [operator for operator in self._plan.operators if operator.kind is OperatorKind.SOURCE]
        places = [(operator.uid, subtask) for operator in last for subtask in range(operator.parallelism)]
        return all(self._latest.get(place, {}).get("ended") for place in places)


class _StopRequestedError(Exception):
    """Ends a query before its next batch has done anything."""


class _Keeper(threading.Thread):
    """Keeps the program from ending before a job that has an end, unless Ctrl-C ends the wait for it."""

    def __init__(self, ends_within: Callable[[float], bool]) -> None:
        super().__init__(name="dsv2-keeper", daemon=False)
        self._ends_within = ends_within
        self._given_up = False

    def run(self) -> None:
        with contextlib.suppress(Exception):  # a job that fails says so to whoever asks
            while not self._given_up and not self._ends_within(_KEEPER_SECONDS):
                pass

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Around the user's own wait for the job."""
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
        """``only_available``: the job ends when what was there at its start has been read."""
        self.query: StreamingQuery
        self._spark = spark
        self._only_available = only_available
        self._plan = plan
        self._writer = writer
        self._archive = archive
        self._checkpoint = checkpoint
        self._lease = lease
        self._reports = _Reports(plan)
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

    def attach(self, query: StreamingQuery) -> None:
        """Take over the query, which may have called ``write_batch`` already."""
        self.query = query
        self._lease.keep(self._is_over)
        self._started.set()
        if self._only_available:
            self._keeper.start()

    def write_batch(self, frames: DataFrame, batch_id: int) -> None:
        """What the query calls with each micro-batch."""
        if self._refuse_batches:
            self._refuse()
        if self._first_batch is None:
            self._first_batch = batch_id
        self._started.wait()  # the query begins before it is known here
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
            # Spark would trigger for ever. A query cannot be stopped from within its own batch.
            threading.Thread(target=self._end_query, name=f"dsv2-end-{self._plan.job_name}", daemon=True).start()

    def _is_over(self) -> bool:
        try:
            return not self.query.isActive
        except Exception:  # the session is gone
            return True

    def _refuse(self) -> NoReturn:
        # Nothing of this batch has been done, so there is nothing to be interrupted. Once the query knows that it is
        # stopped, Spark takes what looks like an interruption for a quiet end; anything else is a failure to it.
        threading.Thread(target=self._stop_query, name=f"dsv2-stop-{self._plan.job_name}", daemon=True).start()
        while self.query.isActive:
            time.sleep(_POLL_SECONDS)
        raise _StopRequestedError(_AS_SPARK_SAYS_IT)

    def _is_exhausted(self) -> bool:
        # Of micro-batches without data, which timers may bring about, the last one tells. Not the first one: it may
        # repeat what the run before had begun.
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
        """As of the last micro-batch."""
        return self._reports.progress()

    @short_traceback
    def await_termination(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the job ends; False if the time passed first. Raises what the job failed with."""
        try:
            with self._keeper.waiting():
                ended = self._ends_within(timeout_seconds)
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
        return self.query.awaitTermination(seconds) is not False  # type: ignore[arg-type]  # takes fractions too

    def stop(self, timeout_seconds: float | None = None) -> None:
        """End the job between two micro-batches, or within one after ``timeout_seconds``: see ``JobHandle``.

        Cancelling a micro-batch is safe too, but it prints alarming traces and repeats work at restart.
        """
        asked(self)
        self._stopped = self.query.isActive and not self._reports.all_ended()
        self._end_query(timeout_seconds, _Waiting(self._plan.job_name, self._what_runs))

    def _end_query(self, timeout_seconds: float | None = None, waiting: _Waiting | None = None) -> None:
        self._started.wait()
        began = time.monotonic()
        # "Available now" is a single trigger, which does not pause before its end.
        patience = began + (0 if self._only_available else _PATIENCE_SECONDS)
        while self.query.isActive and self.query.status["isTriggerActive"]:
            # A query with one batch after another hardly ever pauses: let its next batch refuse to begin.
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
        # Spark itself waits without a limit for what it has interrupted.
        stopping = threading.Thread(target=self._stop_query, name=f"dsv2-cancel-{self._plan.job_name}", daemon=True)
        stopping.start()
        stopping.join(_CANCEL_SECONDS)
        if stopping.is_alive():
            raise JobError(f"Job {self._plan.job_name!r} was cancelled, but it has not ended: {self._what_runs()}.")

    def _what_runs(self) -> str:
        if (sink := self._writer.writes_to) is not None:
            return f"the function of the sink {sink}, defined at {sink.location}, has not returned"
        return _in_spark(self._writer.tasks, self._spark, self.query.status["message"])

    def _stop_query(self) -> None:
        with contextlib.suppress(Exception):  # one that fails meanwhile says so to whoever waits for its end
            self.query.stop()
        self._lease.release()

    def exception(self) -> Dsv2Error | None:
        """What the job failed with, or None."""
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
        """What is wrong if all input has ended, and not everything has been processed."""
        held = self._reports.held()
        if not held or not _input_ends(self._plan):
            return None
        where = ", ".join(f"{count} in {operator}" for operator, count in held.items())
        return JobError(
            f"Job {self._plan.job_name!r} has come to the end of its input, but records still wait behind aligned "
            f"watermarks: {where}."
        )

    @short_traceback
    def result(self) -> JobResult:
        """Wait for the end, then the result. Raises what the job failed with."""
        asked(self)
        self.await_termination()
        return JobResult(self._plan.job_name, (self._clock.now_ms() - self._began) / 1000, self.progress)


class _Waiting:
    """Says what ``stop`` waits for: after some seconds, then less and less often."""

    def __init__(self, job_name: str, what_runs: Callable[[], str]) -> None:
        self._job_name = job_name
        self._what_runs = what_runs
        self._began = time.monotonic()
        self._next = _FIRST_WORD_SECONDS

    def log(self) -> None:
        waited = time.monotonic() - self._began
        if waited >= self._next:
            self._next *= 2
            _LOG.warning(
                "stop() has waited %d s for the micro-batch of job %r that is running: %s. To cancel it, call "
                "stop(timeout_seconds=...).",
                waited,
                self._job_name,
                self._what_runs(),
            )


def _in_spark(tasks: Tasks, spark: SparkSession, doing: str) -> str:
    numbers = tasks.running(spark)
    found = [name for number in numbers for name in tasks.subtasks_in(number)]
    running = f"; tasks {', '.join(map(str, numbers))} are running, in which {'; '.join(found)} may be" if found else ""
    return f"Spark says {doing!r}{running}"


class BatchJob:
    """``JobHandle`` of a batch job, which runs in a thread of its own."""

    def __init__(self, plan: Plan, frames: DataFrame, writer: SinkWriter, clock: Clock) -> None:
        self._plan = plan
        self._frames = frames
        self._writer = writer
        self._clock = clock
        self._began = self._ended = clock.now_ms()
        self._reports = _Reports(plan)
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
    def await_termination(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the job ends; False if the time passed first. Raises what the job failed with."""
        with self._keeper.waiting():
            if not self._ends_within(timeout_seconds):
                return False
        asked(self)
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self, timeout_seconds: float | None = None) -> None:
        """Wait for the end, or cancel the job after ``timeout_seconds``: see ``JobHandle``."""
        waiting = _Waiting(self._plan.job_name, self._what_runs)
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while self._thread.is_alive() and (deadline is None or time.monotonic() < deadline):
            self._thread.join(1.0 if deadline is None else min(1.0, deadline - time.monotonic()))
            waiting.log()
        if self._thread.is_alive():
            self._cancel()

    def _cancel(self) -> None:
        self._cancelled = True
        deadline = time.monotonic() + _CANCEL_SECONDS
        while self._thread.is_alive() and time.monotonic() < deadline:
            self._group.cancel()  # repeated, because it only reaches jobs that Spark has already started
            self._thread.join(_CANCEL_INTERVAL_SECONDS)
        if self._thread.is_alive():
            raise JobError(f"Job {self._plan.job_name!r} was cancelled, but it has not ended: {self._what_runs()}.")

    def _what_runs(self) -> str:
        if (sink := self._writer.writes_to) is not None:
            return f"the function of the sink {sink}, defined at {sink.location}, has not returned"
        return _in_spark(self._writer.tasks, self._spark, "the batch job is running")

    def exception(self) -> Dsv2Error | None:
        """What the job failed with, or None."""
        asked(self)
        return self._failure

    @short_traceback
    def result(self) -> JobResult:
        """Wait for the end, then the result. Raises what the job failed with."""
        self.await_termination()
        return JobResult(self._plan.job_name, (self._ended - self._began) / 1000, self.progress)


def _input_ends(plan: Plan) -> bool:
    """Whether a run that is not stopped comes to the end of all input."""
    sources = [operator.body for operator in plan.operators if isinstance(operator.body, BaseSource)]
    stops = any(
        isinstance(interruption, Stop)
        for source in sources
        if isinstance(source, IndexedSource)
        for interruption in source.interruptions.values()
    )
    return not stops and all(source.bounded for source in sources)
