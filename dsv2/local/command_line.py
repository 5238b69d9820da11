"""The commands of ``dsv2`` for checkpoints of the local runtime. Their results are those of the commands with Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from dsv2.checkpoint.record import JobRecord, extended
from dsv2.errors import ConfigurationError
from dsv2.local.checkpoint import LocalCheckpoint, StoredBatch
from dsv2.local.restoration import on_disk
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.placeholders import StandIns
from dsv2.runtime.state.rows import StateRow
from dsv2.savepoint.metadata import SavepointInfo
from dsv2.savepoint.writer import write_savepoint


def create(checkpoint: str, path: str, settings: Mapping[str, str], key_file: str | None) -> str:
    """Take a savepoint from a checkpoint whose job is not running, and return its path.

    Args:
        checkpoint: The checkpoint.
        path: The folder of the savepoint.
        settings: Not used.
        key_file: Not used: local state is not signed.

    Raises:
        ConfigurationError: ``path`` is in use, a job uses the checkpoint, or there is nothing to continue.
        CorruptDataError: The checkpoint is damaged.
    """
    opened = LocalCheckpoint(on_disk(checkpoint))
    opened.acquire()
    try:
        stored = _last(opened)
        if not opened.is_written:
            raise ConfigurationError(
                f"The sinks of the job {stored.job_name!r} may not have micro-batch {stored.batch_id}, whose records "
                f"are in the checkpoint {checkpoint}. Start the job once more from the checkpoint, which completes the "
                f"micro-batch, and take the savepoint then."
            )
        if stored.complete:
            raise ConfigurationError(
                f"The job {stored.job_name!r} of the checkpoint {checkpoint} has reached the end of its input, so "
                f"there is nothing to continue."
            )
        codec = Codec(StandIns())
        write_savepoint(on_disk(path), extended(SavepointInfo, stored), _rows(opened, codec), codec)
    finally:
        opened.release()
    return on_disk(path).path


def last(checkpoint: str, settings: Mapping[str, str]) -> tuple[JobRecord, str, None]:
    """Return the job as of its last micro-batch, and the id of the checkpoint. ``settings``: Not used."""
    stored = _last(LocalCheckpoint(on_disk(checkpoint)))
    return stored, stored.checkpoint_id, None


def verify(checkpoint: str, settings: Mapping[str, str], key_file: str | None) -> dict[str, Any]:
    """Read and decode all state of a checkpoint, and return the number of rows and bytes by operator.

    Args:
        checkpoint: The checkpoint.
        settings: Not used.
        key_file: Not used.

    Raises:
        CorruptDataError: The checkpoint is damaged.
    """
    opened = LocalCheckpoint(on_disk(checkpoint))
    stored = _last(opened)
    rows, size = Counter[str](), Counter[str]()
    for uid, row in _rows(opened, Codec(StandIns())):
        rows[uid] += 1
        size[uid] += len(row.key or b"") + len(row.value or b"")
    operators = [{"operator": uid, "rows": rows[uid], "bytes": size[uid]} for uid in sorted(rows)]
    return {"batch_id": stored.batch_id, "operators": operators}


def _last(checkpoint: LocalCheckpoint) -> StoredBatch:
    stored = checkpoint.last()
    if stored is None:
        raise ConfigurationError(f"The checkpoint {checkpoint.folder.path} has no complete micro-batch.")
    return stored


def _rows(checkpoint: LocalCheckpoint, codec: Codec) -> Iterator[tuple[str, StateRow]]:
    for subtask in checkpoint.subtasks():
        yield from subtask.rows(codec)
