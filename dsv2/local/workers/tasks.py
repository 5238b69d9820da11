"""The subtasks of a run in worker processes, as the process of the job uses them."""

from __future__ import annotations

import logging
import select
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dsv2.base.clock import Clock, SystemClock
from dsv2.checkpoint.program import ProgramDescription
from dsv2.checkpoint.task_report import TaskReport
from dsv2.errors import ConfigurationError, Dsv2Error, SerializationError
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.graph.sinks_elsewhere import is_written_by_workers, with_sinks_of_workers
from dsv2.local.checkpoint import SinkOutput
from dsv2.local.page_log import StoredLogs
from dsv2.local.sinks import ReceivedFrame
from dsv2.local.task_group import Place
from dsv2.local.tasks import CancelledError
from dsv2.local.workers.messages import (
    Emitted,
    LevelOrder,
    ReaderOrders,
    Reply,
    Request,
    SentFrame,
    SentJob,
    WorkerSettings,
    worker_of,
)
from dsv2.local.workers.process import WorkerProcess
from dsv2.local.workers.program import to_bytes
from dsv2.local.workers.readers import RemoteReader
from dsv2.plan_view.runtime_view import Fact, RuntimeView
from dsv2.runtime.exchange.frames import EmitFrame
from dsv2.runtime.operator.time_sender import SentBefore
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry, check_picklable
from dsv2.runtime.state.rows import StateRow
from dsv2.runtime.state.timers import BatchTime
from dsv2.sinks import SinkInfo

_POLL_MS = 50  # until a stop is noticed
_ROWS = 1000  # in a request


def view_of(processes: int) -> RuntimeView:
    """Return the view of a plan by a local runtime with ``processes``."""
    if processes == 1:
        return RuntimeView("local", one_process=True)
    return RuntimeView("local", one_process=False, facts=(Fact("worker processes", processes),))


class WorkerTasks:
    """All subtasks of a plan, and the readers of its sources. Methods without a text are those of ``TaskGroup``.

    Levels run one after another. Frames between workers pass through this process, encoded.

    Args:
        plan: The plan.
        time: The processing time.
        clock: The job's clock.
        codec: The codec of the job.
        settings: The settings.
        to_sink: Called with each frame for a sink that this process writes.
        is_cancelled: Whether the running micro-batch is to end with ``CancelledError``.

    Raises:
        SerializationError: The program cannot be sent to processes.
    """

    def __init__(
        self,
        plan: Plan,
        time: BatchTime,
        clock: Clock,
        codec: Codec,
        settings: WorkerSettings,
        to_sink: EmitFrame,
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._plan = plan
        self._time = time
        self._clock = clock
        self._codec = codec
        self._settings = settings
        self._to_sink = to_sink
        self._is_cancelled = is_cancelled
        self._levels = max(plan.depths.values(), default=0)
        self._readers: dict[Place, RemoteReader] = {}
        self._in_flight: dict[int, list[SentFrame]] = {}  # by the worker that receives them
        self._outputs: list[SinkOutput] = []
        self._report: TaskReport | None = None  # the last one, if nothing has been called since
        self._has_ended = False
        job = self._packed()
        self._workers = [WorkerProcess(number, self._places(number), settings.lock) for number in self._numbers]
        self._poll = select.poll()
        self._connections: dict[int, int] = {}  # the workers, by the file descriptors of their connections
        for worker in self._workers:
            self._connections[connection := worker.connection.fileno()] = worker.number
            self._poll.register(connection, select.POLLIN)
            worker.begin(job)

    def new_readers(self, operator: Operator) -> list[Any]:
        """Create the readers of a source."""
        places = [(operator.id, index) for index in range(operator.parallelism)]
        self._readers |= {place: RemoteReader(place) for place in places}
        return [self._readers[place] for place in places]

    def open(self) -> None:
        self._call("open")

    def run_batch(self, batch_id: int) -> None:
        """Run the micro-batch for which the readers have orders. The workers write its transaction."""
        orders: dict[int, list[ReaderOrders]] = {}
        for place, reader in self._readers.items():
            orders.setdefault(worker_of(place[1], self._settings.count), []).append(reader.take_orders())
        for level in range(self._levels + 1):
            frames, self._in_flight = self._in_flight, {}
            ends = batch_id if level == self._levels else None
            calls = {
                number: (LevelOrder(level, frames.get(number, ()), orders.get(number, ()), ends),)
                for number in self._numbers
            }
            orders = {}  # of level 0
            reports = self._call_each("run", calls)
        self._report = TaskReport.joined(reports)

    def take_outputs(self) -> list[SinkOutput]:
        """Return and remove the records for sinks that workers write to, after the commit."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def write(self, operator: Operator, info: SinkInfo, outputs: Sequence[SinkOutput], batch_id: int) -> None:
        """Write to a parallel sink in the workers of its subtasks (``SinkWorkers``). Raises ``JobError``."""
        self._write("write", operator, outputs, batch_id, info)

    def write_files(self, operator: Operator, outputs: Sequence[SinkOutput], batch_id: int, staging: str) -> None:
        """Write the files of a sink in the workers of its subtasks (``SinkWorkers``).

        Raises ``JobError`` or ``SchemaError``.
        """
        self._write("write_files", operator, outputs, batch_id, staging)

    def _write(self, method: str, operator: Operator, outputs: Sequence[SinkOutput], batch_id: int, to: object) -> None:
        by_worker: dict[int, list[SinkOutput]] = {}
        for output in outputs:
            by_worker.setdefault(worker_of(output.subtask, self._settings.count), []).append(output)
        report = self._report
        self._call_each(method, {number: (operator.id, own, batch_id, to) for number, own in by_worker.items()})
        self._report = report  # no subtask has changed

    def store(self) -> None:
        """Not needed: the workers have stored their state with the micro-batch."""

    def restore(self, stored: StoredLogs) -> None:
        self._call("restore", stored)

    def replace_pages(self) -> None:
        self._call("replace_pages")

    def restart(self) -> None:
        self._call("restart")

    def replace_subtasks(self) -> None:
        self._call("replace_subtasks")

    def chain_restore(
        self, head: int, program: ProgramDescription, sent: Mapping[str, list[SentBefore]]
    ) -> RemoteChainRestore:
        """Begin to restore the subtasks of a chain from rows. The arguments are those of ``TaskGroup``."""
        self._call("begin_restore", head, program, dict(sent))
        return RemoteChainRestore(self._call_each, self._settings.count)

    def flush(self) -> None:
        self._call("flush")

    def rows(self) -> Iterator[tuple[str, StateRow]]:
        for head in self._plan.chains:
            for index in range(self._plan.operators[head].parallelism):
                number = worker_of(index, self._settings.count)
                (rows,) = self._call_each("listed_rows", {number: ((head, index),)})
                yield from rows

    def take_report(self) -> TaskReport:
        return self.report()

    def report(self) -> TaskReport:
        if self._report is None:
            self._report = TaskReport.joined(self._call("report"))
        return self._report

    def next_deadline(self) -> int | None:
        return min(self.report().deadlines, default=None)

    def close(self) -> None:
        """Close every open function after a failure, and end the processes."""
        for worker in self._workers:
            worker.terminate()
        self.end()

    def end(self) -> None:
        """End the processes."""
        self._has_ended = True
        for worker in self._workers:
            worker.end()

    @property
    def _numbers(self) -> range:
        return range(self._settings.count)

    def _places(self, number: int) -> str:
        others = (
            one.id for one in self._plan.operators if one.kind is OperatorKind.SOURCE or is_written_by_workers(one)
        )
        operators = [*self._plan.chains, *others]
        count = self._settings.count
        found = [
            f"{operator}, subtask {index}"
            for operator in map(self._plan.operators.__getitem__, sorted(operators))
            for index in range(operator.parallelism)
            if worker_of(index, count) == number
        ]
        return "; ".join(found) or "no subtask"

    def _packed(self) -> bytes:
        root = logging.root
        loggers = [one for one in root.manager.loggerDict.values() if isinstance(one, logging.Logger) and one.level]
        level = min(one.level for one in (root, *loggers))
        by_system_clock = isinstance(self._clock, SystemClock)
        for operator in self._plan.operators:
            if is_written_by_workers(operator):
                check_picklable(operator.body, f"the sink {operator}, defined at {operator.location},")
        try:
            plan = with_sinks_of_workers(self._plan)
            return to_bytes(SentJob(plan, TypeRegistry.of(self._plan), self._settings, by_system_clock, level))
        except Dsv2Error:
            raise
        except Exception as error:
            raise SerializationError(
                f"The program of job {self._plan.job_name!r} cannot be sent to worker processes: "
                f"{type(error).__qualname__}: {error}"
            ) from error

    def _call(self, method: str, *args: Any) -> list[Any]:
        return self._call_each(method, dict.fromkeys(self._numbers, args))

    def _call_each(self, method: str, args: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        """Call a method of some workers at the same time. ``args``: The arguments by worker."""
        if self._has_ended:
            raise ConfigurationError(
                f"The worker processes of job {self._plan.job_name!r} have ended. Take a savepoint of its checkpoint "
                f"with dsv2 savepoint create, or before the job stops."
            )
        self._report = None
        for number, of_worker in args.items():
            self._workers[number].request(Request(method, of_worker, self._time.now_ms, self._clock.now_ms()))
        replies: dict[int, Reply] = {}
        while len(replies) < len(args):
            for connection, _ in self._poll.poll(_POLL_MS):
                number = self._connections[connection]
                replies[number] = self._workers[number].reply()
            if self._is_cancelled():
                raise CancelledError
        in_order = [replies[number] for number in sorted(replies)]
        self._collect(reply.emitted for reply in in_order)
        return [reply.result for reply in in_order]

    def _collect(self, of_workers: Iterable[Emitted]) -> None:
        to_sinks: list[SentFrame] = []
        for emitted in of_workers:
            to_sinks += emitted.to_sinks
            for number, frames in emitted.frames.items():
                self._in_flight.setdefault(number, []).extend(frames)
        for number, subtask, channel, content in sorted(to_sinks, key=lambda frame: frame[:3]):
            operator = self._plan.operators[number]
            if is_written_by_workers(operator):
                self._outputs.append(SinkOutput(operator.uid, operator.parallelism, subtask, content))
            else:
                self._to_sink(ReceivedFrame(operator, subtask, channel, content, self._codec))


class RemoteChainRestore:
    """The restore of the subtasks of a chain in worker processes (``ChainRestore``)."""

    def __init__(self, call_each: Callable[[str, Mapping[int, tuple[Any, ...]]], list[Any]], count: int) -> None:
        self._call_each = call_each
        self._rows: list[list[tuple[int, str, StateRow]]] = [[] for _ in range(count)]

    def add(self, subtask: int, uid: str, row: StateRow) -> None:
        """Add a row of the operator ``uid``. Raises ``CorruptDataError``."""
        number = worker_of(subtask, len(self._rows))
        rows = self._rows[number]
        rows.append((subtask, uid, row))
        if len(rows) == _ROWS:
            self._send(number)

    def finish(self) -> None:
        """Complete the restore. Raises ``IncompatibleCheckpointError`` or ``CorruptDataError``."""
        for number in range(len(self._rows)):
            self._send(number)
        self._call_each("finish_restore", dict.fromkeys(range(len(self._rows)), ()))

    def _send(self, number: int) -> None:
        rows, self._rows[number] = self._rows[number], []
        self._call_each("add_rows", {number: (rows,)})
