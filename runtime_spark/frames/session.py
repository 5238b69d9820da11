"""Settings of the user's session that a query needs only while it starts."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from pyspark.sql import SparkSession

from dsv2.base.folders import Folder, LocalFolder
from runtime_spark.frames.layout import StateLayout
from runtime_spark.platform.folders import open_folder

SESSION_SETTINGS: Mapping[str, str] = MappingProxyType({"spark.python.unix.domain.socket.enabled": "true"})
"""Settings for the builder of your session that make micro-batches of small jobs faster."""

SHARED_FOLDERS = "spark.dsv2.sharedFolders"
"""The setting with the folders, separated by commas, that all machines of a cluster have mounted at the same path."""

# On a local disk, the default manager of checkpoint files starts processes to set permissions; this one rarely does.
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_FOR_LOCAL_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

# A query copies the session's settings when it starts. Two queries must not start with each other's settings.
_STARTING = threading.RLock()
_MAP_SETTINGS = {
    # The only state store with maps.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A micro-batch commits its changes instead of a snapshot of the whole store.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Otherwise each write of a page looks the page up first, for a metric.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
_PARQUET_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # many readers misread INT96, which is the default
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
_WRITING: dict[int, tuple[dict[str, str | None], int]] = {}
"""For each session with writers of Parquet: its settings before, and the number of writers."""


@contextmanager
def starting(
    spark: SparkSession,
    partitions: int,
    *,
    unchecked: bool = True,
    checkpoint: str | None = None,
    state_layout: StateLayout = StateLayout.BLOB,
) -> Iterator[None]:
    """Set up ``spark`` to start a streaming query of dsv2. The previous settings are restored afterwards.

    The runtime does this itself. You need it only around ``start()`` of your own query over ``to_dataframe``.

    Args:
        spark: The session.
        partitions: The parallelism of the pipeline.
        unchecked: Whether the pipeline has several levels or reads a DataFrame, which Spark's check of streaming
            queries rejects. Default: True.
        checkpoint: The checkpoint. On the local disk of a session on one machine, or in a folder that
            ``spark.dsv2.sharedFolders`` declares, its files are then written faster, unless your settings choose a file
            manager. None (default): the file manager does not change.
        state_layout: The state layout of the runtime.
    """
    needed = {"spark.sql.shuffle.partitions": str(partitions)}
    if unchecked:
        # Spark rejects a second applyInPandasWithState in a query, and row ids, but it runs both correctly.
        needed["spark.sql.streaming.unsupportedOperationCheck"] = "false"
    if state_layout is StateLayout.MAP:
        needed |= _MAP_SETTINGS
    with _STARTING:
        if (
            checkpoint is not None
            and spark.conf.get(_FILE_MANAGER, None) is None
            and _is_for_local_files(spark, checkpoint)
        ):
            needed[_FILE_MANAGER] = _FOR_LOCAL_FILES
        with settings(spark, needed):
            yield


@contextmanager
def settings(spark: SparkSession, needed: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session, for one thread at a time. The previous settings are restored afterwards."""
    with _STARTING:
        before = {name: spark.conf.get(name, None) for name in needed}
        try:
            _set(spark, needed)
            yield
        finally:
            _set(spark, before)


@contextmanager
def writing_parquet(spark: SparkSession) -> Iterator[None]:
    """Write Parquet files whose timestamps and old dates all readers understand, whatever the settings of the session.

    Several threads may write at the same time. The previous settings are restored after the last of them.
    """
    with _STARTING:
        before, writers = _WRITING.get(id(spark), ({}, 0))
        if not writers:
            before = {name: spark.conf.get(name, None) for name in _PARQUET_SETTINGS}
            _set(spark, _PARQUET_SETTINGS)
        _WRITING[id(spark)] = before, writers + 1
    try:
        yield
    finally:
        with _STARTING:
            before, writers = _WRITING.pop(id(spark))
            if writers > 1:
                _WRITING[id(spark)] = before, writers - 1
            else:
                _set(spark, before)


def _set(spark: SparkSession, values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def _is_for_local_files(spark: SparkSession, checkpoint: str) -> bool:
    shared = spark.conf.get(SHARED_FOLDERS, None) or ""
    return all_see(open_folder(spark, checkpoint), spark.conf.get("spark.master", None) or "", shared.split(","))


def all_see(folder: Folder, master: str, shared: Sequence[str]) -> bool:
    """Return whether the driver and all tasks see the same files on their local disks.

    Args:
        folder: The folder.
        master: The master of the session. On a cluster, the folder must be declared.
        shared: The folders that are declared to be shared.
    """
    if not isinstance(folder, LocalFolder):
        return False
    if master == "local" or master.startswith("local["):
        return True
    declared = [path.strip().rstrip("/") for path in shared]
    return any(path and f"{folder.path}/".startswith(f"{path}/") for path in declared)
