"""A job that is shown from what it stores in its checkpoint. It may be running in another process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from dsv2.base.folders import Folder
from dsv2.errors import CorruptDataError, Dsv2Error
from dsv2.jobs.progress_log import StoredJob, read_job, read_progress
from dsv2.plan_view.model import PlanView
from dsv2.views.dashboard.jobs import Status, WatchedJob

_LOOK_SECONDS = 1.0


class CheckpointJob(WatchedJob):
    """The job of a checkpoint.

    Args:
        folder: The checkpoint.
        take_savepoint: Takes a savepoint of the checkpoint in a folder, and returns its path. None: not possible.
    """

    def __init__(self, folder: Folder, take_savepoint: Callable[[str], str] | None = None) -> None:
        super().__init__()
        self._folder = folder
        self._take_savepoint = take_savepoint
        self._lock = threading.Lock()
        self._looked_at = float("-inf")
        self._last_batch = -1
        self._stored: StoredJob | None = None
        self.record.describe(folder.path, None, ())
        self.record.end(Status.STORED)

    @property
    def actions(self) -> tuple[str, ...]:
        return () if self._take_savepoint is None else ("savepoint",)

    def refresh(self) -> None:
        if not self._lock.acquire(blocking=False):
            return  # another request is looking
        try:
            now = time.monotonic()
            if now - self._looked_at >= _LOOK_SECONDS:
                self._look()
                self._looked_at = time.monotonic()
        finally:
            self._lock.release()

    def _look(self) -> None:
        try:
            stored = read_job(self._folder)
            if stored is not None and stored != self._stored:
                self.record.describe(stored.name, _plan_of(stored), stored.configuration)
                self._stored = stored
            for progress in read_progress(self._folder, after=self._last_batch):
                self.record.add(progress)
                self._last_batch = progress.batch_id
        except (Dsv2Error, OSError) as error:
            self._set_error(str(error))
        else:
            self._set_error("")

    def _set_error(self, error: str) -> None:
        if self.record.snapshot().error != error:
            self.record.end(Status.STORED, error)

    def letters_folder(self) -> Folder | None:
        return self._folder

    def savepoint(self, path: str) -> str:
        return super().savepoint(path) if self._take_savepoint is None else self._take_savepoint(path)


def _plan_of(stored: StoredJob) -> PlanView:
    try:
        return msgspec.convert(stored.plan, PlanView)
    except msgspec.ValidationError as error:
        raise CorruptDataError(f"The plan in the checkpoint cannot be shown: {error}") from error
