"""Writes the frames of the last level to the sinks, for each micro-batch or for a batch job's result.

Sinks that are written in tasks or on the driver share one pass over the frames. Each file sink takes a pass of its own,
because Spark's writer has one output, so the frames are kept for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.storagelevel import StorageLevel

from dsv2.base.clock import Clock
from dsv2.base.garbage_collector import patient_collector
from dsv2.base.log_scope import LogScope, in_scope
from dsv2.checkpoint.task_report import TaskReport
from dsv2.connectors.files.table_files import check_writable
from dsv2.errors import ConfigurationError, SchemaError
from dsv2.file_log.schema import check_columns
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.wire import decode_frame
from dsv2.runtime.report.failure_limits import FailureLimits
from dsv2.runtime.report.sink_calls import begin, name_of, write_in_task
from dsv2.runtime.serde.codec import Codec
from dsv2.sinks import DriverSink, FileSink, FileSinkFormat, ParallelSink, SinkBatch, SinkInfo, SinkRunInfo
from runtime_spark.frames.failures import marked_failures
from runtime_spark.frames.layout import REPORT_SLOT, Layout
from runtime_spark.frames.rows import COLUMNS, ROW_SCHEMA, from_arrow, to_arrow
from runtime_spark.frames.rows import Row as FrameRow
from runtime_spark.frames.schema import schema_of
from runtime_spark.frames.tasks import Tasks
from runtime_spark.frames.worker import load_job
from runtime_spark.frames.worker_resources import worker_resources
from runtime_spark.platform.closures import from_bytes, to_bytes
from runtime_spark.sink.dataframe_function import RowsSink
from runtime_spark.sink.driver_sinks import DriverSinks
from runtime_spark.sink.file_sinks import SparkFileSinkWriter
from runtime_spark.sink.intermediate_frames import PassedReports
from runtime_spark.sink.sink_types import check_declared_type

_SLOT = COLUMNS.index("slot")


@dataclass(frozen=True)
class _Target:
    """A sink as its tasks see it."""

    name: str
    info: SinkInfo
    pickled: bytes


class ParallelSinks:
    """Writes the micro-batches of one run to the parallel sinks ``operators`` of a job. False if there are none."""

    def __init__(
        self, operators: Sequence[Operator], layout: Layout, packed: bytes, job_id: str, run: SinkRunInfo
    ) -> None:
        """``job_id``: Identifies the checkpoint. ``run``: The run that writes."""
        self._sinks: dict[str, ParallelSink[Any]] = {}
        self._targets: dict[str, _Target] = {}
        self._places: dict[int, tuple[str, int]] = {}  # slot -> (uid, subtask)
        for operator in operators:
            assert isinstance(operator.body, ParallelSink)
            uid, slots = operator.uid, layout.slots_of(operator)
            self._sinks[uid] = operator.body
            info = SinkInfo(job_id, uid, len(slots), run)
            self._targets[uid] = _Target(name_of(operator), info, to_bytes(operator.body))
            self._places |= {slot: (uid, subtask) for subtask, slot in enumerate(slots)}
        self._partitions = layout.partitions
        self._packed = packed

    def __bool__(self) -> bool:
        return bool(self._sinks)

    @property
    def slots(self) -> set[int]:
        """The slots of the sinks."""
        return set(self._places)

    def begin(self, batch_id: int) -> None:
        """Call ``begin`` of the sinks before the first micro-batch of the run. Raises ``JobError``."""
        for uid, sink in self._sinks.items():
            begin(sink, self._targets[uid].info, batch_id, self._targets[uid].name)

    def write(self, frames: DataFrame, batch_id: int) -> list[Row]:
        """Write the records in ``frames`` that are for the sinks, and return all other rows.

        Raises ``JobError``, or Spark's error for it.
        """
        packed, targets, places = self._packed, self._targets, self._places

        def write_slots(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            job = load_job(packed)
            codec, scope = job.codec(), LogScope(job.plan.job_name)
            sinks: dict[str, ParallelSink[Any]] = {}
            with marked_failures(), worker_resources(), patient_collector(), in_scope(scope):
                for slot, rows in groupby(from_arrow(batches), key=itemgetter(_SLOT)):
                    if slot not in places:
                        yield to_arrow(list(rows))
                        continue
                    uid, subtask = places[slot]
                    target = targets[uid]
                    if uid not in sinks:
                        sinks[uid] = from_bytes(target.pickled)
                    own = _record_batches(rows, codec, target.name)
                    if (first := next(own, None)) is not None:
                        batch = SinkBatch(target.info, subtask, batch_id, chain([first], own))
                        write_in_task(sinks[uid], batch, target.name)

        placed = frames.repartition(self._partitions, "slot").sortWithinPartitions("slot", "seq", "channel")
        return placed.mapInArrow(write_slots, ROW_SCHEMA).collect()


def _record_batches(rows: Iterable[FrameRow], codec: Codec, owner: str) -> Iterator[RecordBatch[object]]:
    for _, _, _, payload in rows:
        batch, _ = decode_frame(codec, payload, owner)
        if batch:
            yield batch


_IN_ORDER = [COLUMNS.index(name) for name in ("slot", "seq", "channel")]


def check_sink(plan: Plan, operator: Operator) -> None:
    """Raise a ``PlanError`` for a sink that is not supported, or whose schema does not fit its stream."""
    sink, where = operator.body, f"The sink {operator}, defined at {operator.location}"
    if isinstance(sink, FileSink):
        try:
            schema = schema_of(sink.schema)
            if sink.format is FileSinkFormat.PARQUET:  # Spark has more types than Arrow
                check_columns(schema.jsonValue(), sink.partition_by)
            else:
                check_writable(schema.jsonValue(), sink.format.value, sink.partition_by)
        except SchemaError as error:
            raise SchemaError(f"{where}: {error}") from error
        check_declared_type(plan, operator, schema)
    elif not isinstance(sink, DriverSink | ParallelSink | RowsSink):
        raise ConfigurationError(f"{where}, has a type that the Spark runtime does not support.")


class SinkWriter:
    """Writes to all sinks of a plan. Writing the same rows again with the same batch id gives the same result."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        layout: Layout,
        packed: bytes,
        job_id: str,
        run: SinkRunInfo,
        clock: Clock,
        passed_reports: PassedReports | None = None,
        on_driver: type[DriverSinks] = DriverSinks,
    ) -> None:
        """Create the writer.

        ``job_id``: Identifies the checkpoint.
        ``run``: The run that writes.
        ``passed_reports``: The reports of subtasks before a DataFrame. None (default): there are none.
        ``on_driver``: What writes to the sinks on the driver.
        """
        self._passed_reports = passed_reports
        self._plan = plan
        sinks = [operator for operator in plan.operators if operator.kind is OperatorKind.SINK]
        self.tasks = Tasks(plan, layout)
        self._layout = layout
        self._packed = packed
        self.files = [
            SparkFileSinkWriter(spark, operator, layout, packed, clock, run.run_id)
            for operator in sinks
            if isinstance(operator.body, FileSink)
        ]
        """The file sinks. What is written to them must be published when it is committed."""
        parallel = [operator for operator in sinks if isinstance(operator.body, ParallelSink)]
        self._parallel = ParallelSinks(parallel, layout, packed, job_id, run)
        self.limits = FailureLimits(plan)
        """Checks what operators have skipped, before sinks receive a micro-batch."""
        self.on_driver = on_driver(plan, layout, packed, job_id, run)
        """The sinks on the driver."""
        self._begun = False

    @property
    def writes_to(self) -> Operator | None:
        """The sink that the driver is writing to."""
        return self.on_driver.writes_to

    def write(self, frames: DataFrame, batch_id: int) -> TaskReport:
        """Write the rows of one micro-batch, and return the reports of its tasks."""
        with in_scope(LogScope(self._plan.job_name)):
            report = self._write(frames, batch_id)
        if self._passed_reports is None:
            return report
        passed = self._passed_reports.take()
        self._check_limits(passed)
        return TaskReport.joined([passed, report])

    def _check_limits(self, report: TaskReport) -> None:
        self.limits.check(report.subtasks, report.readers)

    def _write(self, frames: DataFrame, batch_id: int) -> TaskReport:
        self._begin(batch_id)
        if self.files or (self._parallel and self.limits):
            return self._write_in_steps(frames, batch_id)
        rows = self._parallel.write(frames, batch_id) if self._parallel else frames.collect()
        return self._write_on_driver(rows, batch_id)

    def _begin(self, batch_id: int) -> None:
        """Call ``begin`` of the sinks before the first micro-batch of the run. Raises ``JobError``."""
        if self._begun:
            return
        self._parallel.begin(batch_id)
        self.on_driver.begin(batch_id)
        self._begun = True

    def _write_in_steps(self, frames: DataFrame, batch_id: int) -> TaskReport:
        """Write the sinks that have records: each file sink with a Spark job of its own, then the others."""
        # The frames of a batch job may exceed memory, and every action would run the job again.
        frames = frames.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            payload = F.when(F.col("slot").isin(self._slots_on_driver()), F.col("payload")).alias("payload")
            rows = frames.select("slot", "channel", "seq", payload).collect()
            self._check_limits(TaskReport.decoded(row["payload"] for row in rows if row["slot"] == REPORT_SLOT))
            slots = {row["slot"] for row in rows}
            for files in self.files:
                if not slots.isdisjoint(self._layout.slots_of(files.operator)):
                    files.write(frames, batch_id)
            if not slots.isdisjoint(self._parallel.slots):
                self._parallel.write(frames.where(F.col("slot").isin(list(self._parallel.slots))), batch_id)
            return self._write_on_driver(rows, batch_id)
        finally:
            frames.unpersist()

    def _slots_on_driver(self) -> list[int]:
        return [REPORT_SLOT, *self.on_driver.slots]

    def _write_on_driver(self, rows: list[Row], batch_id: int) -> TaskReport:
        reports: list[bytes] = []
        outputs: dict[str, list[bytes]] = {uid: [] for uid in self.on_driver.slots.values()}
        lists = {slot: outputs[uid] for slot, uid in self.on_driver.slots.items()} | {REPORT_SLOT: reports}
        for slot, _, _, payload in sorted(rows, key=itemgetter(*_IN_ORDER)):
            if slot in lists:
                lists[slot].append(bytes(payload))
        del lists  # what a sink has received is freed
        report = TaskReport.decoded(reports)
        self._check_limits(report)
        self.on_driver.write(outputs, batch_id)
        return report
