"""Starts plans as Spark queries: checks the session and the checkpoint, and builds the job."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any, Literal
from urllib.parse import urlparse

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dsv2.base.clock import Clock, SystemClock
from dsv2.base.folders import Folder
from dsv2.checks.arguments import as_choice, check_whole_number
from dsv2.errors import ConfigurationError
from dsv2.graph import OperatorKind, Plan
from dsv2.graph.record_skips import with_skips
from dsv2.graph.uids import check_uids
from dsv2.jobs.configuration import configuration_of
from dsv2.jobs.handle import JobHandle, RunOptions, Trigger, check_batch_options, default_trigger
from dsv2.jobs.progress_log import ProgressLog
from dsv2.model.context import RuntimeExecutionMode
from dsv2.plan_view.runtime_view import RuntimeView
from dsv2.runtime.report.job_listeners import JobListeners
from dsv2.runtime.report.job_reports import JobReports
from dsv2.sinks import SinkRunInfo
from runtime_spark.checkpoint.dead_letters import batch_letters
from runtime_spark.checkpoint.file_outputs import check_outputs_unused
from runtime_spark.checkpoint.run_files import RunFiles
from runtime_spark.checkpoint.source_reports import ReportArchive
from runtime_spark.compiler import CompiledPlan, PlanCompiler
from runtime_spark.frames.failures import job_failure, usable
from runtime_spark.frames.layout import Layout, StateLayout
from runtime_spark.frames.session import for_frames, settings, starting
from runtime_spark.frames.state_key import StateKey
from runtime_spark.frames.state_limit import StateSizes
from runtime_spark.frames.worker_logging import check_logging
from runtime_spark.job.batch_job import BatchJob
from runtime_spark.job.connect_job import ConnectJob
from runtime_spark.job.micro_batch_writer import MicroBatchWriter
from runtime_spark.job.progress_thread import ProgressThread
from runtime_spark.job.query import StreamingJob
from runtime_spark.job.runtime_view import runtime_view
from runtime_spark.job.server_run import ServerRun
from runtime_spark.platform.available_now import is_announced
from runtime_spark.platform.connect import check_runs_on, is_connect
from runtime_spark.platform.executors import check_executors, check_planners, use_this_python
from runtime_spark.platform.folders import driver_folder, open_folder
from runtime_spark.platform.log_filter import leave_out_warnings
from runtime_spark.platform.versions import check_spark
from runtime_spark.savepoint.restore_frames import RESTORE_SETTINGS
from runtime_spark.sink.driver_sinks import DriverSinks, StoredOutputs
from runtime_spark.sink.intermediate_frames import check_passages
from runtime_spark.sink.sink_types import with_schema_checks
from runtime_spark.sink.sinks import check_sink
from runtime_spark.source.sources import SourceOptions, source_streams
from runtime_spark.source.split_files import SplitFiles
from runtime_spark.start.checkpoint import Checkpoint
from runtime_spark.start.migration import choose_generation
from runtime_spark.task.map_stage import check_map_state

_BATCH_JOBS = itertools.count()  # of this process


class SparkRuntime:
    """Runs plans on the user's session. It never stops the session, and leaves its settings unchanged.

    Workers of a session on one machine run this Python, unless PYSPARK_PYTHON names another.

    ``get_instance(spark=session)`` creates one with the default settings. For other settings, create it yourself:
    ``get_instance(SparkRuntime(session, state_layout=StateLayout.MAP))``.

    Args:
        spark: The session.
        clock: The wall clock. None (default): the system clock.
        partitions: The number of Spark tasks into which the subtasks of a stage are grouped. Another number migrates
            the checkpoint. None (default): the highest parallelism of the operators. A lower number, such as the number
            of cores, distributes the subtasks of an operator with a higher parallelism evenly over the tasks, which
            helps if some keys are much more frequent than others.
        state_layout: How Spark stores the state of streaming jobs; ``docs/state.md`` helps to choose.
        state_key: Signs the state in the checkpoint (``docs/security.md``). None (default): the state is not signed.
        worker_logging: Configures the standard module ``logging`` in Python workers, as for
            ``logging.config.dictConfig`` (``docs/metrics.md``). None (default): workers write warnings and errors to
            their standard error.

    Raises:
        ConfigurationError: ``partitions`` is below 1, a package that ``state_layout`` requires is not installed, or
            ``worker_logging`` is not a configuration.
    """

    def __init__(
        self,
        spark: SparkSession,
        clock: Clock | None = None,
        *,
        partitions: int | None = None,
        state_layout: StateLayout | Literal["blob", "map"] = StateLayout.BLOB,
        state_key: StateKey | None = None,
        worker_logging: Mapping[str, Any] | None = None,
    ) -> None:
        if partitions is not None:
            check_whole_number(partitions, "partitions")
        layout = as_choice(StateLayout, state_layout, "state_layout")
        if layout is StateLayout.MAP:
            check_map_state()
        use_this_python(spark)
        self._spark = spark
        self._partitions = partitions
        self._clock = clock if clock is not None else SystemClock()
        self._state_layout = layout
        self._state_key = state_key
        logging = None if worker_logging is None else check_logging(worker_logging)
        self._compiler = PlanCompiler(spark, self._clock, state_key, logging)

    def compile(
        self, plan: Plan, options: SourceOptions | None = None, checkpoint: Checkpoint | None = None
    ) -> CompiledPlan:
        """Convert ``plan`` to a DataFrame. Nothing runs, except to count rows of a batch DataFrame in a streaming job.

        Args:
            plan: The plan.
            options: How the sources of a streaming job read, if this runtime starts its query.
            checkpoint: The checkpoint from which the query starts. None (default): there is none.

        Raises:
            PlanError: A source is not valid.
            JobError: Spark cannot create the DataFrame.
            ConfigurationError: The session is one of Spark Connect, which cannot run the plan.
        """
        check_runs_on(self._spark, plan)
        try:
            return self._compiler.compile(plan, self._layout_of(plan), options or SourceOptions(), checkpoint)
        except PySparkException as error:
            raise job_failure(error, plan.job_name) from error

    def runtime_view(self, plan: Plan) -> RuntimeView:
        """Return how this runtime would run ``plan``, for ``ExecutionEnvironment.explain``. Nothing runs."""
        return runtime_view(plan, self._layout_of(plan))

    def configuration(self) -> Mapping[str, str]:
        """Return the settings of the session and of this runtime, for dashboards."""
        return self._own_configuration() | self._spark.conf.getAll

    def _own_configuration(self) -> dict[str, str]:
        return {
            "Spark": self._spark.version,
            "partitions": "highest parallelism" if self._partitions is None else str(self._partitions),
            "state_layout": self._state_layout.value,
            "state_key": "none" if self._state_key is None else "set",
        }

    def open_folder(self, path: str) -> Folder:
        """Open a folder on any file system, for dashboards."""
        return open_folder(self._spark, path)

    def start(self, plan: Plan, options: RunOptions) -> JobHandle:
        """Start to run ``plan``. All errors below are raised before anything has run.

        Raises:
            ConfigurationError: The version of Spark is not supported, or an option is not valid.
            PlanError: A source or sink is not valid.
            IncompatibleCheckpointError: The program cannot continue from the checkpoint.
        """
        check_spark(self._spark)
        check_runs_on(self._spark, plan)
        leave_out_warnings(self._spark)
        streaming = plan.mode is RuntimeExecutionMode.STREAMING
        if streaming:
            check_planners(self._spark)
        check_executors(self._spark, map_state=streaming and self._state_layout is StateLayout.MAP)
        for operator in plan.operators:
            if operator.kind is OperatorKind.SINK:
                check_sink(plan, operator)
        plan = with_schema_checks(self._spark, plan)
        if options.trace_records:
            plan = replace(plan, traces=True)
        return self._start_streaming(plan, options) if streaming else self._start_batch(plan, options)

    def _start_batch(self, plan: Plan, options: RunOptions) -> BatchJob:
        check_batch_options(options)
        check_outputs_unused(self._spark, plan)
        plan = with_skips(plan, options.skip_records)
        job_id = f"{self._spark.conf.get('spark.app.id')}-{next(_BATCH_JOBS)}"
        run = SinkRunInfo(job_id)
        letters = batch_letters(self._spark, plan, options, job_id)
        compiled = self.compile(plan)
        writer = compiled.sink_writer(self._spark, plan, job_id, run, self._clock)
        return BatchJob(plan, compiled.frames, writer, letters, self._clock, JobListeners(options.listeners))

    def _start_streaming(self, plan: Plan, options: RunOptions) -> StreamingJob | ConnectJob:
        location = _checkpoint(options.checkpoint_location)
        check_uids(plan)
        trigger = options.trigger or default_trigger(plan)
        with ExitStack() as stack:
            if is_connect(self._spark):
                with usable(f"The checkpoint_location {location}"):
                    files = RunFiles(open_folder(self._spark, location))
                    stack.callback(files.remove)
                    reports = files.make_readers()
            else:
                files = None
                folder = TemporaryDirectory(prefix="dsv2-reports-", dir=driver_folder(self._spark))
                reports = stack.enter_context(folder)
            job, compiled, generation = self._prepare(plan, location, trigger, reports, options, files)
            self._start_query(job, compiled, plan.job_name, f"{location}{generation}", trigger)
            kept = stack.pop_all()
            if files is None:  # on a server, the query continues without this process
                weakref.finalize(job, kept.close)
        return job

    def _prepare(
        self, plan: Plan, location: str, trigger: Trigger, reports: str, options: RunOptions, files: RunFiles | None
    ) -> tuple[StreamingJob | ConnectJob, CompiledPlan, str]:
        """Check the checkpoint, compile the plan and acquire the lease.

        ``reports``: The folder for reader reports. ``files``: Those of the run on Spark Connect. Returns the job, its
        query, and the path of the generation below ``location``.
        """
        layout = self._layout_of(plan)
        with usable(f"The checkpoint_location {location}"):
            root = open_folder(self._spark, location)
            chosen = choose_generation(self._spark, root, plan, layout, options, self._state_key)
            checkpoint = Checkpoint(self._spark, chosen, plan, layout, options, self._clock)
            plan = with_skips(plan, checkpoint.unblocking.skips)
            restoration = checkpoint.restoration
            positions = {} if restoration is None else restoration.record.sources
            archive = ReportArchive(checkpoint.folder, chosen.generation.reports, plan, reports)
            archive.restore({uid: position.reports for uid, position in positions.items()})
        only_available = trigger.interval_ms is None
        source_options = SourceOptions(reports, trigger.target_batch_ms, positions, only_available)
        compiled = self.compile(plan, source_options, checkpoint)
        with usable(f"The checkpoint_location {location}"):
            lease, run = checkpoint.begin(source_streams(plan, restores=restoration is not None))
        outputs = DriverSinks if files is None else StoredOutputs
        sinks = compiled.sink_writer(self._spark, plan, checkpoint.job_id, run, self._clock, outputs)
        log = ProgressLog(root, checkpoint.next_batch, configuration_of(plan, options, self._own_configuration()))
        view = runtime_view(plan, compiled.layout)
        splits, listeners = SplitFiles(plan, reports), JobListeners(options.listeners)
        job: StreamingJob | ConnectJob
        if files is not None:
            claim = lease.claim
            server_run = ServerRun(
                plan,
                compiled.layout,
                sinks,
                archive,
                splits,
                checkpoint,
                claim,
                files,
                log,
                self._clock,
                only_available,
            )
            own = DriverSinks(plan, compiled.layout, compiled.packed, checkpoint.job_id, run)
            job = ConnectJob(self._spark, server_run, own, lease, listeners, view, self._state_key)
            return job, compiled, chosen.path_below_root
        job_reports = JobReports(
            plan, checkpoint.ended_sources(), log.before, is_new=checkpoint.next_batch == 0, in_portions=True
        )
        job = StreamingJob(
            self._spark,
            plan,
            MicroBatchWriter(sinks, archive, splits, checkpoint, lease),
            job_reports,
            StateSizes(plan, compiled.layout),
            ProgressThread(plan, job_reports, log, listeners, view),
            self._clock,
            only_available=only_available,
            state_key=self._state_key,
        )
        return job, compiled, chosen.path_below_root

    def _start_query(
        self, job: StreamingJob | ConnectJob, compiled: CompiledPlan, name: str, location: str, trigger: Trigger
    ) -> None:
        writer = (
            compiled.frames.writeStream.queryName(name)
            .outputMode("append")
            .option("checkpointLocation", location)
            .foreachBatch(job.write_batch)
        )
        if trigger.interval_ms is None and is_announced(self._spark):
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{trigger.interval_ms or 0} milliseconds")
        layout, unchecked = compiled.layout, compiled.unchecked
        with (
            settings(self._spark, RESTORE_SETTINGS if compiled.restores else {}),
            settings(self._spark, for_frames(self._spark, location, layout.state) if compiled.only_frames else {}),
            starting(
                self._spark, layout.partitions, unchecked=unchecked, checkpoint=location, state_layout=layout.state
            ),
        ):
            job.start(writer.start)

    def _layout_of(self, plan: Plan) -> Layout:
        layout = Layout.of(plan, self._partitions, self._state_layout)
        return replace(layout, dataframes=check_passages(self._spark, plan)) if plan.passages else layout


def _checkpoint(location: str | None) -> str:
    if not location:
        raise ConfigurationError(
            "A STREAMING job on Spark requires a checkpoint: execute(..., checkpoint_location=a folder of its own). "
            "A later start with the same folder continues from there."
        )
    return location.rstrip("/") if urlparse(location).scheme else os.path.abspath(location)
