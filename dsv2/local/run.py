"""One run of a plan: its sources, its subtasks, and what arrives at its sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TypeAlias

from dsv2.base.clock import Clock
from dsv2.checkpoint.record import SourcePosition
from dsv2.checkpoint.task_report import TaskReport
from dsv2.errors import InternalError
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.jobs.progress import SplitProgress
from dsv2.local.sources import IndexedSourceRun, Reading, SplitSourceRun
from dsv2.local.tasks import LocalTasks
from dsv2.local.workers.tasks import WorkerTasks
from dsv2.runtime.exchange.frames import EmitFrame, Frame
from dsv2.runtime.report.driver_limits import DriverLimits
from dsv2.runtime.report.phases import COMMIT, SOURCE, Phases, level
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.sources.alignment import LocalBoard
from dsv2.sources import Halt, Source

_WAIT = timedelta(milliseconds=20)  # until requests to the job are noticed, and the next source waits
NewTasks: TypeAlias = Callable[[Codec, EmitFrame, Callable[[], bool]], LocalTasks | WorkerTasks]
"""Creates the subtasks of a run.

Called with the codec of the job, a function for each frame that arrives at a sink, and one that returns whether the
running micro-batch is to end.
"""


class LocalRun:
    """The sources of one run, its subtasks, and what arrives at its sinks."""

    def __init__(
        self,
        plan: Plan,
        clock: Clock,
        new_tasks: NewTasks,
        *,
        positions: Mapping[str, SourcePosition],
        reading: Reading,
        is_cancelled: Callable[[], bool],
    ) -> None:
        """Create the subtasks and sources.

        Args:
            plan: The plan.
            clock: The job's clock.
            new_tasks: Creates the subtasks.
            positions: Where sources continue, by uid. Others start at their beginning.
            reading: How the sources are read.
            is_cancelled: Whether the running micro-batch is to end with ``CancelledError``.
        """
        self._plan = plan
        self._clock = clock
        self._is_cancelled = is_cancelled
        self._collected: dict[int, list[Frame]] = {op.id: [] for op in plan.operators if op.kind is OperatorKind.SINK}
        self._limits = DriverLimits(plan)
        self._phase_of = {plan.operators[head].uid: level(depth) for head, depth in plan.depths.items()}
        self._phase_of |= {operator.uid: SOURCE for operator in plan.operators if operator.kind is OperatorKind.SOURCE}
        self.phases = Phases(max(plan.depths.values(), default=0))
        """The times of the micro-batch."""
        self.codec = Codec(TypeRegistry.of(plan))
        """The codec of the job."""
        self.tasks = new_tasks(self.codec, self._collect, self._has_to_end)
        """The subtasks."""
        self.report = TaskReport()
        """The reports on the last micro-batch."""
        self._board = LocalBoard(plan)
        self._reading = reading
        self._sources: dict[str, IndexedSourceRun | SplitSourceRun] = {}  # by uid
        for operator in plan.operators:
            if operator.kind is OperatorKind.SOURCE:
                self._sources[operator.uid] = self._new_source(operator, positions.get(operator.uid))

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

    def run_batch(self, batch_id: int) -> None:
        """Run the micro-batch that ``begin_batch`` has planned, and set ``report``."""
        self._limits = DriverLimits(self._plan)
        self.tasks.run_batch(batch_id)
        self._limits.check()
        with self.phases.measured(COMMIT):
            self.tasks.store()  # before the report, which has the fields of the last snapshots
        self.report = self.tasks.take_report()
        for report in self.report.subtasks:
            if (phase := self._phase_of.get(report.uid)) is not None:
                self.phases.ns[phase] += report.user_ns
        for source in self._of_splits():
            source.note_reports(self.report.readers)

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

    def wait(self) -> bool | None:
        """Wait some ms until a source has something to read. Returns whether one has; None: not all can wait."""
        sources = [source for source in self._sources.values() if not source.ended]
        for source in sources:
            found = source.wait(_WAIT / len(sources)) if isinstance(source, SplitSourceRun) else None
            if found is not False:
                return found
        return False

    def restart(self) -> None:
        """Replace every subtask and enumerator with one restored from a snapshot."""
        for source in self._of_splits():
            source.restart()
        self.tasks.restart()

    def close(self) -> None:
        """Close the enumerators and every open function after a failure."""
        self._close_sources()
        self.tasks.close()

    def end(self) -> None:
        """Close the enumerators after the last micro-batch."""
        self._close_sources()
        self.tasks.end()

    def commit(self) -> None:
        """Notify the sources that the micro-batch has been written to the sinks."""
        for source in self._of_splits():
            source.commit()

    def _close_sources(self) -> None:
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

    def splits(self, now_ms: int) -> dict[str, tuple[SplitProgress, ...]]:
        """Return the progress of the splits of each source at ``now_ms``, by uid."""
        return {uid: source.splits(now_ms) for uid, source in self._sources.items()}

    @property
    def is_aligned(self) -> bool:
        """True if splits may be paused and resumed between two micro-batches."""
        return any(source.is_aligned for source in self._of_splits())

    def ranges_read(self) -> list[str]:
        """Describe what the last micro-batch has read of each source."""
        return [described for source in self._sources.values() for described in source.ranges_read()]

    @property
    def records_held(self) -> int:
        """The number of records that are buffered behind aligned watermarks."""
        return sum(one.records_held for one in self.report.subtasks)

    def check_ended(self) -> None:
        """Raise ``InternalError`` if a subtask has not ended although all sources have."""
        receivers = {operator.uid: operator for chain in self._plan.chains.values() for operator in chain}
        for one in self.report.subtasks:
            if not one.ended and (operator := receivers.get(one.uid)) is not None:
                raise InternalError(f"{operator}, subtask {one.subtask}, did not receive the end of its input.")

    def _has_to_end(self) -> bool:
        self._limits.check()
        return self._is_cancelled()

    def _of_splits(self) -> list[SplitSourceRun]:
        return [source for source in self._sources.values() if isinstance(source, SplitSourceRun)]

    def _new_source(self, operator: Operator, start: SourcePosition | None) -> IndexedSourceRun | SplitSourceRun:
        plan, clock, readers = self._plan, self._clock, self.tasks.new_readers(operator)
        if isinstance(operator.body, Source):
            return SplitSourceRun(plan, operator, clock, self._reading, self._board, readers, start)
        return IndexedSourceRun(plan, operator, clock, self._reading, readers, start)

    def _collect(self, frame: Frame) -> None:
        if self._limits.add(frame.operator, len(frame.batch)):
            self._collected[frame.operator].append(frame)
