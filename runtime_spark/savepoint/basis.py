"""What a savepoint takes from the files of a checkpoint: everything but the state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from dsv2.dead_letters.replay import Replays
from dsv2.errors import ConfigurationError, CorruptDataError, IncompatibleCheckpointError
from dsv2.folders import Folder
from dsv2.program.description import Description
from dsv2.program.folder_kinds import check_no_savepoint
from dsv2.savepoint.metadata import SourcePosition
from runtime_spark.checkpoint_log import Beginning, beginning_of
from runtime_spark.manifest import Manifest, has_spark_state, read_checkpoint_id, read_manifest
from runtime_spark.notes import Notes, notes_of
from runtime_spark.placement import Placement, positions_at
from runtime_spark.savepoint.origin import CheckpointOrigin
from runtime_spark.source_reports import reports_as_of
from runtime_spark.state_history import StateHistory, written_as_of

__all__ = ("SavepointBasis", "read_basis")

_ATTEMPTS = 5


@dataclass(frozen=True)
class SavepointBasis:
    """A checkpoint as of its last committed micro-batch.

    Attributes:
        checkpoint: The checkpoint.
        checkpoint_id: Its id.
        job_id: The job, as sinks know it.
        first_batch: The number that sinks give to the first micro-batch.
        batch_id: The micro-batch.
        in_savepoint: The earlier programs of the savepoint with which the checkpoint began.
        manifest: The manifest of the first start.
        notes: The notes.
        placement: Where the state and the offsets are.
        history: The state after the micro-batch.
        sources: The positions of the sources, by uid.
        replays: The dead letters that the job has processed again.
        has_begun_next: Whether sinks may have written a part of the next micro-batch.
    """

    checkpoint: Folder
    checkpoint_id: UUID
    job_id: str
    first_batch: int
    batch_id: int
    in_savepoint: Sequence[Description]
    manifest: Manifest
    notes: Notes
    placement: Placement
    history: StateHistory
    sources: dict[str, SourcePosition]
    replays: Replays
    has_begun_next: bool

    @property
    def programs(self) -> list[Description]:
        """The programs that wrote the state, the last one last."""
        return [*self.in_savepoint, self.manifest["program"], *self.notes.programs]

    @property
    def job_name(self) -> str:
        """The name of the job."""
        return str(self.programs[-1]["job_name"])


def read_basis(checkpoint: Folder) -> SavepointBasis:
    """Read the files of a checkpoint. A job may be running from it.

    Raises:
        ConfigurationError: The folder is not a checkpoint, or no micro-batch is complete.
        IncompatibleCheckpointError: The checkpoint was written by another version.
        CorruptDataError: A file is damaged.
    """
    for attempt in range(_ATTEMPTS):
        beginning = beginning_of(checkpoint)
        last = beginning.batch_id - 1
        try:
            basis = _read(checkpoint, beginning)
        except (CorruptDataError, IncompatibleCheckpointError):
            if attempt == _ATTEMPTS - 1:
                raise
            continue  # a running job may have replaced the file
        if beginning_of(checkpoint).batch_id - 1 == last:
            break
    return basis


def _read(checkpoint: Folder, beginning: Beginning) -> SavepointBasis:
    last = beginning.batch_id - 1
    check_no_savepoint(checkpoint)
    manifest = read_manifest(checkpoint)
    if manifest is None or last < 0:
        raise ConfigurationError(
            f"{checkpoint.path} is not a checkpoint with a complete micro-batch, so there is no state for a savepoint."
        )
    if has_spark_state(manifest):
        raise ConfigurationError(
            f"The job of the checkpoint {checkpoint.path} has Spark operators with state, in a DataFrame that its "
            f"records pass through. A savepoint cannot contain their state."
        )
    notes = notes_of(checkpoint)
    placement = Placement.read(checkpoint)
    checkpoint_id = read_checkpoint_id(checkpoint)
    written = written_as_of(checkpoint, placement.addresses.values(), last)
    origin = CheckpointOrigin.read(checkpoint)
    return SavepointBasis(
        checkpoint,
        checkpoint_id,
        str(checkpoint_id) if origin is None or origin.job_id is None else origin.job_id,
        0 if origin is None else origin.first_batch,
        last,
        () if origin is None else origin.earlier,
        manifest,
        notes,
        placement,
        StateHistory(checkpoint_id, last + 1, written),
        _positions(checkpoint, placement, last),
        Replays() if origin is None else origin.replays,
        notes.is_begun(beginning),
    )


def _positions(checkpoint: Folder, placement: Placement, last: int) -> dict[str, SourcePosition]:
    reports = reports_as_of(checkpoint, last)
    offsets = positions_at(checkpoint, placement, last)
    return {uid: SourcePosition(offset, reports.get(uid, [])) for uid, offset in offsets.items()}
