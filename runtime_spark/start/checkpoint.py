"""The checkpoint of one run of a job: what it holds before the run, and what the run adds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from uuid import uuid4

from msgspec.structs import replace
from pyspark.sql import SparkSession

from dsv2.base.clock import Clock
from dsv2.base.record_position import RecordPosition
from dsv2.checkpoint.failed_batch import Unblocking, skipped_in
from dsv2.checkpoint.file_folders import folders_of, left_folders
from dsv2.checkpoint.record import extended, new_record, sinks_of
from dsv2.checkpoint.task_report import TaskReport
from dsv2.dead_letters.store import LetterWriter
from dsv2.file_log.ownership import OutputOwner
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.jobs.handle import RunOptions
from dsv2.runtime.sources.ranges import has_read, ranges_read
from dsv2.savepoint.reader import SavepointReader
from dsv2.sinks import SinkRunInfo
from runtime_spark.checkpoint.dead_letters import checkpoint_letters
from runtime_spark.checkpoint.file_outputs import check_outputs, check_owned, completion, own_outputs
from runtime_spark.checkpoint.generations import (
    SAVEPOINT,
    Generations,
    delete_generation,
    delete_other_generations,
)
from runtime_spark.checkpoint.lease import Lease
from runtime_spark.checkpoint.record import SourceStreams, SparkRecord, StoredLayout
from runtime_spark.checkpoint.source_positions import positions_in
from runtime_spark.checkpoint.spark_logs import Beginning, listed_beginning, note_logs, offsets_of
from runtime_spark.checkpoint.state_metadata import check_state_metadata, relocate_state_metadata
from runtime_spark.checkpoint.uncommitted_state import discard_uncommitted_state
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.state_history import StateHistory, StateLedger
from runtime_spark.platform.driver_processes import describe_driver
from runtime_spark.platform.folders import driver_processes, open_folder
from runtime_spark.start.migration import ChosenGeneration, another_driver
from runtime_spark.start.restoration import restoration_of

_RETAINED = "spark.sql.streaming.minBatchesToRetain"


class Checkpoint:
    """A generation of a checkpoint, opened for a run of ``plan``. Nothing is written before ``begin``.

    Raises:
        IncompatibleCheckpointError: ``plan`` cannot continue from the checkpoint.
        CorruptDataError: A file of the checkpoint is damaged.
        ConfigurationError: The folder of a file sink belongs to another job.
    """

    def __init__(
        self,
        spark: SparkSession,
        chosen: ChosenGeneration,
        plan: Plan,
        layout: Layout,
        options: RunOptions,
        clock: Clock,
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._layout = layout
        self._sources = {op.uid: op.parallelism for op in plan.operators if op.kind is OperatorKind.SOURCE}
        self._chosen = chosen
        self._has_others = True
        generation, start = chosen.generation, chosen.start
        if start is not None:
            start.check()
            start.warn_of_dropped(generation.folder.path)
        self.root = chosen.root
        """The checkpoint with all its generations."""
        self.folder = generation.folder
        self._records = generation.records
        self._beginning = Beginning(0, repeats=False) if chosen.starts_over else generation.beginning
        check_state_metadata(self.folder, self.folder.tree("state"))
        self.id = uuid4() if start is None else generation.stored.checkpoint_id
        job_id = str(self.id) if start is None else generation.stored.job_id
        self.restoration = restoration_of(spark, chosen, plan, options, job_id)
        self._file_folders = folders_of(plan, partial(open_folder, spark))
        self._record = record = self._begun_record(layout, job_id)
        self._has_begun = record.is_begun(self._beginning)
        retained = int(spark.conf.get(_RETAINED, None) or 100)
        self.ledger = StateLedger(self.folder, plan, self._beginning.batch_id, retained)
        self.history = StateHistory(self.id, self._beginning.batch_id, self.ledger.written)
        self.program = record.program
        """Describes ``plan``."""
        self.job_id = record.job_id
        """Identifies the job for sinks. A checkpoint that begins with a savepoint continues the job."""
        self.first_batch = record.first_batch
        """The number that sinks give to the first micro-batch of the checkpoint."""
        self._owner = OutputOwner(self.job_id, record.owner)
        self._letters = LetterWriter(
            checkpoint_letters(spark, chosen.root, plan, options, self.job_id), plan.job_name, chosen.root.path
        )
        self.unblocking = Unblocking(chosen.root, options.skip_records, self.next_batch)
        check_outputs(spark, plan, self._owner, self.next_batch, takes_over=not chosen.continues)
        self._completion = completion(spark, self._owner, self.next_batch, clock, options)

    def begin(self, streams: Sequence[SourceStreams]) -> tuple[Lease, SinkRunInfo]:
        """Begin the run. ``streams``: The sources in the order in which Spark logs their offsets.

        Returns:
            The lease on the checkpoint, and the run as sinks see it.

        Raises:
            ConfigurationError: Another driver uses this checkpoint.
        """
        run_id = str(uuid4())
        lease = Lease(self._chosen.root, run_id, describe_driver(driver_processes(self._spark)))
        lease.acquire()
        try:
            generations = Generations(self._chosen.root)
            if self._has_changed(generations):
                raise another_driver(self._chosen.root)
            self._complete_former_outputs(run_id)
            self._delete_discarded(generations)
            begun = self._beginning
            if self.unblocking.unread and begun.batch_id > 0:
                self._warn_of_records_read()
            files = self.folder.tree("state")
            discard_uncommitted_state(self.folder, files, begun.batch_id)
            relocate_state_metadata(self.folder, files)
            record = replace(self._record.with_run(run_id, begun), streams=list(streams), unwritten=None)
            self._records.write(record)
            self.unblocking.write()
            own_outputs(self._spark, self._plan, self._owner)
            if begun.batch_id > 0:
                self._letters.record_replays(record.replays)
        except BaseException:
            lease.release()
            raise
        return lease, SinkRunInfo(run_id, self.next_batch, tuple(record.runs[:-1]))

    def _complete_former_outputs(self, run_id: str) -> None:
        """Complete the folders of file sinks that the program no longer has, before the record leaves them out."""
        former = self._chosen.generation.records.last
        own = [*self._chosen.discarded_folders, *(() if former is None else former.file_folders())]
        continued = []
        if self.restoration is not None and self.restoration.savepoint is not None and self.first_batch > 0:
            continued = self.restoration.savepoint.info.file_folders()
        if not self._chosen.is_first:
            own, continued = [*own, *continued], []  # the savepoint of a migration
        self._completion.complete(left_folders(own, self._file_folders), run_id, takes_over=False)
        self._completion.complete(left_folders(continued, self._file_folders), run_id, takes_over=True)

    def _has_changed(self, generations: Generations) -> bool:
        """Return whether another driver has used the checkpoint since this start read it."""
        chosen = self._chosen
        if generations.current.path != chosen.current.folder.path:
            return True
        if listed_beginning(self.folder) != chosen.generation.beginning:
            return True
        if chosen.is_current:
            return False
        assert self.restoration is not None
        assert self.restoration.savepoint is not None
        savepoint = SavepointReader(self.folder.subfolder(SAVEPOINT)).info
        return savepoint.savepoint_id != self.restoration.savepoint.info.savepoint_id

    def _delete_discarded(self, generations: Generations) -> None:
        if self._chosen.starts_over:
            delete_generation(self._chosen.root, self.folder)
        if self._chosen.is_current and not generations.later:
            self._has_others = False
        elif self._chosen.is_current:
            self._delete_others()

    def _delete_others(self) -> None:
        delete_other_generations(self._chosen.root, self.folder)
        self._has_others = False

    def record_replays(self) -> None:
        """Record for readers of the dead letters which ones were processed again, if a micro-batch is complete."""
        if self.has_commits():
            self._letters.record_replays(self._record.replays)

    def _warn_of_records_read(self) -> None:
        begun, generation = self._beginning, self._chosen.generation
        positions = positions_in(begun.logged[begun.batch_id - 1], generation.stored.streams)

        def is_read(source: Operator, at: RecordPosition) -> bool:
            position = positions.get(at.source)
            return position is not None and has_read(source, position, at.split, at.offset)

        self.unblocking.warn_of_read(self._plan, is_read)

    @property
    def next_batch(self) -> int:
        """The micro-batch with which the run begins, as the sinks know it. All earlier ones are committed."""
        return self.first_batch + self._beginning.batch_id

    @property
    def restored_savepoint(self) -> str | None:
        """The path of the savepoint that the run restores, or None."""
        restored = None if self.restoration is None else self.restoration.savepoint
        return None if restored is None else restored.folder.path

    def is_committed(self, batch_id: int) -> bool:
        """Return whether a micro-batch of this run is complete. ``batch_id``: As Spark knows it."""
        return self.folder.read(f"commits/{batch_id}") is not None

    def has_commits(self) -> bool:
        """Return whether a micro-batch is complete."""
        return bool(self.folder.numbers("commits"))

    def check_owned(self) -> None:
        """Raise ``ConfigurationError`` if another job has taken over the folder of a file sink."""
        check_owned(self._spark, self._plan, self._owner)

    def add(self, batch_id: int, report: TaskReport) -> None:
        """Store the reports and dead letters of a micro-batch. Called before Spark commits it."""
        if batch_id > 0 and self._has_others:
            self._delete_others()  # this generation has a complete micro-batch
        if batch_id > 0:
            self._letters.record_replays(self._record.replays)
        self._letters.write(self.first_batch + batch_id, report.letters)
        ended = [(one.uid, one.subtask) for one in report.subtasks if one.ended and one.uid in self._sources]
        self._records.write(self._written.with_report(report).with_ended(ended, self._sources))
        self.unblocking.note_skipped(self.first_batch + batch_id, skipped_in(report.subtasks))
        self.ledger.add(batch_id, {(one.uid, one.subtask) for one in report.subtasks})

    def note_logs(self, batch_id: int) -> None:
        """Record the checksums of Spark's logs at the beginning of a micro-batch, by Spark's number."""
        note_logs(self.folder, batch_id)

    def note_unwritten(self, last_written: int | None) -> None:
        """Record at the end of the run if sinks have not received the micro-batch that Spark has planned.

        Without this, a changed program and a start from a savepoint would be refused.

        Args:
            last_written: The last micro-batch that the sinks got in this run, as Spark knows it. None: they got none.
        """
        planned = listed_beginning(self.folder)
        inherited = planned.batch_id == self._beginning.batch_id and self._has_begun
        if planned.repeats and planned.batch_id != last_written and not inherited:
            self._records.write(replace(self._written, unwritten=planned.batch_id))

    @property
    def traced_batch(self) -> int | None:
        """The micro-batch whose records are traced, because it failed in an earlier run. None: there is none."""
        return self._beginning.batch_id if self.unblocking.failed_before else None

    def note_failure(self, batch_id: int) -> None:
        """Record that a callback has failed in a micro-batch, so that its repetition is traced."""
        self.unblocking.note_failure(self.first_batch + batch_id)

    def ranges_read(self, batch_id: int) -> list[str]:
        """Describe what a micro-batch reads of each source."""
        before, after = (
            {} if number < 0 else positions_in(offsets_of(self.folder, number), self._written.streams)
            for number in (batch_id - 1, batch_id)
        )
        return [
            described
            for operator in self._plan.operators
            if operator.kind is OperatorKind.SOURCE and operator.uid in after
            for described in ranges_read(operator, before.get(operator.uid), after[operator.uid])
        ]

    @property
    def is_complete(self) -> bool:
        """True if earlier runs have processed all input to its end."""
        ended = len(self.ended_sources())
        return self._chosen.continues and not self._beginning.repeats and ended == sum(self._sources.values())

    def ended_sources(self) -> set[tuple[str, int]]:
        """Return the subtasks of sources, by uid and index, that ended in earlier runs."""
        return {
            (uid, subtask)
            for uid, parallelism in self._sources.items()
            for subtask, ended in enumerate(self._record.ended_of(uid, parallelism))
            if ended
        }

    @property
    def _written(self) -> SparkRecord:
        """The record as the run has written it last."""
        assert self._records.last is not None
        return self._records.last

    def _begun_record(self, layout: Layout, job_id: str) -> SparkRecord:
        """Return the record with which the run begins."""
        chosen, plan = self._chosen, self._plan
        sinks, stored = sinks_of(plan, self._file_folders), StoredLayout.of(plan, layout)
        if chosen.continues:
            assert chosen.start is not None
            decided, before = chosen.start.record, chosen.generation.stored
            return replace(before, programs=decided.programs, keys=decided.keys, sinks=sinks, layout=stored)
        restoration = self.restoration
        record = new_record(plan, job_id) if restoration is None else restoration.record
        savepoint = None if restoration is None else restoration.savepoint
        return extended(
            SparkRecord,
            replace(record, sinks=sinks),
            checkpoint_id=self.id,
            owner=str(self.id) if chosen.is_first else chosen.current.stored.owner,
            savepoint_id=None if savepoint is None else savepoint.info.savepoint_id,
            layout=stored,
            ended_subtasks={} if restoration is None else restoration.ended_subtasks(plan),
        )
