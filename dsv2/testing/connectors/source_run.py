"""A job that consists of one source: its micro-batches are planned and read in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import cloudpickle

from dsv2.base.clock import Clock, SystemClock
from dsv2.environment import ExecutionEnvironment
from dsv2.local import LocalRuntime
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.sources.coordinator import SourceCoordinator
from dsv2.runtime.sources.offsets import BEFORE_START, ReaderOrder, SourceOffset, orders
from dsv2.sinks import CollectSink
from dsv2.sources import Source, WatermarkStrategy


class Reader:
    """The context of a reader whose signals reach no function."""

    subtask, parallelism = 0, 1

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **options: None


class SourceRun:
    """A run of a job that consists of ``source``.

    Args:
        source: The source.
        offset: Where the run starts.
        parallelism: The number of readers.
        clock: The clock of the job. None: the system clock.
        watermarks: The watermarks of the source. None: it has none.
    """

    def __init__(
        self,
        source: Source[Any, Any, Any],
        offset: SourceOffset = BEFORE_START,
        parallelism: int = 2,
        clock: Clock | None = None,
        watermarks: WatermarkStrategy[Any] | None = None,
    ) -> None:
        env = ExecutionEnvironment.get_instance(LocalRuntime())
        env.set_parallelism(parallelism)
        env.from_source(source, watermarks=watermarks).with_uid("in").to_sink(CollectSink()).with_uid("out")
        (operator,) = (operator for operator in env.build_plan().operators if operator.uid == "in")
        self.source = source
        self.offset = offset
        self.clock = clock or SystemClock()
        self.driver = SourceCoordinator(source, operator, self.clock)

    def batch(self, limit: int | None = None) -> list[Any]:
        """Return the records of the next micro-batch; none if there is no new data."""
        return self.repeated() if self.plan_next(limit) else []

    def plan_next(self, limit: int | None = None, *, commits: bool = True) -> bool:
        """Plan the next micro-batch and return whether there is one. ``commits``: Whether the previous is complete."""
        there = self.driver.next(self.offset, limit)
        if there == self.offset:
            return False
        if commits and self.offset != BEFORE_START:
            self.driver.commit(self.offset)
        self.offset = json.loads(json.dumps(there))
        return True

    def repeated(self) -> list[Any]:
        """Return the records of the last micro-batch, read again."""
        return [record for run in self.batches() for record in run.records]

    def batches(self) -> list[RecordBatch[Any]]:
        """Return the batches of the last micro-batch, read again."""
        found: list[RecordBatch[Any]] = []
        for order in self.orders():
            source = cloudpickle.loads(cloudpickle.dumps(self.source))  # as for a task
            with closing(source.create_reader(Reader())) as reader:
                for portion in order.portions:
                    found += reader.read(portion.start, portion.stop)
        return found

    def orders(self) -> list[ReaderOrder]:
        """Return the orders of the last micro-batch, one for each reader with any."""
        return list(orders(self.offset, self.source.split_serializer))

    def close(self) -> None:
        """Close the enumerator."""
        self.driver.close()
