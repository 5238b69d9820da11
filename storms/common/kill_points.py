"""Kills of a process by itself, at a random line of a function of the local runtime or in the middle of a write.

The function is a phase of a micro-batch or of a start. The process traces itself, so nothing in the product is changed.
A loss of power also takes what was not forced to the disk. The segments of the checkpoint are small, so that they are
often begun, cleaned and deleted, and few pages stay decoded.

A worker process kills itself as well, or it is killed by the process of the job, which does something that its workers
do not see.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeAlias

from dsv2.local import page_log
from dsv2.runtime.state import page_budget
from storms.common.disk import Disk
from storms.common.processes import children_of_session

__all__ = (
    "FROM_OUTSIDE",
    "MIGRATIONS",
    "MOVES",
    "POINTS",
    "STARTS",
    "TORN",
    "WORKER_COPIES",
    "WORKER_MIGRATIONS",
    "WORKER_POINTS",
    "WORKER_SINKS",
    "WRITTEN_AGAIN",
    "Kill",
    "Whose",
    "limit_segments",
)

TORN = "write cut off"
WRITTEN_AGAIN = "written again"
POINTS = {
    "log read": "local/page_log.py:PageLog.recover",
    WRITTEN_AGAIN: "local/execution.py:Recorder.complete_earlier",
    "state restored": "local/execution.py:Execution._restore",
    "state migrated": "local/execution.py:Execution._restore",
    "migration stored": "local/checkpoint.py:LocalCheckpoint.write",
    "micro-batch": "local/execution.py:MicroBatchRunner._run_batch",
    "transaction": "local/checkpoint.py:LocalCheckpoint.write",
    TORN: "",
    "segment begun": "local/page_log.py:PageLog._begin_segment",
    "pages moved": "local/page_log.py:PageLog._moved",
    "segment deleted": "local/segment_files.py:SegmentFiles.delete",
    "sinks": "local/sinks.py:LocalSinks.write",
    "files merged": "file_log/sink_folder.py:SinkFolder.roll",
    "mark": "local/checkpoint.py:LocalCheckpoint.mark_written",
}
"""The function in which each phase of a job is."""
MOVES = {
    "savepoint taken": "savepoint/writer.py:write_savepoint",
    "savepoint restored": POINTS["state restored"],
    "first transaction": POINTS["transaction"],
    "first sinks": POINTS["sinks"],
    "first mark": POINTS["mark"],
}
"""The same for the move of a job from or to the local runtime."""
MIGRATIONS = ("state migrated", "migration stored")
"""The phases that need a changed program."""
STARTS = ("log read", WRITTEN_AGAIN, "state restored", "state migrated")
"""The phases that are over when a micro-batch begins."""

WORKER_POINTS = {
    "worker restored": "local/task_group.py:TaskGroup.restore",
    "worker's pages copied": "local/state_pages.py:StatePages.adopt",
    "worker's rows added": "local/workers/worker.py:Worker.add_rows",
    "worker's chain restored": "local/workers/worker.py:Worker.finish_restore",
    "subtasks run": "local/workers/level_tasks.py:LevelTasks.run_level",
    "frames sealed": "local/workers/level_tasks.py:LevelTasks._send",
    "worker's page loaded": "runtime/state/page_store.py:EntryPages.get",
    "worker's pages evicted": "runtime/state/page_budget.py:KeptPages.evict",
    "worker's transaction": "local/page_log.py:PageLog.commit",
    "worker's write cut off": "",
    "worker's segment begun": POINTS["segment begun"],
    "worker's pages moved": POINTS["pages moved"],
    "worker's sinks": "local/workers/worker.py:Worker.write",
    "worker's files": "local/workers/worker.py:Worker.write_files",
    "worker's mark": "local/page_log.py:PageLog.mark",
}
"""The same for worker processes."""
FROM_OUTSIDE = {
    "while the job commits": POINTS["transaction"],
    "while sinks are written": POINTS["sinks"],
    "while the mark is written": POINTS["mark"],
    "while state is restored": POINTS["state restored"],
}
"""The phases of the job in which it kills one of its workers."""
WORKER_MIGRATIONS = ("worker's rows added", "worker's chain restored")
"""The phases of workers that need a changed program."""
WORKER_COPIES = ("worker's pages copied",)
"""The phases of workers that need another number of them."""
WORKER_SINKS = ("worker's sinks",)
"""The phases of workers that need a parallel sink."""

_EVERY = POINTS | MOVES | WORKER_POINTS | FROM_OUTSIDE
_BATCH = POINTS["micro-batch"]
_SEGMENT_BYTES = 20_000
_PAGE_BYTES = 48 << 20  # of memory that each page seems to take, so that few of them stay decoded
_PAUSE_SECONDS = 0.001
_MOST_LINES = 3  # 10 to the power of this, in a function whose number of lines is not known yet
_Tracer: TypeAlias = Callable[[FrameType, str, Any], Any]


class Whose(StrEnum):
    """The receivers of orders: the process of the job, that process after an earlier order, and a worker process."""

    JOB = "job"
    JOB_LATER = "job-later"
    WORKER = "worker"


@dataclass(frozen=True)
class Kill:
    """An order to a process.

    Attributes:
        folder: The folder of its files.
        phase: Where it is killed, a phase of this module. In one of ``FROM_OUTSIDE`` it kills a worker instead, and
            takes the next order.
        seed: The seed of its random choices.
        passed: How many times it first passes the phase.
        power: Whether the power is lost.
        whose: The receiver.
    """

    folder: str
    phase: str
    seed: int
    passed: int = 0
    power: bool = False
    whose: str = Whose.JOB

    def give(self) -> None:
        """Order the kill of the next process of the job."""
        self._order(Path(self.folder), self.whose).write_text(json.dumps(asdict(self)))
        self._done.unlink(missing_ok=True)

    @classmethod
    def ordered(cls, folder: Path, whose: str = Whose.JOB) -> Kill | None:
        """Return the order to this process, if there is one."""
        order, taken = cls._order(folder, whose), folder / f"kill-{os.getpid()}.json"
        try:
            order.rename(taken)  # by one of several workers
        except FileNotFoundError:
            return None
        return cls(**json.loads(taken.read_text()))

    def phase_reached(self) -> str | None:
        """Return where the process was killed; None: it was not."""
        return self._done.read_text() if self._done.exists() else None

    def note(self, phase: str) -> None:
        """Called by the process before it kills itself in ``phase``."""
        self._done.write_text(phase)

    def arm(self) -> None:
        """Begin to wait for the phase, in this process."""
        _Armed(self).begin()

    @staticmethod
    def _order(folder: Path, whose: str) -> Path:
        return folder / f"kill-{whose}.json"

    @property
    def _done(self) -> Path:
        return Path(self.folder, f"killed-{self.whose}")


def limit_segments() -> None:
    """Make the segments of this process small, and let it keep few pages decoded."""
    page_log._LEAST_SEGMENT = _SEGMENT_BYTES
    page_log._SPILLED_BYTES = page_log._LEAST_CLEANED = _SEGMENT_BYTES // 8
    vars(page_budget)["_BYTES_PER_PAGE"] = _PAGE_BYTES


class _Armed:
    """Counts the lines of the function in which its process is killed."""

    def __init__(self, kill: Kill) -> None:
        self._disk: Disk | None = None
        if kill.power:
            self._disk = Disk(Path(kill.folder), random.Random(kill.seed), joins=kill.whose == Whose.WORKER)
        self._write = os.pwrite
        self._aim(kill)

    def _aim(self, kill: Kill) -> None:
        self._kill = kill
        self._point = _EVERY[kill.phase]
        self._chance = random.Random(kill.seed)
        self._counted = Path(kill.folder, f"{kill.phase}.lines")
        self._passed = 0
        self._frame: FrameType | None = None  # of the phase, while the process is in it
        self._thread = 0
        self._lines = 0
        self._last = self._line_of_kill()

    def begin(self) -> None:
        """Trace all threads, or the writes."""
        limit_segments()
        if not self._point:
            os.pwrite = self._cut_off
            return
        threading.settrace(self._called)
        sys.settrace(self._called)

    def _cut_off(self, file: int, data: Any, offset: int) -> int:
        if self._passed >= self._kill.passed:
            self._write(file, data[: self._chance.randrange(len(data))], offset)
            self._die(self._kill.phase)
        self._passed += 1
        return self._write(file, data, offset)

    def _called(self, frame: FrameType, event: str, argument: object) -> _Tracer | None:
        if self._frame is not None:
            return self._ran if threading.get_ident() == self._thread else None
        if _is_in(frame, self._point):
            self._frame, self._thread, self._lines = frame, threading.get_ident(), 0
            return self._ran
        if self._kill.phase in STARTS and _is_in(frame, _BATCH):
            self._die("")  # too late
        return None

    def _ran(self, frame: FrameType, event: str, argument: object) -> _Tracer:
        if self._frame is None:  # an earlier order
            return self._ran
        is_over = event == "return" and frame is self._frame
        self._lines += event == "line"
        if self._passed >= self._kill.passed and (is_over or self._lines >= self._last):
            self._strike()
        elif is_over:
            self._frame = None
            self._passed += 1
            self._counted.write_text(str(self._lines))
            self._last = self._line_of_kill()
        return self._ran

    def _line_of_kill(self) -> int:
        if self._counted.exists():
            return self._chance.randint(1, max(1, int(self._counted.read_text())))
        return int(10 ** self._chance.uniform(0, _MOST_LINES))

    def _strike(self) -> None:
        if self._kill.phase not in FROM_OUTSIDE:
            self._die(self._kill.phase)
        if workers := [*_others()]:
            os.kill(self._chance.choice(workers), signal.SIGKILL)
            self._kill.note(self._kill.phase)
        later = Kill.ordered(Path(self._kill.folder), Whose.JOB_LATER)
        assert later is not None
        self._aim(later)

    def _die(self, phase: str) -> NoReturn:
        sys.settrace(None)
        threading.settrace(None)
        if self._disk is not None:
            while running := [process for process in _others() if _runs(process)]:
                for process in running:
                    os.kill(process, signal.SIGSTOP)  # the storm goes on when that of the job has ended
                time.sleep(_PAUSE_SECONDS)
            self._disk.lose_power()
        self._kill.note(phase)
        for process in _others() if self._disk is not None else ():
            os.kill(process, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def _others() -> Iterator[int]:
    """Yield the other processes of the job that run."""
    for process, command in children_of_session(os.getsid(0)):
        if command and process != os.getpid():
            yield process


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "TXZ"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _is_in(frame: FrameType, point: str) -> bool:
    code = frame.f_code
    file, _, function = point.partition(":")
    return code.co_qualname == function and code.co_filename.endswith(f"dsv2/{file}")
