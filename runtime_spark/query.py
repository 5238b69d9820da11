"""Running the DataFrame of a plan, and the handles on it."""

from __future__ import annotations

import threading
import time
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from dsv2.clock import Clock
from dsv2.errors import Dsv2Error
from dsv2.graph import Plan
from dsv2.job import JobProgress, JobResult, JobStatus
from dsv2.runtime.progress import job_progress
from runtime_spark.failures import job_failure
from runtime_spark.sinks import SinkWriter

__all__ = ("BatchJob", "StreamingJob")

_POLL_SECONDS = 0.002
_LONGEST_WAIT_FOR_PAUSE_SECONDS = 600.0


class _Reports:
    """The last progress report of every operator and subtask."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._latest: dict[tuple[str, int], dict[str, Any]] = {}
        self._batch_id = -1

    def add(self, batch_id: int, reports: list[dict[str, Any]]) -> None:
        self._latest.update({(report["uid"], report["subtask"]): report for report in reports})
        self._batch_id = batch_id

    def progress(self) -> JobProgress:
        return job_progress(self._plan, self._batch_id, list(self._latest.values()))


class StreamingJob:
    """``JobHandle`` of a streaming query. ``query`` is Spark's own handle."""

    def __init__(self, plan: Plan, writer: SinkWriter, clock: Clock) -> None:
        self.query: StreamingQuery
        self._plan = plan
        self._writer = writer
        self._reports = _Reports(plan)
        self._clock = clock
        self._began = clock.now_ms()
        self._failure: Dsv2Error | None = None
        self._stopped = False
        self._stop_requested = threading.Event()

    def write_batch(self, frames: DataFrame, batch_id: int) -> None:
        """What the query calls with each micro-batch."""
        try:
            self._reports.add(batch_id, self._writer.write(frames, batch_id))
        except Exception as error:
            self._failure = job_failure(error, self._plan.job_name)
            raise

    @property
    def status(self) -> JobStatus:
        """Running, finished, stopped or failed."""
        if self.query.isActive:
            return JobStatus.RUNNING
        if self.exception() is not None:
            return JobStatus.FAILED
        return JobStatus.STOPPED if self._stopped else JobStatus.FINISHED

    @property
    def progress(self) -> JobProgress:
        """As of the last micro-batch."""
        return self._reports.progress()

    def await_termination(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the job ends; False if the time passed first. Raises what the job failed with."""
        try:
            ended = self.query.awaitTermination(timeout_seconds)  # type: ignore[arg-type]  # takes fractions too
        except Exception as error:
            failure = self._failure or job_failure(error, self._plan.job_name)
            self._failure = failure
            raise failure from None
        return ended is not False

    def stop(self) -> None:
        """End the job between two micro-batches.

        Interrupting Spark within one would be safe too, but it prints alarming traces and repeats work at restart.
        """
        patience = time.monotonic() + _LONGEST_WAIT_FOR_PAUSE_SECONDS
        while self.query.isActive and self.query.status["isTriggerActive"] and time.monotonic() < patience:
            time.sleep(_POLL_SECONDS)
        if self.query.isActive:
            self._stopped = True
            self.query.stop()

    def exception(self) -> Dsv2Error | None:
        """What the job failed with, or None."""
        if self._failure is None and (error := self.query.exception()) is not None:
            self._failure = job_failure(error, self._plan.job_name)
        return self._failure

    def result(self) -> JobResult:
        """Wait for the end, then the result. Raises what the job failed with."""
        self.await_termination()
        return JobResult(self._plan.job_name, (self._clock.now_ms() - self._began) / 1000, self.progress)


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
        self._thread = threading.Thread(target=self._run, name=f"dsv2-{plan.job_name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._reports.add(0, self._writer.write(self._frames, 0))
        except Exception as error:
            self._failure = job_failure(error, self._plan.job_name)
        self._ended = self._clock.now_ms()

    @property
    def status(self) -> JobStatus:
        """Running, finished or failed."""
        if self._thread.is_alive():
            return JobStatus.RUNNING
        return JobStatus.FINISHED if self._failure is None else JobStatus.FAILED

    @property
    def progress(self) -> JobProgress:
        """Empty until the end: a batch job reports once."""
        return self._reports.progress()

    def await_termination(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the job ends; False if the time passed first. Raises what the job failed with."""
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self) -> None:
        """Wait for the end: a batch job has no point at which it could stop and go on later."""
        self._thread.join()

    def exception(self) -> Dsv2Error | None:
        """What the job failed with, or None."""
        return self._failure

    def result(self) -> JobResult:
        """Wait for the end, then the result. Raises what the job failed with."""
        self.await_termination()
        return JobResult(self._plan.job_name, (self._ended - self._began) / 1000, self.progress)
