"""The subtasks and the readers of sources that one process runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from msgspec.structs import replace as replace_fields

from dsv2.base.clock import Clock
from dsv2.checkpoint.key_samples import KeySampler
from dsv2.checkpoint.program import ProgramDescription
from dsv2.checkpoint.task_report import TaskReport
from dsv2.functions import ProcessFunction
from dsv2.graph import Operator, Plan
from dsv2.local.mutation import MutationCheck
from dsv2.local.page_log import StoredLogs
from dsv2.local.readers import IndexedReader, SplitReader, own_copy
from dsv2.local.state_pages import ROWS, StatePages, read_tables
from dsv2.runtime.exchange.frames import EmitFrame, Frame
from dsv2.runtime.operator.job_context import JobContext
from dsv2.runtime.operator.subtask import Subtask
from dsv2.runtime.operator.subtask_restore import Succession
from dsv2.runtime.operator.time_sender import SentBefore
from dsv2.runtime.rescale import ProgramSuccession
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.runtime.state.page_store import PageStores, in_blob, in_entries
from dsv2.runtime.state.rows import StateRow, rows_of
from dsv2.sources import Source

Place: TypeAlias = tuple[int, int]
"""The first operator of a chain, or a source, and the index of a subtask."""


class TaskGroup:
    """The subtasks at ``places``, and the readers of sources.

    Args:
        plan: The plan.
        job: Shared by the subtasks.
        clock: The job's clock.
        places: The places of the subtasks.
        emit: Called with each frame that they emit.
        pages: Hold keyed state between micro-batches. None: it stays in memory.
        mutation: Checks that records are not modified. None: they are not checked.
    """

    def __init__(
        self,
        plan: Plan,
        job: JobContext,
        clock: Clock,
        places: Collection[Place],
        emit: EmitFrame,
        pages: StatePages | None,
        mutation: MutationCheck | None,
    ) -> None:
        self._plan = plan
        self._job = job
        self._clock = clock
        self._emit = emit
        self._pages = pages
        self._mutation = mutation
        self._watch = None if mutation is None else mutation.remember
        self._letters: list[dict[str, Any]] = []
        self._samplers: dict[Place, KeySampler] = {}  # for a checkpoint
        self.subtasks = {place: self._new_subtask(*place) for place in places}
        """The subtasks by their places, upstream first."""
        self.readers: dict[Place, IndexedReader | SplitReader] = {}
        """The readers by their places."""
        self._sample_keys()

    def add_reader(self, operator: Operator, index: int) -> IndexedReader | SplitReader:
        """Create a reader of the source ``operator``."""
        plan, functions = self._plan, self._functions_of(self._plan.chained_to_sources)
        task = SourceTask(plan, operator, index, self._emit, functions, self._watch)
        reader: IndexedReader | SplitReader
        if isinstance(operator.body, Source):
            reader = SplitReader(plan, operator, task, self._clock, self._job.codec)
        else:
            reader = IndexedReader(plan, operator, index, task)
        self.readers[operator.id, index] = reader
        return reader

    def open(self) -> None:
        """Open every subtask."""
        for subtask in self.subtasks.values():
            subtask.open()
            subtask.flush()

    def flush(self) -> None:
        """Send what restored subtasks have buffered."""
        for subtask in self.subtasks.values():
            subtask.flush()

    def receive(self, place: Place, channel: int, frame: Frame) -> None:
        """Process a frame."""
        if self._samplers:
            self._samplers[place].see(channel, frame.batch.records)
        subtask = self.subtasks[place]
        subtask.receive(channel, frame.batch, frame.controls)
        subtask.flush()

    def store(self) -> None:
        """Set the pages to the state of all subtasks. Nothing is done if there are none."""
        if self._pages is None:
            return
        for (head, index), subtask in self.subtasks.items():
            self._pages.of(self._plan.operators[head].uid, index).put_rest(subtask.snapshot())

    def restore(self, stored: StoredLogs) -> None:
        """Restore the subtasks of an unchanged program. ``stored``: The logs with their state."""
        assert self._pages is not None
        places = {(self._plan.operators[head].uid, index): (head, index) for head, index in self.subtasks}
        for state in self._pages.adopt(stored, places.keys()):
            self.subtasks[places[state.uid, state.subtask]].restore(state.rest)

    def replace_pages(self) -> None:
        """Remove all pages with the next transaction."""
        assert self._pages is not None
        self._pages.replace_all()

    def restart(self) -> None:
        """Replace every subtask with one restored from a snapshot."""
        self._collect_letters()
        blobs = [subtask.snapshot() for subtask in self.subtasks.values()]
        self._renew()
        for subtask, blob in zip(self.subtasks.values(), blobs, strict=True):
            subtask.restore(blob)

    def replace_subtasks(self) -> None:
        """Replace every subtask with a new one, which must be restored."""
        self._collect_letters()
        if self._pages is not None:
            self._pages.replace_all()
        self._renew()

    def _renew(self) -> None:
        if self._pages is not None:
            self._pages.budget.clear()  # of the pages of the former subtasks
        self.subtasks = {place: self._new_subtask(*place) for place in self.subtasks}

    def chain_restore(
        self, head: int, program: ProgramDescription, sent: Mapping[str, list[SentBefore]]
    ) -> ChainRestore:
        """Begin to restore the subtasks of a chain from rows.

        Args:
            head: The first operator of the chain.
            program: The program that wrote the rows.
            sent: What the readers of its sources had sent, by uid.
        """
        return ChainRestore(self, head, ProgramSuccession(self._plan, program.operators, self._job.codec, sent))

    def rows(self) -> Iterator[tuple[str, StateRow]]:
        """Return the state of all subtasks as rows, each with the uid of its operator."""
        for place in self.subtasks:
            yield from self.subtask_rows(place)

    def subtask_rows(self, place: Place) -> Iterator[tuple[str, StateRow]]:
        """Return the state of a subtask as rows, each with the uid of its operator."""
        head, index = place
        owner = f"State of {self._plan.operators[head]}, subtask {index}"
        stores = self._page_stores(head, index)
        return rows_of(self.subtasks[place].snapshot(), index, self._job.codec, owner, read_tables, stores)

    def close(self) -> None:
        """Close every open function and reader after a failure."""
        for reader in self.readers.values():
            if isinstance(reader, SplitReader):
                reader.close()
        for subtask in self.subtasks.values():
            subtask.close()

    def take_report(self) -> TaskReport:
        """Return the report on a micro-batch, and begin the next one."""
        report = self.report()
        self._letters.clear()
        self._sample_keys()
        for reader in self.readers.values():
            reader.task.reset_times()
        for subtask in self.subtasks.values():
            subtask.reset_times()
        return report

    def report(self) -> TaskReport:
        """Return the report since the last call of ``take_report``."""
        of_sources = [TaskReport.of_source(one.task, lambda: self._job.codec) for one in self.readers.values()]
        report = TaskReport.joined([*of_sources, *map(TaskReport.of_subtask, self.subtasks.values())])
        self._letters += report.letters
        readers = [one.report() for one in self.readers.values() if isinstance(one, SplitReader)]
        return replace_fields(
            report,
            letters=self._letters[:],
            keys=[sample for sampler in self._samplers.values() for sample in sampler.report()],
            readers=[one for one in readers if one is not None],
        )

    def next_deadline(self) -> int | None:
        """Return when a timer or a generator has something to do without records, in ms; None if none has."""
        deadlines = (subtask.next_deadline() for subtask in self.subtasks.values())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _collect_letters(self) -> None:
        for subtask in self.subtasks.values():
            self._letters += subtask.take_letters()

    def _sample_keys(self) -> None:
        if self._pages is not None:
            self._samplers = {place: KeySampler(self._plan, place[0], self._job.codec) for place in self.subtasks}

    def _functions_of(self, operators: Iterable[Operator]) -> dict[int, ProcessFunction]:
        return {operator.id: own_copy(operator) for operator in operators}

    def _new_subtask(self, head: int, index: int) -> Subtask:
        functions = self._functions_of(self._plan.chains[head])
        job = replace(self._job, page_stores=self._page_stores(head, index) or in_blob)
        return Subtask(self._plan, head, index, functions, job, self._emit, self._watch)

    def _page_stores(self, head: int, index: int) -> PageStores | None:
        if self._pages is None:
            return None
        pages = self._pages.of(self._plan.operators[head].uid, index)
        return in_entries(pages, self._job.codec, self._pages.budget, rows=ROWS)


class ChainRestore:
    """The restore of the subtasks of the chain ``head`` from rows."""

    def __init__(self, group: TaskGroup, head: int, succession: Succession) -> None:
        self._restores = {
            index: subtask.begin_restore(succession) for (at, index), subtask in group.subtasks.items() if at == head
        }

    def add(self, subtask: int, uid: str, row: StateRow) -> None:
        """Add a row of the operator ``uid``. Raises ``CorruptDataError``."""
        self._restores[subtask].add(uid, [row])

    def finish(self) -> None:
        """Complete the restore. Raises ``IncompatibleCheckpointError`` or ``CorruptDataError``."""
        for restore in self._restores.values():
            restore.finish()
