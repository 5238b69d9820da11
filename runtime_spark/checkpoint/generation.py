"""A generation of a checkpoint on Spark, and the job in it."""

from __future__ import annotations

from functools import cached_property

from msgspec.structs import replace

from dsv2.base.folders import Folder
from dsv2.checkpoint.record import JobRecord, SourcePosition, extended
from dsv2.checkpoint.start import Stored
from dsv2.errors import ConfigurationError, CorruptDataError, IncompatibleCheckpointError
from dsv2.graph import Plan
from runtime_spark.checkpoint.record import JOB_FOLDER, SparkRecord, SparkRecords, StoredLayout
from runtime_spark.checkpoint.source_positions import positions_in
from runtime_spark.checkpoint.source_reports import StoredReports
from runtime_spark.checkpoint.spark_logs import beginning_of, listed_beginning
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.state_history import StateHistory, written_as_of

_ATTEMPTS = 5


class Generation:
    """A generation of a checkpoint, without the state. Each file is read once.

    Raises:
        IncompatibleCheckpointError: It is not a checkpoint of dsv2, or was written by another version.
        CorruptDataError: A file is damaged; names it.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.beginning = beginning_of(folder)
        self.records = SparkRecords(folder)
        self.reports = StoredReports(folder)
        if self.records.last is None and (self.beginning.has_begun or self.beginning.has_metadata):
            raise IncompatibleCheckpointError(
                f"{folder.path} holds a checkpoint, but not one of dsv2 (it has no {JOB_FOLDER}). Use another "
                f"checkpoint_location."
            )

    @property
    def has_begun(self) -> bool:
        """True if a micro-batch has begun. If none has, the start that wrote the record failed."""
        return self.beginning.has_begun

    @property
    def stored(self) -> SparkRecord:
        """The record in the folder. For a generation that has begun."""
        assert self.records.last is not None
        return self.records.last

    @property
    def batch_id(self) -> int:
        """The last complete micro-batch, by Spark's number; -1: there is none."""
        return self.beginning.batch_id - 1

    @property
    def next_batch(self) -> int:
        """The micro-batch with which the next run begins, as sinks know it."""
        return self.stored.first_batch + self.beginning.batch_id

    @cached_property
    def record(self) -> JobRecord:
        """The job after the last complete micro-batch. For a generation that has begun."""
        return replace(
            extended(JobRecord, self.stored),
            batch_id=self.next_batch - 1,
            sources=self._sources(),
            has_begun_next=self.stored.is_begun(self.beginning),
        )

    def _sources(self) -> dict[str, SourcePosition]:
        if self.batch_id < 0:
            return {}
        reports = self.reports.as_of(self.batch_id)
        offsets = positions_in(self.beginning.logged[self.batch_id], self.stored.streams)
        return {uid: SourcePosition(offset, reports.get(uid, [])) for uid, offset in offsets.items()}

    @cached_property
    def history(self) -> StateHistory:
        """The state after the last complete micro-batch."""
        written = written_as_of(self.folder, self.stored.layout.addresses.values(), self.batch_id)
        return StateHistory(self.stored.checkpoint_id, self.beginning.batch_id, written)

    def found_by(self, plan: Plan, layout: Layout) -> Stored:
        """Return the job as a start of ``plan`` finds it. For a generation that has begun."""
        before = self.stored.layout
        return Stored(
            self.record,
            self.folder.path,
            is_empty=self.batch_id < 0,
            has_foreign_state=before.has_spark_state,
            differences=before.differences(StoredLayout.of(plan, layout)),
        )

    def check_savepoint(self) -> None:
        """Check that a savepoint can contain the state.

        Raises:
            ConfigurationError: No micro-batch is complete, or there is state that no savepoint contains.
            CorruptDataError: A file is damaged.
        """
        if not self.has_begun or self.batch_id < 0:
            raise ConfigurationError(
                f"{self.folder.path} is not a checkpoint with a complete micro-batch, so there is no state for a "
                f"savepoint."
            )
        if self.stored.layout.has_spark_state:
            raise ConfigurationError(
                f"The job of the checkpoint {self.folder.path} has Spark operators with state, in a DataFrame that "
                f"its records pass through. A savepoint cannot contain their state."
            )
        _ = self.record, self.history


def read_generation(checkpoint: Folder) -> Generation:
    """Read what a savepoint takes from the files of a generation. A job may be running from it.

    Raises:
        ConfigurationError: As for ``Generation.check_savepoint``, and so for the other errors.
        IncompatibleCheckpointError: The checkpoint was written by another version.
        CorruptDataError: A file is damaged.
    """
    for attempt in range(_ATTEMPTS):
        try:
            generation = Generation(checkpoint)
            generation.check_savepoint()
        except (CorruptDataError, IncompatibleCheckpointError):
            if attempt == _ATTEMPTS - 1:
                raise
            continue  # a running job may have replaced the file
        if listed_beginning(checkpoint).batch_id == generation.beginning.batch_id:
            break
    return generation
