"""Whose the folders of file sinks are: looked at before a job starts."""

from __future__ import annotations

from uuid import UUID

from pyspark.sql import SparkSession

from dsv2.errors import ConfigurationError, IncompatibleCheckpointError
from dsv2.graph import Operator, Plan
from dsv2.sinks import FileSink
from runtime_spark.failures import usable
from runtime_spark.folders import Folder, open_folder

__all__ = ("check_outputs", "check_outputs_unused", "own_outputs")

_OWNER = "_dsv2_checkpoint"  # readers pass over names that begin so


def check_outputs_unused(spark: SparkSession, plan: Plan) -> None:
    """For a job without a checkpoint. Raises ``ConfigurationError`` for a folder that another run has written to."""
    for operator, sink in _file_sinks(plan):
        with usable(_where(operator, sink)):
            if _micro_batches(open_folder(spark, sink.path)):
                raise _used(operator, sink)


def check_outputs(spark: SparkSession, plan: Plan, checkpoint_id: UUID, first_batch: int) -> None:
    """For a job that begins with ``first_batch`` of a checkpoint.

    Raises ``ConfigurationError`` for a folder that another job has written to, and ``IncompatibleCheckpointError`` if
    there are micro-batches that the checkpoint knows nothing of.
    """
    for operator, sink in _file_sinks(plan):
        with usable(_where(operator, sink)):
            folder = open_folder(spark, sink.path)
            there = _micro_batches(folder)
            owned = folder.read(_OWNER) == str(checkpoint_id).encode()
        if there and not owned:
            raise _used(operator, sink)
        if there and there[-1] > first_batch:
            raise IncompatibleCheckpointError(
                f"{_where(operator, sink)} has got micro-batch {there[-1]} already, and the checkpoint goes on with "
                f"micro-batch {first_batch}: it is older than what was written. Put back a newer checkpoint; or remove "
                f"the folders batch_id={first_batch} and following from {sink.path}, then they are written again."
            )


def own_outputs(spark: SparkSession, plan: Plan, checkpoint_id: UUID) -> None:
    """Make the folders those of this checkpoint."""
    for operator, sink in _file_sinks(plan):
        with usable(_where(operator, sink)):
            folder, owner = open_folder(spark, sink.path), str(checkpoint_id).encode()
            if folder.read(_OWNER) != owner:
                folder.write(_OWNER, owner)


def _file_sinks(plan: Plan) -> list[tuple[Operator, FileSink[object]]]:
    return [(operator, operator.body) for operator in plan.operators if isinstance(operator.body, FileSink)]


def _micro_batches(folder: Folder) -> list[int]:
    return folder.numbers("", prefix="batch_id=")


def _where(operator: Operator, sink: FileSink[object]) -> str:
    return f"The sink {operator}, defined at {operator.location}: {sink.path}"


def _used(operator: Operator, sink: FileSink[object]) -> ConfigurationError:
    return ConfigurationError(
        f"{_where(operator, sink)} holds the output of another run. Remove it, choose another path, or go on from that "
        f"run's checkpoint."
    )
