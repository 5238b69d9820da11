"""The checkpoint of a local job: one file for each micro-batch. Only the last file is kept.

The file of a micro-batch has the state after it, the positions of the sources, the records for the sinks, and the dead
letters. It is written before the sinks are, and replaces the one before. So a crash either leaves no trace of a
micro-batch, which is then planned again, or its complete result, which the next start writes again with its number.
A marker records that the sinks have it::

    local/7.batch      micro-batch 7
    local/7.written    its records are in the sinks, and its dead letters in their folder
    local/lock         held by the process that runs the job
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import IO, Any, NamedTuple
from zlib import crc32

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dsv2.base.folders import LocalFolder
from dsv2.checkpoint.folder_kinds import LOCAL_FILES, FolderKind, check_no_savepoint, kind_of_folder
from dsv2.checkpoint.record import JobRecord, converted
from dsv2.checks.json_documents import encoded, from_json
from dsv2.errors import ConfigurationError, CorruptDataError, IncompatibleCheckpointError

_BATCH, _WRITTEN = ".batch", ".written"
_LOCK = f"{LOCAL_FILES}/lock"
_RESTORE = "Restore the checkpoint from a backup, or start from a new checkpoint_location."


class SubtaskState(NamedTuple):
    """The snapshot of a subtask. ``uid``: The first operator of its chain."""

    uid: str
    subtask: int
    snapshot: bytes


class SinkOutput(NamedTuple):
    """Records of a micro-batch for one subtask of the sink ``uid``, encoded, and the parallelism of the sink."""

    uid: str
    parallelism: int
    subtask: int
    records: bytes


class StoredBatch(JobRecord, frozen=True, kw_only=True):
    """A job after a micro-batch.

    Attributes:
        checkpoint_id: Unique for each checkpoint.
        now_ms: The time of the micro-batch in ms.
        complete: Whether all input has been processed to its end.
        runs: The runs that may have written the micro-batch to sinks, the last one last.
        letters: The dead letters of the micro-batch that nothing reads.
        states: The state of the subtasks.
        outputs: The records for the sinks.
    """

    checkpoint_id: str
    now_ms: int
    complete: bool
    runs: Sequence[str] = []
    letters: Sequence[Mapping[str, Any]] = []
    states: Sequence[SubtaskState] = []
    outputs: Sequence[SinkOutput] = []

    def encoded(self) -> bytes:
        """Return the content of the file of the micro-batch."""
        blobs = [*(state.snapshot for state in self.states), *(output.records for output in self.outputs)]
        plain = replace(
            self,
            states=[state._replace(snapshot=b"") for state in self.states],
            outputs=[output._replace(records=b"") for output in self.outputs],
        )
        data = b"".join(blobs)
        return b"\n".join([encoded(_Header(crc32(data), list(map(len, blobs)), plain)), data])

    @staticmethod
    def decoded(data: bytes, place: str) -> StoredBatch:
        """Decode the content of the file ``place``.

        Raises:
            IncompatibleCheckpointError: It has a version that is not known here.
            CorruptDataError: It is damaged.
        """
        head, _, rest = data.partition(b"\n")
        try:
            header = from_json(head)
            batch = converted(StoredBatch, header.get("batch", {}), place)
            return _with_blobs(msgspec.convert({**header, "batch": batch}, _Header), rest)
        except ValueError as error:
            raise CorruptDataError(f"{place} is damaged: {error!r}. {_RESTORE}") from error


class _Header(Struct, frozen=True):
    """The header of a file, before the states and the outputs.

    Attributes:
        blobs_crc32: The checksum of the states and outputs.
        sizes: The number of bytes of each state, then of each output.
        batch: The micro-batch, with empty states and outputs.
    """

    blobs_crc32: int
    sizes: list[int]
    batch: StoredBatch


def _with_blobs(header: _Header, rest: bytes) -> StoredBatch:
    batch, sizes, states = header.batch, header.sizes, len(header.batch.states)
    if sum(sizes) != len(rest):
        raise ValueError(f"it has {len(rest)} bytes of state and output instead of {sum(sizes)}")
    if header.blobs_crc32 != crc32(rest):
        raise ValueError("its state or output was changed")
    blobs = [rest[end - size : end] for end, size in zip(accumulate(sizes), sizes, strict=True)]
    return replace(
        batch,
        states=[state._replace(snapshot=blob) for state, blob in zip(batch.states, blobs[:states], strict=True)],
        outputs=[output._replace(records=blob) for output, blob in zip(batch.outputs, blobs[states:], strict=True)],
    )


class LocalCheckpoint:
    """The checkpoint in ``folder``. Nothing is written before ``acquire``."""

    def __init__(self, folder: LocalFolder) -> None:
        self.folder = folder
        self._lock: IO[bytes] | None = None

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

    def release(self) -> None:
        """Let other jobs use the checkpoint."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def last(self) -> StoredBatch | None:
        """Return the last micro-batch; None if there is none.

        Raises:
            IncompatibleCheckpointError: It has a version that is not known here.
            CorruptDataError: Its file is damaged.
        """
        numbers = self.folder.numbers(LOCAL_FILES, suffix=_BATCH)
        if not numbers:
            return None
        name = _name(numbers[-1], _BATCH)
        data = self.folder.read(name)
        assert data is not None
        return StoredBatch.decoded(data, self.folder.place(name))

    def is_written(self, batch_id: int) -> bool:
        """Return whether the sinks have a micro-batch."""
        return self.folder.read(_name(batch_id, _WRITTEN)) is not None

    def write(self, batch: StoredBatch) -> None:
        """Store a micro-batch. Called before its records are written to the sinks."""
        self.folder.write(_name(batch.batch_id, _BATCH), batch.encoded())

    def mark_written(self, batch_id: int) -> None:
        """Record that the sinks have a micro-batch, and delete those before it."""
        self.folder.write(_name(batch_id, _WRITTEN), b"")
        for suffix in (_BATCH, _WRITTEN):
            for number in self.folder.numbers(LOCAL_FILES, suffix=suffix):
                if number < batch_id:
                    self.folder.delete(_name(number, suffix))

    def _check_runtime(self) -> None:
        kind = kind_of_folder(self.folder)
        check_no_savepoint(self.folder.path, kind)
        if kind is FolderKind.SPARK:
            raise IncompatibleCheckpointError(
                f"{self.folder.path} is the checkpoint of a job on Spark. To continue that job locally, take a "
                f"savepoint of it, and start with savepoint=... and a new checkpoint_location."
            )


def _name(number: int, suffix: str) -> str:
    return f"{LOCAL_FILES}/{number}{suffix}"
