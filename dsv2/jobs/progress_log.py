"""The progress of a job in its checkpoint: a file for each of the last micro-batches, and the plan.

Files::

    dsv2/progress/7.json       after micro-batch 7: {"version": 1, "dsv2": "0.1.0", "progress": JobProgress}
    dsv2/progress/plan.json    the last run: {"version": 1, "dsv2": "0.1.0", "job": StoredJob}

``JobProgress`` and ``StoredJob`` are objects with their attributes. Fields that are added later have defaults, so a
version is only for other changes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from os import PathLike
from typing import Any, TypeVar

import msgspec

from dsv2.base.folders import Folder
from dsv2.checks.paths import local_folder
from dsv2.errors import CorruptDataError, IncompatibleCheckpointError
from dsv2.graph import Plan
from dsv2.jobs.configuration import Section
from dsv2.jobs.progress import JobProgress
from dsv2.plan_view.runtime_view import RuntimeView
from dsv2.plan_view.view import view_of
from dsv2.version import __version__

T = TypeVar("T")

_LOG = logging.getLogger("dsv2.job")
_VERSION = 1
_FOLDER = "dsv2/progress"
_PLAN = f"{_FOLDER}/plan.json"
_MOST_FILES = 100
_MOST_BYTES = 16 << 20  # of all files, but the last one is always kept
_OPEN_IT = "Open it with runtime_spark.platform.folders.open_folder(spark, path)."


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A run of a job, as stored in its checkpoint.

    Attributes:
        name: The name of the job.
        started_at_ms: When the run started, in ms since the epoch.
        plan: The plan, as ``explain(format="json")`` shows it.
        configuration: The configuration, without secrets and settings of the Spark session.
    """

    name: str
    started_at_ms: int
    plan: Mapping[str, object] = field(default_factory=dict)
    configuration: tuple[Section, ...] = ()


class _ProgressFile(msgspec.Struct):
    version: int
    dsv2: str
    progress: msgspec.Raw = msgspec.Raw(b"null")
    job: msgspec.Raw = msgspec.Raw(b"null")


def read_progress(checkpoint: str | PathLike[str] | Folder, *, after: int = -1) -> list[JobProgress]:
    """Read the progress of a job after each of its last micro-batches, the oldest first. The job may be running.

    Args:
        checkpoint: The ``checkpoint_location`` of the job. On a file system that only Spark reads, a folder that
            ``runtime_spark.platform.folders.open_folder`` has opened.
        after: Only micro-batches after this one are read. Default: all that are stored.

    Returns:
        The progress; empty if the checkpoint has none.

    Raises:
        CorruptDataError: A file is damaged.
        IncompatibleCheckpointError: A file was written by a later version.
        ConfigurationError: The path is on a file system that only Spark reads.
    """
    folder = _opened(checkpoint)
    numbers = folder.numbers(_FOLDER, suffix=".json")
    found = (_read(folder, _name(number), "progress", JobProgress) for number in numbers if number > after)
    return [progress for progress in found if progress is not None]


def read_job(checkpoint: str | PathLike[str] | Folder) -> StoredJob | None:
    """Read which job uses a checkpoint, and its plan; None if it is not stored. Errors: those of ``read_progress``."""
    return _read(_opened(checkpoint), _PLAN, "job", StoredJob)


class ProgressLog:
    """Writes the progress of one run. What cannot be read or written is logged, and does not affect the job."""

    def __init__(self, folder: Folder, next_batch: int, configuration: tuple[Section, ...] = ()) -> None:
        """Open the files of a checkpoint.

        Args:
            folder: The checkpoint.
            next_batch: The micro-batch with which the run begins.
            configuration: The configuration of the run.
        """
        self._folder = folder
        self._configuration = configuration
        self._sizes: dict[int, int] = {}
        self._warned = False
        self.before: JobProgress | None = None
        """The progress after the micro-batch before ``next_batch``, or the last one before that is stored."""
        try:
            self._begin(next_batch)
        except Exception as error:
            self._warn("read", error)

    def _begin(self, next_batch: int) -> None:
        self._sizes = self._folder.numbered(_FOLDER, ".json")
        for number in sorted(self._sizes, reverse=True):
            if number >= next_batch:  # it was not complete, or the checkpoint was restored from a backup
                self._delete(number)
            elif self.before is None:
                self.before = _read(self._folder, _name(number), "progress", JobProgress)

    def add_job(self, plan: Plan, started_at_ms: int, runtime: RuntimeView | None = None) -> None:
        """Write which job runs.

        Args:
            plan: Its plan.
            started_at_ms: When the run started, in ms since the epoch.
            runtime: What its runtime adds to the explanation of the plan.
        """
        try:
            view = msgspec.to_builtins(view_of(plan, runtime))
            self._folder.write(_PLAN, _encoded(job=StoredJob(plan.job_name, started_at_ms, view, self._configuration)))
        except Exception as error:
            self._warn("written", error)

    def add(self, progress: JobProgress) -> None:
        """Write the progress after a micro-batch, and delete old files."""
        try:
            data = _encoded(progress=_storable(progress))
            self._folder.write(_name(progress.batch_id), data)
            self._sizes[progress.batch_id] = len(data)
            for number in self._surplus():
                self._delete(number)
        except Exception as error:
            self._warn("written", error)

    def _surplus(self) -> Iterator[int]:
        size = 0
        for count, number in enumerate(sorted(self._sizes, reverse=True)):
            size += self._sizes[number]
            if count and (count >= _MOST_FILES or size > _MOST_BYTES):
                yield number

    def _delete(self, number: int) -> None:
        self._folder.delete(_name(number))
        del self._sizes[number]

    def _warn(self, what: str, error: Exception) -> None:
        if not self._warned:  # probably the next ones fail for the same reason
            self._warned = True
            _LOG.warning("Progress in %s cannot be %s: %s. The job continues.", self._folder.path, what, error)


def _encoded(**content: Any) -> bytes:
    return msgspec.json.encode({"version": _VERSION, "dsv2": __version__, **content}, enc_hook=str)


def _storable(progress: JobProgress) -> JobProgress:
    """The progress without gauges that are not numbers in JSON."""
    operators = {
        uid: operator
        if all(map(isfinite, operator.gauges.values()))
        else replace(operator, gauges={name: value for name, value in operator.gauges.items() if isfinite(value)})
        for uid, operator in progress.operators.items()
    }
    return replace(progress, operators=operators)


def _read(folder: Folder, name: str, part: str, kind: type[T]) -> T | None:
    data = folder.read(name)
    if data is None:  # or it has just been deleted
        return None
    try:
        file = msgspec.json.decode(data, type=_ProgressFile)
        if file.version == _VERSION:
            return msgspec.json.decode(getattr(file, part), type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptDataError(f"{folder.place(name)} is damaged: {error}. It can be deleted.") from error
    raise IncompatibleCheckpointError(
        f"{folder.place(name)} has version {file.version}, which this version of dsv2 ({__version__}) does not know. "
        f"Use the version that wrote it ({file.dsv2})."
    )


def _opened(checkpoint: str | PathLike[str] | Folder) -> Folder:
    return checkpoint if isinstance(checkpoint, Folder) else local_folder(checkpoint, _OPEN_IT)


def _name(number: int) -> str:
    return f"{_FOLDER}/{number}.json"
