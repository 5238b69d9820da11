"""The checkpoint of a local job: a log with a transaction for each micro-batch.

The transaction of a micro-batch has the state that it has changed, the positions of the sources, the records for the
sinks, and the dead letters. It is written before the sinks are. So a crash either leaves no trace of a micro-batch,
which is then planned again, or its complete result, which the next start writes again with its number. A mark in the
log records that the sinks have it::

    local/00000003.log    segments of the log (``PageLog``)
    local/workers-0/1     segments of the log of a worker process, which has the state of its subtasks instead
    local/lock            held by the process that runs the job

A worker process writes its transaction first. The micro-batch is complete when the job's own log has it. A start
removes transactions of workers that are newer.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dsv2.base.folders import LocalFolder
from dsv2.checkpoint.folder_kinds import LOCAL_FILES, FolderKind, check_no_savepoint, kind_of_folder
from dsv2.checkpoint.record import JobRecord, converted
from dsv2.errors import ConfigurationError, CorruptDataError, IncompatibleCheckpointError
from dsv2.local.page_log import LogPlace, PageLog, PinnedPages, StoredLogs, open_log
from dsv2.local.state_pages import StatePages, StoredSubtask, stored_subtasks
from dsv2.runtime.state.page_budget import PageBudget

_WORKERS = "workers-"
_LOCK = f"{LOCAL_FILES}/lock"
_NOTHING = object()
_ATTEMPTS = 5
_RESTORE = "Restore the checkpoint from a backup, or start from a new checkpoint_location."


class SinkOutput(NamedTuple):
    """Records of a micro-batch for one subtask of the sink ``uid``, encoded, and the parallelism of the sink."""

    uid: str
    parallelism: int
    subtask: int
    records: bytes


class StoredWorkers(Struct, frozen=True):
    """The logs of worker processes.

    Attributes:
        folder: The folder that has them, below that of the segments.
        count: Their number.
    """

    folder: str
    count: int


class StoredBatch(JobRecord, frozen=True, kw_only=True):
    """A job after a micro-batch.

    Attributes:
        checkpoint_id: Unique for each checkpoint.
        now_ms: The time of the micro-batch in ms.
        complete: Whether all input has been processed to its end.
        runs: The runs that may have written the micro-batch to sinks, the last one last.
        letters: The dead letters of the micro-batch that nothing reads.
        outputs: The records for the sinks.
        workers: The logs of worker processes, which have the state. None: this log has it.
    """

    checkpoint_id: str
    now_ms: int
    complete: bool
    runs: Sequence[str] = []
    letters: Sequence[Mapping[str, Any]] = []
    outputs: Sequence[SinkOutput] = []
    workers: StoredWorkers | None = None


class LocalCheckpoint:
    """The checkpoint in ``folder``. Nothing is written before ``acquire``.

    Args:
        folder: The folder.
        durable: Whether a micro-batch is forced to the disk.
        memory_budget: The bytes of memory for decoded pages (``PageBudget``).
    """

    def __init__(self, folder: LocalFolder, *, durable: bool = True, memory_budget: int = 0) -> None:
        self.folder = folder
        self._durable = durable
        self.memory_budget = memory_budget
        self._log = PageLog(folder.place(LOCAL_FILES), durable=durable)
        self.pages = StatePages(self._log, PageBudget(memory_budget))
        """The pages of the running micro-batch."""
        self._lock: IO[bytes] | None = None
        self._noted: dict[str, object] = {}  # the fields of the last micro-batch that this process has written
        self._read: list[PageLog] = []  # logs of workers
        self._followed: dict[str, PageLog] = {}  # those that other threads read while workers write them, by folder
        self._following = threading.Lock()
        self.workers: StoredWorkers | None = None
        """The logs of the worker processes of this run. None: there are no such processes."""

    def subtasks(self) -> list[StoredSubtask]:
        """Return the state of all subtasks after the last micro-batch."""
        logs = self._open_worker_logs() or [self._log]
        return [subtask for log in logs for subtask in stored_subtasks(log)]

    @contextmanager
    def pinned(self) -> Iterator[tuple[int, list[PinnedPages]]]:
        """Give another thread access to the last micro-batch: its number, or -1, and the pages of each process.

        See ``PageLog.pinned``. Raises ``FileNotFoundError`` if the job is started again meanwhile.
        """
        with ExitStack() as stack:
            for left in reversed(range(_ATTEMPTS)):
                own = stack.enter_context(self._log.pinned())
                try:
                    pages = self._pin_workers(stack, own) or [own]
                    break
                except (CorruptDataError, FileNotFoundError):  # a worker has begun a segment, or deleted one
                    if not left:
                        raise
            yield int(own.notes.get("batch_id", -1)), pages

    def _pin_workers(self, stack: ExitStack, own: PinnedPages) -> list[PinnedPages]:
        workers = _workers_in(own.notes)
        if workers is None:
            return []
        with self._following:
            return [stack.enter_context(self._follow(place).pinned()) for place in self._places(workers, own.notes)]

    def _follow(self, place: LogPlace) -> PageLog:
        log = self._followed.get(place.folder)
        if log is None or place.batch_id is None or not log.follow(place.batch_id):
            log = self._followed[place.folder] = open_log(place, durable=False, writes=False)
        log.close()  # it opens its files again when it follows
        return log

    @property
    def lock(self) -> int:
        """The file descriptor of the lock, which processes may inherit."""
        assert self._lock is not None
        return self._lock.fileno()

    def begin_workers(self, count: int) -> list[LogPlace]:
        """Begin a run with worker processes, and return their logs.

        They are new ones if the number of processes has changed. The former ones are deleted when the first
        micro-batch has been stored.
        """
        stored = _workers_in(self._log.notes)
        if stored is not None and stored.count == count:
            self.workers = stored
            return self._places(stored, self._log.notes)
        kept = None if stored is None else stored.folder
        folder = next(name for number in itertools.count() if (name := f"{_WORKERS}{number}") != kept)
        shutil.rmtree(self._place(folder), ignore_errors=True)  # of a process that died before it had stored anything
        self.workers = StoredWorkers(folder, count)
        return [LogPlace(place.folder) for place in self._places(self.workers, self._log.notes)]

    def stored_logs(self) -> StoredLogs:
        """Return the logs with the state after the last micro-batch."""
        stored = _workers_in(self._log.notes)
        logs = [LogPlace(self._place())] if stored is None else self._places(stored, self._log.notes)
        return StoredLogs(logs, own=stored == self.workers)

    def _open_worker_logs(self) -> list[PageLog]:
        stored = _workers_in(self._log.notes)
        if not self._read and stored is not None:
            places = self._places(stored, self._log.notes)
            self._read = [open_log(place, durable=False, writes=False) for place in places]
        return self._read

    def _places(self, workers: StoredWorkers, notes: Mapping[str, bytes]) -> list[LogPlace]:
        batch_id = int(notes.get("batch_id", b"-1"))
        return [LogPlace(self._place(workers.folder, str(number)), batch_id) for number in range(workers.count)]

    def _place(self, *names: str) -> str:
        return self.folder.place("/".join([LOCAL_FILES, *names]))

    def acquire(self) -> None:
        """Become the only job that uses the checkpoint, until ``release`` or the end of the process.

        Raises:
            ConfigurationError: Another job uses it, it cannot be written, or it is a savepoint.
            IncompatibleCheckpointError: It is the checkpoint of a job on Spark.
        """
        self._check_runtime()
        path = self.folder.place(_LOCK)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            lock = open(path, "ab")  # noqa: SIM115 - closed by release
        except OSError as error:
            raise ConfigurationError(
                f"The checkpoint_location {self.folder.path} cannot be written: {error}."
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the system releases it if the process dies
        except OSError as error:
            lock.close()
            raise ConfigurationError(
                f"Another job uses the checkpoint {self.folder.path}. Only one job at a time can use a checkpoint. "
                f"Stop that job first, or give this one its own checkpoint_location."
            ) from error
        self._lock = lock
        for name in self.folder.sizes(LOCAL_FILES):
            if name.startswith(".") and name.endswith(".new"):  # of a process that died while it wrote
                self.folder.delete(f"{LOCAL_FILES}/{name}")

    def reopen(self) -> None:
        """Forget what was not stored, as if this process had died. Other jobs cannot use the checkpoint meanwhile."""
        self._close_logs()
        self._log = PageLog(self.folder.place(LOCAL_FILES), durable=self._durable)
        self.pages = StatePages(self._log, self.pages.budget)
        self._noted = {}

    def release(self) -> None:
        """Let other jobs use the checkpoint."""
        self._close_logs()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def last(self) -> StoredBatch | None:
        """Return the last micro-batch; None if there is none. Records that the sinks have are left out.

        Raises:
            IncompatibleCheckpointError: It has a version that is not known here.
            CorruptDataError: The log is damaged.
        """
        self._log.recover(writes=self._lock is not None)
        self.pages.budget.clear()  # of the pages of an earlier run
        if not self._log.notes:
            return None
        place = self.folder.place(LOCAL_FILES)
        try:
            batch = converted(StoredBatch, {name: json.loads(note) for name, note in self._log.notes.items()}, place)
        except ValueError as error:
            raise CorruptDataError(f"{place} is damaged: {error!r}. {_RESTORE}") from error
        outputs = zip(batch.outputs, self._log.others, strict=False)
        return replace(batch, outputs=[output._replace(records=records) for output, records in outputs])

    def lacks_segments(self) -> bool:
        """Return whether pages are in segments that do not exist. Called after ``last``."""
        return any(log.lacks_segments for log in (self._log, *self._open_worker_logs()))

    @property
    def is_written(self) -> bool:
        """True if the sinks have the last micro-batch."""
        return self._log.is_marked

    def write(self, batch: StoredBatch) -> None:
        """Store a micro-batch with the pages that it has changed. Called before its records are written to the sinks.

        Raises:
            JobError: The disk is full, for example.
        """
        plain = [output._replace(records=b"") for output in batch.outputs]
        fields = {name: getattr(batch, name) for name in batch.__struct_fields__} | {"outputs": plain}
        changed = {name: value for name, value in fields.items() if self._noted.get(name, _NOTHING) is not value}
        notes = {name: json.dumps(msgspec.to_builtins(value)).encode() for name, value in changed.items()}
        self._log.commit(
            {name: note for name, note in notes.items() if self._log.notes.get(name) != note},
            [output.records for output in batch.outputs],
        )
        self._noted = fields
        if "workers" in changed and batch.workers == self.workers:
            for name in os.listdir(self._place()):
                if name.startswith(_WORKERS) and (batch.workers is None or name != batch.workers.folder):
                    shutil.rmtree(self._place(name))

    def mark_written(self) -> None:
        """Record that the sinks have the last micro-batch."""
        self._log.mark()

    def close_read(self) -> None:
        """Called when the state has been restored: close the logs of workers that this process has read."""
        for log in self._read:
            log.close()
        self._read = []

    def _close_logs(self) -> None:
        self._log.close()
        self.close_read()

    def _check_runtime(self) -> None:
        kind = kind_of_folder(self.folder)
        check_no_savepoint(self.folder.path, kind)
        if kind is FolderKind.SPARK:
            raise IncompatibleCheckpointError(
                f"{self.folder.path} is the checkpoint of a job on Spark. To continue that job locally, take a "
                f"savepoint of it, and start with savepoint=... and a new checkpoint_location."
            )


def _workers_in(notes: Mapping[str, bytes]) -> StoredWorkers | None:
    note = notes.get("workers")
    return None if note is None else msgspec.json.decode(note, type=StoredWorkers | None)
