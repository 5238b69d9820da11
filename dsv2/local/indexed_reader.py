"""The subtasks of an indexed source in a local run, and the positions at which they halt."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

from dsv2.errors import SerializationError
from dsv2.functions import ProcessFunction
from dsv2.graph import Operator, Plan
from dsv2.local.mutation import MutationCheck
from dsv2.record_batch import RecordBatch
from dsv2.runtime.exchange.frames import EmitFrame
from dsv2.runtime.report.failure import raise_user_failure
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.sources import Halt, IndexedSource

__all__ = ("IndexedReader", "SourceHalts", "own_copy")

_LARGEST_READ_BITS = 14


class IndexedReader:
    """One subtask of an indexed source."""

    def __init__(
        self, plan: Plan, operator: Operator, index: int, receive: EmitFrame, mutation: MutationCheck | None
    ) -> None:
        assert isinstance(operator.body, IndexedSource)
        self._source = operator.body
        self._operator = operator
        self._index = index
        functions = {chained.id: own_copy(chained) for chained in plan.chained_to_sources}
        watch = None if mutation is None else mutation.remember
        self.task = SourceTask(plan, operator, index, receive, functions, watch)
        self.position = 0  # records of this subtask read so far
        self.ended = False
        self._halt_position: int | None = None  # the position at which it waits for the other readers
        self._limit: int | None = None  # the position at which the micro-batch ends

    @property
    def waits(self) -> bool:
        """Whether all records before the next halt have been read."""
        return self.position == self._halt_position

    def wait_at(self, index: int | None) -> None:
        """Do not read the record at ``index`` of the source or any later record."""
        self._halt_position = None if index is None else len(range(self._index, index, self._operator.parallelism))

    def begin_batch(self, records: int | None) -> None:
        """Begin a micro-batch of at most ``records`` records (None: no limit)."""
        limits = [self._halt_position, None if records is None else self.position + records]
        self._limit = min((limit for limit in limits if limit is not None), default=None)

    @property
    def can_read(self) -> bool:
        """Whether this micro-batch has further records, or the end of input."""
        return not self.ended and (self._limit is None or self.position < self._limit)

    def read(self, choice: random.Random) -> None:
        """Read a random number of records, up to the end of the micro-batch."""
        wanted = choice.randint(1, 1 << choice.randrange(_LARGEST_READ_BITS))  # small reads as often as large ones
        if self._limit is not None:
            wanted = min(wanted, self._limit - self.position)
        step, count = self._operator.parallelism, self._source.count
        first = self._index + self.position * step
        stop = first + wanted * step
        indices = range(first, stop if count is None else min(stop, count), step)
        self.task.seek(self.position)
        self.task.send(RecordBatch(self._records(indices)))
        self.position += len(indices)
        if len(indices) < wanted:
            self.ended = True
            self.task.end()
        self.task.flush()

    def _records(self, indices: range) -> list[Any]:
        try:
            return self._source.read(indices)
        except BaseException as error:
            raise_user_failure(self._operator, self._index, "read", error)


class SourceHalts:
    """The halts of one source."""

    def __init__(self, operator: Operator, readers: Sequence[IndexedReader]) -> None:
        assert isinstance(operator.body, IndexedSource)
        self._schedule = operator.body.schedule(f"{operator}, defined at {operator.location}")
        self._readers = readers
        self._index: int | None = None
        if self._schedule is not None:
            self._schedule.begin(-1)
            self._wait_for_next(-1)

    def halt(self, now_ms: int) -> Halt | None:
        """Return the halt at which all readers wait; None if there is none or it is over."""
        if self._schedule is None or self._index is None or not all(reader.waits for reader in self._readers):
            return None
        halt = self._schedule.halt(self._index, now_ms)
        if halt is None:
            self._wait_for_next(self._index)
        return halt

    def _wait_for_next(self, position: int) -> None:
        assert self._schedule is not None
        self._index = self._schedule.next_halt(position)
        for reader in self._readers:
            reader.wait_at(self._index)


def own_copy(operator: Operator) -> ProcessFunction:
    """Copy the function of ``operator`` for a subtask. Raises ``SerializationError`` if it cannot be copied."""
    try:
        return copy.deepcopy(operator.function)
    except Exception as error:
        raise SerializationError(
            f"The function of {operator}, defined at {operator.location}, cannot be copied for its subtasks: {error}."
        ) from error
