"""``create_savepoint``: takes a savepoint from a checkpoint."""

from __future__ import annotations

from os import PathLike, fspath
from uuid import uuid4

from msgspec.structs import replace
from pyspark.sql import SparkSession

from dsv2.base.folders import Folder
from dsv2.checkpoint.record import extended
from dsv2.checkpoint.replayed_letters import with_values
from dsv2.dead_letters.replay import PendingReplay
from dsv2.savepoint.metadata import SavepointInfo, write_info
from dsv2.savepoint.writer import check_unused
from runtime_spark.checkpoint.generation import Generation, read_generation
from runtime_spark.checkpoint.generations import Generations
from runtime_spark.checkpoint.state_metadata import check_state_metadata, relocate_state_metadata
from runtime_spark.frames.failures import job_failure, usable
from runtime_spark.frames.state_key import StateKey
from runtime_spark.platform.connect import check_classic
from runtime_spark.platform.executors import use_this_python
from runtime_spark.platform.folders import open_folder
from runtime_spark.platform.versions import check_spark
from runtime_spark.savepoint.state_entries import state_entries
from runtime_spark.savepoint.state_rows import ROWS_SCHEMA, RowMaker, local_rows, persisted_rows
from runtime_spark.savepoint.tables import file_digests, holding_operators, write_tables


def create_savepoint(
    checkpoint_location: str | PathLike[str],
    path: str | PathLike[str],
    *,
    spark: SparkSession,
    state_key: StateKey | None = None,
) -> str:
    """Take a savepoint from a checkpoint, as of its last committed micro-batch. The program is not needed.

    The job may have been stopped, have crashed, or be running. To start from the savepoint: ``execute(...,
    savepoint=path)``.

    Args:
        checkpoint_location: The checkpoint.
        path: A folder that does not exist or is empty, on any file system that Spark can reach.
        spark: The session.
        state_key: The key of the job, if its state is signed.

    Returns:
        The path of the savepoint.

    Raises:
        ConfigurationError: ``path`` is not empty, or ``checkpoint_location`` is not a checkpoint with state.
        IncompatibleCheckpointError: The checkpoint was written by another version of dsv2.
        CorruptDataError: A file of the checkpoint or the state in it is damaged.
        JobError: Spark cannot read the state or write the savepoint.

    Source: Flink ``flink savepoint``.
    """
    check_classic(spark, "create_savepoint")
    check_spark(spark)
    use_this_python(spark)
    folder = check_unused_path(spark, path)
    with usable(f"The checkpoint_location {fspath(checkpoint_location)}"):
        checkpoint = Generations(open_folder(spark, fspath(checkpoint_location))).current
        take_savepoint(spark, checkpoint, folder, state_key)
    return folder.path


def take_savepoint(
    spark: SparkSession,
    checkpoint: Folder,
    folder: Folder,
    state_key: StateKey | None,
    replay: PendingReplay | None = None,
) -> None:
    """Take a savepoint from one generation of a checkpoint.

    Args:
        spark: The session.
        checkpoint: The generation.
        folder: The folder of the savepoint.
        state_key: The key of the job, if its state is signed.
        replay: Dead letters that are processed again when the savepoint is restored.

    Raises:
        ConfigurationError: No micro-batch is complete.
        IncompatibleCheckpointError: The checkpoint was written by another version of dsv2.
        CorruptDataError: A file of the checkpoint or the state in it is damaged.
        JobError: Spark cannot read the state or write the savepoint.
    """
    generation = read_generation(checkpoint)
    files = checkpoint.tree("state")
    check_state_metadata(checkpoint, files)
    relocate_state_metadata(checkpoint, files)
    try:
        _write(spark, generation, folder, state_key, replay)
    except Exception as error:
        raise job_failure(error, generation.record.job_name) from error


def check_unused_path(spark: SparkSession, path: str | PathLike[str]) -> Folder:
    """Open the folder of a new savepoint. Raises ``ConfigurationError`` if it is in use."""
    with usable(f"The path {fspath(path)} of the savepoint"):
        folder = open_folder(spark, fspath(path))
        check_unused(folder)
    return folder


def _write(
    spark: SparkSession,
    generation: Generation,
    folder: Folder,
    state_key: StateKey | None,
    replay: PendingReplay | None,
) -> None:
    rows = state_entries(spark, generation).mapInArrow(RowMaker.of(generation, state_key), ROWS_SCHEMA)
    record = generation.record
    if replay is not None:
        key = None if state_key is None else state_key.value
        rows = rows.unionAll(local_rows(spark, replay.rows(key)))
        sources = with_values(record.sources, replay.values(key))
        record = replace(record, sources=sources, replays=replay.after)
    rows = persisted_rows(rows, generation)
    try:
        tables = write_tables(rows, folder, record.program)
        holding = holding_operators(rows, record.program)
    finally:
        rows.unpersist()
    info = extended(
        SavepointInfo,
        replace(record, holding=holding),
        savepoint_id=str(uuid4()),
        tables=tables,
        files=file_digests(spark, folder, tables),
        spark=spark.version,
    )
    write_info(folder, info)
