"""Checks before a job starts which checkpoint the folders of file sinks belong to."""

from __future__ import annotations

from uuid import UUID

from pyspark.sql import SparkSession

from dsv2.errors import ConfigurationError, IncompatibleCheckpointError
from dsv2.folders import Folder
from dsv2.graph import Operator, Plan
from dsv2.sinks import FileSink
from runtime_spark.failures import usable
from runtime_spark.folders import open_folder

__all__ = ("check_outputs", "check_outputs_unused", "own_outputs")

_OWNER = "_dsv2_checkpoint"  # readers skip names that begin with an underscore


def check_outputs_unused(spark: SparkSession, plan: Plan) -> None:
    """Check the folders of a job without a checkpoint.

    Raises:
        ConfigurationError: Another run has written to a folder.
    """
    for operator, sink in _file_sinks(plan):
        with usable(_where(operator, sink)):
            if _micro_batches(open_folder(spark, sink.path)):
                raise _occupied(operator, sink)


def check_outputs(spark: SparkSession, plan: Plan, checkpoint_id: UUID, first_batch: int) -> None:
    """Check the folders of a job that begins with micro-batch ``first_batch`` of a checkpoint.

    Raises:
        ConfigurationError: Another job has written to a folder.
        IncompatibleCheckpointError: A folder has a micro-batch that is newer than the checkpoint.
    """
    for operator, sink in _file_sinks(plan):
        with usable(_where(operator, sink)):
            folder = open_folder(spark, sink.path)
            there = _micro_batches(folder)
            owned = folder.read(_OWNER) == str(checkpoint_id).encode()
        if there and not owned:
            raise _occupied(operator, sink)
        if there and there[-1] > first_batch:
            raise IncompatibleCheckpointError(
                f"{_where(operator, sink)} already has micro-batch {there[-1]}, but the checkpoint is older and "
                f"continues with micro-batch {first_batch}. Restore a newer checkpoint, or remove the folders "
                f"batch_id={first_batch} and later from {sink.path}; they are then written again."
            )


def own_outputs(spark: SparkSession, plan: Plan, checkpoint_id: UUID) -> None:
    """Record in the folders that they belong to this checkpoint."""
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


def _occupied(operator: Operator, sink: FileSink[object]) -> ConfigurationError:
    return ConfigurationError(
        f"{_where(operator, sink)} holds the output of another run. Remove it, choose another path, or continue from "
        f"that run's checkpoint."
    )
