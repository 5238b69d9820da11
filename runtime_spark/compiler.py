"""Compiles a plan to a DataFrame: sources, levels, and what restores a savepoint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.streaming.state import GroupStateTimeout

from dsv2.base.clock import Clock
from dsv2.graph import OperatorKind, Plan
from dsv2.model.context import RuntimeExecutionMode
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.sinks import FileSink, SinkRunInfo
from dsv2.sources import DataFrameSource
from runtime_spark.frames.layout import GROUP, Layout, StateLayout
from runtime_spark.frames.rows import ROW_SCHEMA
from runtime_spark.frames.state_key import StateKey
from runtime_spark.frames.worker import RestoredProgram, pack_job, pack_part
from runtime_spark.savepoint.restore_frames import restore_frames
from runtime_spark.sink.driver_sinks import DriverSinks
from runtime_spark.sink.intermediate_frames import PassedReports, passed
from runtime_spark.sink.sinks import SinkWriter
from runtime_spark.source.sources import SourceOptions, check_source, source_frames, tick
from runtime_spark.start.checkpoint import Checkpoint
from runtime_spark.start.restoration import Restoration
from runtime_spark.task.map_stage import with_map_state
from runtime_spark.task.stage import STATE_SCHEMA, batch_stage, streaming_stage


@dataclass(frozen=True)
class CompiledPlan:
    """A plan as a DataFrame of frames for its sinks.

    Attributes:
        layout: The layout of the plan.
        packed: The job for the workers.
        frames: The DataFrame.
        unchecked: Whether Spark's check of streaming queries would reject the DataFrame.
        restores: Whether the DataFrame restores a savepoint.
        only_frames: Whether all rows that Spark handles are frames, which hold many records each.
        reports: The reports of subtasks that do not arrive in ``frames``. None: there are none.
    """

    layout: Layout
    packed: bytes
    frames: DataFrame
    unchecked: bool
    restores: bool = False
    only_frames: bool = False
    reports: PassedReports | None = None

    def sink_writer(
        self,
        spark: SparkSession,
        plan: Plan,
        job_id: str,
        run: SinkRunInfo,
        clock: Clock,
        on_driver: type[DriverSinks] = DriverSinks,
    ) -> SinkWriter:
        """Return the writer of the sinks of ``plan``, which is this one. Parameters: those of ``SinkWriter``."""
        return SinkWriter(spark, plan, self.layout, self.packed, job_id, run, clock, self.reports, on_driver)


@dataclass(frozen=True)
class PlanCompiler:
    """Compiles plans for a session.

    Attributes:
        spark: The session.
        clock: The wall clock.
        state_key: Signs the state. None: it is not signed.
        worker_logging: Configures the logging of workers. None: it is not configured.
    """

    spark: SparkSession
    clock: Clock
    state_key: StateKey | None
    worker_logging: Mapping[str, Any] | None

    def compile(
        self, plan: Plan, layout: Layout, options: SourceOptions, checkpoint: Checkpoint | None
    ) -> CompiledPlan:
        """Compile ``plan``. See ``SparkRuntime.compile``."""
        for operator in plan.operators:
            if operator.kind is OperatorKind.SOURCE:
                check_source(operator)
        restoration = None if checkpoint is None else checkpoint.restoration
        savepoint = None if restoration is None else restoration.savepoint
        origin = None
        if restoration is not None and savepoint is not None:
            origin = RestoredProgram(savepoint.info.program, restoration.sent(plan))
        packed = pack_job(
            plan,
            layout,
            TypeRegistry.of(plan),
            self.state_key,
            None if checkpoint is None else checkpoint.history,
            origin,
            None if checkpoint is None else checkpoint.traced_batch,
            self.worker_logging,
        )
        sections = _Sections(self, plan, layout, packed, options, restoration)
        frames = sections.begin(0)
        reports = PassedReports(self.spark) if plan.passages else None
        ends = _ends_of_sections(plan, layout)
        for level in range(len(layout.levels) + 1):
            for section, end in enumerate(ends, start=1):
                if end == level:
                    assert reports is not None
                    passage = plan.passages[section - 1]
                    rows = passed(frames, plan, passage, layout, sections.of_sources, reports)
                    frames = sections.begin(section, rows)
            if level < len(layout.levels):
                frames = sections.add_level(frames, level)
        reads_rows = any(isinstance(operator.body, DataFrameSource) for operator in plan.operators)
        unchecked = reads_rows or len(layout.levels) > 1
        restores = savepoint is not None
        writes_rows = any(isinstance(operator.body, FileSink) for operator in plan.operators)
        only_frames = not (reads_rows or writes_rows or restores)
        return CompiledPlan(
            layout,
            sections.of_sources,
            frames,
            unchecked=unchecked,
            restores=restores,
            only_frames=only_frames,
            reports=reports,
        )


@dataclass(frozen=True)
class _Sections:
    """The DataFrames of the sections of a plan, which passages divide. ``packed``: The job, for the workers."""

    compiler: PlanCompiler
    plan: Plan
    layout: Layout
    packed: bytes
    options: SourceOptions
    restoration: Restoration | None

    @cached_property
    def of_sources(self) -> bytes:
        """The part of the job that sources and sinks need."""
        return pack_part(self.packed)

    def begin(self, section: int, rows: DataFrame | None = None) -> DataFrame:
        """Return the frames of the sources of a section and of ``rows``, and those that restore its subtasks."""
        spark, clock = self.compiler.spark, self.compiler.clock
        job_key = hashlib.sha256(self.packed).hexdigest()[:16]
        frames = source_frames(spark, self.plan, self.of_sources, job_key, clock, self.options, section, rows)
        if self.restoration is None:
            return frames
        # Last in the section, and in every run, because Spark logs the offsets of sources by their order.
        ticks = tick(spark, self.of_sources, job_key, clock, only_available=self.options.only_available)
        restoring = restore_frames(spark, self.restoration.savepoint, self.packed, ticks)
        if self.plan.passages:
            sections = self.plan.sections
            own = [slot for slot, (operator, _) in self.layout.addresses.items() if sections[operator] == section]
            restoring = restoring.where(F.col("slot").isin(own))
        return frames.unionAll(restoring)

    def add_level(self, frames: DataFrame, level: int) -> DataFrame:
        """Return ``frames`` after a level."""
        plan, layout = self.plan, self.layout
        chained = [operator for head in layout.levels[level] for operator in plan.chains[head]]
        packed = pack_part(self.packed, {operator.id for operator in chained})
        if plan.mode is RuntimeExecutionMode.BATCH:
            placed = frames.repartition(layout.partitions, "slot").sortWithinPartitions("slot", "seq", "channel")
            return placed.mapInArrow(batch_stage(packed, level, self.compiler.clock.now_ms()), ROW_SCHEMA)
        frames = frames.withColumn(GROUP, F.expr(layout.group_at(level)))
        timed = any(map(plan.needs_clock, chained))
        if layout.state is StateLayout.MAP:
            return with_map_state(frames, packed, level, timed=timed)
        timeout = GroupStateTimeout.ProcessingTimeTimeout if timed else GroupStateTimeout.NoTimeout
        stage = streaming_stage(packed, level, timed=timed)
        return frames.groupBy(GROUP).applyInPandasWithState(stage, ROW_SCHEMA, STATE_SCHEMA, "append", timeout)


def _ends_of_sections(plan: Plan, layout: Layout) -> list[int]:
    """For each section but the last, the number of levels before its end."""
    return [sum(plan.sections[level[0]] <= section for level in layout.levels) for section in range(len(plan.passages))]
