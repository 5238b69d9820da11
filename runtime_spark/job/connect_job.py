"""The handle of a streaming job on Spark Connect: the client of a query whose micro-batches a server writes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from dsv2.checkpoint.failed_batch import Unblocking
from dsv2.errors import JobError
from dsv2.jobs.progress import JobProgress
from dsv2.jobs.progress_log import read_progress
from dsv2.plan_view.runtime_view import RuntimeView
from dsv2.runtime.report.base_job import ThreadJob
from dsv2.runtime.report.job_listeners import JobListeners
from dsv2.runtime.report.job_reports import JobReports
from runtime_spark.checkpoint.lease import Lease
from runtime_spark.checkpoint.run_files import ClientBatch, RunFiles
from runtime_spark.checkpoint.spark_logs import listed_beginning
from runtime_spark.frames.failures import job_failure
from runtime_spark.frames.state_key import StateKey
from runtime_spark.job.query_job import QueryJob, unprocessed
from runtime_spark.job.server_run import ENDED_BETWEEN_BATCHES, ServerRun
from runtime_spark.sink.driver_sinks import DriverSinks

_LOG = logging.getLogger("dsv2.spark.connect")
_POLL_SECONDS = 0.1
_CONFLICTS = 3


class ConnectJob(ThreadJob, QueryJob):
    """``JobHandle`` of a streaming query on a server. ``query`` is Spark's own handle.

    A thread passes on what the micro-batches of the server have stored: records for sinks on the driver, and progress.
    The query does not end with this process.

    Args:
        spark: The session.
        run: What the server's process runs.
        sinks: The sinks on the driver, which are written here.
        lease: The lease on the checkpoint, which the server's process takes over.
        listeners: Receive the progress.
        view: How the plan runs, for its stored explanation.
        state_key: Signs the state. None: it is not signed.
    """

    def __init__(
        self,
        spark: SparkSession,
        run: ServerRun,
        sinks: DriverSinks,
        lease: Lease,
        listeners: JobListeners,
        view: RuntimeView,
        state_key: StateKey | None,
    ) -> None:
        super().__init__(run.plan, run.clock, listeners)
        self.query: StreamingQuery
        self.write_batch: Callable[[DataFrame, int], None] = run.function(spark)
        """The function for ``foreachBatch``."""
        self._spark = spark
        self._run = run
        self._checkpoint = run.checkpoint
        self._files = run.files
        self._sinks = sinks
        self._lease = lease
        self._view = view
        self._state_key = state_key
        self._next = self._checkpoint.next_batch
        self._begun = False
        self._has_ended = False
        self._cancelled = False
        self._passed_on = JobReports(run.plan, before=run.log.before, in_portions=True).progress()
        self._thread = threading.Thread(target=self._watch, name=f"dsv2-{run.plan.job_name}", daemon=True)

    def start(self, start_query: Callable[[], StreamingQuery]) -> None:
        """Start the query. Releases the lease if it does not start."""
        try:
            self._deliver_earlier()
            self.query = start_query()
        except BaseException as error:
            self._lease.release()
            if isinstance(error, Exception):
                raise job_failure(error, self._plan.job_name, self._run.sinks.tasks) from error
            raise
        self._lease.keep(self._over.is_set)
        self._run.log.add_job(self._plan, self._began, self._view)
        self._thread.start()
        if self._run.only_available:
            self._keeper.start()

    def _watch(self) -> None:
        try:
            self._listeners.started(self, self._plan)
            self._follow()
        except PySparkException as error:
            # On the server, the query may continue, and its process hold the lease.
            self._lease.let_go()
            self._failure = self._failure or JobError(
                f"Job {self._plan.job_name!r} has lost the server of Spark Connect, where it may continue: {error}. "
                f"Start it again with the same checkpoint. While it runs there, the start is refused."
            )
        except Exception as error:
            self._fail(error)
        finally:
            self._end()

    def _follow(self) -> None:
        """Pass on what the micro-batches have stored until the query is over."""
        complete = self._checkpoint.is_complete and not self._run.only_available
        while self.query.isActive:
            self._pass_on()
            is_ending = self._is_ending()  # before the look at the query: no micro-batch begins in between
            status = self.query.status
            waits = str(status["message"]).startswith("Waiting for")  # for data, or the next trigger
            if (complete and waits) or (is_ending and not status["isTriggerActive"]):
                self.query.stop()
            time.sleep(_POLL_SECONDS)
        self._pass_on()
        self._conclude_query()

    def _is_ending(self) -> bool:
        return self._has_ended or self._files.is_stopping()

    def _pass_on(self) -> None:
        """Deliver the records of the micro-batches that are complete, and their progress."""
        try:
            while self._failure is None and self._checkpoint.is_committed(self._next - self._checkpoint.first_batch):
                if (stored := self._files.read(self._next)) is not None:
                    self._deliver(self._files, self._next, stored)
                    self._has_ended = stored.ended
                self._next += 1
        except Exception as error:
            self._fail(error)
            self._files.request_stop()
        for progress in read_progress(self._checkpoint.root, after=self._passed_on.batch_id):
            if self._checkpoint.next_batch <= progress.batch_id < self._next:
                self._passed_on = progress
                self._listeners.progress(progress)

    def _deliver_earlier(self) -> None:
        """Deliver what an earlier run has left because its client ended, and delete its files."""
        for files in RunFiles.of_earlier_runs(self._checkpoint.root, self._files):
            for number in files.batches():
                if number < self._next and (stored := files.read(number)) is not None:
                    self._deliver(files, number, stored)
            files.remove()

    def _deliver(self, files: RunFiles, number: int, stored: ClientBatch) -> None:
        if not self._begun:
            self._sinks.begin(number)
            self._begun = True
        self._sinks.write(dict(stored.outputs), number)
        files.delete(number)

    def _conclude_query(self) -> None:
        """Complete the output, now that the query has ended."""
        error = self.query.exception()
        if error is not None and ENDED_BETWEEN_BATCHES not in str(error) and not self._cancelled:
            self._fail(error)
        self._stopped = self._stopped or (self._files.is_stopping() and not self._has_ended)
        if self._failure is None and not self._stopped:
            held = self._held()
            self._failure = unprocessed(self._plan, held)
            self._stopped = bool(held)
        self._publish()
        if self._failure is None:
            self._checkpoint.record_replays()
            # As the server's process has left it.
            Unblocking(self._checkpoint.root, {}, self._checkpoint.next_batch).warn_of_missed(self._plan)
        self._release_states()
        self._lease.release()
        if not self._files.batches():  # otherwise the next run delivers the rest
            self._files.remove()

    def _held(self) -> dict[str, int]:
        """Return the number of records buffered behind aligned watermarks, by operator."""
        found = self._passed_on.operators
        counts = {
            operator: found[operator.uid].records_held for operator in self._plan.operators if operator.uid in found
        }
        return {str(operator): count for operator, count in counts.items() if count}

    def _publish(self) -> None:
        """Publish what is committed, which the server's process may not have had the time for."""
        first_uncommitted = self._checkpoint.first_batch + listed_beginning(self._checkpoint.folder).batch_id
        for sink in self._run.sinks.files:
            for attempt in range(_CONFLICTS):
                try:
                    sink.begin(first_uncommitted)
                    if self._failure is None:
                        sink.finish()
                    break
                except JobError:  # the server's process has published at the same moment
                    if attempt == _CONFLICTS - 1:
                        raise

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or job_failure(error, self._plan.job_name, self._run.sinks.tasks)

    @property
    def progress(self) -> JobProgress:
        """The progress as of the last complete micro-batch."""
        return self._passed_on

    def _ends_within(self, seconds: float | None) -> bool:
        try:
            return super()._ends_within(seconds)
        except KeyboardInterrupt:
            text = "Job %r continues on the server of Spark Connect. To stop it there, create the file %s."
            _LOG.warning(text, self._plan.job_name, self._files.stop_file)
            raise

    def _request_stop(self) -> None:
        if not self._over.is_set() and not self._has_ended:
            self._stopped = True
            self._files.request_stop()

    def _cancelled_within(self, seconds: float) -> bool:
        self._stopped = self._cancelled = True
        stopping = threading.Thread(target=self._stop_query, name=f"dsv2-cancel-{self._plan.job_name}", daemon=True)
        stopping.start()
        return self._ends_within(seconds)

    def _stop_query(self) -> None:
        try:
            self.query.stop()
        except PySparkException:  # the thread of the job reports it
            return

    def _what_runs(self) -> str:
        return f"Spark reports {self.query.status['message']!r}"
