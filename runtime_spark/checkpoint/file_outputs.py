"""Checks before a job starts which checkpoint the folders of file sinks belong to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyspark.sql import SparkSession

from dsv2.base.clock import Clock
from dsv2.file_log.completion import Completion
from dsv2.file_log.ownership import OutputOwner, SinkPlace
from dsv2.graph import Plan
from dsv2.jobs.handle import RunOptions
from dsv2.sinks import FileSink
from runtime_spark.checkpoint.file_merges import SparkMerger
from runtime_spark.frames.failures import usable
from runtime_spark.platform.folders import open_folder


def check_outputs_unused(spark: SparkSession, plan: Plan) -> None:
    """Check the folders of a job without a checkpoint.

    Raises:
        ConfigurationError: Another run has written to a folder.
    """
    _each(spark, plan, lambda place, _: place.check_unused())


def check_outputs(spark: SparkSession, plan: Plan, owner: OutputOwner, first_batch: int, *, takes_over: bool) -> None:
    """Check the folders of a job that begins with micro-batch ``first_batch``.

    Args:
        spark: The session.
        plan: The job.
        owner: Who writes to the folders.
        first_batch: The number of the first micro-batch, as the sinks know it.
        takes_over: Whether the job may continue the output of another checkpoint of the same job, because it starts
            from a savepoint.

    Raises:
        ConfigurationError: Another job has written to a folder, or another checkpoint has taken it over.
        CorruptDataError: The log of a folder is damaged.
        IncompatibleCheckpointError: A folder has a micro-batch that is newer than the checkpoint.
    """

    def check(place: SinkPlace, sink: FileSink[object]) -> None:
        place.check(sink.format.value, sink.partition_by, owner, first_batch, takes_over=takes_over)

    _each(spark, plan, check)


def check_owned(spark: SparkSession, plan: Plan, owner: OutputOwner) -> None:
    """Check before each micro-batch that no other checkpoint has taken over the folders.

    Raises:
        ConfigurationError: One has.
    """
    _each(spark, plan, lambda place, _: place.check_owned(owner))


def own_outputs(spark: SparkSession, plan: Plan, owner: OutputOwner) -> None:
    """Record in the folders that they belong to this checkpoint."""
    _each(spark, plan, lambda place, _: place.own(owner))


def completion(
    spark: SparkSession, owner: OutputOwner, first_batch: int, clock: Clock, options: RunOptions
) -> Completion:
    """Return what completes the folders of former sinks. Parameters: ``Completion``."""
    opened, merger = partial(open_folder, spark), partial(SparkMerger, spark)
    return Completion(opened, merger, owner, first_batch, clock, options.allow_dropped_state)


def _each(spark: SparkSession, plan: Plan, call: Callable[[SinkPlace, FileSink[object]], None]) -> None:
    """Call ``call`` with the folder of each file sink."""
    for operator in plan.operators:
        if isinstance(sink := operator.body, FileSink):
            where = f"The sink {operator}, defined at {operator.location}: {sink.path}"
            with usable(where):
                call(SinkPlace(open_folder(spark, sink.path), sink.path, where), sink)
