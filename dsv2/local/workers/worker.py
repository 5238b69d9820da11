"""A worker process: runs its subtasks as the process of the job requests."""

from __future__ import annotations

import logging.handlers
import os
import signal
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from operator import attrgetter
from types import FrameType
from typing import NoReturn

import cloudpickle

from dsv2.base.clock import Clock, SystemClock
from dsv2.base.garbage_collector import frozen_modules, patient_collector
from dsv2.base.log_scope import LogScope, in_scope
from dsv2.checkpoint.program import ProgramDescription
from dsv2.checkpoint.task_report import TaskReport
from dsv2.errors import Dsv2Error, JobError
from dsv2.local.checkpoint import SinkOutput
from dsv2.local.page_log import BATCH, open_log
from dsv2.local.sinks import FileParts, batches_of, write_in_subtasks
from dsv2.local.state_pages import StatePages
from dsv2.local.task_group import ChainRestore, Place
from dsv2.local.workers.level_tasks import LevelTasks
from dsv2.local.workers.messages import Failure, LevelOrder, Reply, Request, SentJob
from dsv2.model.resource import resources_in_use
from dsv2.runtime.operator.callback_limit import callback_limit
from dsv2.runtime.operator.job_context import JobContext
from dsv2.runtime.operator.time_sender import SentBefore
from dsv2.runtime.report.carried_errors import to_text
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.page_budget import PageBudget
from dsv2.runtime.state.rows import StateRow
from dsv2.runtime.state.timers import BatchTime
from dsv2.sinks import FileSink, SinkInfo
from dsv2.views.logs import JobFilter


class Worker(LevelTasks):
    """Answers requests, which are calls of its methods."""

    def __init__(self, job: SentJob, number: int, time: BatchTime, clock: Clock) -> None:
        """Create the subtasks.

        Args:
            job: The job.
            number: The worker.
            time: The processing time.
            clock: The job's clock.
        """
        settings = job.settings
        self._log = open_log(settings.logs[number], durable=settings.durable, writes=True) if settings.logs else None
        self._is_prepared = False
        self._restore: ChainRestore | None = None
        context = JobContext.in_process(job.plan, time, clock, Codec(job.registry))
        pages = None if self._log is None else StatePages(self._log, PageBudget(settings.memory_budget))
        super().__init__(job, number, context, clock, pages)
        self._number = number
        self._files = {
            operator.id: FileParts(operator, durable=settings.durable)
            for operator in job.plan.operators
            if isinstance(operator.body, FileSink)
        }

    def begin_restore(self, head: int, program: ProgramDescription, sent: dict[str, list[SentBefore]]) -> None:
        """Begin to restore the subtasks of a chain from rows."""
        self._restore = self.chain_restore(head, program, sent)

    def add_rows(self, rows: Sequence[tuple[int, str, StateRow]]) -> None:
        """Add rows, with their subtasks and operators."""
        assert self._restore is not None
        for row in rows:
            self._restore.add(*row)

    def finish_restore(self) -> None:
        """Complete the restore of a chain."""
        assert self._restore is not None
        self._restore.finish()

    def listed_rows(self, place: Place) -> list[tuple[str, StateRow]]:
        """Return the state of a subtask as rows, each with the uid of its operator."""
        return [*self.subtask_rows(place)]

    def run(self, order: LevelOrder) -> TaskReport | None:
        """Run a level of a micro-batch. After the last one its transaction is written, and the report returned."""
        if self._is_prepared and self._log is not None:
            self._log.mark()  # the job has committed it, or it would not continue
            self._is_prepared = False
        self.run_level(order)
        if order.ends is None:
            return None
        if self._log is not None:
            self.store()
            self._log.commit({BATCH: str(order.ends).encode()}, ())
            self._is_prepared = True
        return self.take_report()

    def write(self, sink: int, outputs: Sequence[SinkOutput], batch_id: int, info: SinkInfo) -> None:
        """Write records to the parallel sink ``sink``. Called after the process of the job has committed them."""
        in_order = sorted(outputs, key=attrgetter("subtask"))
        write_in_subtasks(self._plan.operators[sink], info, batches_of(in_order, self._job.codec), batch_id)

    def write_files(self, sink: int, outputs: Sequence[SinkOutput], batch_id: int, staging: str) -> None:
        """Write records to files of the sink ``sink`` in the folder ``staging``, after the same commit."""
        batches = [batch for _, batch in batches_of(outputs, self._job.codec)]
        self._files[sink].write(batches, batch_id, staging, self._number)


class _SentClock:
    """A copy of the job's clock, as of the last request."""

    def __init__(self) -> None:
        self.time_ms = 0

    def now_ms(self) -> int:
        return self.time_ms

    def wait(self, duration: timedelta) -> None:
        self.time_ms += duration // timedelta(milliseconds=1)


class _LogHandler(logging.handlers.QueueHandler):
    """Sends log records to the process of the job."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(None)  # type: ignore[arg-type]  # ``enqueue`` uses none
        self._connection = connection
        self.addFilter(JobFilter())

    def enqueue(self, record: logging.LogRecord) -> None:
        self._connection.send(record)


def main(number: int, requests: int, logs: int) -> None:
    """Run the worker ``number``. ``requests`` and ``logs`` are file descriptors of its connections."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process of the job stops its workers
    signal.signal(signal.SIGTERM, _terminate)
    connection, log_connection = Connection(requests), Connection(logs)
    threading.Thread(target=_end_with_job, args=(log_connection,), daemon=True).start()
    try:
        job = cloudpickle.loads(connection.recv_bytes())
    except Exception as error:
        connection.recv()
        text = f"A worker process cannot load the program: {type(error).__qualname__}: {error}"
        connection.send(Failure(to_text(JobError(text))))
        return
    root = logging.root
    root.handlers[:] = [_LogHandler(log_connection)]
    root.setLevel(job.log_level)
    limit = callback_limit(job.plan.callback_timeout_ms, may_exit=True)
    with (
        suppress(EOFError, ConnectionError),
        resources_in_use(),
        in_scope(LogScope(job.plan.job_name)),
        limit,
        frozen_modules(),
    ):
        _serve(connection, job, number)


def _serve(connection: Connection, job: SentJob, number: int) -> NoReturn:
    time, sent_clock = BatchTime(0), _SentClock()
    worker: Worker | None = None
    try:
        while True:
            request: Request = connection.recv()
            time.now_ms, sent_clock.time_ms = request.now_ms, request.clock_ms
            reply: object
            try:
                if worker is None:
                    worker = Worker(job, number, time, SystemClock() if job.by_system_clock else sent_clock)
                with patient_collector():
                    result = getattr(worker, request.method)(*request.args)
                reply = Reply(result, worker.take_emitted())
            except Dsv2Error as error:
                reply = Failure(to_text(error))
            except Exception as error:
                text = f"Job {job.plan.job_name!r} failed: {type(error).__qualname__}: {error}"
                reply = Failure(to_text(JobError(f"{text}\n{traceback.format_exc()}")))
            connection.send(reply)
    except SystemExit:
        if worker is not None:
            worker.close()
        raise


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _end_with_job(connection: Connection) -> None:
    """End this process when that of the job has ended."""
    with suppress(EOFError, OSError):
        connection.recv_bytes()
    os._exit(1)
