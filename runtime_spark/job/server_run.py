"""The part of a streaming job on Spark Connect that runs in a Python process of the server, after each micro-batch.

Spark starts that process for the query (``foreachBatch``). It has a session of its own on the server. It writes to the
sinks and to the checkpoint, and communicates with the client by ``RunFiles`` only.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dsv2.base.clock import Clock, SystemClock
from dsv2.graph import Plan
from dsv2.graph.sinks_elsewhere import SinkElsewhere
from dsv2.jobs.progress_log import ProgressLog
from dsv2.runtime.report.job_reports import JobReports
from dsv2.runtime.report.subtask_report import SubtaskReport
from dsv2.sinks import DriverSink
from runtime_spark.checkpoint.lease import Lease
from runtime_spark.checkpoint.run_files import ClientBatch, RunFiles
from runtime_spark.checkpoint.source_reports import ReportArchive
from runtime_spark.checkpoint.spark_logs import offsets_of
from runtime_spark.frames.failures import marked_failures
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.state_limit import StateSizes
from runtime_spark.frames.worker import batch_tag
from runtime_spark.job.micro_batch_writer import MicroBatchWriter
from runtime_spark.job.task_times import batch_phases, task_times
from runtime_spark.platform.closures import from_bytes_with, to_bytes_without
from runtime_spark.platform.driver_processes import describe_driver
from runtime_spark.sink.driver_sinks import StoredOutputs
from runtime_spark.sink.sinks import SinkWriter
from runtime_spark.source.source_class import import_path
from runtime_spark.source.split_files import SplitFiles
from runtime_spark.start.checkpoint import Checkpoint

ENDED_BETWEEN_BATCHES = "dsv2 has ended this query between two micro-batches, as the job asked"
"""The text of the error with which the server's process refuses a micro-batch. It is not a failure of the job."""

_SESSION, _DATAFRAME = "session", "dataframe"
_POLL_SECONDS = 1.0
_COMMIT_SECONDS = 0.1


@dataclass(frozen=True)
class ServerRun:
    """The run as the client prepares it for the server's process.

    Attributes:
        plan: The plan.
        layout: Its layout.
        sinks: Writes to the sinks; those on the driver are written by the client, from ``StoredOutputs``.
        archive: Stores the reports of the source readers.
        splits: Passes them to the planners of sources with splits.
        checkpoint: The checkpoint, whose run has begun.
        claim: The claim of the client's lease on it.
        files: Pass on what the client needs.
        log: Stores the progress.
        clock: The wall clock.
        only_available: The job ends when it has read the input that was available at its start.
    """

    plan: Plan
    layout: Layout
    sinks: SinkWriter
    archive: ReportArchive
    splits: SplitFiles
    checkpoint: Checkpoint
    claim: tuple[int, str]
    files: RunFiles
    log: ProgressLog
    clock: Clock
    only_available: bool

    def function(self, spark: SparkSession) -> Callable[[DataFrame, int], None]:
        """Return the function for ``foreachBatch``, which Spark pickles. ``spark``: The session of the client."""

        def stand_in(value: Any) -> object | None:
            if value is spark:
                return _SESSION
            if isinstance(value, DriverSink):
                return value.driver_limit, "sink"
            return _DATAFRAME if isinstance(value, DataFrame) else None

        pickled, session_id = to_bytes_without(self, stand_in), str(spark.session_id)  # type: ignore[attr-defined]
        own_path, installed = import_path()
        started: list[Callable[[DataFrame, int], None]] = []

        def write(frames: DataFrame, batch_id: int) -> None:
            if not started:
                from importlib.util import find_spec

                sys.path.extend(path for path in own_path if path not in sys.path)  # as in the client
                if find_spec("runtime_spark") is None:  # installed for the Python of the client only
                    sys.path.extend(installed)
                from runtime_spark.job.server_run import start

                started.append(start(pickled, frames.sparkSession, session_id))
            started[0](frames, batch_id)

        return write


def start(pickled: bytes, spark: SparkSession, session_id: str) -> Callable[[DataFrame, int], None]:
    """Begin the run in the server's process, with its first micro-batch.

    Args:
        pickled: The run.
        spark: The session of this process.
        session_id: The session of the client, which has the query.

    Raises:
        MarkedError: The lease is lost, or a sink cannot begin; for ``job_failure``.
    """

    def found(stand_in: Any) -> Any:
        if stand_in == _SESSION:
            return spark
        return None if stand_in == _DATAFRAME else SinkElsewhere(stand_in[0])

    run = from_bytes_with(pickled, found)
    with marked_failures():
        process = _Process(run, session_id)
        threading.Thread(target=process.await_stop, name="dsv2-stop", daemon=True).start()
        return process.write


class _Process:
    """The run in the server's process."""

    def __init__(self, run: ServerRun, session_id: str) -> None:
        self._run = run
        self._session_id = session_id
        self._plan = run.plan
        self._writing = threading.Lock()
        checkpoint = run.checkpoint
        driver = describe_driver([os.getpid()]) | {"stop": run.files.stop_file}
        lease = Lease.taken_over(checkpoint.root, run.claim, driver)
        self._writer = MicroBatchWriter(run.sinks, run.archive, run.splits, checkpoint, lease)
        self._first_batch: int | None = None
        self._ended = False
        self._server = os.getppid()
        ended, is_new = checkpoint.ended_sources(), checkpoint.next_batch == 0
        self._reports = JobReports(run.plan, ended, run.log.before, is_new=is_new, in_portions=True)
        self._sizes = StateSizes(run.plan, run.layout)
        self._writer.begin()
        self._writer.keep(self._is_over, lambda: False)

    def _is_over(self) -> bool:
        return self._ended or os.getppid() != self._server or self._run.files.are_removed()

    def write(self, frames: DataFrame, batch_id: int) -> None:
        """Write a micro-batch, by Spark's number."""
        began = self._run.clock.now_ms()
        with self._writing, marked_failures():
            if self._ended or self._run.files.is_stopping():
                self._leave()
                raise RuntimeError(ENDED_BETWEEN_BATCHES)
            try:
                with _tagged(frames.sparkSession, batch_id):
                    reports = self._writer.write(frames, batch_id)
                self._note(batch_id, reports, began)
            except Exception as error:
                failure = self._writer.with_remedies(self._writer.failure_of(error, self._plan), self._plan, batch_id)
                self._leave()
                raise failure from None  # the cause has a mark of its own

    def await_stop(self) -> None:
        """Stop the query between two micro-batches when this is asked for in the checkpoint, without a client, too."""
        while not self._is_over():
            if self._run.files.is_stopping():
                with self._writing:
                    self._ended = True
                    self._writer.note_unwritten()
                with suppress(Exception):  # the session has been stopped, with the query
                    self._stop_query()
                self._writer.release()
            time.sleep(_POLL_SECONDS)

    def _stop_query(self) -> None:
        address = f"{os.environ['SPARK_CONNECT_LOCAL_URL']};session_id={self._session_id}"
        session = SparkSession.builder.remote(address).create()
        for query in session.streams.active:
            if query.name == self._plan.job_name:
                while query.isActive and query.status["isTriggerActive"]:  # Spark commits what has been written
                    time.sleep(_COMMIT_SECONDS)
                query.stop()

    def _note(self, batch_id: int, reports: list[SubtaskReport], began: int) -> None:
        """Store what the client shows and delivers when Spark has committed the micro-batch."""
        run, number = self._run, self._run.checkpoint.first_batch + batch_id
        written_at = SystemClock().now_ms()  # as the clocks of the workers
        tasks = task_times(self._plan, reports, written_at)
        reported = self._reports.add(number, reports, run.clock.now_ms())
        self._reports.note_splits(self._writer.splits.read())
        levels = max(self._plan.depths.values(), default=0)
        phases = batch_phases(levels, tasks, planning=0.0, written_at=written_at, commit=0.0)
        self._reports.complete(reported, began, float(run.clock.now_ms() - began), phases)
        self._sizes.note(reports)
        self._ended = self._reports.all_ended() or (run.only_available and self._is_exhausted(batch_id))
        outputs = run.sinks.on_driver
        assert isinstance(outputs, StoredOutputs)
        run.files.write(number, ClientBatch(self._ended, outputs.taken))
        run.log.add(self._reports.progress(reported))

    def _is_exhausted(self, batch_id: int) -> bool:
        # As in StreamingJob: the first micro-batch of a run may repeat the last one of the previous run.
        if self._first_batch is None:
            self._first_batch = batch_id
        if batch_id == self._first_batch:
            return False
        folder = self._run.checkpoint.folder
        return offsets_of(folder, batch_id) == offsets_of(folder, batch_id - 1)

    def _leave(self) -> None:
        """End the run in this process: Spark ends the query with the error that follows."""
        self._ended = True
        self._writer.note_unwritten()
        self._writer.release()


@contextmanager
def _tagged(spark: SparkSession, batch_id: int) -> Iterator[None]:
    tag = batch_tag(batch_id)
    spark.addTag(tag)
    try:
        yield
    finally:
        spark.removeTag(tag)
