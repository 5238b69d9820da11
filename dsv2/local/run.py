"""One run of a plan in one process, with queues between the subtasks and seeded random scheduling."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dsv2.base.clock import Clock, elapsed_ns
from dsv2.base.record_position import Offset, SplitName
from dsv2.checkpoint.key_samples import KeySample, KeySampler
from dsv2.checkpoint.record import SourcePosition
from dsv2.errors import InternalError
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.jobs.progress import SplitProgress
from dsv2.local.mutation import MutationCheck
from dsv2.local.sources import IndexedReader, IndexedSourceRun, Reading, SplitReader, SplitSourceRun, own_copy
from dsv2.local.state_pages import StatePages, StoredSubtask, read_tables
from dsv2.local.wire import Wire
from dsv2.runtime.exchange.frames import Frame
from dsv2.runtime.operator.job_context import JobContext
from dsv2.runtime.operator.subtask import Subtask
from dsv2.runtime.report.driver_limits import DriverLimits
from dsv2.runtime.report.phases import SOURCE, Phases, level
from dsv2.runtime.report.subtask_report import SubtaskReport
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.sources.alignment import LocalBoard
from dsv2.runtime.sources.offsets import Report
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.runtime.state.page_store import PageStores, in_blob, in_entries
from dsv2.runtime.state.rows import StateRow, rows_of
from dsv2.runtime.state.timers import BatchTime
from dsv2.sources import Halt, Source


class CancelledError(Exception):
    """Ends a micro-batch that ``stop`` has cancelled."""


class LocalRun:
    """The subtasks, channels and sinks of one run.

    A channel is a queue of frames. ``choice`` determines which channel is processed next and where frames are split. So
    each seed results in one interleaving.
    """

    def __init__(
        self,
        plan: Plan,
        time: BatchTime,
        clock: Clock,
        choice: random.Random,
        *,
        checks: bool,
        positions: Mapping[str, SourcePosition],
        reading: Reading,
        pages: StatePages | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Create the subtasks and sources.

        Args:
            plan: The plan.
            time: The processing time.
            clock: The job's clock.
            choice: Determines the interleaving.
            checks: Whether frames are serialized, and records are compared.
            positions: Where sources continue, by uid. Others start at their beginning.
            reading: How the sources are read.
            pages: Hold keyed state between micro-batches. None: it stays in memory.
            is_cancelled: Whether the running micro-batch is to end with ``CancelledError``.
        """
        self._plan = plan
        self._job = JobContext.in_process(plan, time, clock)
        self._pages = pages
        self._clock = clock
        self._choice = choice
        self._mutation = MutationCheck(self._job.codec) if checks else None
        self._wire = Wire(plan, self._job.codec) if checks else None
        self._queues: dict[tuple[int, int, int], deque[Frame]] = {}
        self._waiting: list[tuple[int, int, int]] = []  # the keys of the queues that are not empty
        self._collected: dict[int, list[Frame]] = {op.id: [] for op in plan.operators if op.kind is OperatorKind.SINK}
        self._limits = DriverLimits(plan)
        self._phase_of = {plan.operators[head].uid: level(depth) for head, depth in plan.depths.items()}
        self._phase_of |= {operator.uid: SOURCE for operator in plan.operators if operator.kind is OperatorKind.SOURCE}
        self.phases = Phases(max(plan.depths.values(), default=0))
        """The times of the micro-batch."""
        self._subtasks = {
            (head, index): self._new_subtask(head, index)
            for head in plan.chains
            for index in range(plan.operators[head].parallelism)
        }
        self._is_cancelled = is_cancelled
        self._samplers: dict[tuple[int, int], KeySampler] = {}
        self._letters: list[dict[str, Any]] = []
        self._readers: list[IndexedReader | SplitReader] = []
        self._board = LocalBoard(plan)
        self._reading = reading
        self._sources: dict[str, IndexedSourceRun | SplitSourceRun] = {}  # by uid
        for operator in plan.operators:
            if operator.kind is OperatorKind.SOURCE:
                self._add_source(operator, positions.get(operator.uid))

    def open(self) -> None:
        """Open every subtask."""
        for subtask in self._subtasks.values():
            subtask.open()
            subtask.flush()

    def subtask(self, head: int, index: int) -> Subtask:
        """Return a subtask of the chain ``head``."""
        return self._subtasks[head, index]

    @property
    def codec(self) -> Codec:
        """The codec of the job."""
        return self._job.codec

    def flush(self) -> None:
        """Send what restored subtasks have buffered."""
        for subtask in self._subtasks.values():
            subtask.flush()

    def store(self) -> None:
        """Set the pages to the state of all subtasks."""
        assert self._pages is not None
        for (head, index), subtask in self._subtasks.items():
            self._pages.of(self._plan.operators[head].uid, index).put_rest(subtask.snapshot())

    def restore(self, states: Iterable[StoredSubtask]) -> None:
        """Restore the subtasks of an unchanged program. ``states``: What the pages hold."""
        rest = {(state.uid, state.subtask): state.rest for state in states}
        for (head, index), subtask in self._subtasks.items():
            subtask.restore(rest[self._plan.operators[head].uid, index])

    def rows(self) -> Iterator[tuple[str, StateRow]]:
        """Return the state of all subtasks as rows, each with the uid of its operator."""
        for (head, index), subtask in self._subtasks.items():
            owner = f"State of {self._plan.operators[head]}, subtask {index}"
            stores = self._page_stores(head, index)
            yield from rows_of(subtask.snapshot(), index, self._job.codec, owner, read_tables, stores)

    def take_letters(self) -> list[dict[str, Any]]:
        """Return and remove the dead letters that nothing reads, as they are stored."""
        self._collect_letters()
        for reader in self._readers:
            self._letters += reader.task.take_letters(lambda: self._job.codec)
        letters, self._letters = self._letters, []
        return letters

    def _collect_letters(self) -> None:
        for subtask in self._subtasks.values():
            self._letters += subtask.take_letters()

    def kept_fields(self) -> dict[str, list[str]]:
        """Return the names of the function fields in the last snapshots, by uid."""
        names: dict[str, set[str]] = {}
        for subtask in self._subtasks.values():
            for uid, kept in subtask.kept_fields().items():
                names.setdefault(uid, set()).update(kept)
        return {uid: sorted(names[uid]) for uid in sorted(names)}

    def positions(self) -> dict[str, SourcePosition]:
        """Return where the sources continue, by uid."""
        return {uid: source.position for uid, source in self._sources.items()}

    def halt(self, now_ms: int) -> Halt | None:
        """Return the halt of a source before the next micro-batch, or None. Raises ``JobError`` if a source crashes."""
        indexed = (source for source in self._sources.values() if isinstance(source, IndexedSourceRun))
        return next((halt for source in indexed if (halt := source.halt(now_ms)) is not None), None)

    def begin_batch(self, records: int | None) -> bool:
        """Plan what the next micro-batch reads, and return whether it reads anything.

        Args:
            records: The maximum number of records per source subtask. None: only the limits of the sources apply.
        """
        reads = [source.begin_batch(records) for source in self._sources.values()]
        return any(reads)

    def run_batch(self) -> None:
        """Run the micro-batch that ``begin_batch`` has planned."""
        self._limits = DriverLimits(self._plan)
        for subtask in self._subtasks.values():
            subtask.begin_batch()
            subtask.flush()
        self._process()
        for task in [reader.task for reader in self._readers]:
            task.end_portion()
            task.flush()
        self._process()
        for head, index in self._subtasks:  # upstream first, so that the output of timers belongs to this batch
            self._subtasks[head, index].end_batch()
            self._subtasks[head, index].flush()
            self._process()
        self._limits.check()
        if self._mutation is not None:
            self._mutation.verify()

    def next_deadline(self) -> int | None:
        """Return when a timer or a generator has something to do without records, in ms; None if none has."""
        deadlines = (subtask.next_deadline() for subtask in self._subtasks.values())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def sample_keys(self) -> None:
        """Sample the keys of the next micro-batch, for ``key_samples``."""
        self._samplers = {place: KeySampler(self._plan, place[0], self.codec) for place in self._subtasks}

    def key_samples(self) -> list[KeySample]:
        """Return the samples of the last micro-batch."""
        return [sample for sampler in self._samplers.values() for sample in sampler.report()]

    @property
    def ended(self) -> bool:
        """True if all sources have ended."""
        return all(source.ended for source in self._sources.values())

    def ended_sources(self) -> list[str]:
        """Return the uids of the sources that have ended."""
        return sorted(uid for uid, source in self._sources.items() if source.ended)

    @property
    def is_exhausted(self) -> bool:
        """True if all data that was available when the job began has been read."""
        return all(source.is_exhausted for source in self._sources.values())

    @property
    def is_paced(self) -> bool:
        """True if further records become available in time: a source has a rate, or splits that it will resume."""
        return any(source.is_paced and not source.ended for source in self._sources.values())

    def _process(self) -> None:
        while True:
            if self._is_cancelled():
                raise CancelledError
            ready = [reader for reader in self._readers if reader.can_read]
            if not ready and not self._waiting:
                break
            if ready and (not self._waiting or self._choice.random() < 0.25):
                self._read(self._choice.choice(ready))
            else:
                self._deliver_one()
            self._limits.check()

    def restart(self) -> None:
        """Replace every subtask and enumerator with one restored from a snapshot."""
        for source in self._of_splits():
            source.restart()
        self._collect_letters()
        for place, blob in {place: subtask.snapshot() for place, subtask in self._subtasks.items()}.items():
            self._subtasks[place] = self._new_subtask(*place)
            self._subtasks[place].restore(blob)

    def replace_subtasks(self) -> None:
        """Replace every subtask with a new one, which must be restored."""
        self._collect_letters()
        if self._pages is not None:
            self._pages.replace_all()
        self._subtasks = {place: self._new_subtask(*place) for place in self._subtasks}

    def close(self) -> None:
        """Close every open function after a failure."""
        self.close_sources()
        for subtask in self._subtasks.values():
            subtask.close()

    def commit(self) -> None:
        """Notify the sources that the micro-batch has been written to the sinks."""
        for source in self._of_splits():
            source.commit()

    def close_sources(self) -> None:
        """Close the enumerators."""
        for source in self._of_splits():
            source.close()

    def collected(self, sink: int) -> Sequence[Frame]:
        """Return the frames that have arrived at a sink since the last call of ``take_collected``."""
        return self._collected[sink]

    def take_collected(self) -> Iterator[tuple[Operator, list[Frame]]]:
        """Return the frames that arrived at each sink since the last call."""
        for operator_id, frames in self._collected.items():
            yield self._plan.operators[operator_id], frames[:]
            frames.clear()

    def progress(self) -> list[SubtaskReport]:
        """Return the reports of every operator of every subtask, and add their times to the phases."""
        parts: list[Subtask | SourceTask] = [*(reader.task for reader in self._readers), *self._subtasks.values()]
        reports = [entry for part in parts for entry in part.progress()]
        for report in reports:
            if (phase := self._phase_of.get(report.uid)) is not None:
                self.phases.ns[phase] += report.user_ns
        return reports

    def reader_reports(self) -> list[Report]:
        """Return the reports of the readers of sources with splits."""
        found = [reader.report() for reader in self._readers if isinstance(reader, SplitReader)]
        return [report for report in found if report is not None]

    def splits(self, now_ms: int) -> dict[str, tuple[SplitProgress, ...]]:
        """Return the progress of the splits of each source at ``now_ms``, by uid."""
        return {uid: source.splits(now_ms) for uid, source in self._sources.items()}

    @property
    def is_aligned(self) -> bool:
        """True if splits may be paused and resumed between two micro-batches."""
        return any(source.is_aligned for source in self._of_splits())

    def reset_times(self) -> None:
        """Begin to measure times again. Called between two micro-batches."""
        for reader in self._readers:
            reader.task.reset_times()
        for subtask in self._subtasks.values():
            subtask.reset_times()

    def ranges_read(self) -> list[str]:
        """Describe what the last micro-batch has read of each source."""
        return [described for source in self._sources.values() for described in source.ranges_read()]

    def skipped(self) -> dict[str, frozenset[tuple[SplitName, Offset]]]:
        """Return the records that sources have skipped, by uid."""
        skipped: dict[str, frozenset[tuple[SplitName, Offset]]] = {}
        for task in (reader.task for reader in self._readers):
            skipped[task.uid] = skipped.get(task.uid, frozenset()) | frozenset(task.skipped)
        return skipped

    def holding(self) -> list[str]:
        """Return the uids of the operators that buffer records behind aligned watermarks."""
        return sorted({uid for subtask in self._subtasks.values() for uid in subtask.held()})

    @property
    def records_held(self) -> int:
        """The number of records that are buffered behind aligned watermarks."""
        return sum(sum(subtask.held().values()) for subtask in self._subtasks.values())

    def check_ended(self) -> None:
        """Raise ``InternalError`` if a subtask has not ended although all sources have."""
        for (head, index), subtask in self._subtasks.items():
            if not subtask.ended:
                raise InternalError(
                    f"{self._plan.operators[head]}, subtask {index}, did not receive the end of its input."
                )

    def _of_splits(self) -> list[SplitSourceRun]:
        return [source for source in self._sources.values() if isinstance(source, SplitSourceRun)]

    def _add_source(self, operator: Operator, start: SourcePosition | None) -> None:
        plan, clock, mutation = self._plan, self._clock, self._mutation
        source: IndexedSourceRun | SplitSourceRun
        if isinstance(operator.body, Source):
            codec, board = self._job.codec, self._board
            source = SplitSourceRun(plan, operator, clock, self._reading, board, self._receive, mutation, codec, start)
        else:
            source = IndexedSourceRun(plan, operator, clock, self._reading, self._receive, mutation, start)
        self._sources[operator.uid] = source
        self._readers += source.readers

    def _new_subtask(self, head: int, index: int) -> Subtask:
        functions = {operator.id: own_copy(operator) for operator in self._plan.chains[head]}
        watch = None if self._mutation is None else self._mutation.remember
        job = replace(self._job, page_stores=self._page_stores(head, index) or in_blob)
        return Subtask(self._plan, head, index, functions, job, self._receive, watch)

    def _page_stores(self, head: int, index: int) -> PageStores | None:
        if self._pages is None:
            return None
        return in_entries(self._pages.of(self._plan.operators[head].uid, index), self._job.codec)

    def _receive(self, frame: Frame) -> None:
        if self._wire is not None:
            frame = self._wire.send(frame)
        if frame.operator in self._collected:
            if self._limits.add(frame.operator, len(frame.batch)):
                self._collected[frame.operator].append(frame)
            return
        key = (frame.operator, frame.subtask, frame.channel)
        queue = self._queues.setdefault(key, deque())
        if not queue:
            self._waiting.append(key)
        queue.append(frame)

    def _read(self, reader: IndexedReader | SplitReader) -> None:
        began = elapsed_ns()
        reader.read(self._choice)
        reader.task.user_ns += elapsed_ns() - began

    def _deliver_one(self) -> None:
        chosen = self._choice.randrange(len(self._waiting))
        key = self._waiting[chosen]
        queue = self._queues[key]
        frame = queue.popleft()
        if len(frame.batch) > 1 and self._choice.random() < 0.5:
            frame, rest = frame.split(self._choice.randrange(1, len(frame.batch)))
            queue.appendleft(rest)
        if not queue:
            self._waiting[chosen] = self._waiting[-1]
            self._waiting.pop()
        head, index, channel = key
        if self._samplers:
            self._samplers[head, index].see(channel, frame.batch.records)
        subtask = self._subtasks[head, index]
        subtask.receive(channel, frame.batch, frame.controls)
        subtask.flush()
