"""The readers of sources in a local run."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Generator

from dsv2.base.clock import Clock
from dsv2.errors import SerializationError
from dsv2.functions import ProcessFunction
from dsv2.graph import Operator, Plan
from dsv2.runtime.operator.chain import FULL_FRAME_RECORDS
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.sources.indexed_reading import IndexedReading
from dsv2.runtime.sources.offsets import ReaderOrder, Report
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.runtime.sources.split_reading import SplitReading
from dsv2.sources import IndexedSource, Source

_RECORDS_AT_ONCE = 4 * FULL_FRAME_RECORDS
_LARGEST_READ_BITS = 14


class IndexedReader:
    """One subtask of an indexed source."""

    def __init__(self, plan: Plan, operator: Operator, index: int, task: SourceTask) -> None:
        assert isinstance(operator.body, IndexedSource)
        self._operator = operator
        self._index = index
        self.task = task
        self._reading = IndexedReading(operator.body, plan, operator, index, task)
        self.position = 0  # records of this subtask read so far
        self.ended = False
        self._limit = 0  # the position at which the micro-batch ends
        self._is_last = False  # whether the reader ends with the micro-batch

    def resume(self, position: int, *, ended: bool) -> None:
        """Continue a source after its first ``position`` records."""
        self.position = self._own(position)
        self.ended = ended

    def begin_batch(self, stop: int, *, is_last: bool) -> None:
        """Begin a micro-batch that ends before record ``stop`` of the source. ``is_last``: That is its end."""
        self._limit = self._own(stop)
        self._is_last = is_last

    @property
    def can_read(self) -> bool:
        """True if this micro-batch has further records, or the end of input."""
        return not self.ended and (self._is_last or self.position < self._limit)

    def read(self, choice: random.Random | None) -> None:
        """Read some records, up to the end of the micro-batch."""
        wanted = _RECORDS_AT_ONCE
        if choice is not None:  # small reads as often as large ones
            wanted = choice.randint(1, 1 << choice.randrange(_LARGEST_READ_BITS))
        wanted = min(wanted, self._limit - self.position)
        step = self._operator.parallelism
        first = self._index + self.position * step
        self.task.seek(self.position)
        self._reading.send(range(first, first + wanted * step, step))
        self.position += wanted
        if self._is_last and self.position == self._limit:
            self.ended = True
            self.task.end()
        self.task.flush()

    def _own(self, position: int) -> int:
        """The number of records before ``position`` of the source that this subtask reads."""
        return len(range(self._index, position, self._operator.parallelism))


def own_copy(operator: Operator) -> ProcessFunction:
    """Copy the function of ``operator`` for a subtask. Raises ``SerializationError`` if it cannot be copied."""
    try:
        return copy.deepcopy(operator.function)
    except Exception as error:
        raise SerializationError(
            f"The function of {operator}, defined at {operator.location}, cannot be copied for its subtasks: {error}."
        ) from error


class SplitReader:
    """One subtask of a source with splits."""

    def __init__(self, plan: Plan, operator: Operator, task: SourceTask, clock: Clock, codec: Codec) -> None:
        self._plan = plan
        self._clock = clock
        self._codec = codec
        self._operator = operator
        self.task = task
        self._reading: SplitReading | None = None
        self._runs: Generator[int, None, None] | None = None  # the batches of the micro-batch
        self.can_read = False
        """True if this micro-batch has further records, or the end of input."""

    def follow(self, order: ReaderOrder) -> None:
        """Begin to execute ``order``."""
        assert isinstance(self._operator.body, Source)
        self._reading = SplitReading(
            self._operator.body, self._plan, self._operator, order, self.task, lambda: self._codec, self._clock
        )
        self._runs = self._reading.run()
        self.can_read = True

    def read(self, choice: random.Random | None) -> None:
        """Read the next batch of records, whose size the source determines."""
        assert self._runs is not None
        if next(self._runs, None) is None:
            self.can_read = False
        self.task.flush()

    def close(self) -> None:
        """Close the reader of the source because the job has failed. Errors that it raises now are ignored."""
        if self._runs is not None:
            with contextlib.suppress(Exception):  # the first failure is the one to report
                self._runs.close()

    def report(self) -> Report | None:
        """Return the report on the last micro-batch, if there was one."""
        return None if self._reading is None else self._reading.report()
