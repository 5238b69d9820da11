"""Jobs that consist of one source: their micro-batches are planned and read in this process."""

from __future__ import annotations

import json
from typing import Any

from dsv2.base.clock import Clock, SystemClock
from dsv2.model import RecordBatch
from dsv2.runtime.sources.coordinator import SourceCoordinator
from dsv2.runtime.sources.offsets import BEFORE_START, SourceOffset, WatermarkOrder, orders
from dsv2.sinks import CollectSink
from dsv2.sources import Source
from tests.support import local_environment, operator_named


class Reader:
    """The reader's context of the job, without any function."""

    subtask, parallelism = 0, 1

    def emit_watermark(self, watermark: Any, /) -> None: ...
    def mark_idle(self) -> None: ...
    def mark_active(self) -> None: ...
    def count(self, name: str, amount: int = 1) -> None: ...


class SourceRun:
    """A run of a job that consists of ``source``."""

    def __init__(
        self,
        source: Source[Any, Any, Any],
        offset: SourceOffset = BEFORE_START,
        parallelism: int = 2,
        clock: Clock | None = None,
    ) -> None:
        env = local_environment(parallelism)
        env.from_source(source).with_uid("in").to_sink(CollectSink())
        self.source = source
        self.offset = offset
        self.driver = SourceCoordinator(source, operator_named(env.build_plan(), "in"), clock or SystemClock())

    def batch(self, limit: int | None = None) -> list[Any]:
        """The records of the next micro-batch, empty if there is no new data."""
        return self.repeated() if self.plan_next(limit) else []

    def plan_next(self, limit: int | None = None, *, commits: bool = True) -> bool:
        """Plan the next micro-batch and return whether there is one. ``commits`` marks the previous one as complete."""
        there = self.driver.next(self.offset, limit)
        if there == self.offset:
            return False
        if commits and self.offset != BEFORE_START:
            self.driver.commit(self.offset)
        self.offset = json.loads(json.dumps(there))
        return True

    def repeated(self) -> list[Any]:
        """The records of the last micro-batch, read again."""
        return [record for run in self.batches() for record in run.records]

    def batches(self) -> list[RecordBatch[Any]]:
        """The batches of the last micro-batch, read again."""
        found: list[RecordBatch[Any]] = []
        for order in self.orders():
            reader = self.source.create_reader(Reader())
            for portion in order.portions:
                found += reader.read(portion.start, portion.stop)
            reader.close()
        return found

    def orders(self) -> list[Any]:
        """The orders of the last micro-batch, one for each reader with any."""
        return list(orders(self.offset, self.source.split_serializer))

    def watermark_senders(self) -> list[int]:
        """The readers that send a watermark in the last micro-batch."""
        return [o.subtask for o in self.orders() if any(isinstance(step, WatermarkOrder) for step in o.steps)]
