"""Runs a plan's micro-batches in this process without Spark, with the same stage functions over the same frames.

Their time is the cost of Python on the cores of Spark. The rest of a micro-batch is Spark's overhead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pandas as pd
from pyspark.sql.streaming.state import GroupState

from benchmarks.common.stopwatch import Stopwatch
from dsv2.base.garbage_collector import patient_collector
from dsv2.graph import OperatorKind, Plan
from dsv2.runtime.exchange.edges import HashEdge
from dsv2.runtime.exchange.wire import decode_frame
from dsv2.runtime.operator.subtask import Subtask
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.sources import DataGeneratorSource, IndexedSource
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.rows import COLUMNS, FrameEncoder, Row
from runtime_spark.frames.worker import load_job, pack_job
from runtime_spark.source.feeds import IndexedFeed
from runtime_spark.source.frame_source import feed_for
from runtime_spark.source.source_read import IndexRange
from runtime_spark.task import stage

__all__ = ("REST", "OutsideSpark")

_PARTS: dict[str, tuple[object, str]] = {
    "make records": (DataGeneratorSource, "read"),
    "route": (SourceTask, "send"),
    "decode": (stage, "decode_frame"),
    "process and route": (Subtask, "receive"),
    "route by key": (HashEdge, "emit_batch"),
    "encode": (FrameEncoder, "emit"),
    "restore": (Subtask, "restore"),
    "snapshot": (Subtask, "snapshot_in_place"),
}
REST = "rest"
"""The part of everything that is not in another one."""


class KeptState(GroupState):
    """A replacement for Spark's state of a group."""

    def __init__(self) -> None:
        self.blob: bytes | bytearray | None = None

    @property
    def exists(self) -> bool:
        return self.blob is not None

    @property
    def get(self) -> tuple[Any, ...]:
        return (self.blob,)

    def update(self, newValue: tuple[Any, ...]) -> None:  # noqa: N803 - Spark's name
        (self.blob,) = newValue

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802 - Spark's name
        return 0


class OutsideSpark:
    """Runs a plan with one indexed source, subtask by subtask.

    Attributes:
        job: The job as workers see it.
        watches: The times of parts, by phase.
        sent: The rows that each phase has sent in the last micro-batch.
    """

    def __init__(self, plan: Plan, *, in_parts: bool = True) -> None:
        """``in_parts``: Whether to measure the parts of a phase. Otherwise all is ``REST``."""
        self._parts = _PARTS if in_parts else {}
        self.sent: dict[str, list[Row]] = {}
        self.watches: defaultdict[str, Stopwatch] = defaultdict(Stopwatch)
        self.states: defaultdict[int, KeptState] = defaultdict(KeptState)  # by slot
        self._layout = Layout.of(plan)
        self._packed = pack_job(plan, self._layout, TypeRegistry.of(plan))
        self.job = load_job(self._packed)
        self._source = next(operator for operator in plan.operators if operator.kind is OperatorKind.SOURCE)
        self._sinks = [operator for operator in plan.operators if operator.kind is OperatorKind.SINK]
        self._position = 0

    def run_batch(self, records: int) -> list[Any]:
        """Run a micro-batch of ``records`` records. Returns the records that reach the sinks."""
        begin, self._position = self._position, self._position + records
        watch = self.watches["source"]
        with watch.watching(self._parts), watch.part(REST), patient_collector():
            rows = self._read(begin)
        for level in range(len(self._layout.levels)):
            watch = self.watches[f"level {level + 1}"]
            with watch.watching(self._parts):
                rows = self.sent[f"level {level + 1}"] = self._run_level(level, rows, watch)
        with self.watches["sink"].part("decode"), patient_collector():
            return self._collect(rows)

    def _read(self, begin: int) -> list[Row]:
        assert isinstance(self._source.body, IndexedSource)
        feed = feed_for(self.job.plan, self._source.id, IndexedFeed(self._source.body))
        splits = [
            IndexRange(subtask, begin, self._position, begin == 0, False) for subtask in range(self._source.parallelism)
        ]
        return [row for split in splits for rows in feed.rows(self.job, self._source, split) for row in rows]

    def _run_level(self, level: int, rows: Iterable[Row], watch: Stopwatch) -> list[Row]:
        by_slot: dict[int, list[Row]] = {}
        for row in rows:
            by_slot.setdefault(row[0], []).append(row)
        run_slot = stage.streaming_stage(self._packed, level)
        sent: list[Row] = []
        for slot, own in by_slot.items():
            frame = pd.DataFrame(own, columns=list(COLUMNS))
            with watch.part(REST):
                results = list(run_slot((slot,), iter([frame]), self.states[slot]))
            for result in results:
                sent.extend(result.itertuples(index=False, name=None))
        return sent

    def _collect(self, rows: Iterable[Row]) -> list[Any]:
        slots = {slot for sink in self._sinks for slot in self._layout.slots_of(sink)}
        codec = self.job.codec()
        return [
            record
            for slot, _, _, payload in rows
            if slot in slots
            for record in decode_frame(codec, payload, "sink")[0].records
        ]
