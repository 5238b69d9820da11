"""Sources with splits in a local run: the driver's side, and the readers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from dsv2.clock import Clock
from dsv2.context import RuntimeExecutionMode
from dsv2.graph import Operator, Plan
from dsv2.local.indexed_reader import own_copy
from dsv2.local.mutation import MutationCheck
from dsv2.runtime.exchange.frames import EmitFrame
from dsv2.runtime.sources.alignment import AlignmentBoard
from dsv2.runtime.sources.coordinator import SourceCoordinator
from dsv2.runtime.sources.offsets import BEFORE_START, ReaderOrder, Report, SourceOffset, orders
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.runtime.sources.split_reading import SplitReading
from dsv2.sources import Source

__all__ = ("SplitReader", "SplitSourceRun")


class SplitSourceRun:
    """One source with its readers."""

    def __init__(
        self,
        plan: Plan,
        operator: Operator,
        clock: Clock,
        board: AlignmentBoard,
        receive: EmitFrame,
        mutation: MutationCheck | None,
    ) -> None:
        assert isinstance(operator.body, Source)
        self._plan = plan
        self._board = board
        self._operator = operator
        self._source: Source[Any, Any, Any] = operator.body
        self._clock = clock
        self._offset: SourceOffset = BEFORE_START
        self._coordinator = self._new_coordinator()
        self.readers = [SplitReader(plan, operator, index, receive, mutation) for index in range(operator.parallelism)]
        self.waits = False
        """Whether the last micro-batch had nothing to read."""

    @property
    def bounded(self) -> bool:
        """Whether the source has an end."""
        return self._source.bounded

    @property
    def is_exhausted(self) -> bool:
        """Whether what was there when the job began has been read."""
        return self.waits and not self._coordinator.has_more_for_certain

    def begin_batch(self, records: int | None) -> None:
        """Tell the readers what to read; ``records`` for each of them, if that is a limit."""
        reports = [report for reader in self.readers if (report := reader.report()) is not None]
        limit = None if records is None else records * self._operator.parallelism
        there = self._coordinator.next(self._offset, limit, refresh=self._source.bounded, reports=reports)
        self.waits = there == self._offset
        if not self.waits:
            self._offset = there
            for order in orders(there, self._source.split_serializer):
                self.readers[order.subtask].follow(order)

    def commit(self) -> None:
        """The micro-batch is done."""
        self._coordinator.commit(self._offset)

    def restart(self) -> None:
        """Go on from the offset, with a new enumerator."""
        self.close()
        self._coordinator = self._new_coordinator()

    def close(self) -> None:
        """Close the enumerator."""
        self._coordinator.close()

    def _new_coordinator(self) -> SourceCoordinator:
        if self._plan.mode is RuntimeExecutionMode.BATCH:
            return SourceCoordinator(self._source, self._operator, self._clock, limited=False)
        return SourceCoordinator(self._source, self._operator, self._clock, self._board)


class SplitReader:
    """One subtask of a source."""

    def __init__(
        self, plan: Plan, operator: Operator, index: int, receive: EmitFrame, mutation: MutationCheck | None
    ) -> None:
        self._plan = plan
        self._operator = operator
        functions = {chained.id: own_copy(chained) for chained in plan.chained_to_sources}
        watch = None if mutation is None else mutation.remember
        self.task = SourceTask(plan, operator, index, receive, functions, watch)
        self._reading: SplitReading | None = None
        self._runs: Iterator[int] = iter(())
        self._ends = False
        self.can_read = False
        """Whether there is anything left for this micro-batch: records or the end."""
        self.ended = False

    def follow(self, order: ReaderOrder) -> None:
        """Do what ``order`` says, by and by."""
        assert isinstance(self._operator.body, Source)
        self._reading = SplitReading(self._operator.body, self._plan, self._operator, order, self.task)
        self._runs = self._reading.run()
        self._ends = order.last
        self.can_read = True

    def read(self, choice: random.Random) -> None:
        """Read the next run of records; the source says how many those are."""
        if next(self._runs, None) is None:
            self.can_read = False
            self.ended = self._ends
        self.task.flush()

    def report(self) -> Report | None:
        """What it has found out in its last micro-batch."""
        return None if self._reading is None else self._reading.report()
