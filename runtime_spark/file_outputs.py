"""Checks before a job starts which checkpoint the folders of file sinks belong to."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from dsv2.errors import ConfigurationError, IncompatibleCheckpointError
from dsv2.folders import Folder
from dsv2.graph import Operator, Plan
from dsv2.sinks import FileSink
from runtime_spark.failures import usable
from runtime_spark.folders import open_folder

__all__ = ("OutputOwner", "check_outputs", "check_outputs_unused", "check_owned", "own_outputs")

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


@dataclass(frozen=True, slots=True)
class OutputOwner:
    """Who writes to a folder: a job, which may continue from savepoints in several checkpoints, and its checkpoint."""

    job_id: str
    checkpoint_id: str

    def encoded(self) -> bytes:
        """Return the content of the file that identifies the owner."""
        return f"{self.job_id} {self.checkpoint_id}".encode()


def check_outputs(
    spark: SparkSession, plan: Plan, owner: OutputOwner, first_batch: int, *, takes_over: bool, repeats: bool
) -> None:
    """Check the folders of a job that begins with micro-batch ``first_batch``.

    Args:
        spark: The session.
        plan: The job.
        owner: Who writes to the folders.
        first_batch: The number of the first micro-batch, as the sinks know it.
        takes_over: Whether the job may continue the output of another checkpoint of the same job, because it starts
            from a savepoint.
        repeats: Whether an earlier run of the same program may have written the first micro-batch.

    Raises:
        ConfigurationError: Another job has written to a folder, or another checkpoint has taken it over.
        IncompatibleCheckpointError: A folder has a micro-batch that is newer than the checkpoint.
    """
    for operator, sink in _file_sinks(plan):
        with usable(_where(operator, sink)):
            folder = open_folder(spark, sink.path)
            there = _micro_batches(folder)
            found = folder.read(_OWNER)
        if not any(_has_output(folder, number) for number in there):
            continue
        if found is None or found.split()[:1] != owner.encoded().split()[:1]:
            raise _occupied(operator, sink)
        if found != owner.encoded() and not takes_over:
            raise _taken_over(operator, sink)
        newer = [number for number in there if number >= first_batch + repeats and _has_output(folder, number)]
        if newer:
            raise IncompatibleCheckpointError(
                f"{_where(operator, sink)} already has micro-batch {newer[-1]}, but the state is older and continues "
                f"with micro-batch {first_batch}. Restore a newer checkpoint, start the program that wrote this "
                f"micro-batch, which then completes it, or remove the folders batch_id={first_batch} and later from "
                f"{sink.path}; they are then written again."
            )


def check_owned(spark: SparkSession, plan: Plan, owner: OutputOwner) -> None:
    """Check before each micro-batch that no other checkpoint has taken over the folders.

    Raises:
        ConfigurationError: One has.
    """
    for operator, sink in _file_sinks(plan):
        with usable(_where(operator, sink)):
            found = open_folder(spark, sink.path).read(_OWNER)
        if found is not None and found != owner.encoded():
            raise _taken_over(operator, sink)


def own_outputs(spark: SparkSession, plan: Plan, owner: OutputOwner) -> None:
    """Record in the folders that they belong to this checkpoint."""
    for operator, sink in _file_sinks(plan):
        with usable(_where(operator, sink)):
            folder = open_folder(spark, sink.path)
            if folder.read(_OWNER) != owner.encoded():
                folder.write(_OWNER, owner.encoded())


def _file_sinks(plan: Plan) -> list[tuple[Operator, FileSink[object]]]:
    return [(operator, operator.body) for operator in plan.operators if isinstance(operator.body, FileSink)]


def _micro_batches(folder: Folder) -> list[int]:
    return folder.numbers("", prefix="batch_id=")


def _has_output(folder: Folder, number: int) -> bool:
    """Whether readers see files of a micro-batch. A write that has failed leaves only a folder for temporary files."""
    return any(not name.startswith(("_", ".")) for name in folder.sizes(f"batch_id={number}"))


def _where(operator: Operator, sink: FileSink[object]) -> str:
    return f"The sink {operator}, defined at {operator.location}: {sink.path}"


def _occupied(operator: Operator, sink: FileSink[object]) -> ConfigurationError:
    return ConfigurationError(
        f"{_where(operator, sink)} holds the output of another run. Remove it, choose another path, or continue from "
        f"that run's checkpoint."
    )


def _taken_over(operator: Operator, sink: FileSink[object]) -> ConfigurationError:
    return ConfigurationError(
        f"{_where(operator, sink)} is written by a job that started from a savepoint of this one. Stop one of them. "
        f"To run both, start from the savepoint with as_new_job=True and another path."
    )
