"""The checkpoint of one run of a job: what it holds before the run, and what the run adds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

from msgspec import to_builtins
from pyspark.sql import SparkSession

from dsv2.base.clock import Clock
from dsv2.base.record_position import RecordPosition
from dsv2.checkpoint.failed_batch import Unblocking
from dsv2.checkpoint.file_folders import folders_of, left_folders
from dsv2.checkpoint.record import sinks_of
from dsv2.checkpoint.run_history import begin_run
from dsv2.checkpoint.start import Action, Start
from dsv2.dead_letters.store import LetterWriter
from dsv2.file_log.ownership import OutputOwner
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.jobs.handle import RunOptions
from dsv2.runtime.sources.ranges import has_read, ranges_read
from dsv2.savepoint.reader import SavepointReader
from dsv2.sinks import SinkRunInfo
from runtime_spark.checkpoint.dead_letters import checkpoint_letters, letters_in
from runtime_spark.checkpoint.file_outputs import check_outputs, check_owned, completion, own_outputs
from runtime_spark.checkpoint.generations import (
    SAVEPOINT,
    current_generation,
    delete_generation,
    delete_other_generations,
)
from runtime_spark.checkpoint.lease import Lease
from runtime_spark.checkpoint.manifest import write_manifest
from runtime_spark.checkpoint.notes import NoteBook, Notes
from runtime_spark.checkpoint.origin import NO_ORIGIN
from runtime_spark.checkpoint.spark_logs import Beginning, beginning_of
from runtime_spark.checkpoint.state_location import Placement, SourceStreams, positions_at
from runtime_spark.checkpoint.state_metadata import check_state_metadata, relocate_state_metadata
from runtime_spark.checkpoint.uncommitted_state import discard_uncommitted_state
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.state_history import StateHistory, StateLedger
from runtime_spark.platform.driver_processes import describe_driver
from runtime_spark.platform.folders import jvm_process, open_folder
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
        self.folder = generation.folder
        self._is_new = start is None or start.action is Action.NEW
        self._beginning = Beginning(0, repeats=False) if chosen.starts_over else generation.beginning
        check_state_metadata(self.folder)
        self._note_book = NoteBook(self.folder) if self._is_new else generation.note_book
        committed, begun = self._beginning.batch_id > 0, not self._is_new
        self.restoration = restoration_of(spark, generation, plan, options, begun=begun, committed=committed)
        notes = self._continued_notes(start)
        self._has_begun = notes.is_begun(self._beginning)
        self._file_folders = folders_of(plan, partial(open_folder, spark))
        self._notes = replace(notes, sinks=to_builtins(sinks_of(plan, self._file_folders)), unwritten=None)
        self.id = uuid4() if self._is_new and not chosen.starts_over else generation.checkpoint_id
        retained = int(spark.conf.get(_RETAINED, None) or 100)
        self.ledger = StateLedger(self.folder, plan, self._beginning.batch_id, retained)
        self.history = StateHistory(self.id, self._beginning.batch_id, self.ledger.written)
        origin = NO_ORIGIN if self.restoration is None else self.restoration.origin
        self.job_id = origin.job_id or str(self.id)
        """Identifies the job for sinks. A checkpoint that begins with a savepoint continues the job."""
        self.first_batch = origin.first_batch
        """The number that sinks give to the first micro-batch of the checkpoint."""
        first = str(self.id) if generation.ancestry is None else generation.ancestry.checkpoint_id
        self._owner = OutputOwner(self.job_id, first)
        self._letters = LetterWriter(
            checkpoint_letters(spark, chosen.root, plan, options, self.job_id), plan.job_name, chosen.root.path
        )
        self._replays = origin.replays
        self.unblocking = Unblocking(chosen.root, options.skip_records, self.next_batch)
        check_outputs(spark, plan, self._owner, self.next_batch, takes_over=self._is_new)
        self._completion = completion(spark, self._owner, self.next_batch, clock, options)

    def begin(self, streams: Sequence[SourceStreams]) -> tuple[Lease, SinkRunInfo]:
        """Begin the run. ``streams``: The sources in the order in which Spark logs their offsets.

        Returns:
            The lease on the checkpoint, and the run as sinks see it.

        Raises:
            ConfigurationError: Another driver uses this checkpoint.
        """
        run_id = str(uuid4())
        lease = Lease(self._chosen.root, run_id, describe_driver([os.getpid(), jvm_process(self._spark)]))
        lease.acquire()
        try:
            if self._has_changed():
                raise another_driver(self._chosen.root)
            self._complete_former_outputs(run_id)
            self._delete_discarded()
            if self._is_new:
                write_manifest(self.folder, self._plan, self._layout, self.id)
                if self.restoration is not None:
                    self.restoration.origin.write(self.folder)
            if self.unblocking.unread and self._beginning.batch_id > 0:
                self._warn_of_records_read()
            Placement.of(self._plan, self._layout, streams).write(self.folder)
            discard_uncommitted_state(self.folder, self._beginning.batch_id)
            relocate_state_metadata(self.folder)
            self._note_book.write(self._notes)
            self.unblocking.write()
            begun = self._beginning
            run = begin_run(self.folder, run_id, begun.batch_id, self.first_batch, repeats=begun.repeats)
            own_outputs(self._spark, self._plan, self._owner)
            self.record_replays()
        except BaseException:
            lease.release()
            raise
        return lease, run

    def _complete_former_outputs(self, run_id: str) -> None:
        """Complete the folders of file sinks that the program no longer has, before the notes forget them."""
        own = [*self._chosen.discarded_folders, *self._chosen.generation.notes.file_folders()]
        continued = []
        if self.restoration is not None and self.restoration.savepoint is not None and self.first_batch > 0:
            continued = self.restoration.savepoint.info.file_folders()
        if not self._chosen.is_first:
            own, continued = [*own, *continued], []  # the savepoint of a migration
        self._completion.complete(left_folders(own, self._file_folders), run_id, takes_over=False)
        self._completion.complete(left_folders(continued, self._file_folders), run_id, takes_over=True)

    def _has_changed(self) -> bool:
        """Return whether another driver has used the checkpoint since this start read it."""
        chosen = self._chosen
        if current_generation(chosen.root).path != chosen.current.folder.path:
            return True
        if beginning_of(self.folder) != chosen.generation.beginning:
            return True
        if chosen.is_current:
            return False
        assert self.restoration is not None
        assert self.restoration.savepoint is not None
        savepoint = SavepointReader(self.folder.subfolder(SAVEPOINT)).info
        return savepoint.savepoint_id != self.restoration.savepoint.info.savepoint_id

    def _delete_discarded(self) -> None:
        if self._chosen.starts_over:
            delete_generation(self._chosen.root, self.folder)
        if self._chosen.is_current:
            self._delete_others()

    def _delete_others(self) -> None:
        delete_other_generations(self._chosen.root, self.folder)
        self._has_others = False

    def record_replays(self) -> None:
        """Record for readers of the dead letters which ones were processed again, if a micro-batch is complete."""
        if self.has_commits():
            self._letters.record_replays(self._replays)

    def _warn_of_records_read(self) -> None:
        positions = positions_at(self.folder, Placement.read(self.folder), self._beginning.batch_id - 1)

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

    def add(self, batch_id: int, reports: list[dict[str, Any]]) -> None:
        """Store the reports and dead letters of the subtasks on a micro-batch. Called before Spark commits it."""
        if batch_id > 0 and self._has_others:
            self._delete_others()  # this generation has a complete micro-batch
        if batch_id > 0:
            self._letters.record_replays(self._replays)
        self._letters.write(self.first_batch + batch_id, letters_in(reports))
        ended = [(r["uid"], r["subtask"]) for r in reports if r.get("ended") and r["uid"] in self._sources]
        self._note_book.write(self._note_book.notes.with_reports(reports).with_ended(ended, self._sources))
        self.unblocking.note_skipped(self.first_batch + batch_id, reports)
        self.ledger.add(batch_id, {(report["uid"], report["subtask"]) for report in reports if "uid" in report})

    def note_unwritten(self, last_written: int | None) -> None:
        """Record at the end of the run if sinks have not received the micro-batch that Spark has planned.

        Without this, a changed program and a start from a savepoint would be refused.

        Args:
            last_written: The last micro-batch that the sinks got in this run, as Spark knows it. None: they got none.
        """
        planned = beginning_of(self.folder)
        inherited = planned.batch_id == self._beginning.batch_id and self._has_begun
        if planned.repeats and planned.batch_id != last_written and not inherited:
            self._note_book.write(replace(self._note_book.notes, unwritten=planned.batch_id))

    @property
    def traced_batch(self) -> int | None:
        """The micro-batch whose records are traced, because it failed in an earlier run. None: there is none."""
        return self._beginning.batch_id if self.unblocking.failed_before else None

    def note_failure(self, batch_id: int) -> None:
        """Record that a callback has failed in a micro-batch, so that its repetition is traced."""
        self.unblocking.note_failure(self.first_batch + batch_id)

    def ranges_read(self, batch_id: int) -> list[str]:
        """Describe what a micro-batch reads of each source."""
        placement = Placement.read(self.folder)
        before = {} if batch_id == 0 else positions_at(self.folder, placement, batch_id - 1)
        after = positions_at(self.folder, placement, batch_id)
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
        return not self._is_new and not self._beginning.repeats and ended == sum(self._sources.values())

    def ended_sources(self) -> set[tuple[str, int]]:
        """Return the subtasks of sources, by uid and index, that ended in earlier runs."""
        return {
            (uid, subtask)
            for uid, parallelism in self._sources.items()
            for subtask, ended in enumerate(self._notes.ended_subtasks(uid, parallelism))
            if ended
        }

    def _continued_notes(self, start: Start | None) -> Notes:
        """Return the notes to continue with."""
        if start is None or start.action is Action.NEW:
            return Notes() if self.restoration is None else self.restoration.notes(self._plan)
        generation = self._chosen.generation
        later = start.record.programs[len(generation.origin.earlier) + 1 :]
        return replace(generation.notes, programs=list(later), keys=list(start.record.keys))
