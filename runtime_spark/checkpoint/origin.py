"""Records in a checkpoint the savepoint with which it began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dsv2.base.folders import Folder
from dsv2.checkpoint.description import Description
from dsv2.checkpoint.record import JobRecord, SourcePosition
from dsv2.checks.json_documents import read_document, write_document
from dsv2.dead_letters.replay import Replays
from dsv2.savepoint.metadata import SavepointInfo

_NAME = "dsv2/origin.json"


@dataclass(frozen=True)
class CheckpointOrigin:
    """The savepoint with which a checkpoint began.

    Attributes:
        path: The folder of the savepoint from which the user started the job; None: there was none.
        savepoint_id: The id of the savepoint with which the checkpoint began.
        program: The program that wrote it.
        earlier: Programs that wrote values that are still in it (``continued_programs``), oldest first.
        sources: The positions from which the sources continue, by uid.
        job_id: The job that the checkpoint continues, for sinks. None: it is a new one.
        first_batch: The number that sinks give to the first micro-batch.
        replays: The dead letters that the job has processed again, those in the savepoint included.
    """

    path: str | None
    savepoint_id: str
    program: Description
    earlier: Sequence[Description]
    sources: Mapping[str, SourcePosition]
    job_id: str | None
    first_batch: int
    replays: Replays = field(default_factory=Replays)

    @staticmethod
    def of(path: str | None, info: SavepointInfo, begun: JobRecord, *, as_new_job: bool) -> CheckpointOrigin:
        """Return the origin of a checkpoint that begins with a savepoint.

        Args:
            path: The folder of the savepoint from which the user started the job; None: there was none.
            info: Its description.
            begun: The job with which it begins.
            as_new_job: Whether sinks see a new job, instead of one that continues.
        """
        return CheckpointOrigin(
            path,
            info.savepoint_id,
            info.program,
            begun.programs[:-1],
            info.sources,
            None if as_new_job else begun.job_id,
            begun.batch_id + 1,
            begun.replays,
        )

    def write(self, checkpoint: Folder) -> None:
        """Record the origin before the first start."""
        write_document(checkpoint, _NAME, self)

    @staticmethod
    def read(checkpoint: Folder) -> CheckpointOrigin | None:
        """Read the origin; None if the checkpoint began without a savepoint.

        Raises:
            CorruptDataError: The file is damaged.
        """
        remedy = "It records the savepoint with which the checkpoint began. Restore it from a backup."
        return read_document(checkpoint, _NAME, CheckpointOrigin, remedy)


NO_ORIGIN: Final = CheckpointOrigin(None, "", {}, (), {}, None, 0)
"""For a checkpoint that began without a savepoint."""
