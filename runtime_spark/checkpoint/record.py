"""The record of a job in a generation of a checkpoint on Spark: the last of the files ``dsv2/job/<n>.json``.

Spark sees only binary state, so it would continue with a program that interprets the state differently. Each start
writes the record, and a run replaces it when there is something new, mostly in its first micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from dsv2.base.folders import Folder
from dsv2.checkpoint.difference import Difference
from dsv2.checkpoint.key_samples import add_samples
from dsv2.checkpoint.record import JobRecord, converted
from dsv2.checkpoint.task_report import TaskReport
from dsv2.checks.json_documents import from_json, write_document
from dsv2.errors import CorruptDataError
from dsv2.graph import Plan
from runtime_spark.checkpoint.spark_logs import Beginning
from runtime_spark.frames.layout import Layout, StateLayout

JOB_FOLDER = "dsv2/job"
_RESTORE = "Restore it from a backup, or start from a new checkpoint_location."

SourceStreams: TypeAlias = tuple[str, int]
"""The uid of a source, and the number of Spark's streams that it consists of."""

NO_SOURCE = ""
"""In place of a uid: streams that belong to no source."""


class StoredLayout(Struct, frozen=True):
    """The layout of a job on Spark.

    Attributes:
        partitions: The number of state partitions.
        state: The value of ``StateLayout``.
        slots: The slot of each subtask, by the uid of the operator at the head of its chain.
        dataframes: The operators with state in each DataFrame that records pass through.
    """

    partitions: int
    state: str
    slots: Mapping[str, Sequence[int]]
    dataframes: Sequence[Sequence[str]] = []

    @staticmethod
    def of(plan: Plan, layout: Layout) -> StoredLayout:
        """Return the layout of ``plan``."""
        heads = [plan.operators[head] for head in plan.chains]
        slots = {head.uid: layout.slots_of(head) for head in heads}
        dataframes = [list(operators) for operators in layout.dataframes]
        return StoredLayout(layout.partitions, layout.state.value, slots, dataframes)

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """slot -> (uid, subtask)."""
        return {slot: (uid, subtask) for uid, slots in self.slots.items() for subtask, slot in enumerate(slots)}

    @property
    def has_pages(self) -> bool:
        """True if the pages of the state are entries of their own."""
        return self.state == StateLayout.MAP.value

    @property
    def has_spark_state(self) -> bool:
        """True if Spark has state in a DataFrame that records pass through. No savepoint contains it."""
        return any(self.dataframes)

    def differences(self, now: StoredLayout) -> list[Difference]:
        """List the differences that prevent a restart. A savepoint depends only on the DataFrames."""
        found = [
            Difference(what, f"the {what} was {was} and is now {is_now}", carried=True)
            for what, was, is_now in (
                ("state layout", self.state, now.state),
                ("number of state partitions", self.partitions, now.partitions),
            )
            if was != is_now
        ]
        before, after = (list(map(list, one.dataframes)) if any(one.dataframes) else [] for one in (self, now))
        if before != after:
            what = "operators of Spark with state in the DataFrames that records pass through"
            text = f"the {what} were {before} and are now {after}"
            found.append(Difference("DataFrames", text, carried=not before))
        return found


class SparkRecord(JobRecord, frozen=True, kw_only=True):
    """The record of a job in a generation.

    ``batch_id``, ``sources`` and ``replays`` are those with which the generation began: Spark logs later positions.

    Attributes:
        checkpoint_id: Unique for each generation. The state of subtasks names it.
        owner: The id of the first generation. File sinks know the checkpoint by it.
        savepoint_id: The savepoint with which the generation began, or None.
        layout: The layout on Spark.
        streams: The sources in the order of Spark's offset log.
        ended_subtasks: For each source with a subtask that has ended, whether each of its subtasks has ended.
        unwritten: The micro-batch that Spark had planned when the job ended, but that its sinks had not received.
        runs: The runs that may have written ``run_batch``, the last one last.
        run_batch: The micro-batch with which the last run began, by Spark's number.
    """

    checkpoint_id: UUID
    owner: str
    savepoint_id: str | None
    layout: StoredLayout
    streams: Sequence[SourceStreams] = []
    ended_subtasks: Mapping[str, Sequence[bool]] = {}
    unwritten: int | None = None
    runs: Sequence[str] = []
    run_batch: int = 0

    @property
    def first_batch(self) -> int:
        """The number that sinks give to the first micro-batch of the generation."""
        return self.batch_id + 1

    def with_report(self, report: TaskReport) -> SparkRecord:
        """Return this record with the reports on a micro-batch."""
        keys = add_samples(list(self.keys), report.keys)
        return replace(self, keys=keys, fields=report.fields_by_uid(self.fields))

    def with_ended(self, ended: Iterable[tuple[str, int]], sources: Mapping[str, int]) -> SparkRecord:
        """Return this record with subtasks of sources that have ended; ``sources`` are their numbers of subtasks."""
        flags = {uid: self.ended_of(uid, sources[uid]) for uid in self.ended_subtasks if uid in sources}
        for uid, subtask in ended:
            flags.setdefault(uid, [False] * sources[uid])[subtask] = True
        return replace(self, ended_subtasks=flags, ended=[uid for uid, of_uid in flags.items() if all(of_uid)])

    def ended_of(self, source: str, parallelism: int) -> list[bool]:
        """Return which subtasks of a source have ended. After a change of parallelism, either all or none have."""
        flags = self.ended_subtasks.get(source, [False])
        return list(flags) if len(flags) == parallelism else [all(flags)] * parallelism

    def with_run(self, run_id: str, beginning: Beginning) -> SparkRecord:
        """Return this record when a run begins.

        A micro-batch that is repeated was planned by the last run, or by an earlier run that began with it.
        """
        earlier: Sequence[str] = []
        if beginning.repeats:
            earlier = self.runs if self.run_batch == beginning.batch_id else self.runs[-1:]
        return replace(self, runs=[*earlier, run_id], run_batch=beginning.batch_id)

    def is_begun(self, beginning: Beginning) -> bool:
        """Return whether sinks may have written a part of the micro-batch that a run would begin with."""
        return beginning.repeats and self.unwritten != beginning.batch_id


class SparkRecords:
    """The record in the folder of a generation.

    Raises:
        CorruptDataError: The file is damaged.
        IncompatibleCheckpointError: It has a version that is not known here.
    """

    def __init__(self, generation: Folder) -> None:
        self._folder = generation
        self._numbers = generation.numbers(JOB_FOLDER, suffix=".json")
        self.last: SparkRecord | None = self._read(_name(self._numbers[-1])) if self._numbers else None

    def write(self, record: SparkRecord) -> None:
        """Write a record if it has changed."""
        if record == self.last:
            return
        former, number = self._numbers, self._numbers[-1] + 1 if self._numbers else 0
        write_document(self._folder, _name(number), record)
        for earlier in former:
            self._folder.delete(_name(earlier))
        self._numbers = [number]
        self.last = record

    def _read(self, name: str) -> SparkRecord:
        place = self._folder.place(name)
        try:
            return converted(SparkRecord, from_json(self._folder.read(name)), place)
        except ValueError as error:
            raise CorruptDataError(f"{place} is damaged: {error}. {_RESTORE}") from error


def _name(number: int) -> str:
    return f"{JOB_FOLDER}/{number}.json"
