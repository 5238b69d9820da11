"""The record of a job in the files of a checkpoint on Spark."""

from __future__ import annotations

from functools import cached_property
from typing import Any
from uuid import UUID

from dsv2.base.folders import Folder
from dsv2.checkpoint.description import Description
from dsv2.checkpoint.folder_kinds import check_no_savepoint
from dsv2.checkpoint.record import JobRecord, SinkRecord, SourcePosition
from dsv2.checkpoint.start import Stored
from dsv2.errors import ConfigurationError, CorruptDataError, IncompatibleCheckpointError
from dsv2.graph import Plan
from runtime_spark.checkpoint.generations import Ancestry
from runtime_spark.checkpoint.manifest import (
    Manifest,
    checkpoint_id_of,
    has_spark_state,
    layout_differences,
    manifest_of,
    read_manifest,
)
from runtime_spark.checkpoint.notes import NoteBook, Notes
from runtime_spark.checkpoint.origin import NO_ORIGIN, CheckpointOrigin
from runtime_spark.checkpoint.source_reports import reports_as_of
from runtime_spark.checkpoint.spark_logs import Beginning, beginning_of
from runtime_spark.checkpoint.state_location import Placement, positions_at
from runtime_spark.frames.layout import Layout, StateLayout
from runtime_spark.frames.state_history import StateHistory, written_as_of

_ATTEMPTS = 5


class Generation:
    """A generation of a checkpoint on Spark, without the state.

    Each file is read once, when it is first needed. An error names the file that is damaged.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    @cached_property
    def beginning(self) -> Beginning:
        """The micro-batch with which the next run begins."""
        return beginning_of(self.folder)

    @property
    def batch_id(self) -> int:
        """The last complete micro-batch, by Spark's number; -1: there is none."""
        return self.beginning.batch_id - 1

    @property
    def next_batch(self) -> int:
        """The micro-batch with which the next run begins, as sinks know it."""
        return self.origin.first_batch + self.beginning.batch_id

    @cached_property
    def manifest(self) -> Manifest | None:
        """The manifest of the first start; None: no micro-batch has begun."""
        return read_manifest(self.folder)

    @property
    def layout(self) -> dict[str, Any]:
        """The layout of the job on Spark. For a generation that has begun."""
        assert self.manifest is not None
        layout: dict[str, Any] = self.manifest["layout"]
        return layout

    @property
    def has_pages(self) -> bool:
        """True if the pages of the state are entries of their own."""
        return bool(self.layout["state"] == StateLayout.MAP.value)

    @property
    def has_spark_state(self) -> bool:
        """True if Spark has state that no savepoint contains."""
        return self.manifest is not None and has_spark_state(self.manifest)

    @cached_property
    def note_book(self) -> NoteBook:
        """The notes, for a run that continues them."""
        note_book = NoteBook(self.folder)
        note_book.read()
        return note_book

    @property
    def notes(self) -> Notes:
        """The notes."""
        return self.note_book.notes

    @cached_property
    def origin(self) -> CheckpointOrigin:
        """The savepoint with which the generation began."""
        return CheckpointOrigin.read(self.folder) or NO_ORIGIN

    @cached_property
    def ancestry(self) -> Ancestry | None:
        """The inheritance of the generation; None for the first one."""
        return Ancestry.read(self.folder)

    @property
    def inherited(self) -> Ancestry:
        """The inheritance of the generation after this one."""
        return self.ancestry or Ancestry(str(self.checkpoint_id), self.origin.path)

    @cached_property
    def checkpoint_id(self) -> UUID:
        """The id of a generation that has begun."""
        assert self.manifest is not None
        return checkpoint_id_of(self.folder, self.manifest)

    @property
    def job_id(self) -> str:
        """The job, as sinks know it."""
        return self.origin.job_id or str(self.checkpoint_id)

    @property
    def programs(self) -> list[Description]:
        """The programs that wrote the state, the last one last."""
        first = [] if self.manifest is None else [self.manifest["program"]]
        return [*self.origin.earlier, *first, *self.notes.programs]

    @property
    def job_name(self) -> str:
        """The name of the job."""
        return str(self.programs[-1]["job_name"])

    @cached_property
    def placement(self) -> Placement:
        """The place of the state and the offsets."""
        return Placement.read(self.folder)

    @cached_property
    def history(self) -> StateHistory:
        """The state after the last complete micro-batch."""
        written = written_as_of(self.folder, self.placement.addresses.values(), self.batch_id)
        return StateHistory(self.checkpoint_id, self.beginning.batch_id, written)

    @cached_property
    def sources(self) -> dict[str, SourcePosition]:
        """The positions of the sources after the last complete micro-batch, by uid."""
        reports = reports_as_of(self.folder, self.batch_id)
        offsets = positions_at(self.folder, self.placement, self.batch_id)
        return {uid: SourcePosition(offset, reports.get(uid, [])) for uid, offset in offsets.items()}

    @property
    def has_begun_next(self) -> bool:
        """True if sinks may have written a part of the micro-batch after the last complete one."""
        return self.beginning.repeats and self.notes.is_begun(self.beginning)

    @cached_property
    def record(self) -> JobRecord:
        """The job after the last complete micro-batch. For a generation that has begun."""
        notes = self.notes
        return JobRecord(
            job_id=self.job_id,
            batch_id=self.next_batch - 1,
            programs=self.programs,
            sources=self.sources if self.batch_id >= 0 else {},
            sinks={uid: SinkRecord(**sink) for uid, sink in notes.sinks.items()},
            keys=notes.keys,
            fields=notes.fields,
            ended=[uid for uid, flags in notes.ended.items() if all(flags)],
            replays=self.origin.replays,
            has_begun_next=self.has_begun_next,
            savepoint=self.inherited.savepoint,
        )

    def stored(self, plan: Plan, layout: Layout) -> Stored:
        """Return the job as a start of ``plan`` finds it. For a generation that has begun."""
        assert self.manifest is not None
        return Stored(
            self.record,
            self.folder.path,
            is_empty=self.batch_id < 0,
            has_foreign_state=self.has_spark_state,
            differences=layout_differences(self.manifest, manifest_of(plan, layout)),
        )

    def check_savepoint(self) -> None:
        """Read what a savepoint needs.

        Raises:
            ConfigurationError: The folder is not a checkpoint, no micro-batch is complete, or there is state that no
                savepoint contains.
            IncompatibleCheckpointError: The checkpoint was written by another version.
            CorruptDataError: A file is damaged.
        """
        check_no_savepoint(self.folder)
        if self.manifest is None or self.batch_id < 0:
            raise ConfigurationError(
                f"{self.folder.path} is not a checkpoint with a complete micro-batch, so there is no state for a "
                f"savepoint."
            )
        if self.has_spark_state:
            raise ConfigurationError(
                f"The job of the checkpoint {self.folder.path} has Spark operators with state, in a DataFrame that "
                f"its records pass through. A savepoint cannot contain their state."
            )
        _ = self.record, self.placement, self.history


def read_generation(checkpoint: Folder) -> Generation:
    """Read what a savepoint takes from the files of a checkpoint. A job may be running from it.

    Raises:
        ConfigurationError: As for ``Generation.check_savepoint``, and so for the other errors.
        IncompatibleCheckpointError: The checkpoint was written by another version.
        CorruptDataError: A file is damaged.
    """
    for attempt in range(_ATTEMPTS):
        generation = Generation(checkpoint)
        before = generation.beginning
        try:
            generation.check_savepoint()
        except (CorruptDataError, IncompatibleCheckpointError):
            if attempt == _ATTEMPTS - 1:
                raise
            continue  # a running job may have replaced the file
        if beginning_of(checkpoint).batch_id == before.batch_id:
            break
    return generation
