"""Checks before a job starts which checkpoint the folders of file sinks belong to."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from dsv2.errors import ConfigurationError, IncompatibleCheckpointError
from dsv2.file_log import read_log
from dsv2.file_log.description import Description
from dsv2.file_log.names import is_hidden
from dsv2.file_log.state import has_log
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
            if _has_output(open_folder(spark, sink.path)):
                raise _occupied(operator, sink)


@dataclass(frozen=True, slots=True)
class OutputOwner:
    """Who writes to a folder: a job, which may continue from savepoints in several checkpoints, and its checkpoint."""

    job_id: str
    checkpoint_id: str

    def encoded(self) -> bytes:
        """Return the content of the file that identifies the owner."""
        return f"{self.job_id} {self.checkpoint_id}".encode()


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
    for operator, sink in _file_sinks(plan):
        with usable(_where(operator, sink)):
            folder = open_folder(spark, sink.path)
            if not _has_output(folder):
                continue
            found = folder.read(_OWNER)
        if found is None or found.split()[:1] != owner.encoded().split()[:1]:
            raise _occupied(operator, sink)
        if found != owner.encoded() and not takes_over:
            raise _taken_over(operator, sink)
        with usable(_where(operator, sink)):
            last = read_log(folder).last_batch
            description = Description.read(folder)
        if description is not None:
            description.check(folder, sink.format.value, sink.partition_by)
        if last >= first_batch:
            raise IncompatibleCheckpointError(
                f"{_where(operator, sink)} already has micro-batch {last}, but the state is older and continues with "
                f"micro-batch {first_batch}. Restore a newer checkpoint, or remove the later micro-batches, which are "
                f"then written again: dsv2 files truncate {sink.path} --after {first_batch - 1}"
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


def _has_output(folder: Folder) -> bool:
    """Whether a folder has output of a sink, or files of unknown origin."""
    if has_log(folder):
        state = read_log(folder)
        return state.last_batch >= 0
    return any(not is_hidden(name) for name in folder.tree(""))


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
