"""The commands of ``dsv2`` that need Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from dsv2.base.clock import SystemClock
from dsv2.base.folders import Folder
from dsv2.checkpoint.record import JobRecord
from dsv2.file_log.completion import former_sink
from dsv2.graph import Plan
from dsv2.plan_view.runtime_view import RuntimeView
from runtime_spark.checkpoint.file_merges import SparkMerger
from runtime_spark.checkpoint.generation import read_generation
from runtime_spark.checkpoint.generations import Generations
from runtime_spark.checkpoint.state_metadata import check_state_metadata
from runtime_spark.frames.failures import job_failure, usable
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.session import SESSION_SETTINGS
from runtime_spark.frames.state_key import StateKey
from runtime_spark.job.runtime_view import runtime_view
from runtime_spark.platform.folders import open_folder
from runtime_spark.runtime import SparkRuntime
from runtime_spark.savepoint.create import create_savepoint
from runtime_spark.savepoint.state_entries import state_entries
from runtime_spark.savepoint.state_rows import ROWS_SCHEMA, RowMaker


def create(checkpoint: str, path: str, settings: Mapping[str, str], key_file: str | None) -> str:
    """Take a savepoint from a checkpoint and return its path.

    Args:
        checkpoint: The checkpoint.
        path: The folder of the savepoint.
        settings: Settings of the Spark session.
        key_file: A file with the key that signed the state; None: it is not signed.
    """
    return create_savepoint(checkpoint, path, spark=session(settings), state_key=state_key(key_file))


def open_files(path: str, settings: Mapping[str, str]) -> Folder:
    """Open the folder of a file sink on any file system. ``settings``: Settings of the Spark session."""
    with usable(path):
        return open_folder(session(settings), path)


def compact(path: str, target_bytes: int, settings: Mapping[str, str]) -> int:
    """Merge small files of a file sink whose job is not running. Returns the number of files that were replaced.

    Args:
        path: The folder of the sink.
        target_bytes: The approximate size of merged files.
        settings: Settings of the Spark session.
    """
    spark = session(settings)
    folder = open_files(path, settings)
    sink = former_sink(folder, SystemClock(), str(uuid4()))
    sink.begin(None)
    replaced = sink.compact(target_bytes, SparkMerger(spark, folder))
    sink.close()
    return replaced


def last(checkpoint: str, settings: Mapping[str, str]) -> tuple[JobRecord, str, Mapping[str, Any]]:
    """Return the job as of its last complete micro-batch, the id of the checkpoint, and the layout of its state."""
    spark = session(settings)
    with usable(f"The checkpoint {checkpoint}"):
        generation = read_generation(Generations(open_folder(spark, checkpoint)).current)
    return (
        generation.record,
        str(generation.stored.checkpoint_id),
        {
            "partitions": generation.stored.layout.partitions,
            "state": generation.stored.layout.state,
        },
    )


def verify(checkpoint: str, settings: Mapping[str, str], key_file: str | None) -> dict[str, Any]:
    """Read and decode all state of a checkpoint, and return the number of rows and bytes by operator.

    Args:
        checkpoint: The checkpoint.
        settings: Settings of the Spark session.
        key_file: A file with the key that signed the state; None: it is not signed.

    Raises:
        CorruptDataError: A file or the state of a subtask is damaged, or is not that of the last micro-batch.
        JobError: Spark cannot read the state.
    """
    key = state_key(key_file)
    spark = session(settings)
    with usable(f"The checkpoint {checkpoint}"):
        folder = Generations(open_folder(spark, checkpoint)).current
        generation = read_generation(folder)
        check_state_metadata(folder, folder.tree("state"))
    layout = generation.stored.layout
    make = RowMaker(layout.addresses, generation.history, layout.has_pages, key)
    size = F.coalesce(F.length("key_bytes"), F.lit(0)) + F.coalesce(F.length("value_bytes"), F.lit(0))
    try:
        rows = state_entries(spark, generation).mapInArrow(make, ROWS_SCHEMA)
        counted = rows.groupBy("uid").agg(F.count("*").alias("rows"), F.sum(size).alias("bytes")).collect()
    except Exception as error:
        raise job_failure(error, generation.record.job_name) from error
    operators = [{"operator": row["uid"], "rows": row["rows"], "bytes": row["bytes"]} for row in counted]
    return {"batch_id": generation.batch_id, "operators": sorted(operators, key=lambda row: str(row["operator"]))}


def state_key(key_file: str | None) -> StateKey | None:
    """Return the key in a file; None without a file."""
    return None if key_file is None else StateKey.from_file(key_file)


def session(settings: Mapping[str, str]) -> SparkSession:
    """Return the Spark session, started with ``settings`` if there is none. The default master is this machine."""
    builder = SparkSession.builder.appName("dsv2").config(map=dict(SESSION_SETTINGS))
    if "spark.master" not in settings and SparkSession.getActiveSession() is None:
        builder = builder.master("local[*]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.log.level", "FATAL").config("spark.ui.showConsoleProgress", "false")
    return builder.config(map=dict(settings)).getOrCreate()


def runtime(settings: Mapping[str, str], key_file: str | None) -> tuple[SparkRuntime, SparkSession]:
    """Return a runtime and its session. ``key_file``: A file with the key that signs the state; None: no signature."""
    spark = session(settings)
    return SparkRuntime(spark, state_key=state_key(key_file)), spark


def runtime_view_of(plan: Plan) -> RuntimeView:
    """Return how Spark would run ``plan`` with the default settings. Starts no session."""
    return runtime_view(plan, Layout.of(plan))
